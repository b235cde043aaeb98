"""Reads what a user gave as a master table, and makes it one that keeps still where a snapshot is asked for."""

from __future__ import annotations

from typing import Any, Literal

import pyarrow as pa

from penstock.core.errors import ConfigError
from penstock.core.master import TableSource
from penstock.kernels.plain import plain_rows
from penstock.storage.tables.arrow import ArrowTable
from penstock.storage.tables.build import build_page_table
from penstock.storage.tables.manifest import Versions
from penstock.storage.tables.pages import PageTable
from penstock.storage.tables.parquet import ParquetTable


def read_table(table: Any, keys: tuple[str, ...]) -> TableSource:
    """The master table that a user means: a table source as it is, an Arrow table, the path of Parquet files.

    >>> read_table(pa.table({"id": [1]}), ("id",)).keys
    ('id',)
    """
    if isinstance(table, pa.Table):
        _check_on(keys, table.schema)
        return ArrowTable(plain_rows(table), keys)
    if isinstance(table, str):
        files = ParquetTable(table, keys)
        _check_on(keys, files.held)
        return files
    if isinstance(table, TableSource):
        return table
    raise ConfigError(
        f"table={type(table).__name__} is not a table for lookups. Pass an Arrow table, a folder of Parquet files, "
        f"pk.PageTable(…), pk.SqlTable(…), or on Spark a batch DataFrame."
    )


def _check_on(keys: tuple[str, ...], columns: pa.Schema) -> None:
    """Of a table that has no keys of its own they are those of `on=`."""
    for name in keys:
        if name not in columns.names:
            raise ConfigError.unknown_key(name, columns.names)


def pinned(table: TableSource, freshness: Literal["snapshot", "latest"], folder: str) -> TableSource:
    """The table to read from now on: for a snapshot of one that keeps no versions, a copy in pages under `folder`."""
    return table if freshness == "latest" or table.versioned else copied(table, folder)


def copied(table: TableSource, folder: str) -> PageTable:
    """A table as it was when it was first copied into pages under `folder`."""
    if Versions(folder).numbers():
        return PageTable(folder)
    opened = table.open()
    rows = (opened.scan(partition).select(table.columns.names) for partition in range(opened.partitions))
    return build_page_table(folder, rows, table.keys, columns=table.columns)
