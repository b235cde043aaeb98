import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.kernels.match import SHORT, expand, ranges, same_hash, take

INT64 = np.iinfo(np.int64)
UINT64 = np.iinfo(np.uint64)

hashes = st.sampled_from([0, 1, 2, 3, UINT64.max])
hot_or_any_hash = st.one_of(st.just(2), hashes)
times = st.one_of(st.integers(-3, 3), st.sampled_from([INT64.min, INT64.min + 1, INT64.max - 1, INT64.max]))
pages = st.lists(st.tuples(hot_or_any_hash, times), max_size=4 * SHORT).map(sorted)
arrivals = st.lists(st.tuples(hot_or_any_hash, times, times), max_size=12).map(sorted)
counts = st.lists(st.one_of(st.just(0), st.integers(0, 9)), max_size=8)


def matches(page, needles):
    """Run ``ranges`` on lists of rows and list the pairs of positions that it stands for."""
    begin, end = ranges(
        np.array([h for h, _ in page], np.uint64),
        np.array([t for _, t in page], np.int64),
        np.array([h for h, _, _ in needles], np.uint64),
        np.array([lo for _, lo, _ in needles], np.int64),
        np.array([hi for _, _, hi in needles], np.int64),
    )
    assert begin.dtype == end.dtype == np.int64
    assert begin.shape == end.shape == (len(needles),)
    assert (begin <= end).all()
    return [(i, j) for i in range(len(needles)) for j in range(begin[i], end[i])]


def chunks(begin, end, limit):
    found = expand(np.array(begin, np.int64), np.array(end, np.int64), limit)
    return [list(zip(needle.tolist(), row.tolist(), strict=True)) for needle, row in found]


def by_definition(page, needles):
    return [
        (i, j)
        for i, (needle_hash, lo, hi) in enumerate(needles)
        for j, (page_hash, time) in enumerate(page)
        if page_hash == needle_hash and lo <= time <= hi
    ]


def test_a_needle_matches_the_rows_of_its_hash_whose_time_lies_in_its_closed_band():
    page = [(1, 10), (1, 20), (1, 20), (1, 30), (5, 20)]
    needles = [(0, 0, 99), (1, 0, 9), (1, 10, 20), (1, 25, 99), (5, 20, 20), (9, 0, 99)]
    assert matches(page, needles) == [(2, 0), (2, 1), (2, 2), (3, 3), (4, 4)]


def test_a_band_that_ends_before_it_starts_matches_nothing():
    assert matches([(1, 10), (1, 20), (1, 30)], [(1, 30, 10)]) == []


@given(pages, arrivals)
@example([(2, INT64.min), (2, INT64.max)], [(2, INT64.min, INT64.max)])
@example([(0, 0), (UINT64.max, 0)], [(0, 0, 0), (UINT64.max, 0, 0)])
@example([(2, t) for t in range(10 * SHORT)], [(2, t, 2 * t) for t in range(10 * SHORT)])
def test_ranges_equal_their_definition(page, needles):
    assert matches(page, needles) == by_definition(page, needles)


@given(pages, st.permutations([(h, lo, lo + 1) for h in (0, 2, 3) for lo in (-2, 0, 2)]))
def test_the_order_of_the_needles_does_not_change_what_they_match(page, needles):
    assert matches(page, needles) == by_definition(page, needles)


def test_ranges_use_memory_for_the_needles_but_not_for_the_page():
    page_hash = np.repeat(np.arange(100_000, dtype=np.uint64), 10)
    page_time = np.tile(np.arange(10), 100_000)
    page_hash.flags.writeable = page_time.flags.writeable = False
    needle_hash, lo, hi = np.array([5, 70_000], np.uint64), np.array([3, 0]), np.array([4, 9])
    tracemalloc.start()
    try:
        begin, end = ranges(page_hash, page_time, needle_hash, lo, hi)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (begin.tolist(), end.tolist()) == ([53, 700_000], [55, 700_010])
    assert peak < 20_000


def test_expand_splits_inside_a_needle_that_has_more_partners_than_the_limit():
    assert chunks(begin=[2, 5, 7], end=[3, 5, 12], limit=2) == [
        [(0, 2), (2, 7)],
        [(2, 8), (2, 9)],
        [(2, 10), (2, 11)],
    ]


def test_expand_gives_one_chunk_when_the_limit_allows_it():
    assert chunks(begin=[2, 5, 7], end=[3, 5, 9], limit=3) == [[(0, 2), (2, 7), (2, 8)]]


@given(counts, st.integers(1, 80), st.data())
def test_expand_gives_every_pair_once_in_full_chunks(counts, limit, data):
    begin = data.draw(st.lists(st.integers(0, 50), min_size=len(counts), max_size=len(counts)))
    end = [b + c for b, c in zip(begin, counts, strict=True)]
    found = chunks(begin, end, limit)
    assert [pair for chunk in found for pair in chunk] == [
        (i, j) for i in range(len(counts)) for j in range(begin[i], end[i])
    ]
    assert all(len(chunk) == limit for chunk in found[:-1])
    assert all(1 <= len(chunk) <= limit for chunk in found)


def test_a_hundred_million_pairs_need_memory_for_one_chunk_only():
    needles, partners, limit = 1_000, 100_000, 10_000
    begin = np.zeros(needles, np.int64)
    found = expand(begin, begin + partners, limit)
    tracemalloc.start()
    try:
        sizes = [len(needle) for needle, _ in found]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sizes == [limit] * (needles * partners // limit)
    assert peak < 100 * (limit + needles)


@pytest.mark.parametrize("limit", [0, -1])
def test_expand_refuses_a_limit_without_room_for_a_pair(limit):
    with pytest.raises(ValueError, match=f"limit={limit} leaves no room for a pair.*Use at least 1"):
        next(expand(np.array([0]), np.array([1]), limit))


NUMBERS = {
    "numbers": pa.array([1, 2, 3]),
    "with nulls": pa.array([1.5, None, 3.0]),
    "small numbers": pa.array([1, 2, 255], pa.uint8()),
    "half precision": pa.array([1.5, 2.0, 3.0], pa.float16()),
    "moments": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
    "text": pa.array(["a", "", None]),
    "vectors": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.field("x", pa.float32(), nullable=False))),
    "some of more vectors": pa.array([[0, 0], [1, 2], [3, 4], [5, 6], [7, 8]]).slice(1, 3),
    "no vector": pa.array([[1, 2], None, [5, 6]]),
    "no number": pa.array([[1, None], [3, 4], [5, 6]]),
    "vectors of other lengths": pa.array([[1], [2, 3, 4], [5, 6]]),
    "empty vectors": pa.array([[], [], []], pa.list_(pa.int32())),
    "long lists": pa.array([[1], [2], [3]], pa.large_list(pa.int8())),
    "fixed lists": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2)),
    "lists of texts": pa.array([["a"], ["b"], ["c"]]),
}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("which", [[2, 0, 0], [1], []])
def test_what_is_taken_is_what_arrow_takes(kind, which):
    places = np.array(which, np.int64)
    taken = take(NUMBERS[kind], places)
    taken.validate(full=True)
    assert taken.equals(NUMBERS[kind].take(pa.array(places)))


@given(pages, arrivals)
def test_where_all_times_match_only_hashes_count(page, needles):
    begin, end = same_hash(np.array([h for h, _ in page], np.uint64), np.array([h for h, _, _ in needles], np.uint64))
    found = [(i, j) for i, (first, last) in enumerate(zip(begin, end, strict=True)) for j in range(first, last)]
    assert found == [(i, j) for i, (h, _, _) in enumerate(needles) for j, (other, _) in enumerate(page) if h == other]
