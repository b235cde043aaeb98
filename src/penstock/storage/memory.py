"""Pages in memory, within a budget; what does not fit goes to another store."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.errors import StateError
from penstock.core.pages import Page, PageStore, names_of, read_page, write_page
from penstock.core.rows import times_of

IN_MEMORY = 4
"""The part of a budget that pages in memory may take, where there is another store."""


class MemoryPages:
    """Keeps batches in memory while the budget has room for them, and the rest in `overflow`.

    >>> store = MemoryPages(Budget(1000))
    >>> name = store.put(pa.record_batch({"n": pa.array([1, 2])}))
    >>> store.get(name).num_rows
    2
    """

    def __init__(self, budget: Budget, overflow: PageStore | None = None) -> None:
        self._budget = budget
        self._overflow = overflow
        self._pages: dict[str, tuple[pa.RecordBatch, int]] = {}
        self._numbers = itertools.count()
        self.held = 0
        """Bytes of the batches that are in memory."""

    def put(self, rows: pa.RecordBatch, segment: str = "main") -> str:
        """Keep `rows` in memory if half of the free room holds them, up to a quarter of the budget in all.

        What is meant for a segment of its own goes there.
        """
        size = rows.nbytes
        room = min(self._budget.room // 2, self._budget.limit // IN_MEMORY - self.held)
        if self._overflow is not None and (size > room or segment != "main"):
            return self._overflow.put(rows, segment)
        self._budget.charge(size, "a page in memory")
        self.held += size
        name = f"memory-{next(self._numbers)}"
        self._pages[name] = rows, size
        return name

    def get(self, name: str) -> pa.RecordBatch:
        """The batch itself."""
        if name in self._pages:
            return self._pages[name][0]
        if self._overflow is None:
            raise StateError.missing(name)
        return self._overflow.get(name)

    def drop(self, name: str) -> None:
        """Free it."""
        if name in self._pages:
            _, size = self._pages.pop(name)
            self.held -= size
            self._budget.release(size)
        elif self._overflow is not None:
            self._overflow.drop(name)

    def saved(self, pages: Iterable[Page]) -> tuple[Page, ...]:
        """The same pages, all of them in the other store: what was in memory is written there and leaves memory.

        Rows below the floor of a page are not written, unless others share its batch or know its rows by their places.
        """
        pages = list(pages)
        uses = Counter(name for page in pages for name in names_of([page]))
        written: dict[str, str] = {}
        kept: list[Page] = []
        for page in pages:
            if self._has_dead_rows(page, uses):
                kept += self._trimmed(page)
            else:
                kept.append(self._moved(page, written))
        return tuple(kept)

    def _has_dead_rows(self, page: Page, uses: Counter[str]) -> bool:
        """Whether rows of a page in memory can be left out, and there is room for a copy of the others."""
        if (
            page.name not in self._pages
            or page.floor <= page.min_time
            or page.debts is not None
            or page.log is not None
        ):
            return False
        return max(uses[name] for name in names_of([page])) == 1 and 2 * page.nbytes <= self._budget.room

    def _trimmed(self, page: Page) -> list[Page]:
        """A page without the rows below its floor, written; none if no row is left."""
        assert self._overflow is not None
        rows = read_page(self, page)
        alive = pa.array(np.flatnonzero(times_of(rows) >= page.floor))
        trimmed: list[Page] = []
        if len(alive):
            with self._budget.hold(2 * page.nbytes, "writing a page"):
                marks = None
                if page.marks is not None:
                    marks = self._overflow.put(self.get(page.marks).slice(page.begin, page.rows).take(alive))
                made = write_page(self._overflow, page.kind, rows.take(alive), marks)
                trimmed.append(replace(made, maker=page.maker))
        del rows
        for name in names_of([page]):
            self.drop(name)
        return trimmed

    def _moved(self, page: Page, written: dict[str, str]) -> Page:
        """A page whose batches are all in the other store; `written` says what those are called now that were here."""
        assert self._overflow is not None
        for name in names_of([page]):
            if name in self._pages:
                written[name] = self._overflow.put(self._pages[name][0])
                self.drop(name)
        new = {name: written[name] for name in names_of([page]) if name in written}
        if not new:
            return page
        page = replace(page, name=new.get(page.name, page.name))
        if page.marks in new:
            page = replace(page, marks=new[page.marks])
        if page.debts is not None and page.debts.births in new:
            page = replace(page, debts=replace(page.debts, births=new[page.debts.births]))
        if page.log is not None and page.log.births in new:
            page = replace(page, log=replace(page.log, births=new[page.log.births]))
        return page
