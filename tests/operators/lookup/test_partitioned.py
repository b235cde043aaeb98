"""The partitioned join: exact over both kinds of tables, its triggers and its cache event by event, and updates."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.core.master import Changes
from penstock.operators.lookup import Front, Partitioned, Stages
from penstock.operators.lookup.back import Desk
from penstock.operators.lookup.partitioned import Arrivals, replaced
from penstock.operators.lookup.segments import Segments
from penstock.storage.tables.arrow import ArrowTable, OpenArrowTable
from tests.operators.lookup.cases import TABLE, Case, Shard, cases, numbered, partitioned, run, skewed
from tests.oracle.partitioned import Reference
from tests.streams import examples


@dataclass(frozen=True)
class RangeTable(ArrowTable):
    """Partitions are ranges of keys, as a slot array maps them: keys that no row has have a partition, too."""

    def open(self, version=None):
        return OpenRangeTable(self.rows, self.keys, self.partition_rows)


class OpenRangeTable(OpenArrowTable):
    def __init__(self, rows, keys, partition_rows):
        super().__init__(rows, keys, partition_rows)
        self._range = partition_rows
        self._count = max(rows.column("k").to_pylist()) // self._range + 1

    @property
    def partitions(self):
        return self._count

    def partition_of(self, hashes, keys):
        return np.minimum(keys[0].to_numpy() // self._range, self.partitions - 1)

    def scan(self, partition):
        mine = self.partition_of(None, [self._rows.column("k")]) == partition
        return self._rows.filter(pa.array(mine))


def ranges(count: int, width: int) -> RangeTable:
    return RangeTable(numbered(count).rows, ("k",), width)


# 000-31: both variants are the batch join, each pair once


@pytest.mark.parametrize("table", [numbered(300, 20), ranges(300, 20)], ids=["hash", "range"])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_000_31_both_kinds_of_partitions_give_the_batch_join(table, how):
    join = Shard(table, Stages(Partitioned(wait=200, block=4, cache=3000)), how)
    keys = skewed(3000, 400)
    for some in np.split(keys, 10):
        join.rows(some.tolist())
    assert join.end().results == join.expected


@examples(0.3)
@given(cases(st.builds(Stages, back=partitioned(), front=st.none())))
def test_000_31_the_partitioned_join_equals_its_definition(case: Case):
    at_work = run(case)
    assert at_work.results == case.expected()
    assert at_work.peak <= case.memory


# 000-32: wait buffer, r_wb, N_invoke


def logged(monkeypatch, table, settings) -> tuple[Shard, list]:
    """A join that logs what it reads, joins and keeps."""
    log: list = []
    join = Shard(table, Stages(settings))
    opened = join.logic.desk.table

    def scan(self, partition, real=Desk.scan):
        log.append(("read", partition))
        return real(self, partition)

    def meet(self, rows, hashes, master, real=Desk.meet):
        partition = opened.partition_of(hashes, self.answers.keys(rows))
        assert len(set(partition.tolist())) == 1
        log.append(("join", int(partition[0]), rows.num_rows))
        return real(self, rows, hashes, master)

    def keep(self, partition, rows, real=Segments.keep):
        log.append(("keep", partition))
        real(self, partition, rows)

    def drop(self, partition, real=Segments.drop):
        log.append(("drop", partition))
        real(self, partition)

    monkeypatch.setattr(Desk, "scan", scan)
    monkeypatch.setattr(Desk, "meet", meet)
    monkeypatch.setattr(Segments, "keep", keep)
    monkeypatch.setattr(Segments, "drop", drop)
    return join, log


def by_hand(monkeypatch, batches, **settings) -> list:
    """The log of a join over four partitions of one key each, for keys by partition; partitions are 100 bytes."""
    join, log = logged(monkeypatch, ranges(4, 1), Partitioned(batch=1, **settings))
    for keys in batches:
        join.rows(keys)
    return log


def test_000_32_the_fullest_partitions_are_read_once_no_block_is_free_until_enough_are(monkeypatch):
    """4 blocks of 2 rows; 0 has two blocks, 1 and 2 one each: none is free. Until more than 0.4 · 4 are, 0 is read."""
    log = by_hand(monkeypatch, [[0], [0], [1], [0], [2]], wait=8, block=2, cache=0)
    assert log == [("read", 0), ("join", 0, 3)]


def test_000_32_the_larger_r_wb_is_the_more_partitions_are_read_at_once(monkeypatch):
    log = by_hand(monkeypatch, [[0], [0], [1], [0], [2]], wait=8, block=2, cache=0, refill=0.5)
    assert log == [("read", 0), ("join", 0, 3), ("read", 1), ("join", 1, 1)]


def test_000_32_n_invoke_rows_have_their_partition_read_while_nothing_arrives(monkeypatch):
    log = by_hand(monkeypatch, [[0, 0, 1], [0]], wait=100, block=2, cache=0, invoke=3)
    assert log == [("read", 0), ("join", 0, 3)]


def test_000_32_n_invoke_rows_wait_while_others_arrive(monkeypatch):
    log = by_hand(monkeypatch, [[0, 0, 0, 0, 1]], wait=100, block=2, cache=0, invoke=3)
    assert log == [("read", 0), ("join", 0, 4)]


def test_000_32_n_invoke_rows_are_read_for_at_once_if_asked_for(monkeypatch):
    log = by_hand(monkeypatch, [[0, 0, 0, 0, 1]], wait=100, block=2, cache=0, invoke=3, when="always")
    assert log == [("read", 0), ("join", 0, 3)]


def test_000_32_blocks_are_joined_above_the_high_mark_and_rows_again_below_the_low_one(monkeypatch):
    """Partition 0 is kept by the first read. Then nine of its rows come at once, blocks have two, the marks are 2, 1.

    After the first row 8 are behind it, more than 4: blocks. Pairs are joined until fewer than 2 rows are to come.
    """
    log = by_hand(monkeypatch, [[0], [0] * 9], wait=100, block=2, cache=10**6, invoke=1, high=2, low=1)
    assert log[:3] == [("read", 0), ("join", 0, 1), ("keep", 0)]
    assert log[3:] == [("join", 0, n) for n in (1, 2, 2, 2, 1, 1)]


@examples(0.3)
@given(
    partitioned(),
    st.lists(st.lists(st.integers(0, 7), max_size=25), max_size=6),
    st.sampled_from([1, 4, 12]),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([0, 60, 150, 400]),
)
def test_000_32_every_event_is_that_of_the_algorithm_row_by_row(settings, batches, wait, block, cache):
    settings = replace(settings, wait=wait, block=block, cache=cache, batch=1)
    table = RangeTable(numbered(20).rows, ("k",), 3)
    opened = table.open()
    reference = Reference(settings, [opened.scan(p).nbytes for p in range(opened.partitions)])
    with pytest.MonkeyPatch.context() as patch:
        join, log = logged(patch, table, settings)
        for batch in batches:
            join.rows([3 * partition % 20 for partition in batch])
            reference.arrive([(3 * partition % 20) // 3 for partition in batch])
            assert log == reference.log
        assert join.logic.back.arrivals.frequency.tolist() == pytest.approx(reference.frequency)
        assert join.logic.back.mode == reference.mode


# 000-33: the frequency cache


@examples(0.3)
@given(st.lists(st.integers(0, 4), max_size=100), st.sampled_from([0.0, 0.3, 0.9, 1.0]), st.integers(1, 12))
def test_000_33_the_recurrence_of_frequencies_is_its_closed_form(rows, alpha, every):
    """C after e epochs = Σ_j α^(e-j+1) c_j, and what came since."""
    arrivals = Arrivals(5, alpha, every)
    for some in np.array_split(np.array(rows, np.int64), 4):
        arrivals.count(some)
    epochs = [np.bincount(rows[at : at + every], minlength=5) for at in range(0, len(rows), every)]
    whole = len(rows) // every
    closed = sum((alpha ** (whole - j) * c for j, c in enumerate(epochs[:whole])), np.zeros(5))
    closed = closed + sum(epochs[whole:], np.zeros(5))
    assert arrivals.frequency.tolist() == pytest.approx(closed.tolist())


SIZES = st.integers(1, 10)
COUNTS = st.integers(0, 20)


@examples(0.3)
@given(st.lists(st.tuples(COUNTS, SIZES), max_size=5), st.integers(-3, 5), COUNTS, SIZES, st.sampled_from([0, 0.25, 1]))
def test_000_33_evictions_obey_6_1_and_6_2(kept, free, offered, size, rho):
    c, s = np.array([c for c, _ in kept], float), np.array([s for _, s in kept], np.int64)
    m = replaced(c, s, free, offered, size, rho)
    allowed = [n for n, (c_m, s_m) in enumerate(kept) if offered * s_m >= size * (1 + rho) * c_m and free + s_m >= size]
    assert (m is None) == (not allowed)
    if m is not None:
        assert m in allowed
        assert c[m] / s[m] == min(c[n] / s[n] for n in allowed)


def test_a_partition_as_frequent_as_the_least_kept_one_does_not_replace_it():
    """6.1 without (1 + ρ) would."""
    same = (np.array([4.0]), np.array([100]), 0, 4.0, 100)
    assert replaced(*same, rho=0.25) is None
    assert replaced(*same, rho=0.0) == 0


def test_a_partition_that_would_not_fit_replaces_nothing():
    """6.2: though it is much more frequent per byte."""
    assert replaced(np.array([1.0]), np.array([50]), 49, 90.0, 100, rho=0.25) is None
    assert replaced(np.array([1.0]), np.array([50]), 50, 90.0, 100, rho=0.25) == 0


def test_frequent_partitions_are_kept_and_their_rows_answered_without_a_read():
    join = Shard(numbered(1000, 10), Stages(Partitioned(wait=400, block=1, cache=1500)))
    join.rows(skewed(5000, 1000, 1.3).tolist())
    assert join.logic.desk.stats.at_hand > 0.4 * 5000
    assert join.logic.desk.stats.reads + join.logic.desk.stats.at_hand <= 5000, "a read at most for each other row"


def test_kept_partitions_are_charged_and_stay_below_what_they_may_take():
    join = Shard(numbered(1000, 10), Stages(Partitioned(wait=50, block=1)), memory=40_000)
    for some in np.split(skewed(600, 1000), 6):
        join.rows(some.tolist())
        segments = join.logic.back.segments
        assert len(segments) > 0
        assert segments.held == segments.sizes.sum() <= segments.limit == 20_000
        assert segments.held + join.logic.waiting.nbytes == join.budget.held


def test_kept_partitions_make_room_when_memory_is_short():
    join = Shard(numbered(1000, 10), Stages(Partitioned(wait=50, block=1)), memory=40_000)
    join.rows(skewed(600, 1000).tolist())
    before = join.logic.back.segments.held
    with join.budget.hold(join.budget.room - 1, "something else"):
        join.logic.back.segments.tidy(join.logic.back.arrivals.frequency)
        assert join.budget.room >= join.budget.limit // 4 or not len(join.logic.back.segments)
    assert join.logic.back.segments.held < before


def test_the_next_epoch_reads_what_was_kept_again_once_rows_come_for_it():
    join = Shard(ranges(40, 10), Stages(Partitioned(wait=100, block=10, invoke=2)))
    join.rows([1, 2, 11, 12])
    assert sorted(join.logic.back.segments.ids.tolist()) == [0, 1]
    frequency = join.logic.back.arrivals.frequency.tolist()
    join.again()
    assert join.logic.back.segments.recall == {0, 1}
    assert join.logic.back.arrivals.frequency.tolist() == frequency
    assert join.logic.desk.stats.reads == 0
    assert join.rows([3]).finished == 5
    assert join.logic.back.segments.ids.tolist() == [0]
    assert join.rows([4]).logic.desk.stats.reads == 1
    assert join.again().logic.back.segments.recall == {0, 1}, "what was not read again is not forgotten"


# 000-34: updates


@dataclass(frozen=True)
class Versioned(RangeTable):
    """A table that says which version it is."""

    version: str = "0"

    def open(self, version=None):
        opened = super().open()
        opened.version = self.version
        opened.changes = lambda since: Changes(None)
        return opened


def at(version: int, count: int = 40) -> Versioned:
    """All values changed: they name the version."""
    rows = pa.table({"k": range(count), "v": [f"{n} in {version}" for n in range(count)]}, TABLE)
    return Versioned(rows, ("k",), 10, str(version))


def values(join: Shard) -> dict[int, str]:
    return {n: v for _, n, _, v in join.results}


def updated(between) -> dict[int, str]:
    """Rows 0 and 1 are answered, 2 waits; the table changes; 3 comes for what is kept, 4 for what is not, 5 waits."""
    join = Shard(at(1), Stages(Partitioned(wait=100, block=10, invoke=2)))
    join.rows([1, 2, 11])
    between(join, at(2))
    join.rows([3, 12, 21])
    assert join.end().finished == 6
    return values(join)


def next_epoch(join: Shard, table: Versioned) -> None:
    join.again(table)


def at_once(join: Shard, table: Versioned) -> None:
    join.logic.desk.table = table.open()
    join.logic.back.renew()


EXPECTED = {0: "1 in 1", 1: "2 in 1", 2: "11 in 2", 3: "3 in 2", 4: "12 in 2", 5: "21 in 2"}


@pytest.mark.parametrize("between", [next_epoch, at_once])
def test_000_34_a_row_sees_the_version_that_is_current_when_it_is_joined(between):
    assert updated(between) == EXPECTED


def test_copies_that_do_not_know_their_version_are_found(monkeypatch):
    monkeypatch.setattr(Segments, "tidy", lambda self, worth: None)
    assert updated(next_epoch) == EXPECTED, "the next epoch keeps no copies"
    assert updated(at_once) == EXPECTED | {3: "3 in 1"}


@pytest.mark.parametrize("between", [next_epoch, at_once])
def test_a_table_that_is_cut_anew_sends_waiting_rows_elsewhere(between):
    join = Shard(at(1), Stages(Partitioned(wait=100, block=10)))
    join.rows([5, 35, 15])
    between(join, replace(at(2, 20), partition_rows=4))
    join.rows([6])
    assert join.end().results.total() == 3
    assert values(join) == {0: "5 in 2", 2: "15 in 2", 3: "6 in 2"}


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"refill": 1.0}, "refill=1.0 must be in [0, 1)."),
        ({"low": 0}, "low=0, high=100 must be blocks with 1 <= low <= high."),
        ({"alpha": 2}, "alpha=2 must be in [0, 1]."),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError) as refused:
        Partitioned(**settings)
    assert str(refused.value) == message


def test_the_front_stage_may_precede_it():
    join = Shard(numbered(300, 20), Stages(Partitioned(wait=200, block=1), Front(slots=10, threshold=1)), "left")
    for some in np.split(skewed(3000, 400), 10):
        join.rows(some.tolist())
    assert join.end().results == join.expected
    assert join.logic.front.stats.hits > 300
