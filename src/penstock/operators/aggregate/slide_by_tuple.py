"""Slide-by-tuple windows: each ends at a row, and holds what lies up to a range before it.

A partial is kept for every time at which a group has rows, the bins of the thesis cut at every start. When a bound says
that no row can come before it, the windows that end before it are known and so is all they hold: each bin is folded
into every window that it reaches, as many windows at a time as fit in memory. A bin goes once no window to come
reaches back to it; the thesis' figure drops bins that later windows still need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.core.operator import Out, State
from penstock.core.rows import SLIDE, Hashes, Indices, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time, Times
from penstock.core.windows import SlideByTuple, TupleSlides
from penstock.kernels.equal import same
from penstock.kernels.match import expand, ranges
from penstock.kernels.segments import Mask, is_null, numbers_of, starts_of
from penstock.kernels.sort import stable_order
from penstock.kernels.width import cut
from penstock.operators.aggregate.aggregation import Aggregation, Given, tidy_pages
from penstock.operators.aggregate.entry import inside
from penstock.operators.aggregate.lanes import Lane, clean, counting, differing, partial_columns
from penstock.operators.aggregate.partials import Piece, Source, cost, fits, folded, middle_of, pieces, with_arrivals
from penstock.operators.aggregate.tuples import counted, positions
from penstock.operators.pieces import pieces as pieces_of

_COUNTS = 1_001
"""The kind of the pages that count each group's rows."""

_NUMBERING = 256
"""Bytes that numbering one row in its group takes besides its columns."""

_PAIR, _COPIES = 256, 4
"""Bytes that giving one bin to one window takes besides its columns, and how often those exist then."""


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
        for some in self._numbered(rows) if self._window.by == "row-num" else (rows,):
            for place, partials in self._entry.lift(port, some, lambda times: times):
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
            for piece in list(pieces([*sources, Source(self._counts)], self._budget)):
                yield from self._close(piece, since, bound)
        self._forget()

    def state(self) -> State:
        """Bins that windows to come may reach, and counts."""
        return State(tidy_pages([*self._tables, self._counts]))

    def _forget(self) -> None:
        if self._bound == TIME_MAX:
            for table in (*self._tables, self._counts):
                table.clear()
        else:
            first = self._reach(self._bound)
            for table in self._tables:
                table.forget_below(first)

    def _numbered(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows, in pieces, with which of them slide the window, by their own number or as they arrive."""
        if self._window.row_num is not None:
            column = self._rows.column(rows, self._window.row_num)
            yield _sliding(rows, self._windows.defining(numbers_of(column).astype(np.int64)) & ~is_null(column))
            return
        counts = self._counts.lane
        for part in pieces_of(rows, self._budget, _NUMBERING):
            with self._budget.hold(part.nbytes, "numbering rows"):
                part = part.take(pa.array(stable_order(hashes_of(part))))
                for piece, mine in with_arrivals(pieces([Source(self._counts)], self._budget), part):
                    if mine is None or not mine.num_rows:
                        continue
                    groups = [clean(self._rows.column(mine, name)) for name in counts.groups]
                    numbers = self._before(hashes_of(mine), groups, piece) + positions(counts, mine, groups) + 1
                    self._counts.add(counts.lift(mine, self._rows, np.zeros(mine.num_rows, np.int64)))
                    yield _sliding(mine, self._windows.defining(numbers))
            self._counts.tidy()

    def _before(self, hashes: Hashes, groups: Sequence[pa.Array], piece: Piece) -> Indices:
        """How many rows of each row's group were counted before."""
        known = folded([Source(self._counts)], piece, self._budget)
        if not known.num_rows:
            return np.zeros(hashes.size, np.int64)
        found = self._counts.lane.look_up(known, hashes, groups)
        return np.where(found >= 0, counted(self._counts.lane, known)[found], 0)

    def _close(self, piece: Piece, since: Time, until: Time) -> Iterator[Out]:
        """The windows that end from `since` until before `until` come out, as many at a time as their bins fit."""
        middle = None
        if not fits([Source(table, self._reach(since), until) for table in self._tables], piece, self._budget):
            middle = middle_of([Source(self._tables[0], since, until)], piece)
        if middle is not None:
            yield from self._close(piece, since, middle)
            yield from self._close(piece, middle, until)
            return
        due = folded([Source(self._tables[0], since, until)], piece, self._budget)
        with self._budget.hold(cost(due) // 2, "ends of windows"):
            slides = self._slides(due, piece)
            ends, often = inside(due, slides > 0), slides[slides > 0]
            if not ends.num_rows:
                return
            for first, filled in self._windows_at(ends, piece):
                mine = often[first : first + filled[0].num_rows]
                with self._budget.hold(2 * sum(table.nbytes for table in filled), "results"):
                    for times in range(1, int(mine.max()) + 1):
                        yield from self._results.out(self._results.only(filled, mine >= times), self._ends)

    def _reach(self, time: Time) -> Time:
        """The first moment that a window which ends at `time` holds."""
        return int(self._windows.starts(np.array([time]))[0])

    def _slides(self, main: pa.RecordBatch, piece: Piece) -> Indices:
        """How many windows end at each bin."""
        lane = self._entry.lanes[0]
        if self._window.by == "each":
            return np.ones(main.num_rows, np.int64)
        if self._window.by == "row-num":
            part = next(part for part in lane.parts if part.name == "__slides")
            ending = part.function.lower(partial_columns(part, main), part.kind)
            return numbers_of(ending).astype(np.int64)
        rows = counted(lane, main)
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
        self._counts.tidy()

    def _windows_at(self, ends: pa.RecordBatch, piece: Piece) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
        """The windows at the bins `ends`, a table for each lane: some at a time, with where the first of them is."""
        low, high = int(times_of(ends).min()), int(times_of(ends).max())
        sources = [Source(table, self._reach(low), high + 1) for table in self._tables]
        if low == high and not fits(sources, piece, self._budget):
            yield 0, self._window_at(ends, piece, sources)
            return
        lanes = self._entry.lanes
        bins = [lane.page_order(folded([s], piece, self._budget)) for lane, s in zip(lanes, sources, strict=True)]
        with self._budget.hold(sum(cost(table) for table in bins) // 2, "bins of windows"):
            starts = self._windows.starts(times_of(ends))
            reaches = [
                ranges(hashes_of(table), times_of(table), hashes_of(ends), starts, times_of(ends)) for table in bins
            ]
            each = [_COPIES * table.nbytes // table.num_rows + _PAIR for table in bins]
            room = self._budget.room // 2
            weights = sum((end - begin) * size for (begin, end), size in zip(reaches, each, strict=True))
            for part in cut(np.asarray(weights), room):
                yield (
                    part.start,
                    [
                        self._filled(lane, table, ends[part], begin[part], end[part], max(1, room // size))
                        for lane, table, (begin, end), size in zip(lanes, bins, reaches, each, strict=True)
                    ],
                )

    def _window_at(self, ends: pa.RecordBatch, piece: Piece, sources: Sequence[Source]) -> list[pa.RecordBatch]:
        """The windows of one time, whose bins are too many to be there at once."""
        lanes, time = self._entry.lanes, int(times_of(ends)[0])
        whole = [
            folded([source], piece, self._budget, partial(lane.renumbered, numbers=time))
            for lane, source in zip(lanes, sources, strict=True)
        ]
        groups = [whole[0].column(place) for place in lanes[0].group_places]
        return self._results.only(whole, lanes[0].look_up(ends, hashes_of(whole[0]), groups) >= 0)

    def _filled(
        self, lane: Lane, table: pa.RecordBatch, ends: pa.RecordBatch, begin: Indices, end: Indices, limit: int
    ) -> pa.RecordBatch:
        """Each bin folded into the windows of its group that reach it: ``w - range < t <= w``."""
        done = table.slice(0, 0)
        for windows, bins in expand(begin, end, limit):
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


def _sliding(rows: pa.RecordBatch, slides: Mask) -> pa.RecordBatch:
    return rows.append_column(SLIDE, pa.array(slides.astype(np.int64)))


def _group_starts(main: pa.RecordBatch, groups: Sequence[pa.Array]) -> Indices:
    starts = starts_of(hashes_of(main))
    other = differing(groups, hashes_of(main))
    return starts if other is None else np.union1d(starts, other + 1)
