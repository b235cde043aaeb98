"""The stores of a linear multi-way join: the pages of each port, searched by key and time, and let go of.

A row of a store has a number: its place among the rows of all pages of its port, in their order. Numbers are good until
the pages change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.pages import Page, PageStore, read_page
from penstock.core.rows import Hashes, Indices, hashes_of, times_of
from penstock.core.time import Time, Times
from penstock.kernels.match import ranges
from penstock.kernels.width import row_widths


class Found(NamedTuple):
    """Needles that look into one page, and the rows of it that each finds: ``begin[i]:end[i]`` for ``needles[i]``."""

    rows: pa.RecordBatch
    first: int
    """The number of the page's first row."""
    needles: Indices
    begin: Indices
    end: Indices


class Stores:
    """The pages of some ports."""

    def __init__(self, ports: int, store: PageStore) -> None:
        self._store = store
        self._pages: list[list[Page]] = [[] for _ in range(ports)]

    def hold(self, pages: Iterable[Page]) -> None:
        """Have some more pages."""
        for page in pages:
            self._pages[page.kind].append(page)

    def pages(self, port: int) -> list[Page]:
        """The pages of a port."""
        return list(self._pages[port])

    def search(self, port: int, hashes: Hashes, first: Times, last: Times) -> Iterator[Found]:
        """For each needle, the rows of `port` with its hash and a time from `first` to `last`, page by page.

        Pages without any are left out.
        """
        if not hashes.size:
            return
        earliest, latest = int(first.min()), int(last.max())
        number = 0
        for page in self._pages[port]:
            begins, number = number, number + page.rows
            if page.max_time < earliest or page.min_time > latest:
                continue
            near = np.flatnonzero((hashes >= np.uint64(page.min_hash)) & (hashes <= np.uint64(page.max_hash)))
            if not near.size:
                continue
            rows = read_page(self._store, page)
            begin, end = ranges(hashes_of(rows), times_of(rows), hashes[near], first[near], last[near])
            if (begin < end).any():
                yield Found(rows, begins, near, begin, end)

    def count(self, port: int, hashes: Hashes, first: Times, last: Times) -> Indices:
        """How many rows of `port` each needle would find."""
        counts = np.zeros(hashes.size, np.int64)
        for found in self.search(port, hashes, first, last):
            counts[found.needles] += found.end - found.begin
        return counts

    def widths(self, port: int, numbers: Indices) -> Indices:
        """How many bytes each of some rows takes."""
        widths = np.zeros(numbers.size, np.int64)
        for rows, places, which in self._by_page(port, numbers):
            widths[places] = row_widths(rows, which)
        return widths

    def take(self, port: int, numbers: Indices) -> pa.RecordBatch:
        """Some rows, in the order of their numbers as given; one at least."""
        parts = list(self._by_page(port, numbers))
        taken = [rows.take(pa.array(which)) for rows, _, which in parts]
        if len(taken) == 1:
            return taken[0]
        back = np.empty(numbers.size, np.int64)
        back[np.concatenate([places for _, places, _ in parts])] = np.arange(numbers.size)
        return pa.concat_batches(taken).take(pa.array(back))

    def let_go(self, port: int, dead: Time, *, over: bool) -> bool:
        """Let go of the rows of `port` below `dead`, of all if it is `over`; whether any were there."""
        kept: list[Page] = []
        changed = False
        for page in self._pages[port]:
            changed |= over or page.min_time < dead > page.floor
            if page.max_time >= dead and not over:
                kept.append(replace(page, floor=max(page.floor, dead)) if page.min_time < dead else page)
            else:
                self._store.drop(page.name)
        self._pages[port][:] = kept
        return changed

    def hashes(self, port: int) -> Iterator[Hashes]:
        """The hashes of the rows that are not below their floor, page by page."""
        for page in self._pages[port]:
            rows = read_page(self._store, page)
            hashes = hashes_of(rows)
            yield hashes[times_of(rows) >= page.floor] if page.min_time < page.floor else hashes

    def _by_page(self, port: int, numbers: Indices) -> Iterator[tuple[pa.RecordBatch, Indices, Indices]]:
        """The rows of each page that some are in, the places of these among `numbers`, and theirs in the page."""
        ends = np.cumsum([page.rows for page in self._pages[port]])
        at = np.searchsorted(ends, numbers, side="right")
        for place in np.unique(at).tolist():
            page = self._pages[port][place]
            ours = np.flatnonzero(at == place)
            yield read_page(self._store, page), ours, numbers[ours] - (ends[place] - page.rows)
