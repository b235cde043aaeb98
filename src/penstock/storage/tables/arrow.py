"""A master table that is an Arrow table in this process: for tests, the lab, and tables that are small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.core.errors import ConfigError
from penstock.core.master import Changes, TableSize, master_schema
from penstock.core.rows import Hashes, Indices, hashes_of
from penstock.kernels.distinct import firsts, run_starts
from penstock.kernels.hashing import hash_keys


@dataclass(frozen=True)
class ArrowTable:
    """Rows by key, cut into partitions of `partition_rows` rows, but never inside of a key.

    >>> table = ArrowTable(pa.table({"id": [1, 2], "name": ["a", "b"]}), keys=("id",)).open()
    >>> table.size.rows, table.unique
    (2, True)
    """

    rows: pa.Table
    keys: tuple[str, ...]
    partition_rows: int = 1 << 14

    store: ClassVar[str] = "arrow"
    versioned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in self.keys:
            if name not in self.rows.column_names:
                raise ConfigError.unknown_column("keys", name, self.rows.column_names, "this table")

    @property
    def columns(self) -> pa.Schema:
        """The table's columns."""
        return self.rows.schema

    def __str__(self) -> str:
        return f"an Arrow table of {self.rows.num_rows:,} rows"

    def open(self, version: str | None = None) -> OpenArrowTable:
        """The table; it has one version only."""
        return self._opened

    @cached_property
    def _opened(self) -> OpenArrowTable:
        return OpenArrowTable(self.rows, self.keys, self.partition_rows)


class OpenArrowTable:
    """The rows, sorted by the hash of their key."""

    def __init__(self, rows: pa.Table, keys: tuple[str, ...], partition_rows: int) -> None:
        self.columns: pa.Schema = rows.schema
        self.keys = keys
        self.clustered = True
        self.version = "0"
        self._rows = sorted_master(rows, keys)
        hashes = hashes_of(self._rows)
        self.size = TableSize(rows.num_rows, rows.nbytes)
        self.unique = is_unique(self._rows, keys)
        # A partition ends where another hash begins: all rows of a key are together.
        ends = np.searchsorted(hashes, hashes[partition_rows - 1 :: partition_rows], "right")
        self._ends = np.unique(np.append(ends, rows.num_rows))
        self._last = hashes[self._ends - 1] if rows.num_rows else np.empty(0, np.uint64)

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return int(self._last.size)

    def partition_of(self, hashes: Hashes, keys: Sequence[pa.Array]) -> Indices:
        """By the hash; -1 where no row has it."""
        held = hashes_of(self._rows)
        if not held.size:
            return np.full(hashes.size, -1)
        there = held.take(held.searchsorted(hashes), mode="clip") == hashes
        return np.where(there, np.minimum(self._last.searchsorted(hashes), self.partitions - 1), -1)

    def scan(self, partition: int) -> pa.RecordBatch:
        """The rows of a partition, without a copy."""
        first = int(self._ends[partition - 1]) if partition else 0
        return self._rows.slice(first, int(self._ends[partition]) - first)

    def get(self, hashes: Hashes, keys: Sequence[pa.Array]) -> pa.RecordBatch:
        """The rows of some keys."""
        return rows_of_hashes(self._rows, hashes)

    def changes(self, since: str) -> Changes:
        """None."""
        return Changes(self.columns.empty_table().select(list(self.keys)))


def sorted_master(rows: pa.Table, keys: Sequence[str]) -> pa.RecordBatch:
    """A table's rows as one batch of master rows: led by the hash of their key, and sorted by it.

    >>> sorted_master(pa.table({"id": [1, 2]}), ["id"]).schema.names
    ['__hash', 'id']
    """
    columns = [_chunk(column) for column in rows.columns]
    hashes = hash_keys([columns[rows.column_names.index(name)] for name in keys])
    order = pa.array(np.argsort(hashes, kind="stable"))
    arrays = [pa.array(hashes), *columns]
    return pa.RecordBatch.from_arrays(arrays, schema=master_schema(rows.schema)).take(order)


def rows_of_hashes(rows: pa.RecordBatch, hashes: Hashes) -> pa.RecordBatch:
    """Those of some master rows whose hash is among `hashes`; they stay in their order.

    >>> rows = sorted_master(pa.table({"id": [1, 2]}), ["id"])
    >>> rows_of_hashes(rows, hashes_of(rows)[:1]).num_rows
    1
    """
    held, wanted = hashes_of(rows), distinct(hashes)
    begin, end = held.searchsorted(wanted), held.searchsorted(wanted, "right")
    counts = end - begin
    places = np.repeat(begin - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
    return rows.take(pa.array(places))


def distinct(hashes: Hashes) -> Hashes:
    """Each hash once, in ascending order. (By sorting, which for hashes is much faster than ``np.unique``.)

    >>> distinct(np.array([3, 1, 3], np.uint64)).tolist()
    [1, 3]
    """
    ascending = np.sort(hashes)
    return ascending[run_starts(ascending.view(np.int64))]


def is_unique(rows: pa.RecordBatch, keys: Sequence[str]) -> bool:
    """Whether no two of some master rows have the same key."""
    columns = [rows.column(name) for name in keys]
    return bool(firsts(hashes_of(rows).view(np.int64), columns).all())


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
