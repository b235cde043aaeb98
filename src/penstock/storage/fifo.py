"""A first-in, first-out queue of rows that outgrows memory: its head and tail are held, its middle is spilled.

Rows come out in the order in which they were put, each once, however many there are. What is in memory never
exceeds `memory`: when the tail has filled a page and the head has no room for it, the page goes to the store before
its time (the thesis' "premature dump"). How many rows and bytes wait is known at any time: an input buffer that grows
is the signal that its operator is overloaded.

Memory is spent in pages of a sixteenth of it. The tail fills one; the head holds up to eight, so that a short queue
never touches the store; the rest is for the copies that joining batches takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget, show_bytes
from penstock.core.errors import BudgetError, ConfigError, StateError
from penstock.core.operator import State
from penstock.core.pages import Page, PageStore, read_page
from penstock.core.rows import concat
from penstock.core.time import TIME_MAX, TIME_MIN

_PAGES = 16
_HEAD_PAGES = 8
_WIDEST_ROW = 4
"""So many pages at most; a wider row is refused."""

_MAKER = "queue"
"""All pages of a queue are one run, so that compaction leaves them, and with them the order, alone."""


class SpillingQueue:
    """Rows of `schema` in the order of their arrival, `memory` bytes of them at most outside `store`.

    `memory` is charged to `budget` as a whole, from the beginning until `close`: a put cannot fail for want of it.
    Only a row wider than a quarter of `memory` is refused. Pages belong to `port` in the state that `state` gives.

    >>> from penstock.storage.memory import MemoryPages
    >>> schema = pa.schema({"n": pa.int64()})
    >>> queue = SpillingQueue(schema, MemoryPages(Budget(10**6)), Budget(2048), memory=1024)
    >>> queue.put(pa.record_batch({"n": range(100)}))
    >>> queue.rows, queue.spilled > 0
    (100, True)
    >>> queue.take(3).column("n").to_pylist(), queue.peek(2).column("n").to_pylist()
    ([0, 1, 2], [3, 4])
    """

    def __init__(
        self,
        schema: pa.Schema,
        store: PageStore,
        budget: Budget,
        memory: int,
        port: int = 0,
        state: State | None = None,
    ) -> None:
        if memory < _PAGES:
            raise ConfigError(
                f"memory={memory} cannot hold a queue's head and tail, which take {_PAGES} pages. "
                f"Write a size like '1 MB'."
            )
        budget.charge(memory, "a queue's head and tail")
        self.schema = schema
        self.memory = Budget(memory)
        """What of the queue's own memory is in use, and was at most."""
        self._store = store
        self._budget = budget
        self._port = port
        self._page = memory // _PAGES
        self._head: deque[_Held] = deque()
        self._middle: deque[Page] = deque()
        self._tail: list[_Held] = []
        self._rows = self._spilled = 0
        self._resume(state or State())

    @property
    def rows(self) -> int:
        """How many rows wait."""
        return self._rows

    @property
    def nbytes(self) -> int:
        """How many bytes wait, in memory and in the store."""
        held: int = sum(part.rows.nbytes for part in (*self._head, *self._tail))
        return held + self._spilled

    @property
    def spilled(self) -> int:
        """How many bytes of them wait in the store."""
        return self._spilled

    def put(self, rows: pa.RecordBatch) -> None:
        """Add `rows` at the tail, cut as memory demands. They are copied: the caller's batch may go."""
        if not rows.schema.equals(self.schema):
            raise ConfigError(f"put() got rows of {_shown(rows.schema)}, but the queue holds {_shown(self.schema)}.")
        parts = list(_cut(rows, self._page))
        widest = max((part.nbytes for part in parts), default=0)
        if widest > _WIDEST_ROW * self._page:
            raise BudgetError(
                f"A row of {show_bytes(widest)} is too wide for a queue with {show_bytes(self.memory.limit)} of "
                f"memory, which takes rows of up to a quarter of it. Give it at least {show_bytes(5 * widest)}."
            )
        for part in parts:
            self._append(part)
            self._rows += part.num_rows

    def peek(self, rows: int) -> pa.RecordBatch:
        """The next rows, left where they are: at most `rows` of them, and at least one unless none waits.

        It may be fewer than wait where they are wide: a batch is no more than an eighth of the memory, or one row.
        """
        self._fill(rows)
        if not self._head:
            return concat([], self.schema)
        return self._head[0].rows.slice(0, rows)

    def take(self, rows: int) -> pa.RecordBatch:
        """The rows that `peek` gives, which leave the queue. They are the caller's to charge."""
        taken = self.peek(rows)
        if taken.num_rows:
            self._rows -= taken.num_rows
            first = self._head[0]
            first.rows = first.rows.slice(taken.num_rows)
            if not first.rows.num_rows:
                self._free(self._head.popleft())
        return taken

    def state(self) -> State:
        """All rows as pages, from head to tail, and a record to check them by when they are taken up again.

        The state is the next queue's to take up, once: as its rows are taken, its pages are dropped.
        """
        front = []
        while self._head:
            front.append(self._spill(self._head.popleft()))
        self._middle.extendleft(reversed(front))
        if self._tail:
            self._middle.append(self._spill(self._pop_tail()))
        return State(tuple(self._middle), {"rows": self._rows})

    def close(self) -> None:
        """Give the memory back; the rows that were not saved are gone."""
        self._head.clear()
        self._tail.clear()
        self._budget.release(self.memory.limit)
        self.memory = Budget(0)

    def _resume(self, state: State) -> None:
        self._middle.extend(page for page in state.pages if page.kind == self._port)
        self._rows = sum(page.rows for page in self._middle)
        self._spilled = sum(page.nbytes for page in self._middle)
        if self._rows != (saved := state.meta.get("rows", 0)):
            raise StateError(
                f"A queue was saved with {saved} rows, but its pages hold {self._rows}: they were clipped or merged, "
                f"and the order of the rows is lost. Take the rows out before the number of shards changes, or "
                f"start the flow with a new checkpoint directory."
            )
        # Short epochs leave short pages: the last one is filled up, not followed by another.
        if self._middle and 2 * self._middle[-1].nbytes <= self._page:
            page = self._middle.pop()
            self._tail.append(self._unspill(page, read_page(self._store, page)))

    def _append(self, part: pa.RecordBatch) -> None:
        if self._tail and _size(self._tail) + part.nbytes > self._page:
            self._place(self._pop_tail())
        if part.nbytes > self._page:
            self._place(self._hold(part))
            return
        self._tail.append(self._hold(part))
        # Each part is at least twice its successor, so that many small puts make few parts, copied few times.
        while len(self._tail) > 1 and 2 * self._tail[-1].rows.num_rows > self._tail[-2].rows.num_rows:
            self._tail[-2:] = [self._join(self._tail[-2:])]

    def _place(self, part: _Held) -> None:
        """Place what leaves the tail: at the head if it follows it and there is room, else in the store."""
        if not self._middle and _size(self._head) + part.size <= _HEAD_PAGES * self._page:
            self._head.append(part)
        else:
            self._middle.append(self._spill(part))

    def _pop_tail(self) -> _Held:
        whole = self._join(self._tail)
        self._tail = []
        return whole

    def _spill(self, part: _Held) -> Page:
        page = Page(
            name=self._store.put(part.rows),
            kind=self._port,
            begin=0,
            end=part.rows.num_rows,
            nbytes=part.rows.nbytes,
            min_time=TIME_MIN,
            max_time=TIME_MAX,
            min_hash=0,
            max_hash=2**64 - 1,
            maker=_MAKER,
        )
        self._free(part)
        self._spilled += page.nbytes
        return page

    def _fill(self, wanted: int) -> None:
        """Make the first part of the head hold `wanted` rows, or a page of bytes, or all there are."""
        count = rows = size = 0
        while rows < wanted and size < self._page and self._reach(count):
            part = self._head[count].rows
            if count and part.nbytes > self._page:
                break
            count, rows, size = count + 1, rows + part.num_rows, size + part.nbytes
        if count > 1:
            whole = self._join([self._head[place] for place in range(count)])
            for _ in range(count):
                self._head.popleft()
            self._head.appendleft(whole)

    def _reach(self, place: int) -> bool:
        """Whether the head has a part at `place`, fetched from the store or the tail if need be."""
        if place < len(self._head):
            return True
        if self._middle:
            self._head.append(self._load_some())
            return True
        self._head.extend(self._tail)
        self._tail = []
        return place < len(self._head)

    def _load_some(self) -> _Held:
        """The first page of the middle, or as much of it as a page may be now: it was saved with more memory."""
        page = self._middle[0]
        rows = read_page(self._store, page)
        some = next(_cut(rows, self._page))
        if some.num_rows == rows.num_rows:
            part = self._unspill(page, rows)
            self._middle.popleft()
            return part
        part = self._hold(some)
        rest = replace(page, begin=page.begin + some.num_rows, nbytes=rows.slice(some.num_rows).nbytes)
        self._spilled += rest.nbytes - page.nbytes
        self._middle[0] = rest
        return part

    def _unspill(self, page: Page, rows: pa.RecordBatch) -> _Held:
        """All that is left of `page`, in memory; a copy if it is only a slice of what the store keeps alive."""
        part = self._hold(rows) if rows.get_total_buffer_size() > 2 * rows.nbytes else self._charged(rows)
        self._store.drop(page.name)
        self._spilled -= page.nbytes
        return part

    def _hold(self, rows: pa.RecordBatch) -> _Held:
        """A copy of `rows`, which may be a slice of something large."""
        with self.memory.hold(rows.nbytes, "rows of a queue"):
            copied = rows.take(pa.array(np.arange(rows.num_rows)))
        return self._charged(copied)

    def _join(self, parts: Sequence[_Held]) -> _Held:
        if len(parts) == 1:
            return parts[0]
        with self.memory.hold(_size(parts), "joining batches of a queue"):
            whole = pa.concat_batches([part.rows for part in parts])
        joined = self._charged(whole)
        for part in parts:
            self._free(part)
        return joined

    def _charged(self, rows: pa.RecordBatch) -> _Held:
        size = rows.get_total_buffer_size()
        self.memory.charge(size, "rows of a queue")
        return _Held(rows, size)

    def _free(self, part: _Held) -> None:
        self.memory.release(part.size)


@dataclass(slots=True)
class _Held:
    """Rows in memory, and what was charged for them: the whole batch, until its last row is taken."""

    rows: pa.RecordBatch
    size: int


def _size(parts: Sequence[_Held] | deque[_Held]) -> int:
    return sum(part.size for part in parts)


def _cut(rows: pa.RecordBatch, room: int) -> Iterator[pa.RecordBatch]:
    """Consecutive slices of at most `room` bytes, or of one row, found by halving: right for nested values too."""
    waiting = [rows] if rows.num_rows else []
    while waiting:
        part = waiting.pop()
        if part.nbytes <= room or part.num_rows == 1:
            yield part
        else:
            half = part.num_rows // 2
            waiting += [part.slice(half), part.slice(0, half)]


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
