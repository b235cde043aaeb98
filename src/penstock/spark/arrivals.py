"""The rows of a task: from batches of the tagged union to pieces for an operator's ports, in its preferred order."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.operator import Arrivals as Order
from penstock.core.rows import times_of, with_times
from penstock.core.time import TIME_MAX, Time
from penstock.kernels.width import even_pieces
from penstock.spark.blobs import opened
from penstock.spark.spool import SortedSpool
from penstock.spark.work import Work, taken
from penstock.storage.fifo import SpillingQueue
from penstock.storage.files import FilePages

_QUEUE = 8
"""The part of the share that each port's queue takes, for a method whose arrivals are spooled."""

_AT_ONCE = 1 << 16
"""Rows taken from a queue at once, if they fit."""

_GATHERED = 2
"""Batches that are here are put together up to this part of a piece."""

Pieces = Iterator[tuple[int, pa.RecordBatch]]
"""Rows and the port that they enter."""


@dataclass(frozen=True, slots=True)
class Inlet:
    """A branch as the shard sees it: the tag of its rows, the port they enter, the places of its columns."""

    tag: int
    port: int
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What enters the ports of an operator: the columns, inlets and earlier bound of each."""

    inside: tuple[pa.Schema, ...]
    inlets: tuple[Inlet, ...]
    before: tuple[Time, ...]
    called: bool
    """Whether there are rows that are for no port."""
    blobs: bool = False
    """Whether rows come in blobs and not by inlets."""

    def pieces(self, order: Order, batches: Iterator[pa.RecordBatch], budget: Budget, work: Work) -> Pieces:
        """The rows of a task: as they come, unless something is gained by having seen them all."""
        orders = {"streamed": self._streamed, "sorted": self._sorted, "spooled": self._spooled}
        return orders[order](batches, budget, work)

    def _streamed(self, batches: Iterator[pa.RecordBatch], budget: Budget, work: Work) -> Pieces:
        """Arrivals as they come, port and rows, in pieces."""
        for piece in self._pieces(batches, work):
            with budget.hold(sum(batch.nbytes for part in piece for batch in part), "rows in flight"):
                for port, part in enumerate(piece):
                    if part:
                        with budget.hold(sum(batch.nbytes for batch in part), "gathering rows in flight"):
                            rows = taken(part)
                        yield port, rows
                        del rows

    def _sorted(self, batches: Iterator[pa.RecordBatch], budget: Budget, work: Work) -> Pieces:
        """All arrivals, sorted by hash on disk before the first is processed: each piece meets few of many pages."""
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            spool = SortedSpool(folder, len(self.inside), budget, work.piece)
            for port, rows in self._streamed(batches, budget, work):
                spool.add(port, rows)
                del rows
                work.trim()
            yield from spool.pieces()
            work.spooled = spool.store.bytes_written

    def _spooled(self, batches: Iterator[pa.RecordBatch], budget: Budget, work: Work) -> Pieces:
        """All arrivals wait in a queue of their port, on disk if they outgrow memory; the earliest come first.

        A method that keeps the recent rows in memory gains by seeing both ports at about the same time. What a
        shuffle delivers is in no order at all.
        """
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            spool = FilePages(folder)
            memory = budget.limit // _QUEUE
            queues = [SpillingQueue(inside, spool, budget, memory, port) for port, inside in enumerate(self.inside)]
            for batch in work.waited(batches):
                for port, rows in self.entering(batch):
                    queues[port].put(rows)
                del batch
            while any(queue.rows for queue in queues):
                heads = [times_of(queue.peek(1))[0] if queue.rows else TIME_MAX for queue in queues]
                port = int(np.argmin(heads))
                rows = queues[port].take(_AT_ONCE)
                with budget.hold(rows.nbytes, "rows in flight"):
                    yield port, rows
            for queue in queues:
                queue.close()

    def _pieces(self, batches: Iterator[pa.RecordBatch], work: Work) -> Iterator[list[list[pa.RecordBatch]]]:
        """Arrivals by port, gathered until they fill a piece, which does not outlive its use."""
        held: list[list[pa.RecordBatch]] = [[] for _ in self.inside]
        size = 0
        for batch in work.waited(batches):
            for port, rows in self.entering(batch):
                if rows.num_rows:
                    held[port].append(rows)
                    size += rows.nbytes
                del rows
            del batch
            if size >= work.piece:
                yield held
                held, size = [[] for _ in self.inside], 0
        if size:
            yield held

    def entering(self, batch: pa.RecordBatch) -> Pieces:
        """The rows of a batch, by port; those that have lost their event time enter at the bound of their port."""
        parts = opened(batch) if self.blobs else ((i.port, self._of_inlet(i, batch)) for i in self.inlets)
        for port, rows in parts:
            yield port, with_times(rows, self.before[port]) if rows.column(1).null_count else rows

    def _of_inlet(self, inlet: Inlet, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of one inlet, in the columns its port expects; the types differ at most in a zone's name."""
        schema = self.inside[inlet.port]
        columns = [batch.column(1).view(pa.uint64()), batch.column(2), *(batch.column(3 + n) for n in inlet.places)]
        cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)]
        rows = pa.RecordBatch.from_arrays(cast, schema=schema)
        if len(self.inlets) > 1 or self.called:
            rows = rows.take(pa.array(np.flatnonzero(batch.column(0).to_numpy() == inlet.tag)))
        return rows


def given(rows: Iterable[tuple[int, pa.RecordBatch]], budget: Budget, work: Work) -> Pieces:
    """Rows that are here, port by port, in pieces; small batches are put together."""
    held: list[pa.RecordBatch] = []
    size, before = 0, 0
    for port, batch in rows:
        work.bytes_in += batch.nbytes
        if held and (port != before or size + batch.nbytes > work.piece // _GATHERED):
            yield from _cut(before, held, budget, work)
            size = 0
        held.append(batch)
        size, before = size + batch.nbytes, port
        del batch
    if held:
        yield from _cut(before, held, budget, work)


def _cut(port: int, held: list[pa.RecordBatch], budget: Budget, work: Work) -> Pieces:
    """Batches as one, in pieces; the list is empty afterwards."""
    with budget.hold(sum(batch.nbytes for batch in held) if len(held) > 1 else 0, "gathering rows in flight"):
        batch = taken(held)
    for piece in even_pieces(batch, work.piece):
        with budget.hold(piece.nbytes, "rows in flight"):
            yield port, piece
