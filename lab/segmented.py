"""A master table cut as an experiment asks for: by ranges of the key, by buckets of its hash, or by place alone.

Every key has a segment, also one that has no row there: nobody knows before the segment was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from penstock.core.master import Changes, TableSize
from penstock.core.rows import Hashes, Indices, hashes_of
from penstock.storage.tables.arrow import is_unique, rows_of_hashes, sorted_master
from penstock.storage.tables.ranges import SlotArray, cut_rows, sort_order

Segmenting = Literal["range", "hash", "scan"]

BUCKETS = 89
"""Of the hash (§2.5, §2.6)."""


@dataclass(frozen=True)
class SegmentedTable:
    """Rows of one integer column ``key``.

    ``range``: segments of `theta` rows to twice as many, consecutive keys in each, found by a slot array. ``hash``: as
    many segments as there are `buckets`. ``scan``: `theta` rows each, in an order that has nothing to do with keys.

    >>> rows = pa.table({"key": [5, 1, 9, 1, 3]})
    >>> SegmentedTable(rows, "range", theta=2).open().partitions
    2
    >>> SegmentedTable(rows, "hash", theta=2).open().partitions
    89
    """

    rows: pa.Table
    by: Segmenting
    theta: int
    buckets: int = BUCKETS

    store: ClassVar[str] = "arrow"
    versioned: ClassVar[bool] = True

    @property
    def columns(self) -> pa.Schema:
        """The table's columns."""
        return self.rows.schema

    @property
    def keys(self) -> tuple[str, ...]:
        """``key``."""
        return ("key",)

    def open(self, version: str | None = None) -> OpenSegmentedTable:
        """The table; it has one version only."""
        return self._opened

    @cached_property
    def _opened(self) -> OpenSegmentedTable:
        return OpenSegmentedTable(self)


class OpenSegmentedTable:
    """The rows segment by segment, sorted by hash in each."""

    def __init__(self, table: SegmentedTable) -> None:
        self.columns: pa.Schema = table.columns
        self.keys = table.keys
        self.clustered = True
        self.version = "0"
        self.size = TableSize(table.rows.num_rows, table.rows.nbytes)
        self._by_hash = sorted_master(table.rows, table.keys)
        self.unique = is_unique(self._by_hash, table.keys)
        self._by = table.by
        self._buckets = table.buckets
        self._slots = SlotArray(np.zeros(1, np.int64))
        segment = self._cut(table.theta)
        self._rows = self._by_hash.take(pa.array(np.argsort(segment, kind="stable")))
        self._ends = np.cumsum(np.bincount(segment, minlength=self._least))

    @property
    def partitions(self) -> int:
        """How many segments there are."""
        return int(self._ends.size)

    def partition_of(self, hashes: Hashes, keys: Sequence[pa.Array]) -> Indices:
        """The segment of each key, whether it has rows or not."""
        if self._by == "range":
            return self._slots.place(keys[0])
        if self._by == "hash":
            return (hashes % np.uint64(self._buckets)).astype(np.int64)
        raise NotImplementedError("Rows that lie in no order of keys have no segment: they are read one after another.")

    def scan(self, partition: int) -> pa.RecordBatch:
        """The rows of a segment, without a copy."""
        first = int(self._ends[partition - 1]) if partition else 0
        return self._rows.slice(first, int(self._ends[partition]) - first)

    def get(self, hashes: Hashes, keys: Sequence[pa.Array]) -> pa.RecordBatch:
        """The rows of some keys."""
        return rows_of_hashes(self._by_hash, hashes)

    def changes(self, since: str) -> Changes:
        """None."""
        return Changes(self.columns.empty_table().select(list(self.keys)))

    @property
    def _least(self) -> int:
        return self._buckets if self._by == "hash" else 1

    def _cut(self, theta: int) -> Indices:
        """The segment of each row."""
        if self._by == "scan":
            return self._one_after_another(theta)
        keys = self._by_hash.column("key")
        if self._by == "range":
            self._slots = SlotArray(cut_rows(keys.take(pa.array(sort_order(keys))), theta).low.to_numpy())
        return self.partition_of(hashes_of(self._by_hash), [keys])

    def _one_after_another(self, theta: int) -> Indices:
        """By place, but never inside of a key: the order is that of hashes, so rows of a key lie together."""
        hashes = hashes_of(self._by_hash)
        place: Indices = np.searchsorted(hashes, hashes) // theta
        return np.unique(place, return_inverse=True)[1].astype(np.int64)
