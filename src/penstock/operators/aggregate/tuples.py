"""Windows of rows: the latest so many, over all rows or in each partition.

Over all rows, a row's number takes the place of its time and the windows are sliding ones. In a partition, rows are
ranked by a count of those before them, and a window is complete once its partition has counted past it. Rows count as
they arrive, or, if the window names an order, in the order of their time once bounds say that none is missing.

Numbers of arrivals are counted where the rows are, so all rows of a `TupleWindow` by arrival are in one shard:
`WindowAggregate.keys` has none to divide them by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa

from penstock.core.operator import Allowance, Logic, Out, State
from penstock.core.pages import read_page, write_page
from penstock.core.progress import Bounds
from penstock.core.rows import HASH, MOMENT, TIME, Indices, RowType, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time, Times
from penstock.core.windows import PartitionedWindow, Slides, Wid, Wids
from penstock.kernels.segments import numbers_of, segment_of
from penstock.kernels.sort import stable_order
from penstock.kernels.width import even_pieces
from penstock.operators.aggregate.aggregation import Aggregation, Given
from penstock.operators.aggregate.buffer import Buffer
from penstock.operators.aggregate.config import Panes
from penstock.operators.aggregate.entry import inside
from penstock.operators.aggregate.lanes import Lane, clean, counting
from penstock.operators.aggregate.partials import (
    Partials,
    Piece,
    Renumber,
    Source,
    by_number,
    fits,
    folded,
    one_run,
    pieces,
    slices,
    with_arrivals,
)
from penstock.operators.aggregate.results import Read
from penstock.operators.aggregate.spread import repeated

_COUNTER = 1_000
"""The kind of the page that holds the number of rows so far."""

_COUNTS, _WAITING = 1_001, 1_002
"""The kinds of pages with the counts of partitions, and of rows whose order is not yet known."""

Due = Callable[[Lane, pa.RecordBatch], tuple[Wids, Wids]]
"""The windows that each of a lane's partials is in and that come out: the first, and the first that does not."""


class ArrivalAggregation:
    """Windows over the numbers of rows as they arrive (specs: window-queries §2.3; F04).

    `inner` aggregates windows of time. It gets row numbers for times, and the times as a column: first and last rows,
    and lists, go by those.
    """

    def __init__(self, given: Given, inner: Callable[[Given], Logic]) -> None:
        state, store = given.state, given.store
        self._store = store
        self._rows = given.inputs[0]
        counters = [page for page in state.pages if page.kind == _COUNTER]
        pages = tuple(page for page in state.pages if page.kind != _COUNTER)
        numbered = RowType(self._rows.columns.append(pa.field(MOMENT, pa.int64())), self._rows.keys)
        self._numbered = numbered.inside
        self._inner = inner(replace(given, inputs=(numbered,), state=State(pages, state.meta)))
        self._count = max((int(times_of(read_page(store, page)).max()) for page in counters), default=0)
        self._hash = counters[0].min_hash if counters else None
        if state.pages:
            for _ in self._inner.advance(0, self._count):
                raise AssertionError("windows that were complete have come out before")

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Number the rows; every window that they fill comes out."""
        if not rows.num_rows:
            return
        if self._hash is None:
            self._hash = int(hashes_of(rows)[0])
        numbers = pa.array(np.arange(self._count, self._count + rows.num_rows))
        self._count += rows.num_rows
        columns = (self._rows.column(rows, name) for name in self._rows.columns.names)
        arrays = [rows.column(0), numbers, *columns, rows.column(1)]
        yield from self._inner.rows(port, pa.RecordBatch.from_arrays(arrays, schema=self._numbered))
        yield from self._inner.advance(0, self._count)

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Time says nothing about the number of rows; at its end windows come out that are not full."""
        if bound == TIME_MAX:
            self._hash = None
            yield from self._inner.advance(0, bound)

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing is put off."""
        return iter(())

    def bounds(self) -> Bounds:
        """In numbers of rows."""
        return self._inner.bounds()

    def state(self) -> State:
        """That of the windows, and the number of rows so far."""
        inner = self._inner.state()
        if self._hash is None:
            return inner
        row = pa.RecordBatch.from_arrays(
            [pa.array([self._hash], pa.uint64()), pa.array([self._count], pa.int64())], names=[HASH, TIME]
        )
        return State((*inner.pages, write_page(self._store, _COUNTER, row)), inner.meta)


class PartitionedAggregation(Aggregation):
    """Windows over the ranks of rows in their partitions (specs: window-queries §2.3; F05)."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._window: PartitionedWindow = given.config.window  # type: ignore[assignment]
        self._windows: Slides = self._window.on()
        self._panes = Panes.of(self._windows)
        pages = given.pages
        self._tables = [given.partials(lane, place, pages) for place, lane in enumerate(self._entry.lanes)]
        self._counts = given.partials(counting(self._window.partition, (), self._rows), _COUNTS, pages)
        self._waiting = Buffer(self._rows.inside, _WAITING, given.store, given.budget, pages.get(_WAITING, []))

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Rank rows at once, or let them wait until their order is known."""
        if self._window.order is None:
            yield from self._ranked(rows)
        else:
            self._waiting.add(rows)

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Rank the rows before the bound; at the end every window comes out."""
        if bound <= self._bound:
            return
        self._bound = bound
        for rows in self._waiting.release(bound):
            yield from self._ranked(rows)
        if bound == TIME_MAX:
            yield from self._process(None)
            for table in (*self._tables, self._counts):
                table.clear()

    def bounds(self) -> Bounds:
        """Ranks do not progress together: any partition may still be at its first window until the end."""
        whole = TIME_MAX if self._bound == TIME_MAX else TIME_MIN
        return Bounds.at(whole)

    def state(self) -> State:
        """Panes of open windows, counts, and rows that wait."""
        self._counts.tidy()
        tables: Sequence[Partials | Buffer] = (*self._tables, self._counts, self._waiting)
        return State(tuple(page for table in tables for page in table.pages))

    def _ranked(self, rows: pa.RecordBatch) -> Iterator[Out]:
        for part in even_pieces(rows, self._budget.room // 8, work=256):
            order = stable_order(hashes_of(part))
            with self._budget.hold(part.nbytes, "ranking rows"):
                yield from self._process(part.take(pa.array(order)))

    def _process(self, rows: pa.RecordBatch | None) -> Iterator[Out]:
        """Add rows, sorted by hash, to their panes; windows that they fill come out.

        Without rows, the stream has ended and all windows come out.
        """
        sources = [Source(table) for table in (*self._tables, self._counts)]
        for piece, arrivals in with_arrivals(pieces(sources, self._budget), rows):
            if arrivals is not None and not arrivals.num_rows:
                continue
            before = folded([Source(self._counts)], piece, self._budget)
            if arrivals is None:
                yield from self._close(piece, before, None)
            elif self._arrive(arrivals, before):
                yield from self._close(piece, before, folded([Source(self._counts)], piece, self._budget))
        if rows is not None:
            self._tidy()

    def _arrive(self, rows: pa.RecordBatch, before: pa.RecordBatch) -> bool:
        """Count rows and keep the partials of their panes; whether they fill a window."""
        counts = self._counts.lane
        groups = [clean(self._rows.column(rows, name)) for name in counts.groups]
        found = counts.look_up(before, hashes_of(rows), groups)
        base: Indices = np.zeros(found.size, np.int64)
        if before.num_rows:
            base = np.where(found >= 0, counted(counts, before)[found], 0)
        ranks = base + positions(counts, rows, groups)
        numbers, _ = self._panes.tumbling.wids(ranks)
        first, last = self._windows.wids(ranks)
        self._counts.add(counts.lift(rows, self._rows, np.zeros(rows.num_rows, np.int64)))
        held = last > first
        for table in self._tables:
            table.add(table.lane.lift(inside(rows, held), self._rows, numbers[held]))
        return bool((self._filled(ranks + 1) > self._filled(base)).any())

    def _close(self, piece: Piece, before: pa.RecordBatch, after: pa.RecordBatch | None) -> Iterator[Out]:
        """Windows between the counts before and after come out; without counts after, all that there are."""
        numbers = self._tables[0].numbers()
        if numbers is None:
            return
        windows = self._panes.windows.wids(np.array(numbers))
        first, until = int(windows[0][0]), int(windows[1][1])
        if after is None or before.num_rows == after.num_rows:
            first = max(first, int(self._filled(counted(self._counts.lane, before)).min(initial=TIME_MAX)))
        if after is not None:
            until = min(until, int(self._filled(counted(self._counts.lane, after)).max()))
        if first < until:
            yield from self._results.close(first, until, partial(self._read, piece, before, after), self._ends, piece)

    def _read(self, piece: Piece, before: pa.RecordBatch, after: pa.RecordBatch | None, first: Wid, until: Wid) -> Read:
        """The windows of a piece from `first` until before `until` that are due by the counts, from their panes."""
        low, high = self._panes.windows.extent(first)[0], self._panes.windows.extent(until - 1)[1]
        sources = [Source(table, low, high) for table in self._tables]
        due = partial(self._due, before, after, first, until)
        growth = min(-(-self._panes.count // self._panes.step), until - first)
        if growth > 1 and not fits(sources, piece, self._budget, growth):
            growth = max(self._growth(piece, source, due) for source in sources)
        renumber = [_repeated(table.lane, due) for table in self._tables]
        return Read([[source] for source in sources], renumber, growth)

    def _due(
        self,
        before: pa.RecordBatch,
        after: pa.RecordBatch | None,
        first: Wid,
        until: Wid,
        lane: Lane,
        panes: pa.RecordBatch,
    ) -> tuple[Wids, Wids]:
        """The windows that each partial is in and that come out now: the first, and the first that does not."""
        begin, end = (np.clip(self._complete(lane, panes, counts), first, until) for counts in (before, after))
        low, high = self._panes.windows.wids(times_of(panes))
        return np.maximum(low, begin), np.minimum(high, end)

    def _growth(self, piece: Piece, source: Source, due: Due) -> int:
        """How many windows a partial is in on average: few of all these if each partition is at others."""
        windows = partials = 0
        lane = cast(Partials, source.table).lane
        for panes in (part for rows in source.read(piece) for part in slices(rows, max(1, self._budget.room // 2))):
            low, high = due(lane, panes)
            windows += int(np.maximum(high - low, 0).sum())
            partials += panes.num_rows
        return max(1, -(-windows // max(1, partials)))

    def _tidy(self) -> None:
        """Let go of panes that no window needs, once so many are new that this is little work for each of them."""
        self._counts.tidy()
        for table in self._tables:
            if not table.grown:
                table.tidy()
                continue
            kept = []
            for piece in pieces([Source(table), Source(self._counts)], self._budget):
                counts = folded([Source(self._counts)], piece, self._budget)
                for part in by_number([Source(table)], piece, self._budget):
                    panes = folded(part, piece, self._budget)
                    _, high = self._panes.windows.wids(times_of(panes))
                    rest = inside(panes, high > self._complete(table.lane, panes, counts))
                    if rest.num_rows:
                        kept.append(write_page(table.store, table.kind, table.lane.page_order(rest)))
            table.take(one_run(kept))

    def _complete(self, lane: Lane, panes: pa.RecordBatch, counts: pa.RecordBatch | None) -> Times:
        """The first window that is not complete in the partition of each partial, by the counts; all are without."""
        if counts is None:
            return np.full(panes.num_rows, TIME_MAX)
        if not counts.num_rows:
            return np.full(panes.num_rows, TIME_MIN)
        places = [lane.group_places[lane.groups.index(name)] for name in self._counts.lane.groups]
        found = self._counts.lane.look_up(counts, hashes_of(panes), [panes.column(place) for place in places])
        ranked = np.where(found >= 0, counted(self._counts.lane, counts)[found], 0)
        return self._filled(ranked)

    def _filled(self, counts: Indices) -> Times:
        """The first window that is not complete in partitions of so many rows."""
        windows: Times = (counts - self._windows.origin) // self._windows.slide
        return windows

    def _ends(self, main: pa.RecordBatch) -> tuple[Times, Times]:
        wids = times_of(main)
        return self._windows.starts(wids), self._windows.ends(wids)


def counted(lane: Lane, counts: pa.RecordBatch) -> Indices:
    """What the first function of a lane, a count, has counted."""
    return numbers_of(counts.column(lane.parts[0].first)).astype(np.int64, copy=False)


def positions(lane: Lane, rows: pa.RecordBatch, groups: Sequence[pa.Array]) -> Indices:
    """How many rows of the same group come before each."""
    order, starts = lane.segments(hashes_of(rows), np.zeros(rows.num_rows, np.int64), groups)
    places = np.empty(rows.num_rows, np.int64)
    places[order] = np.arange(rows.num_rows) - starts[segment_of(starts, rows.num_rows)]
    return places


def _repeated(lane: Lane, due: Due) -> Renumber:
    return lambda panes: repeated(lane, panes, *due(lane, panes))
