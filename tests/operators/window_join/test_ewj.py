"""EWJ: memory in segments that never grows beyond its limit, and a disk that is written and read in long runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from statistics import mean

import pytest

from lab.join_equations import EwjWindow, ewj_seconds
from lab.simulated_disk import DiskModel, SimulatedDisk, VirtualClock
from penstock.core.within import band, windows
from penstock.operators.window_join import Ewj, EWJoin, WindowJoin
from penstock.planner.machine import Disk
from tests.streams import LEFT, RIGHT, Advance, Arrive, EpochEnd, EpochPages, Idle, Run, left, right, trace


def joining(within, method: Ewj | str, **kwargs) -> Run:
    return Run(WindowJoin((("k", "k"),), within, method=method), **kwargs)


def the_logic(join: Run) -> EWJoin:
    (logic,) = join.logics
    return logic


# 000-10


def in_memory(logic: EWJoin) -> int:
    """The sizes of recent, frequent and leaving blocks."""
    blocks = [
        block
        for port in (LEFT, RIGHT)
        for block in (*logic.recent_blocks(port), *logic.frequent[port].values(), *logic.leaving[port].values())
    ]
    assert len(set(map(id, blocks))) == len(blocks), "a block is in one segment"
    return sum(block.size for block in blocks)


@pytest.mark.parametrize("seed", range(6))
def test_the_segments_never_outgrow_the_memory(seed):
    """000-10: after every event of a trace, in its first epoch and in those after it."""
    case = trace(seed, "ewj")
    method = replace(case.method, memory=64, page=4, recent=0.6, frequent=0.2, invalidation=0.2)
    join = Run(replace(case.config, method=method), memory=case.memory)
    for event in case.events:
        join.on(EpochEnd(1) if isinstance(event, EpochEnd) else event)
        assert in_memory(the_logic(join)) <= method.memory
        for port in (LEFT, RIGHT):
            assert sum(block.size for block in the_logic(join).recent_blocks(port)) <= the_logic(join).recent_size
            assert sum(block.size for block in the_logic(join).frequent[port].values()) <= the_logic(join).frequent_size
            assert sum(block.size for block in the_logic(join).leaving[port].values()) <= the_logic(join).leaving_size


def test_with_default_parameters_the_budget_is_never_exceeded():
    """000-10: windows of 48 kB each, 30 kB for both in a task of 100 kB; a charge beyond the budget would raise."""
    join = joining(windows(1_500, 1_500), "ewj", memory=100_000)
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


# 000-13

HOT = Ewj(memory=40, page=2, row=1, chunk=4, recent=0.5, frequent=0.2, invalidation=0.3, probe=0.8, gain=1, refresh=1)
COLD = replace(HOT, frequent=0.0, invalidation=0.5)


def skewed() -> Iterator[Arrive]:
    """Two hot left rows, then cold ones; each right row meets the hot ones."""
    yield Arrive(LEFT, [{"k": 0, "t": 0, "id": -1}, {"k": 0, "t": 0, "id": -2}])
    for t in range(120):
        yield left(t=t, k=1000 + t)
        yield right(t=t, k=0)


def waits(method: Ewj) -> tuple[EWJoin, list[int]]:
    """For each pair, how many right rows came between its own and the moment it came out."""
    join = joining(band(500, 500), method)
    now, waited = 0, []
    for event in skewed():
        join.on(event)
        now = event.rows[0]["t"]
        waited += [now - row for out in join.out for row in out.column("id_right").to_pylist()]
        join.out.clear()
    return the_logic(join), waited


@pytest.mark.slow
def test_hot_blocks_are_kept_and_their_results_come_earlier():
    """000-13: the block that every row meets gets a place among the frequent ones and keeps it."""
    logic, waited = waits(HOT)
    hot = min(logic.windows[LEFT].blocks)
    assert hot in logic.frequent[LEFT]
    assert logic.windows[LEFT].resident[hot]
    without, waited_without = waits(COLD)
    assert not without.frequent[LEFT]
    assert mean(waited) < mean(waited_without) / 2


@pytest.mark.parametrize(("gain", "replaced"), [(0, True), (3, True), (4, False)])
def test_a_block_needs_more_than_the_gain_to_take_anothers_place(gain, replaced):
    """000-13: δ; a block with 5 matches against one with 1."""
    logic = the_logic(joining(band(5, 5), replace(HOT, gain=gain)))
    assert logic._beats(5, 1) is replaced


def test_productivity_decays_when_it_was_used():
    """000-13: α; the hot left block was met in memory by 8 rows, then it counts half."""
    join = joining(band(500, 500), replace(HOT, decay=0.5, recent=0.8, frequent=0.1, invalidation=0.1))
    join.on(Arrive(LEFT, [{"k": 0, "t": 0, "id": n} for n in range(2)]))
    logic = the_logic(join)
    (hot,) = logic.windows[LEFT].blocks
    join.on(Arrive(RIGHT, [{"k": 0, "t": 0, "id": n} for n in range(4)]))
    assert logic.windows[LEFT].productivity[hot] == 8
    join.on(Idle())
    assert logic.windows[LEFT].productivity[hot] == 4


# 000-14, 000-15: a disk of blocks of 8 rows, 8 to a basic window

MODEL = DiskModel(latency=0.003, seek=0.005, bandwidth=4000, block_bytes=8, window_blocks=8)
PLAIN = Ewj(memory=8 * 120, page=8, row=1, chunk=64, recent=2 / 3, frequent=0.0, invalidation=1 / 3, probe=0.9)


def uniform(until: int, window: int, batch: int) -> tuple[Run, SimulatedDisk, dict[int, float]]:
    """A row a second on either stream; what the disk has taken by each second."""
    clock = VirtualClock()
    disk = SimulatedDisk(EpochPages(), MODEL, clock, row_bytes=1)
    join = joining(windows(window, window), PLAIN, store=disk, meter=clock, memory=1 << 24)
    seconds = {}
    for start in range(0, until, batch):
        for port in (LEFT, RIGHT):
            join.on(Arrive(port, [{"k": 2 * t + port, "t": t, "id": t} for t in range(start, start + batch)]))
        for port in (LEFT, RIGHT):
            join.on(Advance(port, start + batch))
        seconds[start + batch] = clock.disk
    return join, disk, seconds


@pytest.mark.slow
@pytest.mark.parametrize("batch", [8, 5])
def test_a_mature_dump_is_one_sequential_write(batch):
    """000-14: one seek per basic window, in runs of as many blocks as were fresh; however rows arrive."""
    join, disk, _ = uniform(until=2000, window=1200, batch=batch)
    writes = [access for access in disk.log if access.kind == "write"]
    assert {access.segment for access in writes} == {"stream-0", "stream-1"}
    assert len(writes) == sum(the_logic(join)._probes) > 8
    for access in writes:
        assert access.blocks >= 0.9 * 40
        assert access.seeks == (access.end - 1) // MODEL.window_blocks - access.first // MODEL.window_blocks + 1


def test_the_cost_equations_agree_with_the_simulator():
    """000-15: 3.1 to 3.3 within a tenth, over four turns of a stream at a uniform rate."""
    window, turn = 1600, 36 * 8
    *_, seconds = uniform(until=window + 6 * turn, window=window, batch=8)
    simulated = seconds[window + 6 * turn] - seconds[window + 2 * turn]
    stream = EwjWindow(rows_per_second=1, row_bytes=1, recent=40, invalidation=20, on_disk=window / 8 - 60)
    predicted = ewj_seconds(Disk(**asdict(MODEL)), (stream, stream), PLAIN.probe, seconds=4 * turn)
    assert simulated == pytest.approx(predicted, rel=0.1)


# Quiet times


def test_an_idle_join_dumps_and_settles_but_not_twice_within_the_gap():
    join = joining(band(50, 50), replace(HOT, idle_gap=10))
    for event in (left(t=0, k=1), Advance(LEFT, 0), Advance(RIGHT, 0), Idle()):
        join.on(event)
    assert the_logic(join)._probes == [1, 0]
    for t, probes in [(5, 1), (9, 1), (10, 2)]:
        for event in (left(t=t, k=1), Advance(LEFT, t), Advance(RIGHT, t), Idle()):
            join.on(event)
        assert the_logic(join)._probes == [probes, 0]
