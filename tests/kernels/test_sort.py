"""Orders of integers: equals stay as they were, and rows of pages go by unsigned hash, then by signed time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.sort import in_page_order, order_by, page_order, stable_order
from tests.streams import examples

hashes = st.one_of(st.integers(0, 3), st.sampled_from([2**63 - 1, 2**63, 2**64 - 1]))
times = st.one_of(st.integers(-3, 3), st.sampled_from([-(2**63), 2**63 - 1]))


@given(st.lists(st.tuples(hashes, times), max_size=30))
@examples(0.1)
def test_rows_are_sorted_by_hash_then_time_and_ties_stay_as_they_were(rows):
    order = page_order(np.array([h for h, _ in rows], np.uint64), np.array([t for _, t in rows], np.int64))
    assert order.tolist() == sorted(range(len(rows)), key=lambda place: (*rows[place], place))


@given(st.lists(st.tuples(hashes, times), max_size=4), st.booleans())
@examples(0.2)
def test_rows_are_known_to_be_in_order_only_if_they_are(rows, ordered):
    rows = sorted(rows) if ordered else rows
    found = in_page_order(np.array([h for h, _ in rows], np.uint64), np.array([t for _, t in rows], np.int64))
    assert found == (rows == sorted(rows))


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint8, np.uint64])
@pytest.mark.parametrize("spread", [2, 100, 2**62])
def test_any_integers_are_sorted_as_numpy_sorts_them(kind, spread):
    about = np.iinfo(kind)
    random = np.random.default_rng(spread)
    for size in (0, 1, 2, 3, 1000, 70_000):
        low, high = max(int(about.min), -spread), min(int(about.max), spread)
        numbers = random.integers(low, high, size, kind, endpoint=True)
        assert np.array_equal(stable_order(numbers), np.argsort(numbers, kind="stable"))


def test_numbers_that_differ_only_in_bits_that_gave_way_are_sorted_all_the_same():
    numbers = np.array([2**64 - 1, 3, 1, 2, 1, 0], np.uint64)
    numbers = np.concatenate([numbers, np.arange(1000, dtype=np.uint64)[::-1] + np.uint64(2**63)])
    assert np.array_equal(stable_order(numbers), np.argsort(numbers, kind="stable"))


def test_equal_numbers_among_hashes_stay_in_order():
    random = np.random.default_rng(1)
    few = random.choice(random.integers(0, 2**64, 100, np.uint64), 5000)
    later = random.integers(-(2**63), 2**63, 5000, np.int64)
    assert np.array_equal(stable_order(few), np.argsort(few, kind="stable"))
    assert np.array_equal(order_by([few, later]), np.lexsort((later, few)))
