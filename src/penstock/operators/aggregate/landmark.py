"""Landmark windows: everything so far, again at every slide.

A base aggregate per group, and the partials of each slide since. When windows are complete, slides are folded into the
base in order, and every group is emitted for every window from its first row on, whether it changed or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.operator import Out
from penstock.core.rows import times_of
from penstock.core.time import TIME_MAX
from penstock.core.windows import Wid
from penstock.kernels.segments import Mask
from penstock.operators.aggregate.lanes import Lane
from penstock.operators.aggregate.paned import PanedAggregation
from penstock.operators.aggregate.partials import Renumber, Source, write_folded
from penstock.operators.aggregate.results import Read
from penstock.operators.aggregate.roles import Role
from penstock.operators.aggregate.session import last_times

_AT_ONCE = 64
"""Windows that come out at once, if their groups are few."""


class LandmarkAggregation(PanedAggregation):
    """Landmark windows on one shard (specs: window-queries §2.3, §2.5; F06)."""

    roles: tuple[Role, ...] = ("panes", "base")

    def _restore(self, record: dict[str, Any]) -> None:
        """The base is no cache: it stays."""

    def _record(self) -> dict[str, Any]:
        return {"closed": self._closed}

    def _due(self, complete: Wid) -> tuple[Wid, Wid]:
        """With a base, every window since the last; at the end of the stream as far as there are rows."""
        numbers = self._tables["panes"][0].numbers()
        base = self._tables["base"][0].numbers()
        if numbers is None and (base is None or complete == TIME_MAX):
            return 0, 0
        first = self._closed if base is not None or numbers is None else max(self._closed, numbers[0])
        return first, numbers[1] + 1 if complete == TIME_MAX and numbers is not None else complete

    def _forget(self) -> None:
        """Slides are in the base by now."""
        if self._bound == TIME_MAX:
            self._clear(*self.roles)

    def _close(self, first: Wid, after: Wid) -> Iterator[Out]:
        rows = sum(page.rows for role in self.roles for table in self._tables[role] for page in table.pages)
        step = _AT_ONCE if rows <= self.direct_rows else 1
        # At the end only slides that have rows come out, however far apart they are.
        slides = self._numbers() if self._bound == TIME_MAX else None
        low = first
        while low < after:
            high = min(low + step, after)
            yield from self._results.close(low, high, self._read, self._ends)
            self._absorb(high)
            low = high
            if slides is not None:
                slides = slides[slides >= high]
                low = int(slides[0]) if slides.size else after

    def _read(self, first: Wid, after: Wid) -> Read:
        tables = list(zip(self._tables["base"], self._tables["panes"], strict=True))
        sources = [[Source(base), Source(panes, high=after)] for base, panes in tables]
        renumber = [_from_then_on(base.lane, first, after) for base, _ in tables]
        return Read(sources, renumber, after - first, self._changed if self._bound == TIME_MAX else None)

    def _changed(self, main: pa.RecordBatch) -> Mask:
        """Which windows have a row of the group in their own slide: at the end, others would have no end."""
        slides, _ = self._windows.wids(last_times(self._entry.lanes[0], main))
        mask: Mask = slides == times_of(main)
        return mask

    def _absorb(self, until: Wid) -> None:
        """Fold the slides before a window into the base."""
        for base, panes in zip(self._tables["base"], self._tables["panes"], strict=True):
            slides = Source(panes, high=until)
            if slides.pages():
                base.take(write_folded(base, [Source(base), slides], until - 1))
                panes.forget_below(until)


def _from_then_on(lane: Lane, first: Wid, after: Wid) -> Renumber:
    """Gives partials to every window from their own on, from `first` until before `after`."""

    def renumber(partials: pa.RecordBatch) -> pa.RecordBatch:
        low = np.maximum(times_of(partials), first)
        sizes = np.maximum(after - low, 0)
        stop = np.cumsum(sizes)
        wids = np.arange(int(stop[-1]) if stop.size else 0) + np.repeat(low - (stop - sizes), sizes)
        return lane.renumbered(partials.take(pa.array(np.repeat(np.arange(low.size), sizes))), wids)

    return renumber
