"""How many bytes rows take, so that chunks of rows of very different width can still be bounded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.core.rows import Indices


def row_widths(rows: pa.RecordBatch, which: Indices) -> Indices:
    """The bytes of each chosen row: exact for numbers, strings and binaries, the column's average for others.

    >>> row_widths(pa.record_batch({"n": [1, 2], "s": ["", "four"]}), np.array([1, 0])).tolist()
    [16, 12]
    """
    widths = np.zeros(which.size, np.int64)
    for column in rows.columns:
        widths += _column_widths(column, which)
    return widths


def cut(widths: Indices, room: int) -> Iterator[slice]:
    """Consecutive slices of rows that take at most `room` bytes each; a row that is wider comes alone.

    >>> [(s.start, s.stop) for s in cut(np.array([4, 4, 9, 1]), 8)]
    [(0, 2), (2, 3), (3, 4)]
    """
    ends = np.cumsum(widths)
    start = 0
    while start < widths.size:
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + room, side="right")))
        yield slice(start, stop)
        start = stop


def _column_widths(column: pa.Array, which: Indices) -> Indices | int:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _offset_widths(column, which, np.int32) + 4
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _offset_widths(column, which, np.int64) + 8
    try:
        return int(kind.bit_width + 7) // 8
    except ValueError:  # nested values, views, nothing but nulls
        return int(column.nbytes) // max(1, len(column))


def _offset_widths(column: pa.Array, which: Indices, offset: type[np.int32] | type[np.int64]) -> Indices:
    buffer = column.buffers()[1]
    offsets = np.frombuffer(buffer, offset)[column.offset : column.offset + len(column) + 1]
    widths: Indices = np.subtract(offsets[which + 1], offsets[which], dtype=np.int64)
    return widths
