"""AH-EWJ: partitions by age, memory that moves to the slower stream, writes in trains, and work in quiet times."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from statistics import mean

import numpy as np
import pytest

from lab.simulated_disk import DiskModel, SimulatedDisk, VirtualClock
from penstock.core.within import Band, band, windows
from penstock.operators.window_join import AhEwj, AHEWJoin, WindowJoin
from tests.streams import (
    LEFT,
    RIGHT,
    Advance,
    Arrive,
    EpochEnd,
    EpochPages,
    Event,
    Idle,
    Run,
    keys_of,
    left,
    right,
    trace,
)


def joining(within: Band, method: AhEwj | str, **kwargs) -> Run:
    return Run(WindowJoin((("k", "k"),), within, method=method), **kwargs)


def the_logic(join: Run) -> AHEWJoin:
    (logic,) = join.logics
    return logic


# Memory


@pytest.mark.parametrize("seed", range(6))
def test_the_segments_never_outgrow_the_memory(seed):
    """As 000-10. Rows that wait for a full block are besides: less than a page for each partition."""
    case = trace(seed, "ah_ewj")
    method = replace(case.method, memory=96, page=2, partitions=3, recent=0.6, frequent=0.2, invalidation=0.2)
    join = Run(replace(case.config, method=method), memory=case.memory)
    for event in case.events:
        join.on(EpochEnd(1) if isinstance(event, EpochEnd) else event)
        logic = the_logic(join)
        assert logic.recent_bytes(LEFT) + logic.recent_bytes(RIGHT) <= logic.recent_size
        for port in (LEFT, RIGHT):
            assert sum(block.size for block in logic.frequent[port].values()) <= logic.frequent_size
            assert sum(block.size for block in logic.leaving[port].values()) <= logic.leaving_size
            assert sum(slab.rows for slab in logic._unborn[port].slabs) <= method.partitions * (method.page - 1)


def test_with_default_parameters_the_budget_is_never_exceeded():
    """Windows of 48 kB each, 30 kB for both in a task of 100 kB; a charge beyond the budget would raise."""
    join = joining(windows(1_500, 1_500), "ah_ewj", memory=100_000)
    for start in range(0, 2_500, 250):
        for port in (LEFT, RIGHT):
            join.on(Arrive(port, [{"k": t % 997, "t": t, "id": t} for t in range(start, start + 250)]))
            join.on(Advance(port, start + 250))
    join.end()
    same_key = [(a, b) for key in range(997) for a in range(key, 2_500, 997) for b in range(key, 2_500, 997)]
    assert join.results == Counter((a, b) for a, b in same_key if abs(a - b) <= 1_500)
    assert join.budget.peak <= 100_000
    assert join.held == 0
    assert join.budget.held == 0


# 000-21


def in_step(seed: int) -> list[Event]:
    """Both streams progress together; rates and keys are random."""
    rng = np.random.default_rng(seed)
    events: list[Event] = []
    for t in range(0, 90, 3):
        for port in (LEFT, RIGHT):
            count = int(rng.choice([0, 1, 4, 9]))
            events.append(Arrive(port, [{"k": int(rng.integers(12)), "t": t + n % 3, "id": t} for n in range(count)]))
        events += [Advance(LEFT, t + 3), Advance(RIGHT, t + 3), *([Idle()] if rng.random() < 0.2 else [])]
    return events


def ages(logic: AHEWJoin, port: int, partition: int) -> str:
    """The recent blocks of a partition, oldest first: Flushed, stale or fresh."""
    blocks = logic.recent[port].get(partition, ())
    return "".join(
        "fresh " if logic.windows[port].is_fresh(block) else "stale " if block.page is None else "flushed "
        for block in blocks
    )


@pytest.mark.parametrize("seed", range(3))
def test_in_every_partition_flushed_blocks_come_before_stale_ones_and_fresh_ones_last(seed):
    """000-21: after every step."""
    method = AhEwj(memory=60, page=2, row=1, chunk=6, partitions=3, flush=6, probe=0.9, refresh=2)
    join = joining(windows(40, 30), method)
    seen = set()
    for event in in_step(seed):
        join.on(event)
        for port in (LEFT, RIGHT):
            for partition in range(method.partitions):
                order = ages(the_logic(join), port, partition)
                assert re.fullmatch("(flushed )*(stale )*(fresh )*", order)
                seen |= set(order.split())
    assert seen == {"flushed", "stale", "fresh"}


# 000-22


def with_stale_blocks(first: int, count: int, partitions: int = 4) -> AHEWJoin:
    """Blocks of one row numbered from `first`, none of which owes anything or is on disk; trains of 3 flushes of 6."""
    method = AhEwj(memory=10_000, page=1, row=1, partitions=partitions, flush=6, train=3)
    join = joining(band(1, 1), method)
    logic = the_logic(join)
    logic.windows[LEFT]._next = first
    logic.dumped[LEFT] = logic.train_limits[LEFT] = first
    rng = np.random.default_rng(22)
    for t in range(count):
        join.on(left(t=t, k=int(rng.integers(50))))
    list(logic.settle(LEFT))
    return logic


def test_a_train_of_18_takes_three_dumps_of_6_and_ends_at_48_then_at_66():
    """000-22: the sequence of Fig 5.3."""
    logic = with_stale_blocks(first=30, count=54)
    window = logic.windows[LEFT]
    for limit in (48, 48, 48, 66, 66, 66, 84, 84, 84):
        logic.dump(LEFT, 6)
        assert logic.train_limits[LEFT] == limit
        assert max(window.disk) < limit
    written = list(window.disk)
    assert sorted(written) == list(range(30, 84))
    for train in (written[:18], written[18:36], written[36:]):
        assert max(train) - min(train) < 18
        partitions = [window.blocks[number].partition for number in train]
        assert sum(a != b for a, b in pairwise(partitions)) <= 3 + 1, "each partition in one go, but for the cursor's"
    assert max(abs(place - (number - 30)) for place, number in enumerate(written)) < 18


def printed_dump(logic: AHEWJoin, port: int, count: int) -> None:
    """Alg 5 as printed: the limit moves on when it is met exactly, and once."""
    for _ in range(count):
        if logic.dumped[port] == logic.train_limits[port]:
            logic.train_limits[port] += logic.train
        block = logic._next_of_train(port)
        if block is not None:
            logic.windows[port].dump(block, "stream-0")
            logic.dumped[port] += 1


@pytest.mark.parametrize(("dump", "written"), [(AHEWJoin.dump, 6), (printed_dump, 0)], ids=["ours", "as printed"])
def test_the_train_moves_on_past_blocks_that_went_by_another_way(dump, written):
    """000-22, erratum 7: blocks 1 to 40 passed the disk by. As printed, nothing can be written or leave any more."""
    logic = with_stale_blocks(first=1, count=60)
    for number in range(1, 41):
        block = logic.windows[LEFT].blocks[number]
        logic._gone(LEFT, block)
        logic.windows[LEFT].drop(block)
    dump(logic, LEFT, 6)
    assert len(logic.windows[LEFT].disk) == written
    assert all(41 <= number < logic.train_limits[LEFT] for number in logic.windows[LEFT].disk)


# 000-23


def rates(*phases: tuple[int, int, int]) -> list[Event]:
    """Phases of so many steps with so many left and right rows in each."""
    events: list[Event] = []
    t = 0
    for steps, *counts in phases:
        for _ in range(steps):
            t += 1
            for port, count in enumerate(counts):
                events.append(Arrive(port, [{"k": (7 * t + n) % 40, "t": t, "id": t} for n in range(count)]))
            events += [Advance(LEFT, t), Advance(RIGHT, t)]
    return events


@pytest.mark.slow
def test_memory_moves_to_the_slower_stream_and_the_faster_keeps_the_least():
    """000-23: left is six times faster, then right is; whoever is slower holds most of the recent memory."""
    parts = {"recent": 0.5, "frequent": 0.2, "invalidation": 0.3, "least": 0.3}
    join = joining(windows(200, 200), AhEwj(memory=120, page=1, row=1, chunk=8, partitions=2, **parts))
    logic = the_logic(join)
    assert (logic.recent_size, logic.least_size) == (60, 18)
    held = []
    for event in rates((60, 6, 1), (60, 1, 6)):
        join.on(event)
        held.append((logic.recent_bytes(LEFT), logic.recent_bytes(RIGHT)))
    for port in (LEFT, RIGHT):
        sizes = [sizes[port] for sizes in held]
        reached = next(n for n, size in enumerate(sizes) if size >= logic.least_size)
        assert min(sizes[reached:]) >= logic.least_size
    fast_left, fast_right = held[len(held) // 2 - 1], held[-1]
    assert fast_left[LEFT] < 23 < 37 < fast_left[RIGHT]
    assert fast_right[RIGHT] < 23 < 37 < fast_right[LEFT]


@pytest.mark.parametrize(
    ("arrivals", "size", "settled", "supplies"),
    [
        ((14.0, 10.0), 40, True, True),
        ((13.9, 10.0), 40, True, False),
        ((14.0, 10.0), 36, True, False),
        ((14.0, 10.0), 40, False, False),
    ],
    ids=["faster by ρ, above its least, settled", "not faster enough", "at its least", "all fresh"],
)
def test_a_stream_supplies_memory_only_if_all_of_eq_5_1_holds(arrivals, size, settled, supplies):
    """000-23, erratum 9: something must be stale or flushed, and it is the supplier that stays above the least."""
    method = AhEwj(
        memory=240, page=2, row=1, partitions=1, recent=0.5, frequent=0.2, invalidation=0.3, least=0.3, probe=1.0
    )
    join = joining(windows(200, 200), method)
    join.on(Arrive(LEFT, [{"k": n, "t": 0, "id": n} for n in range(size)]))
    logic = the_logic(join)
    window = logic.windows[LEFT]
    for block in window.blocks.values():
        window.settled[block.number] = window.newest[block.number] if settled else 0
    logic.arrivals = list(arrivals)
    assert logic._can_supply(LEFT) is supplies


# 000-24


def test_the_victim_is_the_oldest_flushed_block_of_the_least_productive_partition():
    """000-24: partition 0 has the least productive block, but partition 1 yields less on average; 2 is not on disk."""
    method = AhEwj(memory=10_000, page=1, row=1, partitions=3, flush=100)
    join = joining(band(1, 1), method)
    logic = the_logic(join)
    for t, partition in enumerate((0, 0, 1, 1, 2)):
        join.on(left(t=t, k=keys_of(partition, 3)[0]))
    blocks = {partition: list(logic.recent[LEFT][partition]) for partition in range(3)}
    list(logic.settle(LEFT))
    for block in blocks[0] + blocks[1]:
        logic.windows[LEFT].dump(block, "stream-0")
    for partition, productivities in ((0, (0, 50)), (1, (20, 10)), (2, (1,))):
        for block, productivity in zip(blocks[partition], productivities, strict=True):
            logic.windows[LEFT].productivity[block.number] = productivity
    assert logic._victim(LEFT) is blocks[1][0]


# 000-25


def disk_log(invalidation: float) -> tuple:
    """A steady stream whose window of 25 rows exceeds the 20 of recent memory."""
    disk = SimulatedDisk(EpochPages(), DiskModel(block_bytes=2, window_blocks=4), VirtualClock(), row_bytes=1)
    recent, rest = 0.4, 0.6 - invalidation
    method = AhEwj(
        memory=100, page=2, row=1, chunk=4, partitions=2, recent=recent, frequent=rest, invalidation=invalidation
    )
    join = joining(windows(24, 24), method, store=disk)
    for event in rates((100, 1, 1)):
        join.on(event)
    assert join.results.total() > 0
    return disk.log, the_logic(join).leaving


def test_a_window_that_fits_the_memory_never_sees_the_disk():
    """000-25: what leaves the recent memory goes past the disk to the window's end."""
    log, leaving = disk_log(invalidation=0.6)
    assert log == ()
    assert any(leaving)


def test_a_window_that_does_not_fit_is_written():
    log, _ = disk_log(invalidation=0.1)
    assert any(access.kind == "write" for access in log)


# 000-26


def bursts(idle: Idle) -> list[Event]:
    """Left rows that go to disk; then now and then a right row that meets one of them, and long quiet times."""
    events: list[Event] = [Arrive(LEFT, [{"k": n, "t": 0, "id": 0} for n in range(60)])]
    for t in range(1, 100):
        events += [right(t=t, k=t % 60)] if t % 10 == 0 else []
        events += [Advance(LEFT, t), Advance(RIGHT, t), idle]
    return events


SMALL = AhEwj(memory=20, page=2, row=1, chunk=4, partitions=2, idle_gap=5)


def delays(idle: Idle) -> list[int]:
    """How long after its right row each pair came out."""
    join = joining(windows(200, 200), SMALL)
    now, waited = 0, []
    for event in [*bursts(idle), None]:
        join.on(event) if event is not None else join.end()
        now = event.bound if isinstance(event, Advance) else now
        waited += [now - row for out in join.out for row in out.column("id_right").to_pylist()]
        join.out.clear()
    return waited


def test_probing_in_quiet_times_makes_results_come_earlier():
    """000-26: delay falls against a join that is given no time."""
    with_, without = delays(Idle(work=True)), delays(Idle(work=False))
    assert len(with_) == len(without)
    assert mean(with_) < mean(without) / 5


def test_an_idle_join_does_not_probe_twice_within_the_gap():
    """000-26: fresh rows come at every step, time to work as well; the disk is probed every 15 steps."""
    join = joining(windows(200, 200), replace(SMALL, memory=400, idle_gap=15))
    probes = []
    for t in range(60):
        for event in (left(t=t, k=t), Advance(LEFT, t), Advance(RIGHT, t), Idle()):
            join.on(event)
        probes.append(the_logic(join)._probes[LEFT])
    assert [t for t, (before, after) in enumerate(pairwise([0, *probes])) if after > before] == [0, 15, 30, 45]


def test_rows_that_wait_for_a_full_block_are_born_in_quiet_times():
    """Without an idle time the pair would wait until its rows leave."""
    join = joining(windows(200, 200), SMALL)
    for event in (left(t=1, k=1), right(t=1, k=1)):
        join.on(event)
    assert not join.results
    join.on(Idle(work=False))
    assert list(join.results) == [(1, 1)]
