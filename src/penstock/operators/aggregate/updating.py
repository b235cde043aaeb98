"""Windows that come out before they are complete: at the end of every epoch, those that its rows have changed.

A window and group come out once for each epoch that brought rows of theirs; the last of these is the final result, so
that whoever keeps the latest row of each has the answer in the end. The event time of a result is as ever that of its
window's end, and so are the bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.operator import Allowance, Out
from penstock.core.rows import concat, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.core.windows import Wid
from penstock.kernels.segments import Mask
from penstock.operators.aggregate.paned import PanedAggregation
from penstock.operators.aggregate.partials import Piece, Source
from penstock.operators.aggregate.results import Read
from penstock.operators.aggregate.wid import windows_of_panes


class UpdatingAggregation(PanedAggregation):
    """Paned-WID that puts out what an epoch changed, on one shard."""

    roles = ("panes",)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Fold rows by pane, and remember which panes they are."""
        main = self._tables["panes"][0]
        before = len(main.pages)
        yield from super().rows(port, rows)
        self._fresh |= {page.name for page in main.pages[before:]}

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Open windows that have changed come out."""
        if self._fresh:
            yield from self._close(*self._due(TIME_MAX))
            self._fresh.clear()

    def _restore(self, record: dict[str, Any]) -> None:
        self._fresh: set[str] = set()

    def _record(self) -> dict[str, Any]:
        return {"closed": self._closed}

    def _forget(self) -> None:
        if self._bound == TIME_MAX:
            self._clear("panes")
            self._fresh.clear()
        elif self._closed > TIME_MIN:
            for table in self._tables["panes"]:
                table.forget_below(self._panes.windows.extent(self._closed)[0])

    def _close(self, first: Wid, after: Wid) -> Iterator[Out]:
        """Of these windows, those that rows of this epoch are in."""
        if self._fresh and first < after:
            yield from self._results.close(first, after, self._read_changed, self._ends)

    def _read_changed(self, first: Wid, after: Wid) -> Read:
        return self._read_panes(first, after)._replace(keep=lambda main: self._changed(main, first, after))

    def _changed(self, main: pa.RecordBatch, first: Wid, after: Wid) -> Mask:
        if not main.num_rows:
            return np.zeros(0, np.bool_)
        table = self._tables["panes"][0]
        hashes = hashes_of(main)
        fresh = Source(table, among=[page for page in table.pages if page.name in self._fresh])
        parts = list(fresh.read(Piece(int(hashes.min()), int(hashes.max()))))
        lane = table.lane
        spread = lane.fold(windows_of_panes(lane, self._panes, first, after)(concat(parts, lane.schema)))
        groups = [main.column(place) for place in lane.group_places]
        mask: Mask = lane.look_up(spread, hashes, groups, times_of(main)) >= 0
        return mask
