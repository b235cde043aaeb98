"""How many rows may wait, by the memory that is left for them."""

from __future__ import annotations

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.operators.lookup.waiting import Waiting

_PART = 4
"""Waiting rows take up to 1/_PART of the memory that nothing else takes: joining them takes as much again."""

_BESIDE = 64
"""Bytes of overhead per row."""


def room_for(rows: pa.RecordBatch, budget: Budget, waiting: Waiting, found: float = 0) -> int:
    """How many rows like these may wait in total, if each matches `found` bytes of master rows.

    >>> from penstock.core.budget import Budget
    >>> rows = pa.record_batch({"n": pa.array(range(8))})
    >>> room_for(rows, Budget(72 * 4 * 100), Waiting(rows.schema, Budget(1000)))
    100
    """
    width = rows.nbytes / max(1, rows.num_rows) + _BESIDE + found
    return max(1, int((budget.room + waiting.nbytes) / _PART / width))
