"""The buffering baseline: windows close by the latest row seen, and what comes later than the slack is lost.

For ordered input, or for disorder below the slack: then it is exact. Beyond, a row that is late for one of its windows
is lost to all of them, or to the closed ones only. What is lost is counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.core.durations import Duration
from penstock.core.operator import Out, State
from penstock.core.rows import times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.core.windows import Wids
from penstock.operators.aggregate.aggregation import Given
from penstock.operators.aggregate.methods import Buffering
from penstock.operators.aggregate.wid import WidAggregation

_PIECE = 1 << 14
"""Rows that are put into their windows at once."""


class BufferingAggregation(WidAggregation):
    """Consistent and generous slack on one shard (specs: window-queries §2.6; F11). Rows count in order of arrival."""

    def __init__(self, given: Given, settings: Buffering) -> None:
        super().__init__(given)
        state, unit = given.state, given.config.unit
        self._slack = Duration.of(settings.slack, "slack").on(unit, "slack") if settings.slack else 0
        self._late = settings.late
        self._seen: Time = state.meta.get("seen", TIME_MIN)
        self.lost: int = state.meta.get("lost", 0)
        """Updates of windows that late rows should have made."""

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Put each row into those of its windows that were open when it came; then close what the rows have passed."""
        for start in range(0, rows.num_rows, _PIECE):
            piece = rows.slice(start, _PIECE)
            times = times_of(piece)
            before = np.maximum.accumulate(np.concatenate([[self._seen], times]))
            self._seen = int(before[-1])
            self._put(piece, self._closed_at(before[:-1]))
            yield from super().advance(0, max(TIME_MIN, self._seen - self._slack))

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Bounds say nothing here but that the stream has ended."""
        return super().advance(0, bound) if bound == TIME_MAX else iter(())

    def state(self) -> State:
        """Open windows, the latest row seen, and what was lost."""
        return State(super().state().pages, {"seen": self._seen, "lost": self.lost})

    def _closed_at(self, seen: Wids) -> Wids:
        """The first window that was open when the latest row was this."""
        behind = np.where(seen < TIME_MIN + self._slack, TIME_MIN, seen - self._slack)
        first, _ = self._windows.wids(behind)
        return np.where(behind == TIME_MIN, TIME_MIN, first)

    def _put(self, rows: pa.RecordBatch, closed: Wids) -> None:
        first, after = self._windows.wids(times_of(rows))
        low = np.maximum(first, closed)
        if self._late == "consistent":
            low = np.where(closed > first, after, low)
        sizes = np.maximum(after - low, 0)
        self.lost += int((after - first - sizes).sum())
        self._meter.aggregate(updates=int(sizes.sum()))
        stop = np.cumsum(sizes)
        wids = np.arange(int(stop[-1]) if stop.size else 0) + np.repeat(low - (stop - sizes), sizes)
        spread = rows.take(pa.array(np.repeat(np.arange(rows.num_rows), sizes)))
        for place, lane in enumerate(self._entry.lanes):
            if spread.num_rows:
                self._tables[place].add(lane.lift(spread, self._rows, wids))
