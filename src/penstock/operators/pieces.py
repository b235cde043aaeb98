"""Cuts arrivals into pieces that can be handled within the budget's room."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.kernels.width import even_pieces


def pieces(rows: pa.RecordBatch, budget: Budget, work: int, copies: int = 1) -> Iterator[pa.RecordBatch]:
    """`rows` in pieces that take half of the room: `copies` of each row, and `work` bytes more for it.

    >>> rows = pa.record_batch({"n": pa.array(range(10))})
    >>> [piece.num_rows for piece in pieces(rows, Budget(200), work=12)]
    [5, 5]
    """
    return even_pieces(rows, budget.room // 2, work, copies)
