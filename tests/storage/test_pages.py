"""Pages and their descriptions: slices by hash, without reading what need not be."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.budget import Budget
from penstock.core.pages import Page, clip_page, names_of, read_page, write_page
from penstock.core.rows import HASH, TIME
from penstock.storage.memory import MemoryPages
from tests.streams import examples

rows = st.lists(st.tuples(st.integers(0, 9), st.integers(-5, 5)), min_size=1, max_size=20).map(sorted)


class CountingPages(MemoryPages):
    """Counts how often pages are read."""

    def __init__(self) -> None:
        super().__init__(Budget(1 << 40))
        self.reads: list[str] = []

    def get(self, name: str) -> pa.RecordBatch:
        self.reads.append(name)
        return super().get(name)


def page_of(store: MemoryPages, rows: list[tuple[int, int]], port: int = 0) -> Page:
    columns = {HASH: pa.array([h for h, _ in rows], pa.uint64()), TIME: pa.array([t for _, t in rows], pa.int64())}
    return write_page(store, port, pa.record_batch(columns))


def listed(store: MemoryPages, page: Page | None) -> list[tuple[int, int]]:
    if page is None:
        return []
    batch = read_page(store, page)
    return list(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))


def test_a_page_says_what_it_holds():
    page = page_of(CountingPages(), [(3, 7), (3, 9), (2**64 - 1, -4)], port=1)
    assert (page.kind, page.rows, page.min_time, page.max_time) == (1, 3, -4, 9)
    assert (page.min_hash, page.max_hash) == (3, 2**64 - 1)


@given(rows, st.integers(0, 9), st.integers(0, 9))
@examples(0.1)
def test_a_clip_holds_the_rows_of_its_range_and_says_so(rows, first, last):
    first, last = sorted((first, last))
    store = CountingPages()
    part = clip_page(store, page_of(store, rows), first, last)
    expected = [(h, t) for h, t in rows if first <= h <= last]
    assert listed(store, part) == expected
    if part is not None:
        assert (part.min_hash, part.max_hash) == (expected[0][0], expected[-1][0])


@given(rows, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
@examples(0.1)
def test_a_clip_of_a_clip_is_a_clip(rows, first, middle, last):
    store = CountingPages()
    once = clip_page(store, page_of(store, rows), first, last)
    twice = None if once is None else clip_page(store, once, middle, last)
    assert listed(store, twice) == [(h, t) for h, t in rows if max(first, middle) <= h <= last]


def test_a_page_that_lies_inside_or_outside_the_range_is_not_read():
    store = CountingPages()
    page = page_of(store, [(3, 0), (5, 0)])
    assert clip_page(store, page, 3, 5) is page
    assert clip_page(store, page, 6, 9) is None
    assert clip_page(store, page, 0, 2) is None
    assert store.reads == []
    assert clip_page(store, page, 4, 4) is None, "between its hashes: only its rows can tell"


def test_a_page_comes_back_from_json_as_it_was():
    page = page_of(CountingPages(), [(2**64 - 1, -(2**63))])
    assert Page.from_json(json.loads(json.dumps(page.to_json()))) == page


def test_a_page_of_an_old_ledger_loads_and_is_written_as_it_was():
    record = {
        "name": "p", "port": 3, "begin": 0, "end": 5, "nbytes": 40, "min_time": 1, "max_time": 9, "min_hash": 2,
        "max_hash": 8, "floor": -(2**63), "marks": None, "run": "hybridjoin", "debts": None,
    }  # fmt: skip
    page = Page.from_json(record)
    assert (page.kind, page.maker) == (3, "hybridjoin")
    assert page.to_json() == record
    del record["run"], record["debts"], record["marks"], record["floor"]
    assert Page.from_json(record) == replace(page, maker=None)


def test_pages_need_their_rows_and_their_marks():
    page = page_of(CountingPages(), [(1, 1)])
    assert names_of([page]) == {"memory-0"}
    assert names_of([replace(page, marks="m")]) == {"memory-0", "m"}
