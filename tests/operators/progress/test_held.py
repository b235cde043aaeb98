"""Rows that wait leave in order within whatever memory there is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.core.budget import Budget
from penstock.core.rows import HASH, TIME, times_of
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.operators.progress.held import Held
from tests.items import is_sorted
from tests.streams import EpochPages

SCHEMA = pa.schema({HASH: pa.uint64(), TIME: pa.int64(), "text": pa.string()})


def filled(times: np.ndarray, memory: int, width: int = 1) -> tuple[Held, Budget]:
    budget = Budget(memory)
    held = Held(SCHEMA, EpochPages(), budget)
    columns = [np.arange(times.size, dtype=np.uint64) * 7919 % 1000, times, ["x" * width] * times.size]
    held.put(pa.record_batch(columns, schema=SCHEMA))
    return held, budget


@pytest.mark.parametrize("times", [np.random.default_rng(1).integers(0, 10**12, 5000), np.full(5000, 7)])
def test_far_more_rows_than_memory_leave_in_order(times):
    held, budget = filled(times, memory=400_000)
    out = [times_of(rows) for rows in held.take(TIME_MAX)]
    assert len(out) > 1
    assert is_sorted(np.concatenate(out))
    assert sorted(np.concatenate(out)) == sorted(times)
    assert budget.peak <= 400_000
    assert held.pages == []
    assert budget.held == 0


def test_what_has_left_does_not_leave_again():
    held, _ = filled(np.arange(10), memory=1 << 20)
    assert [times_of(rows).tolist() for rows in held.take(4)] == [[0, 1, 2, 3]]
    assert [times_of(rows).tolist() for rows in held.take(4)] == []
    assert held.rows == 6
    assert [times_of(rows).tolist() for rows in held.take(7)] == [[4, 5, 6]]


def test_both_ends_of_the_axis_leave():
    held, _ = filled(np.array([TIME_MAX, TIME_MIN]), memory=1 << 20)
    assert [times_of(rows).tolist() for rows in held.take(TIME_MAX)] == [[TIME_MIN, TIME_MAX]]
