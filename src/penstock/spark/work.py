"""A task's counts of rows, bytes and time, and the batching of its output."""

from __future__ import annotations

import time as clock
from collections.abc import Generator, Iterator

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.operator import Out
from penstock.runtime.shard import Arrived
from penstock.spark.allocator import give_back

TURNED_AWAY = "__turned_away"
"""The last column of what leaves an operator that finds rows late: whether a row is."""

_SMALL = 1 << 13
"""Batches of output are gathered up to so many rows,"""

_GATHERED = 32
"""or to this part of the share."""


class Work:
    """Counts rows and a task's time by phase: waiting for input, working, handing over output, writing the state."""

    def __init__(self, budget: Budget, arrived: Arrived, piece: int, kept: int, tells_late: bool = False) -> None:
        self.piece = piece
        """Bytes of arrivals that are processed at a time."""
        self._tells_late = tells_late
        self._budget = budget
        self._kept = kept
        self.bytes_in = 0
        self.arrived = arrived
        self.rows_out = 0
        self.spooled = 0
        """Bytes of arrivals that waited on disk."""
        self._freed = 0
        self._waiting, self._waiting_bytes = 0, 0
        """Rows of output that wait for more, and their bytes."""
        self.seconds = {"input": 0.0, "work": 0.0, "output": 0.0, "settle": 0.0}

    def waited(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, counted, and the time it took to get them."""
        begun = clock.perf_counter()
        for batch in batches:
            self.seconds["input"] += clock.perf_counter() - begun
            self.bytes_in += batch.nbytes
            self._freed += batch.nbytes
            yield batch
            del batch
            begun = clock.perf_counter()

    def out(self, outs: Iterator[Out]) -> Iterator[pa.RecordBatch]:
        """The rows of `outs`, counted and timed, small batches gathered: each costs the hop to Spark some time."""
        small: list[pa.RecordBatch] = []
        begun = clock.perf_counter()
        for out in outs:
            rows = _told(out) if self._tells_late else out.rows
            self.rows_out += 0 if out.outlet == "late" else rows.num_rows
            if not self._gather(small, rows):
                begun = yield from self._release(small, begun)
                begun = yield from self._hand_over(rows, begun)
        begun = yield from self._release(small, begun)
        self.seconds["work"] += clock.perf_counter() - begun

    def trim(self) -> None:
        """Return what the allocator keeps, once more than `kept` bytes may have been freed since the last time.

        Methods that keep blocks in memory make many small ones, which leave holes: they keep nothing.
        """
        if self._freed >= self._kept:
            self._freed = 0
            give_back(self._budget.limit, self._budget.held)

    def _gather(self, small: list[pa.RecordBatch], rows: pa.RecordBatch) -> bool:
        """Whether rows can wait for more to join them."""
        size = rows.nbytes
        waiting, together = self._waiting + rows.num_rows, self._waiting_bytes + size
        if waiting > _SMALL or together > self._budget.limit // _GATHERED or 4 * size > self._budget.room:
            return False
        self._budget.charge(2 * size, "gathering output")
        small.append(rows)
        self._waiting, self._waiting_bytes = waiting, together
        return True

    def _release(self, small: list[pa.RecordBatch], begun: float) -> Generator[pa.RecordBatch, None, float]:
        """Hand over what was gathered; it is charged until Spark has it."""
        if small:
            size, self._waiting, self._waiting_bytes = 2 * self._waiting_bytes, 0, 0
            begun = yield from self._hand_over(taken(small), begun)
            self._budget.release(size)
        return begun

    def _hand_over(self, rows: pa.RecordBatch, begun: float) -> Generator[pa.RecordBatch, None, float]:
        done = clock.perf_counter()
        self.seconds["work"] += done - begun
        self._freed += rows.nbytes
        yield rows
        del rows
        self.trim()
        begun = clock.perf_counter()
        self.seconds["output"] += begun - done
        return begun


def taken(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """All the batches as one, and the list empty."""
    whole = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
    batches.clear()
    return whole


def _told(out: Out) -> pa.RecordBatch:
    """Rows that leave, and whether they are late."""
    late = np.full(out.rows.num_rows, out.outlet == "late")
    return out.rows.append_column(TURNED_AWAY, pa.array(late))
