"""Rows that wait by partition for a table that has some of its partitions in memory."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np
import pyarrow as pa

from penstock.core.operator import Out
from penstock.core.rows import Hashes, Indices
from penstock.kernels.distinct import run_starts
from penstock.operators.lookup.back import Desk
from penstock.operators.lookup.segments import Segments
from penstock.operators.lookup.waiting import Mask, Waiting


class Areas:
    """The waiting areas of all partitions in one: each row has the number of the partition that it waits for."""

    def __init__(self, desk: Desk, waiting: Waiting, segments: Segments) -> None:
        self._desk = desk
        self.waiting = waiting
        self.segments = segments

    def put(self, rows: pa.RecordBatch, hashes: Hashes, attempts: Indices | int = 0) -> Indices:
        """Let rows wait for the partition of their key. Returns those partitions, -1 for keys that the table lacks."""
        partition = self._desk.table.partition_of(hashes, self._desk.answers.keys(rows))
        self.waiting.put(rows, hashes, partition, attempts)
        return partition

    @property
    def sizes(self) -> Indices:
        """How many rows wait for each partition."""
        waiting = self.waiting.partition
        return np.bincount(waiting[waiting >= 0], minlength=self._desk.table.partitions)

    @property
    def here(self) -> Mask:
        """Which rows wait for a partition that is in memory."""
        return np.isin(self.waiting.partition, self.segments.ids)

    @property
    def recalled(self) -> int | None:
        """A partition that was in memory before a restart, and that rows wait for again."""
        again = np.isin(self.waiting.partition, list(self.segments.recall))
        return int(self.waiting.partition[again][0]) if again.any() else None

    def chosen(self, position: float) -> int:
        """The partition that the row at `position` waits for, 1 being the oldest; -1 if there is none."""
        waiting = self.waiting.partition
        waiting = waiting[waiting >= 0]
        return int(waiting[round((1.0 - position) * (waiting.size - 1))]) if waiting.size else -1

    def leave(self) -> Iterator[Out]:
        """Finish rows whose key the table lacks: they need no read."""
        unknown = self.waiting.partition < 0
        if unknown.any():
            rows, _ = self.waiting.take(unknown)
            with self._desk.budget.hold(rows.nbytes, "rows that leave"):
                yield from self._desk.answers.alone(rows, np.arange(rows.num_rows))
            self._desk.stats.finished += rows.num_rows

    def answer(self, which: Mask) -> Iterator[Out]:
        """Answer rows that wait for partitions in memory, partition by partition."""
        if not which.any():
            return
        rows, numbers = self.waiting.take(which)
        with self._desk.budget.hold(2 * rows.nbytes, "rows whose partition is in memory"):
            order = np.argsort(numbers["partition"], kind="stable")
            rows, hashes, partition = rows.take(pa.array(order)), numbers["hash"][order], numbers["partition"][order]
            first = run_starts(partition)
            for begin, count in zip(first.tolist(), np.diff(first, append=rows.num_rows).tolist(), strict=True):
                master = self.segments.get(int(partition[begin]))
                assert master is not None
                some = hashes[begin : begin + count].view(np.uint64)
                yield from self._desk.finish(rows.slice(begin, count), some, master)
        self._desk.stats.at_hand += rows.num_rows

    def fetch(self, partition: int) -> Generator[Out, None, pa.RecordBatch]:
        """Answer all rows that wait for a partition, which is read unless it is in memory. Returns the partition."""
        self.segments.recall.discard(partition)
        master = self.segments.get(partition)
        which = self.waiting.partition == partition
        if master is not None:
            yield from self.answer(which)
            return master
        rows, numbers = self.waiting.take(which)
        master = self._desk.scan(partition)
        with self._desk.budget.hold(master.nbytes, "a partition of the table"):
            yield from self._desk.finish(rows, numbers["hash"].view(np.uint64), master)
        return master

    def renew(self) -> None:
        """Find the partitions of waiting rows again, because the table has changed."""
        self._desk.find_again(self.waiting)
