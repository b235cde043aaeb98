"""Order-agnostic window join (OA-Join): matches as rows arrive, purges as inputs progress.

A pair (l, r) comes out once iff the keys are equal and the reach of one row holds the time of the other. Rows may
arrive in any order; a row leaves state when no row that can still arrive would match it. A row that must come out
alone does so when it leaves without a match.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.budget import Budget
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import Page, PageStore, read_page, write_page
from penstock.core.progress import Bounds
from penstock.core.rows import Hashes, Indices, RowType, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time, Times
from penstock.core.within import LEFT, RIGHT, horizon
from penstock.kernels.equal import same
from penstock.kernels.match import expand, ranges
from penstock.kernels.sort import page_order
from penstock.kernels.width import cut, row_widths
from penstock.operators.window_join.config import KEEPS_LEFT, KEEPS_RIGHT, LEFT_ONLY, WindowJoin

_MATCHING = 112
"""Bytes that sorting and matching one arrival takes besides its own: order, reach, ranges and their scratch."""

_PAIR = 48
"""Bytes that one row of output takes besides its columns: indices and the comparison of its keys."""

_LARGEST_CHUNK = 1 << 17
"""Rows in one chunk of output at most, however much room there is: larger ones gain nothing."""


class OAJoin:
    """OA-Join on one shard (specs: window-queries §2.4, §2.9; F16–F19)."""

    def __init__(
        self, config: WindowJoin, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State
    ) -> None:
        self._config = config
        self._inputs = inputs
        self._columns = config.columns(inputs)
        self._output = config.output(inputs)
        self._reach = config.within.reach(config.unit)
        self._store = store
        self._budget = budget
        self._keeps = (config.how in KEEPS_LEFT, config.how in KEEPS_RIGHT)
        self._bounds: list[Time] = [TIME_MIN, TIME_MIN]
        self._pages: tuple[list[Page], list[Page]] = ([], [])
        for page in state.pages:
            self._pages[page.port].append(page)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Meet what the other port holds, then be held for what may still come."""
        known = self._with_keys(port, rows)
        if self._keeps[port] and known.num_rows < rows.num_rows and self._config.how != "semi":
            yield from self._alone(port, rows, np.flatnonzero(self._null_keys(port, rows)))
        for piece in self._pieces(known):
            with self._budget.hold(piece.nbytes + _MATCHING * piece.num_rows, "sorting and matching arrivals"):
                yield from self._arrive(port, piece)

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Let go of the other port's rows that nothing at or after `bound` can meet."""
        if bound <= self._bounds[port]:
            return
        self._bounds[port] = bound
        other = 1 - port
        dead = horizon(self._reach, other, bound)
        kept: list[Page] = []
        for page in self._pages[other]:
            if page.min_time < dead > page.floor and self._keeps[other] and self._config.how != "semi":
                yield from self._unmatched(page, dead)
            if page.max_time >= dead and bound < TIME_MAX:
                kept.append(replace(page, floor=max(page.floor, dead)) if page.min_time < dead else page)
            else:
                self._forget(page)
        self._pages[other][:] = kept

    def idle(self, work: Allowance) -> Iterator[Out]:
        """OA-Join defers nothing."""
        return iter(())

    def end(self) -> Iterator[Out]:
        """Everything unmatched comes out and the state is empty."""
        for port in (LEFT, RIGHT):
            yield from self.advance(port, TIME_MAX)

    def bounds(self) -> Bounds:
        """What its ports' bounds leave to come."""
        return self._config.bounds(self._bounds[LEFT], self._bounds[RIGHT])

    def state(self) -> State:
        """The pages of both ports; bounds are the host's to remember."""
        return State(pages=(*self._pages[LEFT], *self._pages[RIGHT]))

    def _arrive(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        order = page_order(hashes_of(rows), times_of(rows))
        arrivals = rows.take(pa.array(order))
        times = times_of(arrivals)
        reach = self._reach.of(port, times)
        matched = np.zeros(arrivals.num_rows, np.bool_)
        hashes, earliest, latest = hashes_of(arrivals), int(reach[0].min()), int(reach[1].max())
        for place, page in enumerate(self._pages[1 - port]):
            if page.max_time >= earliest and page.min_time <= latest:
                near = _between(hashes, page.min_hash, page.max_hash)
                if near.start < near.stop:
                    some = arrivals.slice(near.start, near.stop - near.start)
                    yield from self._probe(port, some, (reach[0][near], reach[1][near]), place, page, matched[near])
        yield from self._settle(port, arrivals, times, matched)

    def _probe(
        self,
        port: int,
        arrivals: pa.RecordBatch,
        reach: tuple[Times, Times],
        place: int,
        page: Page,
        matched: npt.NDArray[np.bool_],
    ) -> Iterator[Out]:
        """Meet one page: pairs come out, rows that must not come out alone are marked."""
        held = read_page(self._store, page)
        begin, end = ranges(hashes_of(held), times_of(held), hashes_of(arrivals), *reach)
        if not self._keeps[1 - port]:
            for mine, theirs in self._verified(port, arrivals, held, begin, end):
                matched[mine] = True
                if self._config.how not in LEFT_ONLY:
                    yield self._pairs(port, arrivals, mine, held, theirs)
            return
        with self._budget.hold(2 * page.end, "the marks of a page"):
            marks, changed = self._marks(page), False
            for mine, theirs in self._verified(port, arrivals, held, begin, end):
                matched[mine] = True
                fresh = np.unique(theirs[~marks[page.begin + theirs]])
                marks[page.begin + fresh] = True
                changed = changed or fresh.size > 0
                if self._config.how not in LEFT_ONLY:
                    yield self._pairs(port, arrivals, mine, held, theirs)
                elif self._config.how == "semi":
                    yield from self._alone(1 - port, held, fresh)
            if changed:
                self._pages[1 - port][place] = self._mark(page, marks)

    def _verified(
        self, port: int, arrivals: pa.RecordBatch, held: pa.RecordBatch, begin: Indices, end: Indices
    ) -> Iterator[tuple[Indices, Indices]]:
        """Pairs of equal hash as index arrays, without those whose keys differ."""
        row = arrivals.nbytes // arrivals.num_rows + held.nbytes // held.num_rows
        limit = self._chunk(row + _PAIR)
        room = limit * (row + _PAIR)
        with self._budget.hold(room, "a chunk of output"):
            for some, others in expand(begin, end, limit):
                for part in self._bounded(room, (arrivals, some), (held, others)):
                    mine, theirs = some[part], others[part]
                    equal = self._same_keys(port, arrivals, mine, held, theirs)
                    yield (mine, theirs) if equal.all() else (mine[equal], theirs[equal])

    def _bounded(self, room: int, *sides: tuple[pa.RecordBatch, Indices]) -> Iterator[slice]:
        """Parts of a chunk that fit `room`: the whole, but where some rows are much wider than the average."""
        if not any(map(_varies, (rows for rows, _ in sides))):
            yield slice(None)
            return
        yield from cut(sum(row_widths(rows, which) for rows, which in sides) + _PAIR, room)  # type: ignore[arg-type]

    def _same_keys(
        self, port: int, arrivals: pa.RecordBatch, mine: Indices, held: pa.RecordBatch, theirs: Indices
    ) -> npt.NDArray[np.bool_]:
        equal = np.ones(mine.size, np.bool_)
        keys = zip(self._inputs[port].keys, self._inputs[1 - port].keys, strict=True)
        for ours, others in keys:
            left = _take(self._inputs[port].column(arrivals, ours), mine)
            right = _take(self._inputs[1 - port].column(held, others), theirs)
            equal &= same(left, right)
        return equal

    def _settle(
        self, port: int, arrivals: pa.RecordBatch, times: Times, matched: npt.NDArray[np.bool_]
    ) -> Iterator[Out]:
        """Hold the arrivals that may still be met; those that must come out now do."""
        how = self._config.how
        alive = times >= horizon(self._reach, port, self._bounds[1 - port])
        if self._keeps[port]:
            if how == "semi":
                yield from self._alone(port, arrivals, np.flatnonzero(matched))
            else:
                yield from self._alone(port, arrivals, np.flatnonzero(~alive & ~matched))
            if how in LEFT_ONLY:
                alive &= ~matched
        if not alive.any():
            return
        if not alive.all():
            kept = np.flatnonzero(alive)
            arrivals, matched = arrivals.take(pa.array(kept)), matched[kept]
        page = write_page(self._store, port, arrivals)
        if self._keeps[port] and matched.any():
            page = self._mark(page, matched)
        self._pages[port].append(page)

    def _unmatched(self, page: Page, dead: Time) -> Iterator[Out]:
        """The rows of `page` that die unmatched: not below its floor, below `dead`."""
        held = read_page(self._store, page)
        with self._budget.hold(4 * held.num_rows, "looking for unmatched rows"):
            times = times_of(held)
            alone = (times >= page.floor) & ((times < dead) | (dead == TIME_MAX))
            alone &= ~self._marks(page)[page.begin : page.end]
            yield from self._alone(page.port, held, np.flatnonzero(alone))

    def _alone(self, port: int, rows: pa.RecordBatch, which: Indices) -> Iterator[Out]:
        """Rows of one port with nothing on the other."""
        if not which.size:
            return
        row = rows.nbytes // rows.num_rows
        limit = self._chunk(row + _PAIR)
        room = limit * (row + _PAIR)
        with self._budget.hold(room, "a chunk of output"):
            for start in range(0, which.size, limit):
                some = which[start : start + limit]
                for part in self._bounded(room, (rows, some)):
                    yield self._results({port: (rows, some[part])})

    def _pairs(self, port: int, mine: pa.RecordBatch, i: Indices, theirs: pa.RecordBatch, j: Indices) -> Out:
        return self._results({port: (mine, i), 1 - port: (theirs, j)})

    def _results(self, sides: dict[int, tuple[pa.RecordBatch, Indices]]) -> Out:
        count = next(iter(sides.values()))[1].size
        arrays = []
        for column, field in zip(self._columns, self._output, strict=True):
            port, name = column.port, column.column
            if port not in sides and column.twin is not None:
                port, name = 1 - port, column.twin
            if port in sides:
                rows, which = sides[port]
                arrays.append(_take(self._inputs[port].column(rows, name), which))
            else:
                arrays.append(pa.nulls(count, field.type))
        return Out("results", pa.RecordBatch.from_arrays(arrays, schema=self._output))

    def _with_keys(self, port: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that can match: a null key never does."""
        if not any(self._inputs[port].column(rows, key).null_count for key in self._inputs[port].keys):
            return rows
        return rows.filter(pa.array(~self._null_keys(port, rows)))

    def _null_keys(self, port: int, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        null = np.zeros(rows.num_rows, np.bool_)
        for key in self._inputs[port].keys:
            null |= self._inputs[port].column(rows, key).is_null().to_numpy(zero_copy_only=False)
        return null

    def _pieces(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Arrivals in pieces whose sorting and matching take at most half of the room."""
        if not rows.num_rows:
            return
        each = rows.nbytes / rows.num_rows + _MATCHING
        size = max(1, int(self._budget.room / 2 / each))
        for start in range(0, rows.num_rows, size):
            yield rows.slice(start, size)

    def _chunk(self, row: int) -> int:
        """How many rows of output fit a third of the room."""
        return max(1, min(_LARGEST_CHUNK, int(self._budget.room / 3 / row)))

    def _marks(self, page: Page) -> npt.NDArray[np.bool_]:
        """Which rows of the stored batch have met a partner."""
        if page.marks is None:
            return np.zeros(page.end, np.bool_)
        return self._store.get(page.marks).column(0).to_numpy(zero_copy_only=False)[: page.end].copy()  # type: ignore[no-any-return]

    def _mark(self, page: Page, marks: npt.NDArray[np.bool_]) -> Page:
        if page.marks is not None:
            self._store.drop(page.marks)
        name = self._store.put(pa.RecordBatch.from_arrays([pa.array(marks)], names=["met"]))
        return replace(page, marks=name)

    def _forget(self, page: Page) -> None:
        self._store.drop(page.name)
        if page.marks is not None:
            self._store.drop(page.marks)


def _between(hashes: Hashes, first: int, last: int) -> slice:
    """Where sorted hashes lie from `first` to `last`."""
    start = int(np.searchsorted(hashes, np.uint64(first)))
    return slice(start, int(np.searchsorted(hashes, np.uint64(last), side="right")))


def _varies(rows: pa.RecordBatch) -> bool:
    return any(not pa.types.is_primitive(kind) for kind in rows.schema.types)


def _take(column: pa.Array, which: Indices) -> pa.Array:
    return pc.take(column, pa.array(which), boundscheck=False)
