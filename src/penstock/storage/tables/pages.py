"""penstock's own master table: rows by key in memory-mapped pages, indexed, versioned, and written while it is joined.

A table is a folder at a path or pyarrow.fs URI. Its rows are partitioned by ranges of the hash of their key or of the
key itself (`ranges`), several partitions to a page; all rows of a key are in one partition. Each change creates a new
version that shares everything unchanged with the previous one; old versions can be read until `vacuum`.

Partition numbers are permanent: a key stays in its partition, unless that has grown and is split in two; its upper part
then moves to a partition with the next number. `moved` is the version in which that last happened. Rows appended after
all others of a table partitioned by range go to new partitions and move nothing.

    build_page_table(folder, batches, keys=["id"])
    table = PageTable(folder)
    orders.lookup(table, on="id")
    table.upsert(rows)                # the next epoch sees them
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import pyarrow as pa

from penstock.core.errors import ConfigError
from penstock.storage.files import is_local, path_of
from penstock.storage.tables.edit import Edit, check_expected
from penstock.storage.tables.manifest import Layout, Versions
from penstock.storage.tables.opened import OpenPageTable, open_version
from penstock.storage.tables.partitions import check_arrow, distinct_keys, enter


@dataclass(frozen=True)
class PageTable:
    """The page table in a folder, written with `pk.write_page_table`.

    >>> import tempfile
    >>> from penstock.storage.tables.build import build_page_table
    >>> table = build_page_table(tempfile.mkdtemp(), [pa.table({"id": [1, 2], "name": ["a", "b"]})], keys=["id"])
    >>> table.upsert(pa.table({"id": [2, 3], "name": ["B", "c"]}))
    '2'
    >>> table.open().size.rows, table.open("1").size.rows
    (3, 2)
    """

    uri: str

    versioned: ClassVar[bool] = True

    @property
    def store(self) -> str:
        """Pages, here or elsewhere."""
        return "pages" if is_local(self.uri) else "remote"

    def __post_init__(self) -> None:
        object.__setattr__(self, "uri", path_of(self.uri, "uri"))

    @property
    def columns(self) -> pa.Schema:
        """The table's columns."""
        return self.layout.columns

    def __str__(self) -> str:
        return f"page table {self.uri}"

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that rows are looked up by."""
        return self.layout.keys

    @cached_property
    def layout(self) -> Layout:
        """How the table is partitioned; read once, and pickled with it."""
        return Versions(self.uri).read().layout

    @property
    def version(self) -> str:
        """The latest version."""
        return str(Versions(self.uri).read().version)

    def open(self, version: str | None = None) -> OpenPageTable:
        """The table as of `version`, or as it is now. Later writes do not change it; it is readable until vacuumed."""
        return open_version(self.uri, Versions(self.uri).read(version))

    def append(self, rows: pa.Table | pa.RecordBatch, expected: str | None = None) -> str:
        """Add rows to those that exist, and return the new version.

        Here and below: with `expected`, only if the table is still at that version. If another writer commits first,
        this change fails and is discarded. Rows with a null key are counted, not stored.
        """
        added, left_out = enter(rows, self.layout)
        return self._change(None, added, expected, left_out)

    def upsert(self, rows: pa.Table | pa.RecordBatch, expected: str | None = None) -> str:
        """Replace all rows that have one of these keys; new keys are added."""
        added, left_out = enter(rows, self.layout)
        return self._change(distinct_keys(added, self.layout), added, expected, left_out)

    def delete(self, keys: pa.Table | pa.RecordBatch, expected: str | None = None) -> str:
        """Remove the rows that have one of these keys; other columns are ignored."""
        check_arrow(keys, "keys")
        names = list(self.keys)
        for name in names:
            if name not in keys.schema.names:
                raise ConfigError.unknown_column("keys", name, keys.schema.names, "the table given")
        only = Layout(pa.schema([self.columns.field(name) for name in names]), self.keys, self.layout.by)
        removed = distinct_keys(enter(keys, only)[0], only)
        return self._change(removed, None, expected, 0)

    def vacuum(self, keep: int = 2) -> tuple[int, int]:
        """Delete all but the last `keep` versions, and return how many files and bytes were freed.

        Joins that use a deleted version fail, so keep the versions that running epochs may have opened, and the one
        that a flow with ``freshness="snapshot"`` started with, for as long as the flow lives. `changes` reaches back as
        far as versions are kept; before that, any key counts as changed.
        """
        if keep < 1:
            raise ConfigError(f"keep={keep} would delete the table. Keep at least 1 version, 2 while it is joined.")
        return Versions(self.uri).sweep(keep)

    def _change(self, removed: pa.RecordBatch | None, added: pa.RecordBatch | None, at: str | None, nulls: int) -> str:
        versions = Versions(self.uri)
        base = versions.read()
        check_expected(versions, base, at)
        return str(Edit(versions, base, nulls).commit(removed, added).version)
