"""A page store that does not drop what several pages of a state share.

Compaction may clip a page that is too large to rewrite: the parts then share one stored batch and its marks. A join
that is done with one part must not delete what the other still needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from penstock.core.pages import Page, PageStore, names_of


class SharedPages:
    """Passes everything on to `store`, but ignores the `drop` of a name that two or more of `pages` use.

    Whoever keeps the state deletes such names once no page of the next state uses them.

    >>> from penstock.core.budget import Budget
    >>> from penstock.storage.memory import MemoryPages
    >>> store = MemoryPages(Budget(1000))
    >>> name = store.put(pa.record_batch({"n": [1, 2]}))
    >>> whole = Page(name, 0, 0, 2, 16, 0, 0, 0, 0)
    >>> SharedPages(store, [whole, whole]).drop(name)
    >>> store.get(name).num_rows
    2
    """

    def __init__(self, store: PageStore, pages: Iterable[Page]) -> None:
        self._store = store
        uses = Counter(name for page in pages for name in names_of([page]))
        self._shared = {name for name, count in uses.items() if count > 1}

    def put(self, rows: pa.RecordBatch, segment: str = "main") -> str:
        """Keep `rows` in the store."""
        return self._store.put(rows, segment)

    def get(self, name: str) -> pa.RecordBatch:
        """The rows kept under `name`."""
        return self._store.get(name)

    def drop(self, name: str) -> None:
        """Delete `name` unless several pages share it."""
        if name not in self._shared:
            self._store.drop(name)
