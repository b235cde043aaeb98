"""How rows, or partials that a host made of them, enter the lanes of an aggregation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.rows import RowType, times_of
from penstock.core.time import Times
from penstock.core.windows import Wids
from penstock.kernels.segments import numbers_of
from penstock.operators.aggregate.config import WindowAggregate
from penstock.operators.aggregate.lanes import Apart, Lane
from penstock.operators.pieces import pieces

_LIFTING = 128
"""Bytes that sorting and lifting one row takes besides its own: codes, order, segments and their scratch."""

Number = Callable[[Times], Wids]
"""The pane or window of each row."""


class Entry:
    """Port 0 takes rows; port 1 + n takes partials of lane n, whose `TIME` lies in their pane."""

    def __init__(
        self, config: WindowAggregate, inputs: tuple[RowType, ...], budget: Budget, meter: Meter | None = None
    ) -> None:
        config.check(inputs)
        self.lanes: tuple[Lane, ...] = config.lanes(inputs)
        self._rows = inputs[0]
        self._budget = budget
        self._meter = meter

    def lift(self, port: int, rows: pa.RecordBatch, number: Number) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Each lane's place, and its partials of a piece of the rows, folded."""
        for piece in self._pieces(rows):
            size = piece.nbytes + _LIFTING * piece.num_rows
            with self._budget.hold(2 * size, "sorting and lifting arrivals"):
                numbers = number(times_of(piece))
                apart: Apart = "unknown"
                for place, lane in enumerate(self.lanes) if not port else [(port - 1, self.lanes[port - 1])]:
                    if port:
                        partials = lane.fold(lane.renumbered(piece, numbers))
                    else:
                        partials = lane.lift(piece, self._rows, numbers, apart)
                    if place == 0:
                        # All lanes have the groups of these rows; the main one has the fewest partials.
                        apart = lane.apart(partials)
                        self._count(partials)
                    yield place, partials

    def _count(self, partials: pa.RecordBatch) -> None:
        """Tell of rows and partials; the first function of the main lane has counted the rows."""
        if self._meter is not None:
            rows = numbers_of(partials.column(self.lanes[0].parts[0].first))
            self._meter.lift(int(rows.sum()), partials.num_rows)

    def _pieces(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Rows in pieces whose sorting and lifting take at most half of the room."""
        return pieces(rows, self._budget, 2 * _LIFTING, copies=2)


def inside(rows: pa.RecordBatch, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.RecordBatch:
    """The marked rows; all of them without a copy."""
    return rows if mask.all() else rows.filter(pa.array(mask))
