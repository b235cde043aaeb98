"""Compaction: the same live rows with the same marks, in few pages, within the budget, reading only what changes."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.budget import Budget
from penstock.core.pages import Page, clip_page, names_of, read_page
from penstock.core.time import TIME_MIN
from penstock.storage.compaction import FAN, compact
from tests.storage.test_pages import CountingPages, listed, page_of
from tests.streams import examples

AMPLE = 1 << 30
rows = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 30)), min_size=1, max_size=18).map(sorted)
described = st.tuples(
    rows,
    st.integers(0, 1),
    st.one_of(st.just(TIME_MIN), st.integers(0, 32)),
    st.lists(st.booleans(), min_size=18, max_size=18) | st.none(),
    st.integers(0, 6),
)


def marked(store: CountingPages, page: Page, marks: list[bool]) -> Page:
    batch = pa.RecordBatch.from_arrays([pa.array(marks[: page.end])], names=["met"])
    return replace(page, marks=store.put(batch))


def made(store: CountingPages, specs: list) -> list[Page]:
    """Pages with floors and marks, some of them slices of stored ones."""
    pages = []
    for rows, port, floor, marks, first in specs:
        page = page_of(store, rows, port)
        page = replace(page if marks is None else marked(store, page, marks), floor=floor)
        pages.append(clip_page(store, page, first, 6) or page)
    store.reads.clear()
    return pages


def live(store: CountingPages, pages) -> Counter:
    """Every live row: port, hash, time, and whether it has met a partner."""
    rows: Counter = Counter()
    for page in pages:
        marks = [False] * page.end if page.marks is None else store.get(page.marks).column(0).to_pylist()
        for (hash_, time), met in zip(listed(store, page), marks[page.begin : page.end], strict=True):
            if time >= page.floor:
                rows[page.kind, hash_, time, met] += 1
    return rows


@given(st.lists(described, max_size=14), st.sampled_from([0, 500, 3000, AMPLE]))
@examples(0.15)
def test_live_rows_and_their_marks_stay_and_the_budget_holds(specs, memory):
    store, budget = CountingPages(), Budget(memory)
    pages = made(store, specs)
    before = live(store, pages)
    store.reads.clear()
    after = compact(pages, store, budget)
    read = set(store.reads)
    assert live(store, after) == before
    assert budget.peak <= memory
    assert budget.held == 0
    unchanged = {name for page in set(pages) & set(after) for name in (page.name, page.marks) if name}
    assert not read & unchanged, "a page that does not change was read"
    for page in set(after) - set(pages):
        assert listed(store, page) == sorted(listed(store, page)), "pages are sorted by hash, then time"
        times = [time for _, time in listed(store, page)]
        assert page.min_time <= min(times) <= max(times) <= page.max_time
        if page.name not in {before.name for before in pages}:
            assert (page.min_time, page.max_time) == (min(times), max(times))


@given(st.lists(described, max_size=14))
@examples(0.1)
def test_what_was_merged_is_dropped_and_what_is_left_can_be_read(specs):
    store = CountingPages()
    after = compact(made(store, specs), store, Budget(AMPLE))
    assert set(store._pages) == {name for page in after for name in (page.name, page.marks) if name}


def epochs(sizes, expire: int | None = None) -> tuple[list[int], list[int], CountingPages]:
    """Let one small page come per epoch, in order of time; how many pages there are, and rows rewritten, after each."""
    store, pages = CountingPages(), ()
    counts, rewritten = [], []
    for epoch, size in enumerate(sizes):
        page = page_of(store, sorted((n % 7, epoch * 10) for n in range(size)))
        if expire is not None:
            floor = (epoch - expire) * 10
            pages = tuple(replace(p, floor=max(p.floor, floor)) for p in pages if p.max_time >= floor)
        before = set(pages)
        pages = compact([*pages, page], store, Budget(AMPLE))
        counts.append(len(pages))
        rewritten.append(sum(p.rows for p in set(pages) - before))
    return counts, rewritten, store


def test_over_200_small_epochs_the_pages_stay_few_and_rows_are_seldom_rewritten():
    counts, rewritten, _ = epochs([10] * 200)
    assert max(counts) <= (FAN - 1) * math.ceil(math.log(200, FAN) + 1)
    assert sum(rewritten) <= 10 * 200 * (1 + math.ceil(math.log(200, FAN)))


def test_expiring_rows_leave_few_pages_too():
    counts, _, _ = epochs([10] * 200, expire=40)
    assert max(counts) <= (FAN - 1) * math.ceil(math.log(200, FAN) + 1)


SIZES = {
    "a few rows and many in turn": [1, 100] * 100,
    "one large epoch in ten": ([2] * 9 + [500]) * 20,
    "growing": list(range(1, 201)),
    "shrinking": list(range(200, 0, -1)),
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_pages_stay_few_when_epochs_differ_in_size(sizes):
    counts, _, _ = epochs(sizes)
    assert max(counts) <= 2 * (FAN - 1) * math.ceil(math.log(sum(sizes), FAN))


def test_ports_are_never_mixed():
    store = CountingPages()
    pages = [page_of(store, [(1, t)], port=t % 2) for t in range(8)]
    after = compact(pages, store, Budget(AMPLE))
    assert sorted((page.kind, page.rows) for page in after) == [(0, 4), (1, 4)]


def test_a_page_whose_rows_are_all_below_its_floor_goes_when_it_is_merged():
    store = CountingPages()
    pages = [replace(page_of(store, [(1, t)]), floor=50) for t in range(4)]
    assert compact(pages, store, Budget(AMPLE)) == ()
    assert store._pages == {}


def test_a_large_page_that_is_half_dead_is_rewritten_and_a_small_one_waits():
    store = CountingPages()
    large = replace(page_of(store, [(0, t) for t in range(64)]), floor=40)
    small = page_of(store, [(0, 90)])
    after = compact([large, small], store, Budget(AMPLE))
    assert sorted(page.rows for page in after) == [1, 24]
    assert read_page(store, min(after, key=lambda page: page.min_time)).column(1).to_pylist() == list(range(40, 64))


def test_with_no_room_nothing_is_merged_and_nothing_read():
    store = CountingPages()
    pages = [page_of(store, [(1, t)]) for t in range(8)]
    assert set(compact(pages, store, Budget(0))) == set(pages)
    assert store.reads == []


def test_with_little_memory_a_run_is_cut_by_hash_and_each_hash_is_in_one_page_of_it():
    """Four pages of 64 hashes each, merged with room for a quarter of their rows: pages with hashes of their own."""
    store, budget = CountingPages(), Budget(12_000)
    spread = [(n << 58, t) for n in range(64) for t in (0, 1)]
    pages = [page_of(store, [(h, t + 10 * e) for h, t in spread]) for e in range(FAN)]
    after = compact(pages, store, budget)
    assert len({page.maker for page in after}) == 1
    assert len(after) > 1
    assert sum(page.rows for page in after) == FAN * 128
    for one, other in itertools.pairwise(sorted(after, key=lambda page: page.min_hash)):
        assert one.max_hash < other.min_hash
    assert budget.peak <= 9_000


def test_one_hash_that_is_too_much_to_rewrite_stays_where_it_is():
    store, budget = CountingPages(), Budget(12_000)
    pages = [page_of(store, [(n << 58, e) for n in range(8)] + [(9 << 58, e)] * 90) for e in range(FAN)]
    after = compact(pages, store, budget)
    hot = [page for page in after if page.min_hash == 9 << 58]
    assert sorted(page.name for page in hot) == sorted(page.name for page in pages)
    assert live(store, after) == live(store, pages)
    assert set(compact(after, store, budget)) == set(after), "and merging again does not cut it any finer"


@given(st.lists(described, max_size=14), st.lists(st.integers(0, 6), max_size=3), st.sampled_from([0, 500, AMPLE]))
@examples(0.1)
def test_parts_of_a_page_keep_what_they_share_until_the_last_is_rewritten(specs, cuts, memory):
    """The parts may land in different groups, as ours do that expire at different times: floors differ."""
    store = CountingPages()
    ends = list(itertools.pairwise([-1, *sorted(set(cuts) - {6}), 6]))
    whole = made(store, specs)
    parts = [clip_page(store, page, a + 1, b) for page in whole for a, b in ends]
    pages = [replace(page, floor=page.floor + 3 * (n % 2)) for n, page in enumerate(parts) if page is not None]
    before = live(store, pages)
    after = compact(pages, store, Budget(memory))
    assert live(store, after) == before
    assert set(store._pages) == names_of(after)
    assert live(store, compact(after, store, Budget(memory))) == before
