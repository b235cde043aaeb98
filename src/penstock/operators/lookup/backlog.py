"""Stream rows that are not in the join yet: a queue that outlives epochs, the newest in memory, the rest in pages.

A page is sorted by hash, like all pages, so that another number of shards can restore it; each row is stored with its
position in the queue. Queues that several shards saved are restored one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.page_list import PageList
from penstock.core.pages import Page, PageStore, read_page, write_page
from penstock.core.rows import Indices, concat, hashes_of, times_of
from penstock.core.time import Time
from penstock.kernels.sort import page_order
from penstock.kernels.width import cut, row_widths

INBOX = 3
"""The kind of pages that hold rows that have arrived and were not let in yet."""

SHED = 4
"""The kind of pages that hold rows that were put aside."""

SHED_SEGMENT = "shed"
"""The segment of pages that hold rows that were put aside: a store may keep it in another place."""

_PAGE = 16
"""A page takes at most 1/_PAGE of the budget."""

_SMALLEST = 16
"""Pages shrink if there is little room, but not below 1/_SMALLEST of their largest size."""

_BESIDE = 16
"""Bytes stored with each row: its position in the queue, and how often it was put aside."""


@dataclass(slots=True)
class _Part:
    """Rows in memory or in an open page; those at `order` are still queued.

    `charged` is what is charged to the budget for them: 0 while the caller owns them.
    """

    rows: pa.RecordBatch
    attempts: Indices
    charged: int = 0
    order: Indices | None = None

    def __len__(self) -> int:
        return self.attempts.size

    @property
    def lent(self) -> bool:
        return not self.charged

    def take(self, count: int) -> tuple[pa.RecordBatch, Indices]:
        """Remove the first rows from the queue and return them."""
        attempts, self.attempts = self.attempts[:count], self.attempts[count:]
        if self.order is not None:
            rows = self.rows.take(pa.array(self.order[:count]))
            self.order = self.order[count:]
            return rows, attempts
        rows, self.rows = self.rows.slice(0, count), self.rows.slice(count)
        return rows, attempts

    def earliest(self) -> Time:
        times = times_of(self.rows)
        return int((times if self.order is None else times[self.order]).min())


class Backlog:
    """The queue of one shard: memory up to a part of its budget, then pages of `segment` in `store`.

    >>> from penstock.core.rows import RowType
    >>> from penstock.storage.memory import MemoryPages
    >>> rows = RowType(pa.schema({"k": pa.int64(), "t": pa.int64()}), ("k",), "t")
    >>> batch = rows.enter(pa.table({"__time": [5, 6], "k": [1, 2]}), np.array([20, 10], np.uint64))
    >>> queue = Backlog(batch.schema, INBOX, MemoryPages(Budget(10_000)), Budget(10_000), part=4)
    >>> queue.put(batch, np.zeros(2, np.int64))
    >>> queue.take(1)[0].column("k").to_pylist(), len(queue), queue.earliest()
    ([1], 1, 6)
    """

    def __init__(
        self, schema: pa.Schema, kind: int, store: PageStore, budget: Budget, part: int, segment: str = "main"
    ) -> None:
        self._schema = schema
        self._kind = kind
        self._store = store
        self._budget = budget
        self._memory = budget.limit // part
        self._page = max(1, budget.limit // _PAGE)
        self._segment = segment
        self._front: deque[_Part | Page] = deque()
        self._rest = PageList.of(())
        """Saved pages that are not opened yet: there may be too many to list each in memory."""
        self._back: deque[_Part | Page] = deque()
        self._rows = 0
        self._held = 0

    def __len__(self) -> int:
        return self._rows

    def earliest(self) -> Time:
        """No event time in the queue is before this; the end of time if it is empty."""
        items = (*self._front, *self._back)
        times = [item.min_time if isinstance(item, Page) else item.earliest() for item in items]
        return min([self._rest.earliest, *times])

    def put(self, rows: pa.RecordBatch, attempts: Indices) -> None:
        """Queue rows that nobody else holds."""
        if rows.num_rows:
            self._rows += rows.num_rows
            self._append(self._back, _Part(rows, attempts))

    def lend(self, rows: pa.RecordBatch, attempts: Indices | None = None) -> None:
        """Queue rows that are charged to the caller until `own` is called."""
        self._add(self._back.append, rows, attempts)

    def lend_first(self, rows: pa.RecordBatch, attempts: Indices) -> None:
        """Put rows that are charged to the caller at the front of the queue."""
        self._add(self._front.appendleft, rows, attempts)

    def peek(self) -> pa.RecordBatch:
        """Rows like the next ones, to estimate their size."""
        return self._first().rows

    def take(self, count: int) -> tuple[pa.RecordBatch, Indices]:
        """The next rows, at most `count` and perhaps fewer, and how often each was put aside."""
        part = self._first()
        some = part.take(count)
        self._rows -= some[1].size
        if not len(part):
            self._front.popleft()
            self._release(part)
        return some

    def own(self) -> None:
        """Take ownership of all rows: in memory as far as there is room, the others in pages."""
        self._front, self._back = self._owned(self._front), self._owned(self._back)

    def save(self) -> PageList:
        """Write the queue to pages, in order; nothing is left in memory."""
        self._rest = PageList.joined([self._saved(self._front), self._rest, self._saved(self._back)])
        self._front, self._back = deque(), deque()
        return self._rest

    def restore(self, pages: Sequence[Page]) -> None:
        """Restore saved pages. A short last page is filled up, not followed by another."""
        self._rest = PageList.of(pages)
        self._rows += self._rest.rows
        if len(pages) and 2 * (last := self._rest[-1]).nbytes <= self._page:
            self._rest = self._rest[:-1]
            self._back.append(self._open(last))

    def _add(self, put: Callable[[_Part], None], rows: pa.RecordBatch, attempts: Indices | None) -> None:
        if rows.num_rows:
            self._rows += rows.num_rows
            put(_Part(rows, np.zeros(rows.num_rows, np.int64) if attempts is None else attempts))

    def _first(self) -> _Part:
        if not self._front and len(self._rest):
            self._front.append(self._rest[0])
            self._rest = self._rest[1:]
        elif not self._front:
            self._front, self._back = self._back, self._front
        item = self._front[0]
        if isinstance(item, Page):
            item = self._front[0] = self._open(item)
        return item

    def _owned(self, items: Iterable[_Part | Page]) -> deque[_Part | Page]:
        queue: deque[_Part | Page] = deque()
        for item in items:
            if isinstance(item, _Part) and item.lent:
                self._append(queue, item)
            else:
                queue.append(item)
        return queue

    def _saved(self, items: Iterable[_Part | Page]) -> list[Page]:
        pages: list[Page] = []
        parts: list[_Part] = []
        for item in items:
            if isinstance(item, _Part):
                parts.append(item)
                continue
            pages += [*self._written(parts), item]
            parts = []
        return [*pages, *self._written(parts)]

    def _open(self, page: Page) -> _Part:
        """Open a page without copying its rows; only their order is in memory."""
        whole = read_page(self._store, page)
        width = len(self._schema)
        order = np.argsort(whole.column(width).to_numpy(), kind="stable")
        attempts = whole.column(width + 1).to_numpy()[order]
        rows = pa.RecordBatch.from_arrays(whole.columns[:width], schema=self._schema)
        part = _Part(rows, attempts, _BESIDE * page.rows, order)
        self._budget.charge(part.charged, "the order of rows that are queued")
        self._held += part.charged
        self._store.drop(page.name)
        return part

    def _append(self, queue: deque[_Part | Page], part: _Part) -> None:
        """Append rows in memory if there is room, else in pages, together with the in-memory rows just before them."""
        size = part.rows.nbytes + _BESIDE * len(part)
        if self._held + size <= self._memory and size <= self._budget.room // 2:
            rows = part.rows
            if rows.get_total_buffer_size() > 2 * rows.nbytes:
                rows = rows.take(pa.array(np.arange(rows.num_rows)))
            self._budget.charge(size, "rows that are queued")
            self._held += size
            queue.append(_Part(rows, part.attempts, size))
            return
        parts = deque([part])
        while queue and isinstance(last := queue[-1], _Part) and last.order is None:
            parts.appendleft(last)
            queue.pop()
        queue.extend(self._written(parts))

    def _written(self, parts: Iterable[_Part]) -> Iterator[Page]:
        """Write parts to pages of bounded size."""
        page: list[tuple[pa.RecordBatch, Indices]] = []
        size = 0
        for part in parts:
            self._release(part)
            widths = row_widths(part.rows, np.arange(part.rows.num_rows) if part.order is None else part.order)
            most = max(self._page // _SMALLEST, min(self._page, self._budget.room // 4))
            for piece in cut(widths + _BESIDE, max(1, most)):
                needs = int(widths[piece].sum()) + _BESIDE * (piece.stop - piece.start)
                if page and size + needs > most:
                    yield self._write(page)
                    page, size = [], 0
                page.append(part.take(piece.stop - piece.start))
                size += needs
        if page:
            yield self._write(page)

    def _write(self, parts: Sequence[tuple[pa.RecordBatch, Indices]]) -> Page:
        size = sum(rows.nbytes + _BESIDE * rows.num_rows for rows, _ in parts)
        with self._budget.hold(2 * size, "a page of rows that are queued"):
            rows = concat([rows for rows, _ in parts], self._schema)
            extra = [np.arange(rows.num_rows), np.concatenate([attempts for _, attempts in parts])]
            fields = [*self._schema, *(pa.field(name, pa.int64()) for name in ("__seq", "__attempts"))]
            whole = pa.RecordBatch.from_arrays([*rows.columns, *map(pa.array, extra)], schema=pa.schema(fields))
            order = page_order(hashes_of(whole), times_of(whole))
            return write_page(self._store, self._kind, whole.take(pa.array(order)), segment=self._segment)

    def _release(self, part: _Part) -> None:
        self._budget.release(part.charged)
        self._held -= part.charged
        part.charged = 0
