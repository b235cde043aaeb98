"""Stream rows that wait for a read of the master table: the multi-hash-map H_S and the queue Q in one.

Rows are kept in order of arrival, the oldest first. What is looked at in every iteration are arrays of numbers beside
them; the rows themselves are gathered only when they leave.
"""

from __future__ import annotations

from collections.abc import Iterator
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

_OVERHEAD = 8 * len(_NUMBERS) + 8

WAITING = 0
"""The port of pages that hold waiting rows."""


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
        self._place = np.empty(0, np.int64)
        self._numbers = {name: np.empty(0, np.int64) for name in _NUMBERS}
        self._next = 0

    def __len__(self) -> int:
        return self._place.size

    @property
    def hash(self) -> Hashes:
        """The hashes of their keys."""
        return self._numbers["hash"].view(np.uint64)

    @property
    def partition(self) -> Indices:
        """The partition each waits for, or comes to next."""
        return self._numbers["partition"]

    @property
    def start(self) -> Indices:
        """The partition each started at."""
        return self._numbers["start"]

    @property
    def matched(self) -> Mask:
        """Which have matched already."""
        return self._numbers["matched"].astype(np.bool_)

    @property
    def seq(self) -> Indices:
        """Their numbers in order of arrival."""
        return self._numbers["seq"]

    @property
    def attempts(self) -> Indices:
        """How often each was put aside."""
        return self._numbers["attempts"]

    @property
    def nbytes(self) -> int:
        """What they take, those included that have left but whose room is not yet used again."""
        return self._charged

    def earliest(self) -> Time:
        """The earliest event time that waits; the end of time if none does."""
        return min((int(times_of(batch)[place].min()) for batch, place in self._alive()), default=TIME_MAX)

    def put(self, rows: pa.RecordBatch, hashes: Hashes, partition: Indices, attempts: Indices | int = 0) -> None:
        """Let rows wait behind those that do."""
        count = rows.num_rows
        if not count:
            return
        size = rows.nbytes + _OVERHEAD * count
        self._budget.charge(size, "rows that wait for the table")
        self._charged += size
        self._batches.append(rows)
        self._place = np.concatenate([self._place, np.arange(self._stored, self._stored + count)])
        self._stored += count
        given = {
            "seq": np.arange(self._next, self._next + count),
            "hash": hashes.view(np.int64),
            "partition": partition,
            "start": partition,
            "matched": np.zeros(count, np.int64),
            "attempts": np.full(count, attempts) if isinstance(attempts, int) else attempts,
        }
        self._next += count
        self._numbers = {name: np.concatenate([self._numbers[name], given[name]]) for name in _NUMBERS}

    def rows(self, which: Mask | Indices) -> pa.RecordBatch:
        """Copies of some of the rows, in their order."""
        places = self._place[which]
        if len(self._batches) > 1:
            self._batches = [concat(self._batches, self._schema)]
        if not self._batches:
            return concat([], self._schema)
        return self._batches[0].take(pa.array(places))

    def take(self, which: Mask) -> tuple[pa.RecordBatch, dict[str, Indices]]:
        """Some of the rows, and the numbers beside them; they wait no longer."""
        rows = self.rows(which)
        numbers = {name: values[which] for name, values in self._numbers.items()}
        self._place = self._place[~which]
        self._numbers = {name: values[~which] for name, values in self._numbers.items()}
        self._shrink()
        return rows, numbers

    def mark(self, places: Indices) -> None:
        """Rows have matched."""
        self._numbers["matched"][places] = 1

    def move(self, which: Mask, partition: int) -> None:
        """Rows come to `partition` next."""
        self._numbers["partition"][which] = partition

    def send(self, partition: Indices) -> None:
        """All rows wait for these partitions now: the table has been cut anew."""
        self._numbers["partition"] = partition

    def restart(self, partition: int) -> None:
        """All rows start again, at `partition`."""
        for name in ("partition", "start"):
            self._numbers[name] = np.full(len(self), partition)

    def save(self, store: PageStore, run: str | None = None) -> list[Page]:
        """The rows as pages of a `run`, sorted by hash as pages are; the numbers travel as columns."""
        if not len(self):
            return []
        rows = self.rows(np.ones(len(self), np.bool_))
        extra = [pa.array(self._numbers[name]) for name in _NUMBERS]
        fields = [*self._schema, *(pa.field(f"__{name}", pa.int64()) for name in _NUMBERS)]
        whole = pa.RecordBatch.from_arrays([*rows.columns, *extra], schema=pa.schema(fields))
        order = page_order(hashes_of(whole), times_of(whole))
        return [replace(write_page(store, WAITING, whole.take(pa.array(order))), run=run)]

    def restore(self, store: PageStore, pages: list[Page]) -> None:
        """Take up the rows of pages, in the order in which they arrived, as far as shards agree on one."""
        width = len(self._schema)
        for page in pages:
            whole = read_page(store, page)
            numbers = {name: whole.column(width + place).to_numpy() for place, name in enumerate(_NUMBERS)}
            order = np.argsort(numbers["seq"], kind="stable")
            rows = pa.RecordBatch.from_arrays(whole.columns[:width], schema=self._schema).take(pa.array(order))
            before = len(self)
            self.put(rows, numbers["hash"][order].view(np.uint64), numbers["partition"][order])
            for name in ("start", "matched", "attempts"):
                self._numbers[name][before:] = numbers[name][order]

    def _alive(self) -> Iterator[tuple[pa.RecordBatch, Indices]]:
        first = 0
        for batch in self._batches:
            last = first + batch.num_rows
            places = self._place[(self._place >= first) & (self._place < last)] - first
            if places.size:
                yield batch, places
            first = last

    def _shrink(self) -> None:
        """Use the room of rows that have left, once they are the more."""
        if 2 * len(self) >= self._stored and len(self):
            return
        if len(self):
            rows = self.rows(np.ones(len(self), np.bool_))
            self._batches = [rows]
            size = rows.nbytes + _OVERHEAD * len(self)
        else:
            self._batches, size = [], 0
        self._place = np.arange(len(self))
        self._stored = len(self)
        self._budget.release(self._charged - size)
        self._charged = size
