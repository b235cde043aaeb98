"""Rows that wait in pages until they may leave, and then leave in order of time.

Operators with ordered output hold rows that arrived too early here. Pages are sorted by hash, like all pages; rows that
may leave are sorted by time only then, one span of time after the other, each short enough to fit the budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.pages import Page, PageStore, read_page, write_page
from penstock.core.rows import Indices, concat, hashes_of, times_of
from penstock.core.time import TIME_MAX, Time
from penstock.kernels.sort import page_order, stable_order
from penstock.kernels.width import cut, row_widths
from penstock.operators.pieces import pieces

_SORTING = 40
"""Bytes that sorting one row takes besides its own."""

_FINDING = 24
"""Bytes that examining one row takes."""

_COPIES = 3
"""How many copies of a row exist while it is gathered and sorted."""

HashRange = tuple[int, int]
"""A range of hashes, both ends included."""

ALL_HASHES: HashRange = (0, 2**64 - 1)


class Held:
    """Rows of one shape, in pages, in no order; taken out by time.

    >>> from penstock.core.rows import HASH, TIME
    >>> from penstock.storage.memory import MemoryPages
    >>> budget = Budget(10_000)
    >>> held = Held(pa.schema({HASH: pa.uint64(), TIME: pa.int64()}), MemoryPages(budget), budget)
    >>> held.put(pa.record_batch([pa.array([1, 2, 3], pa.uint64()), pa.array([7, 5, 9])], schema=held.schema))
    >>> [rows.column(TIME).to_pylist() for rows in held.take(until=9)]
    [[5, 7]]
    >>> held.rows
    1
    """

    def __init__(self, schema: pa.Schema, store: PageStore, budget: Budget, pages: Iterable[Page] = ()) -> None:
        self.schema = schema
        self.pages = list(pages)
        self._store = store
        self._budget = budget

    @property
    def rows(self) -> int:
        """How many rows wait."""
        pages = ((page, times_of(read_page(self._store, page))) for page in self.pages)
        return sum(int(np.count_nonzero(times >= page.floor)) for page, times in pages)

    def put(self, rows: pa.RecordBatch, port: int = 0) -> None:
        """Let `rows` wait, in pages of `port`."""
        for piece in pieces(rows, self._budget, _SORTING):
            with self._budget.hold(piece.nbytes + _SORTING * piece.num_rows, "sorting rows that wait"):
                order = page_order(hashes_of(piece), times_of(piece))
                self.pages.append(write_page(self._store, port, piece.take(pa.array(order))))

    def take(self, until: Time) -> Iterator[pa.RecordBatch]:
        """All rows below `until` (at the end of time, all), ascending by time, in batches that fit the budget."""
        spans = self.due(until)
        while spans:
            first, last = spans.pop()
            if self.cost(first, last) <= self._budget.room // 2:
                yield from self._at_once(first, last)
            elif first == last:
                yield from self.page_by_page(first, last)
            else:
                spans += halves(first, last)
        self.forget(until)

    def due(self, until: Time) -> list[tuple[Time, Time]]:
        """The span of time, both ends included, that holds all rows below `until`; none if there are none."""
        last = TIME_MAX if until == TIME_MAX else until - 1
        near = [page for page in self.pages if max(page.min_time, page.floor) <= last]
        if not near:
            return []
        return [(min(max(p.min_time, p.floor) for p in near), min(last, max(p.max_time for p in near)))]

    def cost(self, first: Time, last: Time, hashes: HashRange = ALL_HASHES) -> int:
        """The bytes that it takes to sort the rows from `first` to `last`; 0 if there are none."""
        cost = 0
        for page, rows in self._near(first, last, hashes):
            with self._budget.hold(_FINDING * page.rows, "looking for rows that may go"):
                which = _within(page, rows, first, last, hashes)
                cost += _COPIES * int(row_widths(rows, which).sum()) + _SORTING * which.size
        return cost

    def count(self, first: Time, last: Time, hashes: HashRange = ALL_HASHES) -> int:
        """How many rows from `first` to `last` wait."""
        found = 0
        for page, rows in self._near(first, last, hashes):
            with self._budget.hold(_FINDING * page.rows, "looking for rows that may go"):
                found += _within(page, rows, first, last, hashes).size
        return found

    def gather(self, first: Time, last: Time, hashes: HashRange = ALL_HASHES) -> pa.RecordBatch:
        """The rows from `first` to `last`, in the order of their pages. The caller must have charged their `cost`."""
        near = [
            rows.take(pa.array(_within(page, rows, first, last, hashes)))
            for page, rows in self._near(first, last, hashes)
        ]
        return concat(near, self.schema)

    def page_by_page(self, first: Time, last: Time, hashes: HashRange = ALL_HASHES) -> Iterator[pa.RecordBatch]:
        """The rows from `first` to `last`, page by page, each sorted like its page, in pieces that fit."""
        for page, rows in self._near(first, last, hashes):
            with self._budget.hold(_FINDING * page.rows, "looking for rows that may go"):
                which = _within(page, rows, first, last, hashes)
                room = max(1, self._budget.room // 2)
                for part in cut(row_widths(rows, which), room):
                    with self._budget.hold(min(room, page.nbytes), "rows that go"):
                        yield rows.take(pa.array(which[part]))

    def forget(self, until: Time) -> None:
        """Drop all rows below `until`."""
        kept = []
        for page in self.pages:
            if page.max_time < until or until == TIME_MAX:
                self._store.drop(page.name)
            else:
                kept.append(replace(page, floor=max(page.floor, until)) if page.min_time < until else page)
        self.pages = kept

    def _at_once(self, first: Time, last: Time) -> Iterator[pa.RecordBatch]:
        with self._budget.hold(self.cost(first, last), "sorting rows that may go"):
            rows = self.gather(first, last)
            if rows.num_rows:
                yield by_time(rows)

    def _near(self, first: Time, last: Time, hashes: HashRange = ALL_HASHES) -> Iterator[tuple[Page, pa.RecordBatch]]:
        for page in self.pages:
            alike = page.min_hash <= hashes[1] and page.max_hash >= hashes[0]
            if alike and page.min_time <= last and page.max_time >= first:
                yield page, read_page(self._store, page)


def by_time(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows ascending by time; those of one time stay in their order."""
    return rows.take(pa.array(stable_order(times_of(rows))))


def halves(first: Time, last: Time) -> list[tuple[Time, Time]]:
    """A span of more than one step cut in two, the later half first, for use as a stack.

    >>> halves(0, 9)
    [(5, 9), (0, 4)]
    """
    middle = (first + last) // 2
    return [(middle + 1, last), (first, middle)]


def _within(page: Page, rows: pa.RecordBatch, first: Time, last: Time, hashes: HashRange = ALL_HASHES) -> Indices:
    times = times_of(rows)
    begin, end = 0, rows.num_rows
    if not hashes[0] <= page.min_hash <= page.max_hash <= hashes[1]:
        places = hashes_of(rows)
        begin = int(places.searchsorted(np.uint64(hashes[0])))
        end = int(places.searchsorted(np.uint64(hashes[1]), "right"))
    times = times[begin:end]
    return begin + np.flatnonzero((times >= max(first, page.floor)) & (times <= last))
