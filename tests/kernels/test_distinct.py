"""The first of each value, with labels that rows of several values share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.distinct import firsts, run_starts, same_rows
from tests.streams import examples

rows = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", None]), st.integers(0, 2)), max_size=30)


@given(rows)
@examples(0.1)
def test_the_first_of_each_value_whatever_shares_its_label(rows):
    rows = sorted(rows, key=lambda row: row[0])
    columns = [pa.array([row[1] for row in rows], pa.string()), pa.array([row[2] for row in rows], pa.int64())]
    expected = [row not in rows[:n] for n, row in enumerate(rows)]
    assert firsts(np.array([row[0] for row in rows], np.int64), columns).tolist() == expected


def test_no_rows_have_no_first():
    assert firsts(np.empty(0, np.int64), [pa.array([], pa.int64())]).tolist() == []
    assert run_starts(np.empty(0, np.int64)).tolist() == []


def test_nulls_are_the_same_and_nan_too():
    column = [pa.array([None, float("nan"), 1.0])]
    everything = np.arange(3)
    assert same_rows(column, everything, column, everything).all()
