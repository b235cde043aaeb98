"""AdaptWID: each group as WID (eager) or as a buffer of rows (lazy), whichever holds less.

A group of few rows is cheaper as rows, one of many as partials of its open windows. Groups start lazy, turn eager when
their rows in open windows pass the threshold, and lazy again, at a bound, when these have become clearly fewer; the
partials of such a group stay until their windows close. Results do not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.core.errors import ConfigError
from penstock.core.operator import Out, State
from penstock.core.rows import hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time, Times
from penstock.core.windows import Slides, Wid, Wids
from penstock.kernels.segments import Mask
from penstock.kernels.sort import stable_order
from penstock.operators.aggregate.aggregation import Aggregation, Given, tidy_pages
from penstock.operators.aggregate.buffer import Buffer
from penstock.operators.aggregate.config import Panes
from penstock.operators.aggregate.entry import inside
from penstock.operators.aggregate.inherited import Inherited
from penstock.operators.aggregate.lanes import clean, counting
from penstock.operators.aggregate.methods import AggregateMethod
from penstock.operators.aggregate.partials import Piece, Source, cost, folded, pieces, slices, with_arrivals
from penstock.operators.aggregate.results import Read
from penstock.operators.aggregate.roles import by_kind, page_kind
from penstock.operators.aggregate.spread import spread_over_windows
from penstock.operators.aggregate.tuples import counted

_MOMENTS = 64
"""How many pairs of high and low water marks are remembered, to know how long windows stay open."""

TEXT = 16
"""Bytes that a text is taken for, where nothing is known of it."""

_GROUPS = "groups, and which of them are eager"


@dataclass(frozen=True, slots=True)
class AdaptWid(AggregateMethod):
    """Per group eager or lazy, whichever is expected to hold less: partials of open windows, or rows.

    A group turns eager once its rows in open windows exceed `threshold`, by default that of Eq 6.9, and lazy again
    below `relapse` times that. `partial` and `row` are bytes, by default those of the columns; `behind` lists for
    each slower source its rows per step of time and by how many steps it lags (Eq 6.8).

    >>> AdaptWid(partial=16, row=64).turning_point(window=600.0, slide=60)
    2.5
    """

    partial: int | None = None
    row: int | None = None
    threshold: float | None = None
    relapse: float = 0.8
    behind: tuple[tuple[float, float], ...] = ()

    takes_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.relapse <= 1:
            raise ConfigError(f"relapse={self.relapse} must be a fraction of the threshold, from 0 to 1.")

    def turning_point(self, window: float, slide: int) -> float:
        """How many rows a group must have in a window of measured length for eager to be smaller (Eq 6.9)."""
        if self.threshold is not None:
            return self.threshold
        assert self.partial is not None
        assert self.row is not None
        return self.partial * window / (self.row * slide) + sum(rate * lag for rate, lag in self.behind)

    def eager_bytes(self, window: float, slide: int) -> float:
        """What an eager group holds (Eq 6.5)."""
        assert self.partial is not None
        return self.partial * window / slide

    def lazy_bytes(self, rate: float, window: float) -> float:
        """What a lazy group holds: a window's rows, less those that slower sources have yet to send (Eq 6.6–6.8)."""
        assert self.row is not None
        return self.row * (rate * window - sum(each * lag for each, lag in self.behind))


class AdaptAggregation(Aggregation):
    """AdaptWID on one shard (specs: window-queries §2.8; F15)."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        settings: AdaptWid = given.config.parameters  # type: ignore[assignment]
        self._windows: Slides = given.config.window.on(given.config.unit)  # type: ignore[assignment]
        self._panes = Panes.of(self._windows)
        self._settings = _with_sizes(settings, self._entry.lanes[0].schema, self._rows.inside)
        pages = by_kind(given.state, given.store, ("windows", "waiting", "volumes", "eager", "panes"))
        self._tables, self._passing = (
            [given.partials(lane, page_kind(role, place), pages) for place, lane in enumerate(self._entry.lanes)]
            for role in ("windows", "passing")
        )
        groups = counting(given.config.by, (), self._rows)
        self._volumes, self._eager = (given.partials(groups, page_kind(role), pages) for role in ("volumes", "eager"))
        waiting = page_kind("waiting")
        self._waiting = Buffer(self._rows.inside, waiting, given.store, given.budget, pages.pop(waiting, []))
        self._inherited = Inherited(self._entry, self._rows, self._panes, given.store, given.budget, pages)
        self._told_where = not given.state.pages
        self._seen: Time = given.state.meta.get("seen", TIME_MIN)
        self._moments: list[list[Time]] = given.state.meta.get("moments", [])
        self._open: float = given.state.meta.get("open", self._windows.range)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Count rows by group; those of eager groups are folded, the others wait. Partials cannot wait."""
        if port:
            self._fold(port, rows)
            return iter(())
        first, after = self._windows.wids(times_of(rows))
        rows, last = inside(rows, after > first), (after - 1)[after > first]
        if not rows.num_rows:
            return iter(())
        self._seen = max(self._seen, int(times_of(rows).max()))
        start, turned = 0, False
        for part in slices(rows, max(1, self._budget.room // 4)):
            with self._budget.hold(cost(part), "arrivals by group"):
                turned |= self._count(part, last[start : start + part.num_rows])
            start += part.num_rows
        if turned:
            self._fold_waiting()
        return iter(())

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Windows that end at or before the bound come out; groups that have become small turn lazy."""
        told, self._told_where = self._told_where, True
        for place, partials in self._inherited.windows(self._windows.complete(bound)):
            self._tables[place].add(partials)
        if bound <= self._bound:
            return
        closed, self._bound = self._windows.complete(self._bound), bound
        complete = self._windows.complete(bound)
        if told:
            yield from self._close(closed, complete)
        self._measure(complete)
        self._forget(complete)
        if complete < TIME_MAX:
            self._turn_lazy()

    def state(self) -> State:
        """Partials of eager groups, rows of lazy ones, who is which, and how long windows have stayed open."""
        tables = tidy_pages([*self._tables, self._volumes, self._eager])
        pages = (*tables, *self._waiting.pages, *self._inherited.pages)
        meta: dict[str, Any] = {"seen": self._seen, "moments": self._moments, "open": self._open}
        return State(pages, meta if pages else {})

    @property
    def footprint(self) -> int:
        """What the groups hold by the thesis' model: partials and rows, at their declared sizes."""
        assert self._settings.partial is not None
        assert self._settings.row is not None
        partials = sum(
            folded([Source(self._tables[0])], piece, self._budget).num_rows
            for piece in pieces([Source(self._tables[0])], self._budget)
        )
        waiting = sum(rows.num_rows for rows in self._waiting.between(TIME_MIN, TIME_MAX))
        return int(self._settings.partial * partials + self._settings.row * waiting)

    @property
    def threshold(self) -> float:
        """From how many rows in a window on a group is eager."""
        return self._settings.turning_point(self._open, self._windows.slide)

    def _count(self, rows: pa.RecordBatch, last: Wids) -> bool:
        """Count rows by group, and take them in; whether a group has turned eager."""
        volumes = self._volumes.lane.lift(rows, self._rows, last)
        self._meter.lift(rows.num_rows, volumes.num_rows)
        self._volumes.add(volumes)
        del volumes
        rows = rows.take(pa.array(stable_order(hashes_of(rows))))
        sources = [Source(table) for table in (self._volumes, self._eager)]
        turned, eager = False, []
        for piece, arrivals in with_arrivals(pieces(sources, self._budget), rows):
            if arrivals is not None and arrivals.num_rows:
                turned |= self._turn_eager(piece)
                eager.append(self._of_eager(piece, arrivals))
        self._arrive(rows, np.concatenate(eager))
        return turned

    def _volume(self, piece: Piece) -> pa.RecordBatch:
        """How many rows each group has in open windows."""
        lane = self._volumes.lane
        return folded([Source(self._volumes)], piece, self._budget, lambda rows: lane.renumbered(rows, 0))

    def _is_eager(self, piece: Piece, groups: pa.RecordBatch) -> Mask:
        lane = self._eager.lane
        known = folded([Source(self._eager)], piece, self._budget)
        found = lane.look_up(known, hashes_of(groups), [groups.column(place) for place in lane.group_places])
        mask: Mask = found >= 0
        return mask

    def _turn_eager(self, piece: Piece) -> bool:
        volume = self._volume(piece)
        with self._budget.hold(volume.nbytes, _GROUPS):
            turning = ~self._is_eager(piece, volume) & (counted(self._volumes.lane, volume) > self.threshold)
            if turning.any():
                self._eager.add(inside(volume, turning))
        return bool(turning.any())

    def _turn_lazy(self) -> None:
        """Keep those eager that still have enough rows."""
        kept = replace(self._eager, pages=[])
        for piece in pieces([Source(self._eager), Source(self._volumes)], self._budget):
            volume = self._volume(piece)
            with self._budget.hold(volume.nbytes, _GROUPS):
                enough = counted(self._volumes.lane, volume) >= self._settings.relapse * self.threshold
                kept.add(inside(volume, self._is_eager(piece, volume) & enough))
        self._eager.take(kept.pages)

    def _arrive(self, rows: pa.RecordBatch, eager: Mask) -> None:
        with self._budget.hold(0 if eager.all() or not eager.any() else rows.nbytes, _GROUPS):
            self._fold(0, inside(rows, eager))
            self._waiting.add(inside(rows, ~eager))

    def _of_eager(self, piece: Piece, rows: pa.RecordBatch) -> Mask:
        known = folded([Source(self._eager)], piece, self._budget)
        groups = [clean(self._rows.column(rows, name)) for name in self._config.by]
        mask: Mask = self._eager.lane.look_up(known, hashes_of(rows), groups) >= 0
        return mask

    def _fold_waiting(self) -> None:
        """Rows of groups that have turned eager wait no longer."""
        waiting, self._waiting = self._waiting, replace(self._waiting, pages=[])
        for rows in waiting.between(TIME_MIN, TIME_MAX):
            hashes = hashes_of(rows)
            self._arrive(rows, self._of_eager(Piece(int(hashes[0]), int(hashes[-1])), rows))
        waiting.forget_below(TIME_MAX)

    def _fold(self, port: int, rows: pa.RecordBatch) -> None:
        closed = self._windows.complete(self._bound)
        for place, partials in self._lifted(port, rows, closed, TIME_MAX):
            self._meter.aggregate(updates=partials.num_rows)
            self._tables[place].add(partials)

    def _lifted(self, port: int, rows: pa.RecordBatch, first: Wid, after: Wid) -> Iterator[tuple[int, pa.RecordBatch]]:
        for place, panes in self._entry.lift(port, rows, lambda times: self._panes.tumbling.wids(times)[0]):
            lane = self._entry.lanes[place]
            for partials in spread_over_windows(lane, panes, self._panes, self._budget, first, after):
                yield place, partials

    def _close(self, closed: Wid, complete: Wid) -> Iterator[Out]:
        """Rows that wait are aggregated for the windows that close, and merged with the partials of those."""
        edge = int(self._windows.ends(np.array([complete - 1]))[0]) if complete < TIME_MAX else TIME_MAX
        for rows in self._waiting.between(TIME_MIN, edge):
            for place, partials in self._lifted(0, rows, closed, complete):
                self._passing[place].add(partials)
        spans = [numbers for table in (self._tables[0], self._passing[0]) if (numbers := table.numbers()) is not None]
        if spans:
            first, last = min(span[0] for span in spans), max(span[1] for span in spans)
            if first < complete:
                yield from self._results.close(first, min(complete, last + 1), self._read, self._ends)
        for table in self._passing:
            table.clear()

    def _read(self, first: Wid, after: Wid) -> Read:
        both = zip(self._tables, self._passing, strict=True)
        sources = [[Source(table, first, after) for table in pair] for pair in both]
        return Read(sources, [None] * len(sources))

    def _forget(self, complete: Wid) -> None:
        if complete == TIME_MAX:
            for table in (*self._tables, self._volumes, self._eager):
                table.clear()
            self._waiting.forget_below(TIME_MAX)
            return
        for table in (*self._tables, self._volumes):
            table.forget_below(complete)
        self._waiting.forget_below(self._windows.extent(complete)[0] if complete > TIME_MIN else TIME_MIN)

    def _measure(self, complete: Wid) -> None:
        """How long the latest window was open: from the low water mark when it began to the high one at its close.

        The text once says the high water mark at the beginning; under disorder that is too short.
        """
        if complete in (TIME_MIN, TIME_MAX):
            return
        start = self._windows.extent(complete - 1)[0]
        began = next((low for high, low in self._moments if high >= start), None)
        if began is not None and began > TIME_MIN and self._seen > began:
            self._open = float(max(self._windows.slide, self._seen - began))
        self._moments = [*self._moments, [self._seen, self._bound]][-_MOMENTS:]

    def _ends(self, main: pa.RecordBatch) -> tuple[Times, Times]:
        wids = times_of(main)
        return self._windows.starts(wids), self._windows.ends(wids)


def _with_sizes(settings: AdaptWid, partial: pa.Schema, row: pa.Schema) -> AdaptWid:
    """Sizes by the columns where none are declared."""
    return replace(
        settings,
        partial=settings.partial if settings.partial is not None else int(width(partial)),
        row=settings.row if settings.row is not None else int(width(row)),
    )


def width(schema: pa.Schema, text: float = TEXT) -> float:
    """The bytes of a row, by its columns: numbers exactly, others as `text`."""
    return sum(-(-kind.bit_width // 8) if pa.types.is_primitive(kind) else text for kind in schema.types)
