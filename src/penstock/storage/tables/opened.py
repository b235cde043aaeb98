"""One version of a page table, open for reading: keys are routed to pages all at once, and found by bisection."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from copy import copy

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget, ample
from penstock.core.kept import KEPT_PART, Kept
from penstock.core.master import Changes, TableSize, master_schema
from penstock.core.rows import HASH, Hashes, Indices, concat, hashes_of
from penstock.kernels.bisect import run_lengths, runs_within, spread
from penstock.kernels.distinct import run_starts
from penstock.storage.files import page_size
from penstock.storage.tables.manifest import Manifest, Versions
from penstock.storage.tables.partitions import distinct_keys
from penstock.storage.tables.ranges import order_values, route_over

_KEPT_OPEN = 4
"""So many versions of tables stay open in a process: it costs some kilobytes and saves reading their lists again."""


class OpenPageTable:
    """One version of a page table.

    Local pages are mapped, and checked, when they are first read. Others are fetched, and stay as long as the task that
    reads can pay for them: a quarter of its memory at most.
    """

    def __init__(self, uri: str, manifest: Manifest, before: OpenPageTable | None = None) -> None:
        self._versions = Versions(uri)
        self._store = self._versions.pages()
        self._manifest = manifest
        self._layout = manifest.layout
        self.clustered = True
        self.columns: pa.Schema = manifest.layout.columns
        self.keys = manifest.layout.keys
        self.unique = manifest.unique
        self.version = str(manifest.version)
        self.edition = (uri, manifest.writer)
        self.layout = str(manifest.moved)
        """Changes whenever a key has moved to another partition."""
        self.size = TableSize(manifest.rows, manifest.nbytes)
        self.null_keys = manifest.null_keys
        """Rows that are not here because their key is null."""
        self._list(self._store.get(manifest.partitions))
        known: dict[str, pa.RecordBatch] = {} if before is None else before._mapped
        self._mapped: dict[str, pa.RecordBatch] = {name: known[name] for name in self._names if name in known}
        self._fetched: Kept[str, pa.RecordBatch] = Kept() if before is None else before._fetched
        self._budget = ample()

    def within(self, budget: Budget) -> OpenPageTable:
        """The same table, with what is fetched of it, and what stays of that, charged to `budget`."""
        if self._store.local:
            return self
        charged = copy(self)
        charged._budget = budget
        return charged

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return int(self._number.size)

    def partition_of(self, hashes: Hashes, keys: Sequence[pa.Array]) -> Indices:
        """The partition that has the rows of each key; -1 where no row has its hash."""
        found = np.full(hashes.size, -1)
        if not self.partitions:
            return found
        order = np.argsort(hashes) if self._layout.by == "hash" else np.arange(hashes.size)
        place, hashes = self.place(hashes, keys)[order], hashes[order]
        for which, page in self._by_page(place):
            _, count = self._runs(page, hashes[which], place[which])
            del page  # Before the next is fetched.
            found[order[which]] = np.where(count > 0, self._number[place[which]], -1)
        return found

    def scan(self, partition: int) -> pa.RecordBatch:
        """All rows of a partition, without a copy."""
        return self.slice(int(self._at[partition]))

    def slice(self, place: int) -> pa.RecordBatch:
        """The same of the partition at a place in their order."""
        begin = int(self._begin[place])
        return self._page(int(self._page_of[place])).slice(begin, int(self._end[place]) - begin)

    def get(self, hashes: Hashes, keys: Sequence[pa.Array]) -> pa.RecordBatch:
        """All rows that have one of these keys, sorted by hash; also others whose hash is the same."""
        if not self.partitions or not hashes.size:
            return concat([], master_schema(self.columns))
        hashes, place = self._distinct(hashes, self.place(hashes, keys))
        found = []
        for which, page in self._by_page(place):
            first, count = self._runs(page, hashes[which], place[which])
            found.append(page.take(pa.array(spread(first, count))))
            del page  # Before the next is fetched.
        rows = concat(found, master_schema(self.columns))
        held = hashes_of(rows)
        if np.all(held[1:] >= held[:-1]):
            return rows
        return rows.take(pa.array(np.argsort(held, kind="stable")))

    def changes(self, since: str) -> Changes:
        """Exactly the keys that changed after version `since`; anything if that history is gone."""
        if not since.isdecimal() or int(since) > self._manifest.version:
            return Changes(None)
        pages = []
        for number in range(int(since) + 1, self._manifest.version + 1):
            manifest = self._manifest if number == self._manifest.version else self._versions.find(number)
            if manifest is None or manifest.changed is None:
                return Changes(None)
            pages.append(self._store.get(manifest.changed))
        schema = pa.schema([pa.field(HASH, pa.uint64()), *(self.columns.field(name) for name in self.keys)])
        distinct = distinct_keys(concat(pages, schema), self._layout)
        return Changes(pa.Table.from_batches([distinct.select(list(self.keys))]))

    def _list(self, parts: pa.RecordBatch) -> None:
        self.listed = parts
        """The list of partitions, in their order."""
        self._number, self._begin, self._end = (parts.column(c).to_numpy() for c in ("number", "begin", "end"))
        self._at = np.argsort(self._number)
        encoded = parts.column("page").dictionary_encode()
        self._names: list[str] = encoded.dictionary.to_pylist()
        self._page_of = encoded.indices.to_numpy()
        self._route = route_over(parts.column("low")) if parts.num_rows else None

    def place(self, hashes: Hashes, keys: Sequence[pa.Array]) -> Indices:
        """The place of each key's partition in their order, whether it has the key or not."""
        assert self._route is not None
        return self._route.place(order_values(self._layout.by, hashes, keys))

    def _distinct(self, hashes: Hashes, place: Indices) -> tuple[Hashes, Indices]:
        """Each hash once at its place, ascending by place, then hash."""
        if self._layout.by == "hash":
            ascending = bool(np.all(hashes[1:] >= hashes[:-1]))
            order = np.arange(hashes.size) if ascending else np.argsort(hashes)
        else:
            order = np.lexsort((hashes, place))
        hashes, place = hashes[order], place[order]
        fresh = np.concatenate([[True], (hashes[1:] != hashes[:-1]) | (place[1:] != place[:-1])])
        return hashes[fresh], place[fresh]

    def _by_page(self, place: Indices) -> Iterator[tuple[Indices, pa.RecordBatch]]:
        """Which of some places are on which page, page by page."""
        pages = self._page_of[place]
        order = np.argsort(pages, kind="stable")
        starts = run_starts(pages[order])
        for some in np.split(order, starts[1:]):
            if some.size:
                yield some, self._page(int(pages[some[0]]))

    def _runs(self, page: pa.RecordBatch, hashes: Hashes, place: Indices) -> tuple[Indices, Indices]:
        """Where the rows of each hash are on a page, and how many."""
        held = hashes_of(page)
        if self._layout.by == "hash":
            # The partitions on a page follow each other by hash, so a page is sorted as a whole.
            return run_lengths(held, hashes, held.searchsorted(hashes), self._end[place])
        return runs_within(held, hashes, self._begin[place], self._end[place])

    def _page(self, page: int) -> pa.RecordBatch:
        name = self._names[page]
        if self._store.local:
            if name not in self._mapped:
                self._mapped[name] = self._store.get(name)
            return self._mapped[name]
        self._fetched.charge_to(self._budget, self._budget.limit // KEPT_PART)
        rows = self._fetched.get(name)
        return self._fetch(name) if rows is None else rows

    def _fetch(self, name: str) -> pa.RecordBatch:
        size = page_size(name)
        self._fetched.clear_for(size)
        with self._budget.hold(size, "a page that is fetched"):
            rows = self._store.get(name)
        self._fetched.put(name, rows, size)
        return rows


_OPEN: OrderedDict[tuple[str, str], OpenPageTable] = OrderedDict()


def open_version(uri: str, manifest: Manifest) -> OpenPageTable:
    """The table of a manifest; what is mapped of earlier versions is not mapped again."""
    known = (uri, manifest.writer)
    if known not in _OPEN:
        before = next((table for (other, _), table in reversed(_OPEN.items()) if other == uri), None)
        _OPEN[known] = OpenPageTable(uri, manifest, before)
        while len(_OPEN) > _KEPT_OPEN:
            _OPEN.popitem(last=False)
    _OPEN.move_to_end(known)
    return _OPEN[known]
