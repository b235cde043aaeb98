"""Splits rows between the late outlet and the results."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.operator import Out
from penstock.core.rows import RowType

Mask = npt.NDArray[np.bool_]


def split(rows: RowType, batch: pa.RecordBatch, late: Mask) -> Iterator[Out]:
    """Emit an operator's batch: late rows through the late outlet, the others as results.

    >>> from penstock.core.rows import TIME
    >>> one = RowType(pa.schema({"t": pa.int64()}), keys=(), time="t")
    >>> batch = one.enter(pa.table({TIME: [4, 9]}), np.zeros(2, np.uint64))
    >>> [(out.outlet, out.rows.to_pylist()) for out in split(one, batch, np.array([True, False]))]
    [('late', [{'t': 4}]), ('results', [{'t': 9}])]
    """
    if late.any():
        yield Out("late", rows.leave(batch.filter(pa.array(late))))
        batch = batch.filter(pa.array(~late))
    if batch.num_rows:
        yield Out("results", rows.leave(batch))
