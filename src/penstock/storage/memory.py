"""Pages in memory, within a budget; what does not fit goes to another store."""

from __future__ import annotations

import itertools

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.errors import StateError
from penstock.core.pages import PageStore


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
        self._pages: dict[str, pa.RecordBatch] = {}
        self._numbers = itertools.count()
        self.held = 0
        """Bytes of the batches that are in memory."""

    def put(self, rows: pa.RecordBatch, segment: str = "main") -> str:
        """Keep `rows` in memory if half of the free room holds them, up to a quarter of the budget in all."""
        room = min(self._budget.room // 2, self._budget.limit // 4 - self.held)
        if self._overflow is not None and rows.nbytes > room:
            return self._overflow.put(rows, segment)
        self._budget.charge(rows.nbytes, "a page in memory")
        self.held += rows.nbytes
        name = f"memory-{next(self._numbers)}"
        self._pages[name] = rows
        return name

    def get(self, name: str) -> pa.RecordBatch:
        """The batch itself."""
        if name in self._pages:
            return self._pages[name]
        if self._overflow is None:
            raise StateError.missing(name)
        return self._overflow.get(name)

    def drop(self, name: str) -> None:
        """Free it."""
        if name in self._pages:
            size = self._pages.pop(name).nbytes
            self.held -= size
            self._budget.release(size)
        elif self._overflow is not None:
            self._overflow.drop(name)
