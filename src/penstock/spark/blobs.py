"""Batches as blobs: rows cut by shard travel through Spark's shuffle as few large values, not row by row.

A map task emits ``(shard, port, batch)`` with an Arrow IPC stream in each `batch`. Spark moves, spills, encrypts and
retries them as it does any value, and the shard opens them without a conversion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.absent import with_absent, without_absent
from penstock.core.files import Files
from penstock.core.rows import TIME
from penstock.core.time import as_times
from penstock.kernels.route import by_shard
from penstock.kernels.width import even_pieces
from penstock.runtime.entering import Entry
from penstock.runtime.lateness import Judge
from penstock.runtime.steps import Step, in_pieces, through
from penstock.spark.allocator import give_back, return_what_is_freed
from penstock.spark.collector import pass_over_modules
from penstock.spark.layout import LATE, LATENESS, NO_TIME, OUT_OF_RANGE
from penstock.storage.payload import Paths, read_placed
from penstock.storage.scans import Portion

BLOBS = "shard int, port short, batch binary"
"""The columns of rows in blobs, as Spark declares them."""

ROLL_CALL = -1
"""The port of a row that only tells a shard which it is."""

_BLOB = 16
"""The part of a task's share that a blob may take;"""

_READ = 8
"""and what is read of a file at a time."""

_GIVEN_BACK = 4
"""After so many pieces what they freed goes back to the system: each time costs milliseconds."""

_COLUMNS = pa.schema({"shard": pa.int32(), "port": pa.int16(), "batch": pa.binary()})


@dataclass(frozen=True, slots=True)
class Way:
    """How rows of a source, or of an operator, get into an operator: their steps, and the port."""

    steps: tuple[Step, ...]
    port: int
    entry: Entry

    def blobs(
        self, rows: pa.Table, shards: int, share: int, declared: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows on this way, cut by shard; those of files have the columns that are `declared`."""
        for piece in in_pieces(self.steps, rows, share // _READ, declared):
            for entered in self.entry.enter(piece, "xxhash64"):
                yield from cut_by_shard(entered, self.port, shards, share)


@dataclass(frozen=True, slots=True)
class Scan:
    """A source of files as a task reads it: which columns, and which rows are in time."""

    files: Files
    columns: pa.Schema
    judge: Judge
    row: str | None = None
    """The column that says where rows are in their source, if they may leave payload behind;"""
    late: Paths = frozenset()
    """and what that is."""

    def pieces(self, portion: Portion, share: int) -> Iterator[pa.Table]:
        """The rows of a portion, in pieces of a part of a task's share."""
        return read_placed(self.files, portion, self.columns, self.row, self.late, share // _READ, texts="encoded")


Portions = Sequence[Sequence[tuple[int, Portion]]]
"""What each task reads: of which scan, and what."""


def spread(portions: Sequence[tuple[int, Portion]], tasks: int) -> Portions:
    """Portions over tasks, about as many bytes to each: the largest first, always to who has the least.

    >>> sizes = [5, 1, 1, 3]
    >>> [[p.nbytes for _, p in some] for some in spread([(0, Portion("f", n)) for n in sizes], 2)]
    [[5], [3, 1, 1]]
    """
    held: list[list[tuple[int, Portion]]] = [[] for _ in range(max(1, min(tasks, len(portions))))]
    sizes = [0] * len(held)
    for number, portion in sorted(portions, key=lambda each: -each[1].nbytes):
        least = sizes.index(min(sizes))
        held[least].append((number, portion))
        sizes[least] += portion.nbytes
    return held


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Reads files and sends their rows to the shards of an operator. Its input rows are numbers of tasks."""

    work: Portions
    scans: Sequence[Scan]
    ways: Sequence[Sequence[Way]]
    """The ways of each scan's rows."""
    shards: int
    share: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Scan."""
        for number, portion in _of_tasks(self.work, batches, self.share):
            scan = self.scans[number]
            for count, piece in enumerate(scan.pieces(portion, self.share), 1):
                kept = scan.judge.split(piece).kept
                del piece
                for way in self.ways[number]:
                    yield from way.blobs(kept, self.shards, self.share, scan.columns)
                del kept
                if not count % _GIVEN_BACK:
                    give_back(self.share)


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Reads files for a sink: the rows that are in time, after some steps."""

    work: Portions
    scan: Scan
    steps: tuple[Step, ...]
    share: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Scan."""
        for _, portion in _of_tasks(self.work, batches, self.share):
            for piece in self.scan.pieces(portion, self.share):
                rows = through(self.steps, self.scan.judge.split(piece).kept, self.scan.columns)
                yield from rows.drop_columns([TIME]).to_batches()


@dataclass(frozen=True, slots=True)
class LateTask:
    """Reads files for the late outlet: the rows that are not in time, their time, and what they are, as a number."""

    work: Portions
    scan: Scan
    share: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Scan."""
        kinds = pa.array(["late", "out-of-range", "no-time"])
        numbers = np.array([LATE, OUT_OF_RANGE, NO_TIME], np.int32)
        for _, portion in _of_tasks(self.work, batches, self.share):
            for piece in self.scan.pieces(portion, self.share):
                split = self.scan.judge.split(piece)
                if split.late.num_rows:
                    late = through((), split.late, self.scan.columns)
                    places = pc.index_in(split.reasons, kinds).to_numpy(zero_copy_only=False)
                    late = late.append_column(TIME, as_times(late.column(self.scan.judge.time)))
                    yield from late.append_column(LATENESS, pa.array(numbers[places])).to_batches()


@dataclass(frozen=True, slots=True)
class RouteTask:
    """Sends results of one operator to the shards of the next; they come as rows with their event time last."""

    way: Way
    names: tuple[str, ...]
    """What their columns are called; Spark would take a name with a dot for a field of a struct."""
    shards: int
    share: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Route."""
        return_what_is_freed(self.share)
        for count, batch in enumerate(batches, 1):
            yield from self.way.blobs(pa.Table.from_arrays(batch.columns, self.names), self.shards, self.share)
            del batch
            if not count % _GIVEN_BACK:
                give_back(self.share)


def cut_by_shard(rows: pa.RecordBatch, port: int, shards: int, share: int) -> Iterator[pa.RecordBatch]:
    """Rows in the columns of a port as blobs, cut by shard."""
    for shard, part in enumerate(by_shard(rows, shards)):
        for piece in even_pieces(part, share // _BLOB):
            yield _blob(shard, port, piece)


def opened(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The port and the rows of each blob of a batch that has come to its shard."""
    ports = batch.column(1).to_pylist()
    for port, blob in zip(ports, batch.column(2), strict=True):
        if port != ROLL_CALL:
            with pa.ipc.open_stream(blob.as_buffer()) as stream:
                for rows in stream:
                    yield port, with_absent(rows)


def _of_tasks(work: Portions, batches: Iterator[pa.RecordBatch], share: int) -> Iterator[tuple[int, Portion]]:
    """What some tasks read. What they free goes back after each portion: a shard may run in this process next."""
    pass_over_modules()
    return_what_is_freed(share)
    for batch in batches:
        for task in batch.column(0).to_pylist():
            for portion in work[task]:
                yield portion
                give_back(share)


def _blob(shard: int, port: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    sink, kept = pa.BufferOutputStream(), without_absent(rows)
    with pa.ipc.new_stream(sink, kept.schema) as stream:
        stream.write_batch(kept)
    content = sink.getvalue()
    offsets = pa.py_buffer(np.array([0, content.size], np.int32))
    batch = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, content])
    places = [pa.array([shard], pa.int32()), pa.array([port], pa.int16())]
    return pa.RecordBatch.from_arrays([*places, batch], schema=_COLUMNS)
