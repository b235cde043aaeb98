"""The sorted spool: every row once, whatever the pieces; pieces span few hashes and fit their size."""

from __future__ import annotations

import tempfile

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.budget import Budget
from penstock.spark.spool import SortedSpool
from tests.streams import examples

hashes = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 7, 2**63, 2**64 - 1]))
arrivals = st.lists(st.tuples(st.integers(0, 1), st.lists(hashes, min_size=1, max_size=20)), min_size=1, max_size=8)


def batch(values: list[int], first: int) -> pa.RecordBatch:
    ids = np.arange(first, first + len(values))
    return pa.record_batch({"h": pa.array(values, pa.uint64()), "t": pa.array(-ids), "id": pa.array(ids)})


@given(arrivals, st.sampled_from([1, 100, 500, 10_000]))
@examples(0.04)
def test_every_row_comes_back_once_on_its_port(arrivals, piece):
    budget = Budget(10**6)
    with tempfile.TemporaryDirectory() as folder:
        spool = SortedSpool(folder, 2, budget, piece)
        put: list[set[int]] = [set(), set()]
        count = 0
        for port, values in arrivals:
            spool.add(port, batch(values, count))
            put[port] |= set(range(count, count + len(values)))
            count += len(values)
        assert budget.held == 0
        got: list[list[int]] = [[], []]
        for port, rows in spool.pieces():
            got[port] += rows.column("id").to_pylist()
    assert [sorted(ids) for ids in got] == [sorted(ids) for ids in put]


def test_rows_are_sorted_as_many_at_a_time_as_there_is_room_for():
    rows = batch(list(range(1000)), 0)
    budget = Budget(rows.nbytes)
    with tempfile.TemporaryDirectory() as folder:
        spool = SortedSpool(folder, 1, budget, piece=1_000)
        with budget.hold(rows.nbytes // 2, "what a task holds besides"):
            spool.add(0, rows)
        got = [number for _, piece in spool.pieces() for number in piece.column("id").to_pylist()]
    assert sorted(got) == list(range(1000))
    assert budget.peak <= rows.nbytes


def test_a_piece_spans_a_part_of_the_hashes_only():
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as folder:
        spool = SortedSpool(folder, 1, Budget(10**9), piece=24_000)
        for turn in range(10):
            spool.add(0, batch(rng.integers(0, 2**64, 1000, np.uint64).tolist(), turn * 1000))
        spans = [np.ptp(rows.column("h").to_numpy().astype(float)) for _, rows in spool.pieces()]
    assert len(spans) >= 10
    assert max(spans) <= 2**64 / 9


def test_a_piece_is_no_larger_than_asked_however_frequent_a_key_is():
    with tempfile.TemporaryDirectory() as folder:
        spool = SortedSpool(folder, 1, Budget(10**9), piece=5_000)
        for turn in range(20):
            spool.add(0, batch([7] * 100, turn * 100))
        sizes = [rows.nbytes for _, rows in spool.pieces()]
    assert sum(sizes) == 20 * 2400
    assert max(sizes) <= 5_000
