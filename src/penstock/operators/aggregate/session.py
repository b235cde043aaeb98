"""Session windows: rows of a group with no silence longer than the gap between them.

Rows of a batch make small sessions at once. When time has moved on, the small sessions of each group are merged
wherever they lie within a gap of each other, those that no row to come can reach come out, and the others stay,
merged. Rows may come in any order: one that bridges two sessions joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from penstock.core.operator import Out, State
from penstock.core.pages import Page, read_page, write_page
from penstock.core.rows import Indices, hashes_of, times_of
from penstock.core.time import TIME_MAX, Time, Times
from penstock.core.windows import Sessions
from penstock.kernels.segments import Mask, numbers_of, segment_of, starts_of
from penstock.kernels.sort import stable_order
from penstock.operators.aggregate.aggregation import STATEMENTS, Aggregation, Given, tidy_pages
from penstock.operators.aggregate.group_bounds import GroupBoundTable
from penstock.operators.aggregate.lanes import Lane, differing
from penstock.operators.aggregate.partials import Piece, Source, folded, pieces

_LAST = 1
"""The place of the function that keeps a session's last row's time."""


class SessionAggregation(Aggregation):
    """Session windows on one shard."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._sessions: Sessions = given.config.window.on(given.config.unit)  # type: ignore[assignment]
        pages = given.pages
        self._tables = [given.partials(lane, place, pages) for place, lane in enumerate(self._entry.lanes)]

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """The sessions of these rows alone; the main lane, which comes first, says where they start."""
        if self._stated is not None and port == STATEMENTS:
            self._stated.add(rows)
            return iter(())
        starts = np.empty(0, np.int64)
        for place, partials in self._entry.lift(port, rows, lambda times: times):
            lane = self._entry.lanes[place]
            if place == 0:
                starts = self._merged_starts(partials, lane)
            sizes = _sizes(lane.boundaries(partials), partials)
            self._tables[place].add(lane.fold(lane.renumbered(partials, np.repeat(starts, sizes))))
        return iter(())

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Sessions that end before the bound come out."""
        if bound <= self._bound:
            return
        self._bound = bound
        yield from self._close(self._is_complete)

    def _close_groups(self, stated: GroupBoundTable) -> Iterator[Out]:
        """Sessions come out by the bound of their own group."""

        def complete(main: pa.RecordBatch) -> Mask:
            _, ends = self._ends(main)
            bounds = self._stated_of(stated, self._entry.lanes[0], main)
            ended: Mask = (ends < bounds) | (bounds == TIME_MAX)
            return ended

        return self._close(complete)

    def _close(self, is_complete: Callable[[pa.RecordBatch], Mask]) -> Iterator[Out]:
        """Merge what lies within a gap of each other; what is complete comes out, the rest stays."""
        if not self._any(is_complete):
            return
        kept: list[list[Page]] = [[] for _ in self._tables]
        sources = [Source(table) for table in self._tables]
        for piece in pieces(sources, self._budget):
            tables = self._merged(piece)
            size = 3 * sum(table.nbytes for table in tables)
            with self._budget.hold(size, "merging sessions"):
                complete = is_complete(tables[0])
                yield from self._results.out(self._results.only(tables, complete), self._ends)
                for place, table in enumerate(self._results.only(tables, ~complete)):
                    self._keep(kept[place], place, table)
        for table, pages in zip(self._tables, kept, strict=True):
            table.take(pages)

    def state(self) -> State:
        """Sessions that rows may still join."""
        return State((*tidy_pages(self._tables), *(self._stated.pages if self._stated is not None else ())))

    def _keep(self, pages: list[Page], place: int, rows: pa.RecordBatch) -> None:
        table = self._tables[place]
        if rows.num_rows:
            pages.append(write_page(table.store, table.kind, table.lane.page_order(rows)))

    def _any(self, is_complete: Callable[[pa.RecordBatch], Mask]) -> bool:
        table = self._tables[0]
        return any(is_complete(read_page(table.store, page)).any() for page in table.pages)

    def _is_complete(self, main: pa.RecordBatch) -> Mask:
        _, ends = self._ends(main)
        return np.full(ends.size, True) if self._bound == TIME_MAX else ends < self._bound

    def _ends(self, main: pa.RecordBatch) -> tuple[Times, Times]:
        _, ends = self._sessions.wids(last_times(self._entry.lanes[0], main))
        return times_of(main), ends

    def _merged(self, piece: Piece) -> list[pa.RecordBatch]:
        """Each lane's partials of a piece under the numbers of their merged sessions."""
        tables = [folded([Source(table)], piece, self._budget) for table in self._tables]
        lanes = self._entry.lanes
        starts = self._merged_starts(tables[0], lanes[0])
        merged = []
        for lane, table in zip(lanes, tables, strict=True):
            sizes = _sizes(lane.boundaries(table), table)
            merged.append(lane.fold(lane.renumbered(table, np.repeat(starts, sizes))))
        return merged

    def _merged_starts(self, main: pa.RecordBatch, lane: Lane) -> Times:
        """For each small session, in order of group and start, where the session that it is part of starts."""
        starts, hashes = times_of(main), hashes_of(main)
        groups = starts_of(hashes)
        other = differing([main.column(place) for place in lane.group_places], hashes)
        if other is not None:
            groups = np.union1d(groups, other + 1)
        reached = _running_max(last_times(lane, main), groups)
        _, ends = self._sessions.wids(reached)
        begins = np.ones(starts.size, np.bool_)
        begins[1:] = starts[1:] > ends[:-1]
        begins[groups] = True
        merged: Times = starts[np.flatnonzero(begins)][np.cumsum(begins) - 1]
        return merged


def last_times(lane: Lane, main: pa.RecordBatch) -> Times:
    """The time of the latest row in each window of a lane that keeps it."""
    return numbers_of(main.column(lane.parts[_LAST].first)).astype(np.int64, copy=False)


def _running_max(times: Times, starts: Indices) -> Times:
    """The largest so far within each segment, by ranks, which can be lifted apart by segment without overflow."""
    order = stable_order(times)
    ranks = np.empty(times.size, np.int64)
    ranks[order] = np.arange(times.size)
    lifted = np.maximum.accumulate(ranks + segment_of(starts, times.size) * times.size)
    largest: Times = times[order[lifted % max(1, times.size)]]
    return largest


def _sizes(cuts: Indices, table: pa.RecordBatch) -> Indices:
    return np.diff(cuts, append=table.num_rows)
