"""Stream rows that wait for a read of the master table: the multi-hash-map H_S and the queue Q in one.

Rows are kept in order of arrival, the oldest first. Iterations work on arrays of numbers that are kept beside them;
the rows themselves are gathered only when they leave.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.pages import Page, PageStore, read_page, write_page
from penstock.core.rows import Hashes, Indices, concat, hashes_of, times_of
from penstock.core.time import TIME_MAX, Time
from penstock.kernels.sort import page_order

Mask = npt.NDArray[np.bool_]

_NUMBERS = ("seq", "hash", "partition", "start", "matched", "attempts")
"""What is kept beside each row: its place in the order of arrival, the hash of its key, the partition it waits for or
comes to next, the one it started at, whether it has matched, how often it was put aside."""

_COLUMNS = ("place", *_NUMBERS)
_COLUMN = {name: place for place, name in enumerate(_COLUMNS)}

_OVERHEAD = 8 * len(_COLUMNS)

WAITING = 0
"""The kind of pages that hold waiting rows."""


class Waiting:
    """The waiting rows of one shard, charged to its budget.

    >>> from penstock.core.rows import RowType
    >>> rows = RowType(pa.schema({"k": pa.int64(), "t": pa.int64()}), ("k",), "t")
    >>> batch = rows.enter(pa.table({"__time": [5, 6], "k": [1, 2]}), np.array([10, 20], np.uint64))
    >>> waiting = Waiting(batch.schema, Budget(10_000))
    >>> waiting.put(batch, hashes_of(batch), np.array([3, 4]))
    >>> taken, _ = waiting.take(waiting.partition == 3)
    >>> taken.num_rows, len(waiting)
    (1, 1)
    """

    def __init__(self, schema: pa.Schema, budget: Budget) -> None:
        self._schema = schema
        self._budget = budget
        self._batches: list[pa.RecordBatch] = []
        self._stored = 0
        self._charged = 0
        self._table = np.empty((len(_COLUMNS), 0), np.int64)
        self._begin = self._end = 0
        self._next = 0

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def hash(self) -> Hashes:
        """The hash of each row's key."""
        return self._column("hash").view(np.uint64)

    @property
    def partition(self) -> Indices:
        """The partition that each row waits for, or meets next."""
        return self._column("partition")

    @property
    def start(self) -> Indices:
        """The partition that each row started at."""
        return self._column("start")

    @property
    def matched(self) -> Mask:
        """Which rows have matched already."""
        return self._column("matched").astype(np.bool_)

    @property
    def attempts(self) -> Indices:
        """How often each row was put aside."""
        return self._column("attempts")

    @property
    def nbytes(self) -> int:
        """Bytes that are charged, including those of rows that have left and are not compacted yet."""
        return self._charged

    def earliest(self) -> Time:
        """The earliest event time of a waiting row; the end of time if there is none."""
        alive = self._where(self._column("place"))
        return min((int(times_of(batch)[places].min()) for batch, places in alive), default=TIME_MAX)

    def put(self, rows: pa.RecordBatch, hashes: Hashes, partition: Indices, attempts: Indices | int = 0) -> None:
        """Let rows wait, behind those that already do."""
        count = rows.num_rows
        if not count:
            return
        size = rows.nbytes + _OVERHEAD * count
        self._budget.charge(size, "rows that wait for the table")
        self._charged += size
        new = self._grow(count)
        new[_COLUMN["place"]] = np.arange(self._stored, self._stored + count)
        new[_COLUMN["seq"]] = np.arange(self._next, self._next + count)
        new[_COLUMN["hash"]] = hashes.view(np.int64)
        new[_COLUMN["partition"]] = new[_COLUMN["start"]] = partition
        new[_COLUMN["matched"]] = 0
        new[_COLUMN["attempts"]] = attempts
        self._next += count
        self._append(rows)

    def rows(self, which: Mask | Indices) -> pa.RecordBatch:
        """Some of the rows, in order of arrival; indices must ascend. A batch that is needed whole is not copied."""
        places = self._column("place")[which]
        parts = [
            batch if mine.size == batch.num_rows else batch.take(pa.array(mine)) for batch, mine in self._where(places)
        ]
        return concat(parts, self._schema)

    def take(self, which: Mask) -> tuple[pa.RecordBatch, dict[str, Indices]]:
        """Remove some of the rows; returns them and the numbers beside them."""
        rows = self.rows(which)
        taken = {name: self._column(name)[which] for name in _NUMBERS}
        self._remove(which, rows.num_rows)
        self._shrink()
        return rows, taken

    def oldest(self, count: int) -> Mask:
        """Which rows are the `count` oldest."""
        return np.arange(len(self)) < count

    def mark(self, places: Indices) -> None:
        """Mark rows as matched."""
        self._column("matched")[places] = 1

    def move(self, which: Mask, partition: int) -> None:
        """Let rows meet `partition` next."""
        self._column("partition")[which] = partition

    def send(self, partition: Indices) -> None:
        """Let all rows wait for these partitions, because the table has been partitioned anew."""
        self._column("partition")[:] = partition

    def restart(self, partition: int) -> None:
        """Let all rows start again at `partition`."""
        for name in ("partition", "start"):
            self._column(name)[:] = partition

    def save(self, store: PageStore, maker: str | None = None) -> list[Page]:
        """Write the rows to pages of `maker`, sorted by hash like all pages; the numbers are stored as columns."""
        if not len(self):
            return []
        rows = self.rows(np.ones(len(self), np.bool_))
        extra = [pa.array(self._column(name)) for name in _NUMBERS]
        fields = [*self._schema, *(pa.field(f"__{name}", pa.int64()) for name in _NUMBERS)]
        whole = pa.RecordBatch.from_arrays([*rows.columns, *extra], schema=pa.schema(fields))
        order = page_order(hashes_of(whole), times_of(whole))
        return [replace(write_page(store, WAITING, whole.take(pa.array(order))), maker=maker)]

    def restore(self, store: PageStore, pages: Sequence[Page]) -> None:
        """Restore the rows of pages, each page in order of arrival."""
        width = len(self._schema)
        for page in pages:
            whole = read_page(store, page)
            numbers = {name: whole.column(width + place).to_numpy() for place, name in enumerate(_NUMBERS)}
            order = np.argsort(numbers["seq"], kind="stable")
            rows = pa.RecordBatch.from_arrays(whole.columns[:width], schema=self._schema).take(pa.array(order))
            before = len(self)
            self.put(rows, numbers["hash"][order].view(np.uint64), numbers["partition"][order])
            for name in ("start", "matched", "attempts"):
                self._column(name)[before:] = numbers[name][order]
            store.drop(page.name)

    def _column(self, name: str) -> Indices:
        return self._table[_COLUMN[name], self._begin : self._end]

    def _grow(self, count: int) -> Indices:
        """Room for the numbers of `count` more rows; the room of rows that left is reused if it is enough."""
        alive = len(self)
        room = self._table.shape[1]
        if self._end + count > room:
            table = np.empty((len(_COLUMNS), max(room, 2 * (alive + count))), np.int64)
            table[:, :alive] = self._table[:, self._begin : self._end]
            self._table, self._begin, self._end = table, 0, alive
        self._end += count
        return self._table[:, self._end - count : self._end]

    def _remove(self, which: Mask, count: int) -> None:
        if which[:count].all():
            self._begin += count
            return
        # Rows before the first one that leaves stay where they are.
        first = int(np.argmax(which))
        kept = np.flatnonzero(~which[first:])
        begin = self._begin + first
        for column in self._table:
            column[begin : begin + kept.size] = column[begin : self._end].take(kept)
        self._end -= count

    def _append(self, rows: pa.RecordBatch) -> None:
        """Keep rows; each batch is at least twice its successor, so that few batches are copied few times."""
        if rows.get_total_buffer_size() > 2 * rows.nbytes:
            rows = rows.take(pa.array(np.arange(rows.num_rows)))
        self._stored += rows.num_rows
        self._batches.append(rows)
        while len(self._batches) > 1 and 2 * self._batches[-1].num_rows > self._batches[-2].num_rows:
            self._batches[-2:] = [concat(self._batches[-2:], self._schema)]

    def _where(self, places: Indices) -> Iterator[tuple[pa.RecordBatch, Indices]]:
        """The batches that hold some of `places`, which ascend, and the indices within each batch."""
        first = done = 0
        for batch in self._batches:
            last = first + batch.num_rows
            until = int(np.searchsorted(places, last))
            if until > done:
                yield batch, places[done:until] - first
            first, done = last, until

    def _shrink(self) -> None:
        """Release the room of rows that have left, once they are the majority."""
        if 2 * len(self) >= self._stored and len(self):
            return
        if len(self):
            rows = self.rows(np.ones(len(self), np.bool_))
            self._batches = [rows]
            size = rows.nbytes + _OVERHEAD * len(self)
        else:
            self._batches, size = [], 0
        self._column("place")[:] = np.arange(len(self))
        self._stored = len(self)
        self._budget.release(self._charged - size)
        self._charged = size
