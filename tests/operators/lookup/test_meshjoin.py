"""MESHJOIN and R-MESHJOIN: every row meets every partition once, chunks may be short, the end takes one round."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.master import Changes
from penstock.operators.lookup import MeshJoin, Stages, meshjoin
from penstock.operators.lookup.back import Desk
from penstock.storage.tables.arrow import ArrowTable, OpenArrowTable
from tests.operators.lookup.cases import Case, Shard, backs, cases, numbered, run
from tests.streams import examples

TABLE = numbered(60, 10)
"""Six partitions."""


def traced(monkeypatch) -> tuple[Counter, list[int]]:
    """Which row met which partition how often, and the partitions in the order in which they were read."""
    met: Counter = Counter()
    scans: list[int] = []

    def scan(self, partition, real=Desk.scan):
        scans.append(partition)
        return real(self, partition)

    def meet(self, rows, hashes, master, compared=None, real=Desk.meet):
        met.update((n, scans[-1]) for n in rows.column("n").to_pylist())
        return real(self, rows, hashes, master, compared)

    # Rows that cannot match are left out before they meet a partition: here all are let through, to be seen.
    monkeypatch.setattr(meshjoin, "may_match", lambda hashes, master: np.ones(hashes.size, np.bool_))
    monkeypatch.setattr(Desk, "scan", scan)
    monkeypatch.setattr(Desk, "meet", meet)
    return met, scans


@pytest.mark.parametrize("slots", [1, 6, 13, 60, None])
@pytest.mark.parametrize("loads", [1, 2, 4])
def test_f01_000_28_each_row_meets_each_partition_once(monkeypatch, slots, loads):
    """F01, 000-28: also where epochs cut in."""
    met, _ = traced(monkeypatch)
    join = Shard(TABLE, Stages(MeshJoin(slots, loads)), "left")
    join.rows(range(25)).again().rows(range(40, 70)).rows([]).again().end()
    assert met == {(n, partition): 1 for n in range(55) for partition in range(6)}
    assert join.results == join.expected


def test_rows_that_cannot_match_a_partition_are_not_gathered_for_it_but_counted(monkeypatch):
    gathered, counted = [], []

    def meet(self, rows, hashes, master, compared=None, real=Desk.meet):
        gathered.append(rows.num_rows)
        counted.append(compared)
        return real(self, rows, hashes, master, compared)

    monkeypatch.setattr(Desk, "meet", meet)
    join = Shard(TABLE, Stages(MeshJoin(slots=60)), "left").rows(range(60)).end()
    assert join.results == join.expected
    assert sum(gathered) == 60, "a partition is a range of hashes, so each row may match in one only"
    assert sum(counted) == 6 * 60


def test_the_table_is_read_round_and_round(monkeypatch):
    _, scans = traced(monkeypatch)
    Shard(TABLE, Stages(MeshJoin(slots=6))).rows(range(20)).end()
    assert scans == [n % 6 for n in range(len(scans))]


def test_000_28_a_row_leaves_after_as_many_reads_as_there_are_partitions(monkeypatch):
    """000-28: with a chunk of one row, row n comes after n reads and leaves after n + 6."""
    _, scans = traced(monkeypatch)
    join = Shard(TABLE, Stages(MeshJoin(slots=6)), "left")
    for n in range(20):
        join.rows([1000])
        assert len(scans) == n
        assert join.finished == max(0, len(scans) - 5)


@pytest.mark.slow
@examples(0.3)
@given(st.lists(st.integers(0, 9), max_size=12))
def test_f02_000_28_bursts_and_silence_give_the_batch_join_and_the_end_takes_one_round(bursts):
    """F02."""
    with pytest.MonkeyPatch.context() as patch:
        _, scans = traced(patch)
        join = Shard(TABLE, Stages(MeshJoin(slots=12)), "left")
        for size in bursts:
            join.rows(np.arange(size) * 7 % 80)
        before = len(scans)
        join.end()
        assert len(scans) - before <= 6
        assert join.results == join.expected


@dataclass(frozen=True)
class Cut(ArrowTable):
    """The first partitions of a table, as another version of it."""

    left: int = 6

    def open(self, version=None):
        opened = OpenArrowTable(self.rows, self.keys, self.partition_rows)
        opened.version, opened.layout = str(self.left), "the same"
        opened._last = opened._last[: self.left]
        opened.changes = lambda since: Changes(None)
        return opened


@pytest.mark.parametrize("before", range(1, 6))
@pytest.mark.parametrize("after", [0, 1, 3, 6])
def test_a_table_that_becomes_shorter_lets_rows_go_that_wait_for_what_is_gone(monkeypatch, before, after):
    """Chunks of one row, one read later than the other. None meets a partition twice, nor one that is gone."""
    met, scans = traced(monkeypatch)
    join = Shard(Cut(TABLE.rows, ("k",), 10), Stages(MeshJoin(slots=6)), "left")
    for _ in range(4 + before):
        join.rows([1000])
    reads = len(scans)
    assert join.again(Cut(TABLE.rows, ("k",), 10, after)).end().finished == 4 + before
    assert set(met.values()) <= {1}
    assert set(scans[reads:]) <= set(range(after))
    assert all((4 + before - 1, partition) in met for partition in range(after))


@examples(0.3)
@given(cases(st.builds(Stages, back=backs(MeshJoin), front=st.none())))
def test_f01_f03_both_equal_their_definition(case: Case):
    """F01, F03."""
    assert run(case).results == case.expected()


def test_f03_r_meshjoin_lets_rows_in_at_the_beginning_of_logical_partitions_only():
    """F03: two loads each, so h_S / 3 = 4 rows enter every second read, none between."""
    join = Shard(TABLE, Stages(MeshJoin(slots=12, loads_per_logical=2)))
    join.rows(range(40))
    starts = Counter(join.logic.waiting.start.tolist())
    assert set(starts) <= {0, 2, 4}
    assert set(starts.values()) == {4}


def test_f03_the_chunk_of_r_meshjoin_does_not_depend_on_how_often_the_buffer_is_filled():
    """F03: with |R| doubled, MESHJOIN halves its chunk; R-MESHJOIN keeps it, if logical partitions grow with R."""
    assert (MeshJoin(1200).chunk(10), MeshJoin(1200).chunk(20)) == (120, 60)
    assert MeshJoin(1200, 2).chunk(10) == MeshJoin(1200, 4).chunk(20) == 240
