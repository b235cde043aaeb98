"""Rows that wait come back in order of time, within the budget, in a bounded number of steps, however times lie."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.budget import Budget
from penstock.core.rows import HASH, TIME, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.operators.aggregate import partials
from penstock.operators.aggregate.buffer import Buffer
from tests.streams import EpochPages, examples

SCHEMA = pa.schema({HASH: pa.uint64(), TIME: pa.int64(), "x": pa.int64()})
times = st.one_of(
    st.integers(0, 3),
    st.integers(0, 100_000),
    st.integers(TIME_MIN, TIME_MAX - 1),
    st.integers(0, 62).map(lambda n: 2**n),
)
waiting = st.lists(st.tuples(st.sampled_from([0, 0, 1, 2**63, 2**64 - 1]), times), max_size=60)


def buffer(rows: list[tuple[int, int]], memory: int, pages: int) -> Buffer:
    held = Buffer(SCHEMA, 0, EpochPages(), Budget(1 << 30), [])
    whole = [pa.array([hash_ for hash_, _ in rows], pa.uint64()), pa.array([time for _, time in rows], pa.int64())]
    batch = pa.RecordBatch.from_arrays([*whole, pa.array(range(len(rows)), pa.int64())], schema=SCHEMA)
    for page in range(pages):
        held.add(batch.take(pa.array(np.arange(page, len(rows), pages))))
    held.budget = Budget(memory)
    return held


@given(waiting, st.one_of(st.just(TIME_MAX), times), st.sampled_from([100, 2_000, 20_000]), st.integers(1, 5))
@example([(0, n) for n in range(59)] + [(0, 2**62)], TIME_MAX, 2_000, 1).via("one clock is far ahead")
@example([(0, 7)] * 60, TIME_MAX, 2_000, 3).via("one moment has more than fits")
@example([(0, 1_000 * n) for n in range(40)], TIME_MAX, 100, 4).via("not even one row fits as it would be folded")
@examples(0.2)
def test_rows_come_back_by_time_within_the_budget_and_in_few_steps(rows, high, memory, pages):
    held = buffer(rows, memory, pages)
    steps = 0
    real = partials._part

    def counted(*asked):
        nonlocal steps
        steps += 1
        return real(*asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partials, "_part", counted)
        out = list(held.between(TIME_MIN, high))
    got = sorted(row for batch in out for row in batch.column(2).to_pylist())
    assert got == [n for n, (_, time) in enumerate(rows) if time < high or high == TIME_MAX]
    assert steps <= 20 * pages * (len(rows) + 1), "bounded by rows, not by how far apart their times are"
    assert held.budget.peak <= memory
    assert held.budget.held == 0
    seen = [(int(h), int(t)) for batch in out for h, t in zip(hashes_of(batch), times_of(batch), strict=True)]
    for mine in {hash_ for hash_, _ in rows}:
        assert all(a <= b for a, b in pairwise(time for hash_, time in seen if hash_ == mine))
