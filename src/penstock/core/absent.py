"""Columns without any value take no room: batches are stored and sent without them, and get them back when read.

Rows whose payload stays in its source have many such columns.
"""

from __future__ import annotations

import mmap

import pyarrow as pa

_ZEROS = pa.py_buffer(mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
"""Zeros that all columns without a value share. They are only read, so that the system never allocates them."""

_WHOLE = b"penstock.columns"
"""Where the schema of a batch without some of its columns notes what it was."""


def without_absent(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows without the columns that are null in all of them; the schema notes which those were.

    >>> rows = pa.record_batch({"k": pa.array([1, 2]), "text": pa.nulls(2, pa.string())})
    >>> without_absent(rows).schema.names, with_absent(without_absent(rows)).equals(rows)
    (['k'], True)
    """
    kept = [place for place, column in enumerate(rows.columns) if not is_absent(column)]
    if len(kept) == rows.num_columns or not kept:
        return rows
    return rows.select(kept).replace_schema_metadata({_WHOLE: rows.schema.serialize().to_pybytes()})


def with_absent(rows: pa.RecordBatch) -> pa.RecordBatch:
    """What `without_absent` was given."""
    noted = (rows.schema.metadata or {}).get(_WHOLE)
    if noted is None:
        return rows
    schema = pa.ipc.read_schema(pa.py_buffer(noted))
    there = set(rows.schema.names)
    arrays = [rows.column(f.name) if f.name in there else absent(rows.num_rows, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def absent(rows: int, kind: pa.DataType) -> pa.Array:
    """A column without a value, which takes no memory.

    >>> absent(2, pa.string()).to_pylist()
    [None, None]
    """
    text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    plain = text or pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    if not plain or 16 * (rows + 1) > _ZEROS.size:
        return pa.nulls(rows, kind)
    return pa.Array.from_buffers(kind, rows, [_ZEROS] * (3 if text else 2), null_count=rows)


def is_absent(column: pa.Array) -> bool:
    """Whether a column has no value; one without rows has none to be without.

    >>> is_absent(pa.nulls(2)), is_absent(pa.array([1, None])), is_absent(pa.array([]))
    (True, False, False)
    """
    return bool(column.null_count == len(column) and len(column))
