"""Asking a master table for keys, as lookup joins do, in a form that a test can read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.core.master import MasterTable, master_schema
from penstock.core.rows import hashes_of
from penstock.kernels.hashing import hash_keys


def get(table: MasterTable, *keys: list | pa.Array) -> list[dict]:
    """The rows of some keys, given as one list for each key column, in the order of their values."""
    given = [
        key if isinstance(key, pa.Array) else pa.array(key, table.columns.field(name).type)
        for name, key in zip(table.keys, keys, strict=True)
    ]
    rows = table.get(hash_keys(given), given)
    check(table, rows)
    return ordered(rows)


def scanned(table: MasterTable) -> list[dict]:
    """All rows of all partitions."""
    out: list[dict] = []
    for partition in range(table.partitions):
        rows = table.scan(partition)
        check(table, rows)
        out += ordered(rows)
    return sorted(out, key=str)


def check(table: MasterTable, rows: pa.RecordBatch) -> None:
    """Master rows are led by the hash of their key, and sorted by it."""
    assert rows.schema.equals(master_schema(table.columns))
    hashes = hash_keys([rows.column(name) for name in table.keys])
    assert (hashes_of(rows) == hashes).all()
    assert (np.diff(hashes.view(np.uint64).astype(object)) >= 0).all()


def ordered(rows: pa.RecordBatch) -> list[dict]:
    return sorted(pa.Table.from_batches([rows]).drop_columns(["__hash"]).to_pylist(), key=str)
