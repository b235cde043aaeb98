"""Differential WLQ: a window is the one before it, less the panes that left, plus those that entered.

Only for aggregates that can be undone exactly: counts, sums and means of whole numbers, everything made from value
counts, and your own if they say how. Each slide touches the panes of two slides, whatever the range is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.core.operator import Out
from penstock.core.pages import Page, write_page
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.core.windows import Wid
from penstock.operators.aggregate.methods import AggregateMethod
from penstock.operators.aggregate.paned import PanedAggregation
from penstock.operators.aggregate.partials import Partials, Source, folded, pieces, write_folded
from penstock.operators.aggregate.results import Read
from penstock.operators.aggregate.roles import Role


@dataclass(frozen=True, slots=True)
class Differential(AggregateMethod):
    """Differential WLQ has no parameters."""

    from_panes: ClassVar[bool] = True
    subtracts: ClassVar[bool] = True


class DifferentialAggregation(PanedAggregation):
    """Differential WLQ on one shard (specs: window-queries §2.7; F13)."""

    roles: tuple[Role, ...] = ("panes", "window")

    def _restore(self, record: dict[str, Any]) -> None:
        """The window last closed, if it is known; otherwise the next is made from its panes."""
        self._last: Wid | None = record.get("last")
        if self._last is None:
            self._clear("window")

    def _record(self) -> dict[str, Any]:
        return {"closed": self._closed, "last": self._last}

    def _forget(self) -> None:
        """Panes stay until their departure has been subtracted."""
        if self._bound == TIME_MAX:
            self._clear(*self.roles)
            self._last = None
            return
        needed = self._closed if self._last is None else min(self._last, self._closed)
        if needed > TIME_MIN:
            for table in self._tables["panes"]:
                table.forget_below(self._panes.windows.extent(needed)[0])

    def _close(self, first: Wid, after: Wid) -> Iterator[Out]:
        for wid in self._holding(first, after):
            self._slide(wid)
            yield from self._results.close(wid, wid + 1, self._read_window, self._ends)

    def _read_window(self, first: Wid, after: Wid) -> Read:
        tables = self._tables["window"]
        return Read([[Source(table)] for table in tables], [None] * len(tables))

    def _slide(self, wid: Wid) -> None:
        low, high = self._panes.windows.extent(wid)
        old = (low, low) if self._last is None else self._panes.windows.extent(self._last)
        if self._last is None or old[1] <= low:
            self._clear("window")
            old = (low, low)
        self._meter.aggregate(panes=high - max(old[1], low) + low - old[0])
        for table, panes in zip(self._tables["window"], self._tables["panes"], strict=True):
            entering, leaving = Source(panes, max(old[1], low), high), Source(panes, old[0], low)
            table.take(_slid(table, entering, leaving, wid))
        self._last = wid


def _slid(table: Partials, entering: Source, leaving: Source, wid: Wid) -> list[Page]:
    """The pages of a window, range by range of hashes: what was there and enters, less what leaves."""
    lane, budget, written = table.lane, table.budget, list[Page]()
    if not leaving.pages():
        return write_folded(table, [Source(table), entering], wid)
    for piece in pieces([Source(table), entering, leaving], budget):
        whole = folded([Source(table), entering], piece, budget, lambda rows: lane.renumbered(rows, wid))
        with budget.hold(3 * whole.nbytes, "a window that slides"):
            part = folded([leaving], piece, budget, lambda rows: lane.renumbered(rows, wid))
            left = lane.subtract(whole, part)
        if left.num_rows:
            written.append(write_page(table.store, table.kind, lane.page_order(left)))
    return written
