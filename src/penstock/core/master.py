"""Master tables: what a stream is looked up in. They live outside of the flow, are larger than memory, and may change.

Rows of a master table come in batches led by the hash of their key (`HASH`, by `kernels.hashing.hash_keys`), sorted by
it, then the table's own columns. A table is cut into partitions, numbered from 0; all rows of a key are in one
partition unless the table says that it is not `clustered`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.rows import HASH, Hashes, Indices


@dataclass(frozen=True, slots=True)
class Changes:
    """Which keys changed between two versions of a table: their columns, or None if that is not known."""

    keys: pa.Table | None


@dataclass(frozen=True, slots=True)
class TableSize:
    """How large a table is, as far as it is known: what a planner reckons with.

    >>> TableSize(rows=1000, nbytes=120_000).row
    120.0
    """

    rows: int
    nbytes: int

    @property
    def row(self) -> float:
        """The bytes of a row."""
        return self.nbytes / max(1, self.rows)


class MasterTable(Protocol):
    """One version of a master table, open for reading."""

    @property
    def columns(self) -> pa.Schema:
        """The table's columns."""
        ...

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that rows are looked up by."""
        ...

    @property
    def unique(self) -> bool:
        """Whether a key has at most one row."""
        ...

    @property
    def clustered(self) -> bool:
        """Whether all rows of a key are in one partition, which `partition_of` tells."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever a row may have."""
        ...

    @property
    def size(self) -> TableSize:
        """Its size."""
        ...

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        ...

    def partition_of(self, hashes: Hashes, keys: Sequence[pa.Array]) -> Indices:
        """The partition that has the rows of each key; -1 where an index says that there are none."""
        ...

    def scan(self, partition: int) -> pa.RecordBatch:
        """All rows of a partition."""
        ...

    def get(self, hashes: Hashes, keys: Sequence[pa.Array]) -> pa.RecordBatch:
        """All rows that have one of these keys, which are distinct; perhaps some more whose hash is the same."""
        ...

    def changes(self, since: str) -> Changes:
        """Which keys changed after version `since`."""
        ...


@runtime_checkable
class TableSource(Protocol):
    """Where a master table is: small, picklable, opened where it is read."""

    @property
    def columns(self) -> pa.Schema:
        """The table's columns."""
        ...

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that rows are looked up by."""
        ...

    @property
    def store(self) -> str:
        """The kind of place it is in, which decides what a read takes: a name of `planner.lookup.STORES`."""
        ...

    @property
    def versioned(self) -> bool:
        """Whether it can be opened as it was before; a snapshot of any other is a copy."""
        ...

    def open(self, version: str | None = None) -> MasterTable:
        """The table as of `version`, or as it is now."""
        ...


def layout_of(table: MasterTable) -> str:
    """Changes whenever a key may have moved to a partition with another number.

    That is with every version, unless the table has a `layout` that tells it more exactly.
    """
    return str(getattr(table, "layout", table.version))


def edition_of(table: MasterTable) -> Hashable | None:
    """What this version of this table goes by in this process, None if it cannot be told from others."""
    edition: Hashable | None = getattr(table, "edition", None)
    return edition


def charged_to(table: MasterTable, budget: Budget) -> MasterTable:
    """The table, with what it takes to read it, and what it keeps of that, charged to the task that reads.

    That is all but the rows that come back, which are the caller's to charge. A read that does not fit raises. Tables
    that are mapped or in memory anyway take nothing; the others have a method `within` for it.
    """
    within = getattr(table, "within", None)
    return table if within is None else within(budget)


def master_schema(columns: pa.Schema) -> pa.Schema:
    """The columns of batches of master rows.

    >>> master_schema(pa.schema({"id": pa.int64()})).names
    ['__hash', 'id']
    """
    return pa.schema([pa.field(HASH, pa.uint64()), *columns])


Freshness = Literal["snapshot", "latest"]
"""Which version of a master table rows see: that of the flow's first start, or in each epoch the newest."""


class Master(NamedTuple):
    """Where an operator's master table is, and which version of it rows see."""

    table: TableSource
    freshness: Freshness
