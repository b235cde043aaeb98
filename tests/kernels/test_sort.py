"""The order of pages: by hash as an unsigned number, then by time as a signed one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.sort import page_order
from tests.streams import examples

hashes = st.one_of(st.integers(0, 3), st.sampled_from([2**63 - 1, 2**63, 2**64 - 1]))
times = st.one_of(st.integers(-3, 3), st.sampled_from([-(2**63), 2**63 - 1]))


@given(st.lists(st.tuples(hashes, times), max_size=30))
@examples(0.1)
def test_rows_are_sorted_by_hash_then_time_and_ties_stay_as_they_were(rows):
    order = page_order(np.array([h for h, _ in rows], np.uint64), np.array([t for _, t in rows], np.int64))
    assert order.tolist() == sorted(range(len(rows)), key=lambda place: (*rows[place], place))
