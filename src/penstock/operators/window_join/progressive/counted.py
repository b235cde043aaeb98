"""A page store that counts how many pages share a batch: it is dropped with the last of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from penstock.core.pages import Page, PageStore, names_of


class CountedPages:
    """Passes everything on to `store`, but a drop only when the name is no longer used.

    >>> from penstock.core.budget import Budget
    >>> from penstock.storage.memory import MemoryPages
    >>> store = CountedPages(MemoryPages(Budget(1000)))
    >>> name = store.put(pa.record_batch({"n": [1, 2]}))
    >>> store.share(name, 2)
    >>> store.drop(name)
    >>> store.get(name).num_rows
    2
    """

    def __init__(self, store: PageStore, pages: Iterable[Page] = ()) -> None:
        self._store = store
        self._uses = Counter(name for page in pages for name in names_of([page]))

    def put(self, rows: pa.RecordBatch, segment: str = "main") -> str:
        """Keep `rows` for one page."""
        return self._store.put(rows, segment)

    def share(self, name: str, pages: int) -> None:
        """So many pages use a batch that was put for one."""
        self._uses[name] = pages

    def get(self, name: str) -> pa.RecordBatch:
        """The rows kept under `name`."""
        return self._store.get(name)

    def drop(self, name: str) -> None:
        """A page no longer needs `name`."""
        self._uses[name] -= 1
        if self._uses[name] <= 0:
            del self._uses[name]
            self._store.drop(name)
