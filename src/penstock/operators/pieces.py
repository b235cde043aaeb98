"""Cuts arrivals into pieces that can be handled within the budget's room."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.core.budget import Budget


def pieces(rows: pa.RecordBatch, budget: Budget, work: int) -> Iterator[pa.RecordBatch]:
    """`rows` in equal pieces, none empty; one row's bytes and `work` more, times the rows, take half of the room.

    >>> rows = pa.record_batch({"n": pa.array(range(10))})
    >>> [piece.num_rows for piece in pieces(rows, Budget(200), work=12)]
    [5, 5]
    """
    if not rows.num_rows:
        return
    each = rows.nbytes / rows.num_rows + work
    count = max(1, -(-int(rows.num_rows * each) // max(1, budget.room // 2)))
    size = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)
