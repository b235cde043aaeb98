"""Where in Parquet files the rows of a key are: hashes, sorted, with row group and row, in memory-mapped files.

There is one index file for each data file, so that only files that are new are ever scanned, and only their key
columns are. Inside, the entries come in runs that are sorted each by itself: a run is what is sorted in memory at a
time. Rows with a null in their key have no entry.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.rows import HASH, Hashes, Indices, concat, hashes_of
from penstock.kernels.hashing import hash_keys
from penstock.storage.tables.arrow import distinct, is_unique, rows_of_hashes

GROUP, ROW = "__group", "__row"

_RUN = 1 << 20
"""Entries that are sorted at a time,"""

_RUN_BYTES = 1 << 24
"""or fewer, of so many bytes: a worker takes up to 100 MB for a while, whatever the keys."""

_READ = 1 << 12
"""Keys that are read at a time."""

_NOTE = b"penstock"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an index tells of a table: whether a key has one row at most, and all of them in one partition."""

    unique: bool = True
    clustered: bool = True


class FileIndex:
    """The index of one data file, memory-mapped."""

    def __init__(self, path: str) -> None:
        with pa.memory_map(path) as source:
            reader = pa.ipc.open_file(source.read_buffer())
        note = json.loads(reader.schema.metadata[_NOTE])
        self.group_rows: list[int] = note["rows"]
        self.group_bytes: list[int] = note["bytes"]
        self.runs: list[pa.RecordBatch] = [reader.get_batch(place) for place in range(reader.num_record_batches)]

    def places(self, hashes: Hashes) -> pa.RecordBatch:
        """The row groups and rows that have one of some hashes, in the order of the file."""
        found = [rows_of_hashes(run.select([HASH, GROUP, ROW]), hashes) for run in self.runs]
        entries = concat(found, _PLACES)
        group, row = entries.column(GROUP).to_numpy(), entries.column(ROW).to_numpy()
        return entries.take(pa.array(np.lexsort([row, group])))

    def keys(self) -> pa.Table:
        """The keys of all its entries, without a copy."""
        names = self.runs[0].schema.names[3:] if self.runs else []
        return pa.Table.from_batches([run.select(names) for run in self.runs])


def write_index(source: pq.ParquetFile, keys: pa.Schema, path: str) -> None:
    """Scan the key columns of a data file, and write its index under a name that is there once it is complete."""
    groups = [source.metadata.row_group(group) for group in range(source.num_row_groups)]
    note = {"rows": [group.num_rows for group in groups], "bytes": [group.total_byte_size for group in groups]}
    schema = pa.schema([*_PLACES, *keys], {_NOTE: json.dumps(note).encode()})
    draft = f"{path}.{uuid.uuid4().hex}.draft"
    try:
        with pa.ipc.new_file(draft, schema) as writer:
            for run in _runs(source, keys):
                writer.write_batch(run)
        os.replace(draft, path)
    finally:
        if os.path.exists(draft):
            os.remove(draft)


class KeyIndex:
    """The indexes of all files of a table, whose partitions are row groups, small neighbours taken together."""

    def __init__(self, files: Sequence[FileIndex], partition_rows: int) -> None:
        self.files = list(files)
        self.partitions: list[tuple[int, list[int]]] = []
        """The file and the row groups of each partition."""
        self._partition: list[Indices] = []
        for number, file in enumerate(self.files):
            cuts = _cut_groups(file.group_rows, partition_rows)
            self._partition.append(len(self.partitions) + cuts)
            parts = range(int(cuts[-1]) + 1 if cuts.size else 0)
            self.partitions += [(number, np.flatnonzero(cuts == part).tolist()) for part in parts]

    @property
    def rows(self) -> int:
        """How many rows the files have."""
        return sum(sum(file.group_rows) for file in self.files)

    @property
    def nbytes(self) -> int:
        """The bytes of their values, as far as Parquet knows."""
        return sum(sum(file.group_bytes) for file in self.files)

    def partition_of(self, hashes: Hashes) -> Indices:
        """A partition that has each hash; -1 where none has."""
        where = np.full(hashes.size, -1)
        for file, partition in zip(self.files, self._partition, strict=True):
            for run in file.runs:
                held = hashes_of(run)
                places = held.searchsorted(hashes)
                there = held.take(places, mode="clip") == hashes
                where[there] = partition[run.column(GROUP).to_numpy()[places[there]]]
        return where

    def verdict(self, known: Verdict, fresh: Sequence[bool]) -> Verdict:
        """Look whether keys are repeated. `known` holds for the files that are not `fresh`, by themselves."""
        unique, clustered = known.unique, known.clustered
        for low, high in _ranges([run for file in self.files for run in file.runs]):
            if not unique and not clustered:
                break
            entries, partition = self._between(low, high, fresh)
            hashes = np.concatenate([hashes_of(run) for run in entries]) if entries else np.empty(0, np.uint64)
            order = np.argsort(hashes, kind="stable")
            again = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
            if not again.size:
                continue
            apart = np.concatenate(partition)[order]
            clustered &= bool((apart[again] == apart[again + 1]).all())
            twice = order[np.union1d(again, again + 1)]
            unique = unique and _unique(pa.Table.from_batches(entries).take(pa.array(twice)))
        return Verdict(unique, clustered)

    def _between(
        self, low: int, high: int, fresh: Sequence[bool]
    ) -> tuple[list[pa.RecordBatch], list[npt.NDArray[np.int64]]]:
        """The entries of a range of hashes, and their partitions; of files that are not fresh those that these have."""
        runs = [
            (number, run.slice(begin, end - begin))
            for number, file in enumerate(self.files)
            for run in file.runs
            for begin, end in [_span(hashes_of(run), low, high)]
        ]
        new = [(number, run) for number, run in runs if fresh[number]]
        if not new:
            return [], []
        old = [(number, run) for number, run in runs if not fresh[number]]
        if old:
            theirs = distinct(np.concatenate([hashes_of(run) for _, run in new]))
            old = [(number, rows_of_hashes(run, theirs)) for number, run in old]
        kept = new + old
        partition = [self._partition[number][run.column(GROUP).to_numpy()] for number, run in kept]
        return [run for _, run in kept], partition


def not_null(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows that have no null in their key: the others match nothing."""
    for name in keys:
        if rows.column(name).null_count:
            rows = rows.filter(rows.column(name).is_valid())
    return rows


def conform(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Some rows with these columns: cast to their types, null where the rows have none of the name.

    >>> rows = pa.table({"id": pa.array([1], pa.int32())})
    >>> conform(rows, pa.schema({"id": pa.int64(), "name": pa.string()})).to_pylist()
    [{'id': 1, 'name': None}]
    """
    held = set(rows.column_names)
    arrays = [
        rows.column(field.name).cast(field.type) if field.name in held else pa.nulls(rows.num_rows, field.type)
        for field in columns
    ]
    return pa.Table.from_arrays(arrays, schema=columns)


_PLACES = pa.schema({HASH: pa.uint64(), GROUP: pa.int32(), ROW: pa.int32()})


def _runs(source: pq.ParquetFile, keys: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The entries of a file in sorted runs."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for entries in _entries(source, keys):
        pending.append(entries)
        rows, size = rows + entries.num_rows, size + entries.nbytes
        if rows >= _RUN or size >= _RUN_BYTES:
            yield _sorted(pending)
            rows = size = 0
    if pending:
        yield _sorted(pending)


def _entries(source: pq.ParquetFile, keys: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The entries of a file in its order, some at a time."""
    for group in range(source.num_row_groups):
        first = 0
        for batch in source.iter_batches(batch_size=min(_READ, _RUN), row_groups=[group], columns=keys.names):
            rows = conform(pa.Table.from_batches([batch]), keys)
            rows = rows.append_column(ROW, pa.array(np.arange(first, first + batch.num_rows, dtype=np.int32)))
            first += batch.num_rows
            for part in not_null(rows, keys.names).combine_chunks().to_batches():
                columns = [part.column(name) for name in keys.names]
                places = [pa.array(np.full(part.num_rows, group, np.int32)), part.column(ROW)]
                arrays = [pa.array(hash_keys(columns)), *places, *columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*_PLACES, *keys]))


def _sorted(pending: list[pa.RecordBatch]) -> pa.RecordBatch:
    """All entries as one run, and the list empty."""
    schema = pending[0].schema
    columns = [[entries.column(place) for entries in pending] for place in range(len(schema))]
    pending.clear()
    order = pa.array(np.argsort(np.concatenate(columns[0]), kind="stable"))
    arrays = []
    while columns:  # One by one: each is there twice for a while.
        arrays.append(pa.concat_arrays(columns.pop(0)).take(order))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cut_groups(rows: Sequence[int], limit: int) -> Indices:
    """Which partition of its file each row group belongs to: neighbours share one while they have `limit` rows."""
    cuts, part, held = [], -1, limit
    for count in rows:
        part, held = (part, held + count) if held + count <= limit else (part + 1, count)
        cuts.append(part)
    return np.array(cuts, np.int64)


def _ranges(runs: Sequence[pa.RecordBatch]) -> Iterator[tuple[int, int]]:
    """Ranges of hashes that have about a run's entries each, for hashes are uniform."""
    rows, size = sum(run.num_rows for run in runs), sum(run.nbytes for run in runs)
    count = max(-(-rows // _RUN), -(-size // _RUN_BYTES))
    edges = [place * (1 << 64) // count for place in range(count)] + [1 << 64]
    yield from pairwise(edges)


def _span(hashes: Hashes, low: int, high: int) -> tuple[int, int]:
    begin = int(hashes.searchsorted(np.uint64(low)))
    return begin, int(hashes.searchsorted(np.uint64(high))) if high < 1 << 64 else hashes.size


def _unique(entries: pa.Table) -> bool:
    rows = entries.combine_chunks().to_batches()[0]
    return is_unique(rows, rows.schema.names[3:])
