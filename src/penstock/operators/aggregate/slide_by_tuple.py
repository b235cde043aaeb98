"""Slide-by-tuple windows: each ends at a row, and holds what lies up to a range before it.

A partial is kept for every time at which a group has rows, the bins of the thesis cut at every start. When a bound says
that no row can come before it, the windows that end before it are known and so is all they hold: each bin is folded
into every window that it reaches. A bin goes once no window to come reaches back to it; the thesis' figure drops bins
that later windows still need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.core.operator import Out, State
from penstock.core.rows import SLIDE, Hashes, Indices, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time, Times
from penstock.core.windows import SlideByTuple, TupleSlides
from penstock.kernels.equal import same
from penstock.kernels.match import expand, ranges
from penstock.kernels.segments import Mask, is_null, numbers_of, starts_of
from penstock.operators.aggregate.aggregation import Aggregation, Given, tidy_pages
from penstock.operators.aggregate.entry import inside
from penstock.operators.aggregate.lanes import Lane, clean, counting, differing, partial_columns
from penstock.operators.aggregate.partials import Piece, Source, cost, folded, pieces
from penstock.operators.aggregate.tuples import counted, positions

_COUNTS = 1_001
"""The port of the pages that count each group's rows."""

_PAIR = 256
"""Bytes that giving one bin to one window takes besides its columns."""


class SlideByTupleAggregation(Aggregation):
    """Slide-by-tuple windows on one shard (specs: window-queries §2.3, §2.5; F07)."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._window: SlideByTuple = given.config.window  # type: ignore[assignment]
        self._windows: TupleSlides = self._window.on(given.config.unit)
        self._told_where = not given.state.pages
        pages = given.pages
        self._tables = [given.partials(lane, place, pages) for place, lane in enumerate(self._entry.lanes)]
        self._counts = given.partials(counting(given.config.by, (), self._rows), _COUNTS, pages)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """A bin for every time of a group, with how many of its rows slide the window if their numbers tell."""
        if self._window.by == "row-num" and rows.num_rows:
            rows = rows.append_column(SLIDE, pa.array(self._defining(rows).astype(np.int64)))
        for place, partials in self._entry.lift(port, rows, lambda times: times):
            self._tables[place].add(partials)
        return iter(())

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Windows that end before the bound come out. State that was restored begins at the first bound."""
        told, self._told_where = self._told_where, True
        if bound <= self._bound:
            return
        since, self._bound = self._bound, bound
        if told:
            sources = [Source(table, TIME_MIN, bound) for table in self._tables]
            for piece in pieces(sources, self._budget):
                yield from self._close(piece, since)
        self._forget()

    def state(self) -> State:
        """Bins that windows to come may reach, and counts."""
        return State(tidy_pages([*self._tables, self._counts]))

    def _forget(self) -> None:
        if self._bound == TIME_MAX:
            for table in (*self._tables, self._counts):
                table.clear()
        else:
            first = int(self._windows.starts(np.array([self._bound]))[0])
            for table in self._tables:
                table.forget_below(first)

    def _defining(self, rows: pa.RecordBatch) -> Mask:
        """Which rows slide the window, by their own number or as they arrive in their group."""
        if self._window.row_num is not None:
            column = self._rows.column(rows, self._window.row_num)
            numbers = numbers_of(column).astype(np.int64)
            return self._windows.defining(numbers) & ~is_null(column)
        counts = self._counts.lane
        groups = [clean(self._rows.column(rows, name)) for name in counts.groups]
        numbers = self._before(hashes_of(rows), groups, None) + positions(counts, rows, groups) + 1
        self._counts.add(counts.lift(rows, self._rows, np.zeros(rows.num_rows, np.int64)))
        return self._windows.defining(numbers)

    def _before(self, hashes: Hashes, groups: Sequence[pa.Array], piece: Piece | None) -> Indices:
        """How many rows of each row's group were counted before."""
        whole = piece or Piece(int(hashes.min()), int(hashes.max()))
        known = folded([Source(self._counts)], whole, self._budget)
        if not known.num_rows:
            return np.zeros(hashes.size, np.int64)
        found = self._counts.lane.look_up(known, hashes, groups)
        return np.where(found >= 0, counted(self._counts.lane, known)[found], 0)

    def _close(self, piece: Piece, since: Time) -> Iterator[Out]:
        tables = [folded([Source(table, TIME_MIN, self._bound)], piece, self._budget) for table in self._tables]
        main = tables[0]
        due = times_of(main) >= since
        if not due.any():
            return
        with self._budget.hold(sum(cost(table) for table in tables) // 2, "bins of windows"):
            slides = self._slides(main, due, piece)
            ends = inside(main, due & (slides > 0))
            lane = self._entry.lanes[0]
            window_rows = lane.page_order(ends)
            filled = [self._filled(place, table, window_rows) for place, table in enumerate(tables)]
            often = slides[due & (slides > 0)]
            for times in range(1, int(often.max(initial=0)) + 1):
                yield from self._results.out(self._results.only(filled, often >= times), self._ends)

    def _slides(self, main: pa.RecordBatch, due: Mask, piece: Piece) -> Indices:
        """How many windows end at each bin."""
        lane = self._entry.lanes[0]
        if self._window.by == "each":
            return due.astype(np.int64)
        if self._window.by == "row-num":
            part = next(part for part in lane.parts if part.name == "__slides")
            ending = part.function.lower(partial_columns(part, main), part.kind)
            return numbers_of(ending).astype(np.int64)
        rows = np.where(due, counted(lane, main), 0)
        groups = [main.column(place) for place in lane.group_places]
        starts = _group_starts(main, groups)
        upto = np.cumsum(rows)
        upto -= np.repeat(upto[starts] - rows[starts], np.diff(starts, append=rows.size))
        upto += self._before(hashes_of(main), groups, piece)
        self._count(main, lane, rows)
        slides: Indices = upto // self._window.every - (upto - rows) // self._window.every
        return slides

    def _count(self, main: pa.RecordBatch, lane: Lane, rows: Indices) -> None:
        """Remember how many rows each group has before the bound."""
        zeros = pa.array(np.zeros(main.num_rows, np.int64))
        groups = [main.column(place) for place in lane.group_places]
        counts = self._counts.lane
        batch = pa.RecordBatch.from_arrays([main.column(0), zeros, *groups, pa.array(rows)], schema=counts.schema)
        self._counts.add(counts.fold(inside(batch, rows > 0)))

    def _filled(self, place: int, table: pa.RecordBatch, ends: pa.RecordBatch) -> pa.RecordBatch:
        """Each bin folded into the windows of its group that reach it: ``w - range < t <= w``."""
        lane = self._entry.lanes[place]
        table = lane.page_order(table)
        low = times_of(table)
        _, after = self._windows.wids(low)
        begin, end = ranges(hashes_of(ends), times_of(ends), hashes_of(table), low, after - 1)
        limit = max(1, int(self._budget.room // 4 / (4 * table.nbytes / table.num_rows + _PAIR)))
        done = table.slice(0, 0)
        for bins, windows in expand(begin, end, limit):
            with self._budget.hold(cost(table) * bins.size // table.num_rows + cost(done), "bins of windows"):
                mine = self._same_group(lane, table, bins, ends, windows)
                bins, windows = bins[mine], windows[mine]
                self._meter.aggregate(updates=int(bins.size))
                spread = lane.renumbered(table.take(pa.array(bins)), times_of(ends)[windows])
                done = lane.fold(pa.concat_batches([done, spread]))
        return done

    def _same_group(self, lane: Lane, table: pa.RecordBatch, i: Indices, ends: pa.RecordBatch, j: Indices) -> Mask:
        mask = np.ones(i.size, np.bool_)
        for place in lane.group_places:
            mask &= same(table.column(place).take(pa.array(i)), ends.column(place).take(pa.array(j)))
        return mask

    def _ends(self, main: pa.RecordBatch) -> tuple[Times, Times]:
        wids = times_of(main)
        return self._windows.starts(wids), self._windows.ends(wids)


def _group_starts(main: pa.RecordBatch, groups: Sequence[pa.Array]) -> Indices:
    starts = starts_of(hashes_of(main))
    other = differing(groups, hashes_of(main))
    return starts if other is None else np.union1d(starts, other + 1)
