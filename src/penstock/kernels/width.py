"""How many bytes rows take, so that chunks of rows of very different width can still be bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.absent import is_absent
from penstock.core.rows import Indices

_UNEVEN = 4
"""The part of a limit by which a piece may exceed it before it is cut again."""


_TEXTS: tuple[tuple[tuple[Any, Any], int, type[np.int32] | type[np.int64]], ...] = (
    ((pa.types.is_string, pa.types.is_binary), 4, np.int32),
    ((pa.types.is_large_string, pa.types.is_large_binary), 8, np.int64),
)
"""Tests for types whose values are as long as their offsets say, and the bytes and the type of an offset."""


def even_pieces(rows: pa.RecordBatch, limit: int, work: int = 0, copies: int = 1) -> Iterator[pa.RecordBatch]:
    """`rows` in pieces of about `limit` bytes, none empty: `copies` of each row, and `work` bytes more for it.

    Pieces have equally many rows unless some rows are much wider than others. A single row may exceed the limit. Where
    texts are encoded, each piece that would be too large has only those that its rows have.

    >>> [piece.num_rows for piece in even_pieces(pa.record_batch({"n": pa.array(range(10))}), 100, work=12)]
    [5, 5]
    >>> rows = pa.record_batch({"text": ["a", "b", "c" * 50, "d" * 50]})
    >>> [piece.num_rows for piece in even_pieces(rows, 80, work=12)]
    [2, 1, 1]
    """
    if not rows.num_rows:
        return
    limit = max(1, limit)
    count = max(1, -(-(copies * rows.nbytes + work * rows.num_rows) // limit))
    size = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, size):
        yield from _halved(rows.slice(start, size), limit + limit // _UNEVEN, work, copies)


def _halved(rows: pa.RecordBatch, limit: int, work: int, copies: int) -> Iterator[pa.RecordBatch]:
    """Rows, cut in halves until each part is within a limit, or cannot be made smaller."""
    if rows.num_rows > 1 and copies * rows.nbytes + work * rows.num_rows > limit:
        rows = _with_own_texts(rows)
    if rows.num_rows > 1 and copies * rows.nbytes + work * rows.num_rows > limit:
        half = rows.num_rows // 2
        parts = _with_own_texts(rows.slice(0, half)), _with_own_texts(rows.slice(half))
        encoded = any(pa.types.is_dictionary(kind) for kind in rows.schema.types)
        # Buffers of views are shared by all rows. Texts that are encoded get fewer in the end, as they would plain.
        if encoded or 2 * sum(part.nbytes for part in parts) <= 3 * rows.nbytes:
            for part in parts:
                yield from _halved(part, limit, work, copies)
            return
    yield rows


def _with_own_texts(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows whose dictionaries have no values but theirs."""
    for place, column in enumerate(rows.columns):
        if pa.types.is_dictionary(column.type) and len(column.dictionary) > 1:
            used = pc.drop_null(pc.unique(column.indices))
            if len(used) < len(column.dictionary):
                codes = pc.index_in(column.indices, used).cast(column.type.index_type)
                own = pa.DictionaryArray.from_arrays(codes, column.dictionary.take(used), ordered=column.type.ordered)
                rows = rows.set_column(place, rows.schema.field(place), own)
    return rows


def row_widths(rows: pa.RecordBatch, which: Indices) -> Indices:
    """The bytes of each chosen row: exact for numbers, strings and binaries, the column's average for others.

    >>> row_widths(pa.record_batch({"n": [1, 2], "s": ["", "four"]}), np.array([1, 0])).tolist()
    [16, 12]
    """
    if which.size > rows.num_rows:  # then those of all rows are fewer than those that are asked for
        return _row_widths(rows, slice(None), rows.num_rows)[which]
    return _row_widths(rows, which, which.size)


def _row_widths(rows: pa.RecordBatch, which: Indices | slice, count: int) -> Indices:
    widths = np.zeros(count, np.int64)
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


def _column_widths(column: pa.Array, which: Indices | slice) -> Indices | int:
    kind = column.type
    for tests, size, offset in _TEXTS:
        if any(test(kind) for test in tests):
            return size if is_absent(column) else _offset_widths(column, which, offset) + size
    try:
        return int(kind.bit_width + 7) // 8
    except ValueError:  # nested values, views, nothing but nulls
        return int(column.nbytes) // max(1, len(column))


def _offset_widths(column: pa.Array, which: Indices | slice, offset: type[np.int32] | type[np.int64]) -> Indices:
    buffer = column.buffers()[1]
    offsets = np.frombuffer(buffer, offset)[column.offset : column.offset + len(column) + 1]
    widths: Indices = np.subtract(offsets[1:][which], offsets[:-1][which], dtype=np.int64)
    return widths
