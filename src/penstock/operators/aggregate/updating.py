"""Windows that come out before they are complete, too: as epochs change them, or every so much of event time.

Complete windows come out once, as ever, and are called final. Before, at the end of an epoch, open ones come out as
they stand: those that its rows have changed ('update'), or all of them once event time has gone past the next multiple
of `every` ('early'). The event time of a result is as ever that of its window's end, and so are the bounds.
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
from penstock.operators.aggregate.config import Early
from penstock.operators.aggregate.paned import PanedAggregation
from penstock.operators.aggregate.partials import Piece, Source
from penstock.operators.aggregate.results import Read
from penstock.operators.aggregate.roles import Role
from penstock.operators.aggregate.spread import windows_of_panes


class UpdatingAggregation(PanedAggregation):
    """Paned-WID that also puts out open windows, on one shard."""

    roles: tuple[Role, ...] = ("panes",)

    _shown: int
    """Of how many multiples of `every` open windows have been shown."""

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Fold rows by pane, and remember which panes they are."""
        main = self._tables["panes"][0]
        before = len(main.pages)
        yield from super().rows(port, rows)
        self._fresh |= {page.name for page in main.pages[before:]}

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Open windows come out if it is time."""
        emit = self._config.emit
        first, after = self._due(TIME_MAX)
        if first < after and (self._is_time(emit) if isinstance(emit, Early) else bool(self._fresh)):
            self._results.emitted = "early" if isinstance(emit, Early) else "update"
            read = self._read_panes if isinstance(emit, Early) else self._read_changed
            yield from self._results.close(first, after, read, self._ends)
            self._results.emitted = "final"
        self._fresh.clear()

    def _is_time(self, emit: Early) -> bool:
        """Whether event time has passed another multiple of `every` since open windows were shown."""
        if not TIME_MIN < self._bound < TIME_MAX:
            return False
        before = self._shown
        self._shown = self._bound // emit.every.on(self._config.unit)
        return self._shown > before

    def _restore(self, record: dict[str, Any]) -> None:
        self._fresh: set[str] = set()
        self._shown = record.get("shown", TIME_MIN)

    def _record(self) -> dict[str, Any]:
        return {"closed": self._closed, "shown": self._shown}

    def _forget(self) -> None:
        if self._bound == TIME_MAX:
            self._clear("panes")
            self._fresh.clear()
        elif self._closed > TIME_MIN:
            for table in self._tables["panes"]:
                table.forget_below(self._panes.windows.extent(self._closed)[0])

    def _close(self, first: Wid, after: Wid) -> Iterator[Out]:
        return self._results.close(first, after, self._read_panes, self._ends)

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
