"""Runs of sorted rows: the order that makes them, and what is least in each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.segments import sorted_by, totals


@given(
    st.lists(
        st.lists(st.sampled_from([-(2**63), -(2**62), -5, 0, 1, 2**62, 2**63 - 1]), min_size=6, max_size=6),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_rows_are_sorted_as_by_one_code_after_the_other(columns, hashed):
    """However few codes they are packed into."""
    codes = [np.array(column, np.int64) for column in columns]
    if hashed:
        codes[0] = codes[0].view(np.uint64)
    assert sorted_by(codes).tolist() == sorted(range(6), key=lambda row: [int(code[row]) for code in codes])


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40), max_size=20))
def test_totals_of_short_and_of_long_segments_are_sums_in_64_bits(segments):
    starts = np.cumsum([0, *(len(segment) for segment in segments)])[:-1]
    numbers = np.array([number for segment in segments for number in segment], np.int64)
    wrapped = [(sum(segment) + 2**63) % 2**64 - 2**63 for segment in segments]
    assert totals(numbers, starts).tolist() == wrapped
