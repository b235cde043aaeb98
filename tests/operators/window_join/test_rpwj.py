"""RPWJ: who is flushed, which task comes first, how finely rows are processed, and what leaves when."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.core.meter import Tally
from penstock.core.within import band, windows
from penstock.operators.window_join import Rpwj, RPWJoin, WindowJoin
from penstock.operators.window_join.rpwj import Task
from tests.streams import (
    LEFT,
    RIGHT,
    Advance,
    Arrive,
    Case,
    EpochEnd,
    Idle,
    Run,
    advance,
    keys_of,
    left,
    pairs_of,
    right,
    run,
    trace,
)

EVER = band(10_000, 10_000)


def joining(within, method: Rpwj | str, **kwargs) -> Run:
    return Run(WindowJoin((("k", "k"),), within, method=method), **kwargs)


def the_logic(join: Run) -> RPWJoin:
    (logic,) = join.logics
    return logic


def sizes_of(logic: RPWJoin) -> np.ndarray:
    """What waits, by port and partition."""
    return np.array([unborn.sizes for unborn in logic._unborn])


def arrive(port: int, partition: int, count: int, partitions: int = 3) -> Arrive:
    """Rows of one partition, all with the same key."""
    return Arrive(port, [{"k": keys_of(partition, partitions)[0], "t": 0, "id": n} for n in range(count)])


# Memory


@pytest.mark.parametrize("seed", range(6))
def test_what_is_held_never_outgrows_the_memory(seed):
    """As 000-10, where what a flush frees is more than what arrives at once."""
    case = trace(seed, "rpwj")
    method = replace(case.method, memory=64, page=2, partitions=3, flush=0.4)
    join = Run(replace(case.config, method=method), memory=case.memory)
    for event in case.events:
        join.on(EpochEnd(1) if isinstance(event, EpochEnd) else event)
        held = [block for side in the_logic(join).blocks.held for blocks in side for block in blocks]
        assert sum(block.size for block in held) <= method.memory


# 000-17


def rows(sides) -> list[list[int]]:
    """By port and partition."""
    return [[sum(block.rows for block in blocks) for blocks in side] for side in sides]


def test_the_partition_opposite_the_least_frequent_arrivals_is_flushed():
    """000-17: fewest rows came of the left partition 1, so it is the right one that is flushed, whole."""
    join = joining(EVER, Rpwj(memory=100, page=1, row=1, partitions=3, flush=0.01))
    for event in (
        *(arrive(LEFT, partition, count) for partition, count in enumerate((5, 1, 4))),
        *(arrive(RIGHT, partition, count) for partition, count in enumerate((2, 3, 6))),
    ):
        join.on(event)
    logic = the_logic(join)
    assert logic.arrivals.tolist() == [[5, 1, 4], [2, 3, 6]]
    logic.flush()
    assert rows(logic.blocks.flushed) == [[0, 0, 0], [0, 3, 0]]
    assert rows(logic.blocks.held) == [[5, 1, 4], [2, 0, 6]]


def test_partitions_are_flushed_in_that_order_until_enough_is_free():
    """000-17: 3 rows of the right partition 1 (opposite C = 1), then 5 of the left 0 (C = 2): 8 of the 8 wanted."""
    join = joining(EVER, Rpwj(memory=20, page=1, row=1, partitions=3, flush=0.4))
    for event in (
        *(arrive(LEFT, partition, count) for partition, count in enumerate((5, 1, 4))),
        *(arrive(RIGHT, partition, count) for partition, count in enumerate((2, 3, 4))),
    ):
        join.on(event)
    assert rows(the_logic(join).blocks.flushed) == [[0, 0, 0], [0, 0, 0]]
    join.on(arrive(RIGHT, 2, 2))
    assert rows(the_logic(join).blocks.flushed) == [[5, 0, 0], [0, 3, 0]]
    assert the_logic(join).blocks.runs.tolist() == [[1, 0, 0], [0, 1, 0]]


def test_arrivals_of_long_ago_count_less():
    """000-17: C ← α·C every epoch of counting."""
    join = joining(EVER, Rpwj(memory=100, page=1, row=1, partitions=1, decay=0.5, count_epoch=10))
    for t, counted in ((0, 1), (9, 2), (10, 1.5), (19, 2.5), (25, 1.75)):
        for event in (advance(left=t), advance(right=t), left(t=t, k=1)):
            join.on(event)
        assert the_logic(join).arrivals[LEFT, 0] == counted


# 000-18

MEASURED = Rpwj(memory=12, page=2, row=1, chunk=4, partitions=3, flush=0.3, read_memory=60, idle_gap=0, high_mark=2)


def random_arrivals(count: int) -> list[Arrive]:
    rng = np.random.default_rng(18)
    sizes = rng.choice([1, 2, 5], count)
    return [arrive(int(rng.integers(2)), int(rng.integers(3)), int(size)) for size in sizes]


def unjoined(join: Run, arrived: np.ndarray) -> list[int]:
    """By brute force: of each partition, all pairs of rows that were born, but for those that came out."""
    keys = {keys_of(partition, 3)[0]: partition for partition in range(3)}
    waiting = sizes_of(the_logic(join))
    total = (arrived - waiting)[LEFT] * (arrived - waiting)[RIGHT]
    for out in join.out:
        for key in out.column("k").to_pylist():
            total[keys[key]] -= 1
    return total.tolist()


def expected(logic: RPWJoin) -> list[float]:
    return (logic.tasks.md.sum(axis=0) + logic.tasks.dd).tolist()


def test_the_expected_results_are_the_pairs_not_joined_yet():
    """000-18: Er against a count of all pairs without expiry, each partition having one key only; tasks in between."""
    join = joining(EVER, MEASURED)
    logic = the_logic(join)
    arrived, found = np.zeros((2, 3)), set()
    for n, event in enumerate(random_arrivals(60)):
        join.on(event)
        arrived[event.port, [keys_of(p, 3)[0] for p in range(3)].index(event.rows[0]["k"])] += len(event.rows)
        assert expected(logic) == unjoined(join, arrived)
        task = logic.tasks.all[n % 9]
        promised, before = logic.tasks.expected(task), len(join.out)
        found |= {task.kind} if promised else set()
        join.take(logic.run_task(task))
        assert sum(out.num_rows for out in join.out[before:]) == promised
        assert expected(logic) == unjoined(join, arrived)
    assert found == {"md", "dd"}


def seconds(logic: RPWJoin, task: Task) -> float:
    """(4.1), (4.2), (4.3) as printed, for bytes that are rows here."""
    settings, p = MEASURED, task.partition
    size = [sum(block.rows for block in logic.blocks.flushed[port][p]) for port in (LEFT, RIGHT)]
    runs = logic.blocks.runs[:, p]
    if task.kind == "md":
        other = 1 - task.port
        accesses = runs[other] + size[other] / settings.read_memory
        return accesses * settings.access_time + size[other] / settings.read_rate
    scans = [
        (runs[port] + 2 * size[port] / settings.read_memory) * settings.access_time + size[port] / settings.read_rate
        for port in (LEFT, RIGHT)
    ]
    return scans[LEFT] + 2 * size[LEFT] / settings.read_memory * scans[RIGHT]


class Once:
    """An allowance for one task."""

    def __init__(self) -> None:
        self.asked = 0

    def left(self) -> bool:
        self.asked += 1
        return self.asked == 1


def test_an_idle_join_runs_the_task_with_the_most_expected_results_per_second():
    """000-18: chosen = argmax Er/Et, with the costs of 4.1 to 4.3."""
    join = joining(EVER, MEASURED)
    logic = the_logic(join)
    kinds = set()
    for n, event in enumerate(random_arrivals(100)):
        join.on(event)
        rate = {t: logic.tasks.expected(t) / seconds(logic, t) for t in logic.tasks.all if logic.tasks.expected(t)}
        assert logic.tasks.best() == (max(rate, key=rate.get) if rate else None)
        if rate and n % 9 == 8:
            best = logic.tasks.best()
            kinds.add(best.kind)
            promised, before = logic.tasks.expected(best), len(join.out)
            join.take(logic._react(Once()))
            assert sum(out.num_rows for out in join.out[before:]) == promised
            assert logic.tasks.expected(best) == 0
    assert kinds == {"md", "dd"}


def test_an_idle_join_does_not_react_twice_within_the_gap():
    join = joining(EVER, replace(MEASURED, memory=2, partitions=1, idle_gap=15))
    for event in (left(t=0, k=1), left(t=0, k=1), left(t=0, k=1), right(t=0, k=1)):
        join.on(event)
    counts = []
    for t in (0, 14, 15):
        for event in (advance(left=t), advance(right=t), Idle(), right(t=t, k=1)):
            join.on(event)
        counts.append(
            the_logic(join).tasks.expected(Task("md", RIGHT, 0)) + the_logic(join).tasks.expected(Task("dd", LEFT, 0))
        )
    assert counts[0] < counts[1], "the second right row is still owed its joins"
    assert counts[2] == counts[0]


# 000-19

MARKS = Rpwj(memory=40, page=2, row=1, partitions=2, high_mark=3, low_mark=2)


def test_granularity_changes_above_the_high_mark_and_below_the_low_one():
    """000-19: in blocks of two rows, above 3 at once, below 2 at once."""
    join = joining(EVER, MARKS)
    seen = []
    for count in (1, 6, 7, 4, 3, 6, 20, 5, 4, 1):
        join.on(arrive(LEFT, 0, count))
        seen.append(the_logic(join).granularity)
    assert seen == ["tuple", "tuple", "block", "block", "tuple", "tuple", "block", "block", "block", "tuple"]


def test_rows_that_wait_for_a_block_are_born_when_rows_are_processed_as_they_come_again():
    """000-19."""
    join = joining(EVER, MARKS)
    for event in (arrive(RIGHT, 0, 1, partitions=2), arrive(LEFT, 1, 9, partitions=2)):
        join.on(event)
    assert sizes_of(the_logic(join)).tolist() == [[0, 1], [0, 0]]
    join.on(arrive(LEFT, 0, 3, partitions=2))
    assert sizes_of(the_logic(join)).tolist() == [[0, 0], [0, 0]]
    assert join.results.total() == 3


def test_the_meter_is_told_how_finely_rows_look_for_partners():
    """000-19: single rows pay for a scan of the partition each, rows in blocks share it."""
    told = {"tuple": 0, "block": 0}

    class Told(Tally):
        def probe(self, pending, stored, by):
            told[by] += int(pending.sum())

    join = joining(EVER, MARKS, meter=Told())
    for event in (arrive(RIGHT, 0, 2), arrive(LEFT, 0, 3), arrive(LEFT, 0, 8)):
        join.on(event)
    assert told == {"tuple": 2 + 3, "block": 8}


@pytest.mark.parametrize("seed", range(4))
def test_either_granularity_gives_the_same_results(seed):
    """000-19."""
    case = trace(seed, "rpwj")
    fine, coarse = (run(replace(case, method=replace(case.method, high_mark=mark, low_mark=1))) for mark in (10_000, 0))
    assert fine.results == coarse.results == case.expected()


# Slides


def test_rows_leave_at_the_slide_and_not_before():
    """A left row at 5 meets right rows up to 8. With a slide of 4, bounds from 9 to 11 count as 8, so it stays."""
    case = Case(windows(left=3, right=2), "left", [left(t=5, k=1)], method=Rpwj(memory=9, page=1, row=1, slide=4))
    join = Run(case.config)
    join.on(case.events[0])
    for bound, out in ((9, []), (11, []), (12, [(5, None)])):
        join.on(Advance(RIGHT, bound))
        assert list(join.results) == out


def test_the_slide_is_a_tenth_of_both_windows_if_nothing_is_said():
    assert WindowJoin((("k", "k"),), windows(30, 20), method="rpwj").slide == 5
    assert WindowJoin((("k", "k"),), windows(3, 2), method="rpwj").slide == 1
    assert WindowJoin((("k", "k"),), windows(30, 20), method=Rpwj(slide=7)).slide == 7
    assert WindowJoin((("k", "k"),), windows(30, 20), method="ewj").slide == 1


def test_results_of_a_slide_come_before_its_rows_leave():
    """Stage 3: the pair is owed by the disk; it comes with the bound that lets the left row go."""
    join = joining(windows(3, 3), Rpwj(memory=2, page=1, row=1, partitions=1, slide=1))
    for event in (left(t=5, k=1), left(t=5, k=2), right(t=6, k=3), right(t=6, k=1)):
        join.on(event)
    assert not join.results, "the left rows were flushed before"
    join.on(advance(right=9))
    assert pairs_of(join.out) == {(5, 6): 1}
