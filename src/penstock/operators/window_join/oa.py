"""Order-agnostic window join (OA-Join): matches as rows arrive, purges as inputs progress.

A pair (l, r) is emitted once iff the keys are equal and the reach of one row holds the time of the other. Rows may
arrive in any order; a row leaves state when no row that can still arrive would match it. An outer join emits an
unmatched row when it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Meter, Tally
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import Page, PageStore, read_page, write_page
from penstock.core.progress import Bounds
from penstock.core.rows import Hashes, RowType, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time, Times
from penstock.core.within import LEFT, RIGHT, Always, horizon
from penstock.kernels.match import take_rows
from penstock.kernels.sort import in_page_order, page_order
from penstock.operators.pieces import pieces
from penstock.operators.window_join.config import LEFT_ONLY, WindowJoin
from penstock.operators.window_join.handover import Handover
from penstock.operators.window_join.match_pairing import pairing_of
from penstock.operators.window_join.methods import JoinMethod
from penstock.operators.window_join.pairing import Mask, Pairing, dying, not_below
from penstock.operators.window_join.progressive.handover import Settlement

_MATCHING = 112
"""Bytes that sorting and matching one arrival takes besides its own: order, reach, ranges and their scratch."""


@dataclass(frozen=True, slots=True)
class Oa(JoinMethod):
    """OA-Join has no parameters."""

    sorts_arrivals: ClassVar[bool] = True


class OAJoin:
    """OA-Join on one shard (specs: window-queries §2.4, §2.9; F16–F19)."""

    def __init__(
        self,
        config: WindowJoin,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        meter: Meter | None = None,
        pairing: Callable[[WindowJoin, tuple[RowType, ...], Budget], Pairing] = pairing_of,
    ) -> None:
        self._meter = meter or Tally()
        self._config = config
        self._pairing = pairing(config, inputs, budget)
        self._keeps, self._reach = self._pairing.keeps, self._pairing.reach
        self._store = store
        self._budget = budget
        self._bounds: list[Time] = [TIME_MIN, TIME_MIN]
        self._pages: tuple[list[Page], list[Page]] = ([], [])
        self._made: set[str] = set()
        self._handover: Handover | Settlement | None = None
        if any(page.debts is not None for page in state.pages):
            self._handover = Handover(config, inputs, store, budget, state)
        elif any(page.log is not None for page in state.pages):
            self._handover = Settlement(config, inputs, store, budget, state)
            self._store = self._handover.store
        else:
            self._hold(state.pages)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Meet what the other port holds, then be held for what may still come."""
        yield from self._take_over()
        known, null = self._pairing.with_keys(port, rows)
        yield from self._pairing.unmatched(port, rows, null)
        for piece in pieces(known, self._budget, _MATCHING):
            with self._budget.hold(piece.nbytes + _MATCHING * piece.num_rows, "sorting and matching arrivals"):
                yield from self._arrive(port, piece)

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Let go of the other port's rows that nothing at or after `bound` can meet."""
        yield from self._take_over()
        if bound <= self._bounds[port]:
            return
        self._bounds[port] = bound
        other = 1 - port
        dead = horizon(self._reach, other, bound)
        kept: list[Page] = []
        for page in self._pages[other]:
            if page.min_time < dead > page.floor and self._keeps[other]:
                yield from self._unmatched(page, dead)
            if page.max_time >= dead and bound < TIME_MAX:
                kept.append(replace(page, floor=max(page.floor, dead)) if page.min_time < dead else page)
            else:
                self._forget(page)
        self._pages[other][:] = kept

    def idle(self, work: Allowance) -> Iterator[Out]:
        """OA-Join defers nothing."""
        return self._take_over()

    def bounds(self) -> Bounds:
        """What its ports' bounds leave to come."""
        return self._config.bounds(self._bounds[LEFT], self._bounds[RIGHT])

    def state(self) -> State:
        """The pages of both ports; bounds are the host's to remember."""
        if self._handover is not None:
            return self._handover.state()
        return State(pages=(*self._in_runs(LEFT), *self._in_runs(RIGHT)))

    def counts(self) -> dict[str, int]:
        """Of a join without a window, that no pair is owed."""
        return {"expected": 0, "owed": 0} if isinstance(self._config.within, Always) else {}

    def _hold(self, pages: Iterable[Page]) -> None:
        for page in pages:
            self._pages[page.kind].append(page)

    def _in_runs(self, port: int) -> Iterator[Page]:
        """Its pages; those of arrivals that came in order of hash are one run, which is not to be merged by itself."""
        run: list[Page] = []
        for page in self._pages[port]:
            if run and not (page.name in self._made and run[-1].max_hash < page.min_hash):
                yield from _as_run(run)
                run = []
            if page.name in self._made:
                run.append(page)
            else:
                yield page
        yield from _as_run(run)

    def _take_over(self) -> Iterator[Out]:
        """Settle what another method put off."""
        if self._handover is not None:
            handover, self._handover = self._handover, None
            yield from handover.run()
            self._hold(handover.pages())
            for port in (LEFT, RIGHT):
                for slab in handover.waiting(port):
                    yield from self._arrive(port, slab.batch, slab.met)

    def _arrive(self, port: int, rows: pa.RecordBatch, met: Mask | None = None) -> Iterator[Out]:
        arrivals, matched = rows, np.zeros(rows.num_rows, np.bool_) if met is None else met.copy()
        if not in_page_order(hashes_of(rows), times_of(rows)):
            order = page_order(hashes_of(rows), times_of(rows))
            arrivals, matched = take_rows(rows, order), matched[order]
        times = times_of(arrivals)
        reach = self._reach.of(port, times)
        hashes, earliest, latest = hashes_of(arrivals), int(reach[0].min()), int(reach[1].max())
        for place, page in enumerate(self._pages[1 - port]):
            if page.max_time >= earliest and page.min_time <= latest:
                near = _between(hashes, *self._pairing.span(page.min_hash, page.max_hash))
                if near.start < near.stop:
                    some = arrivals.slice(near.start, near.stop - near.start)
                    yield from self._probe(port, some, matched[near], place, page)
        yield from self._settle(port, arrivals, times, matched)

    def _probe(self, port: int, arrivals: pa.RecordBatch, matched: Mask, place: int, page: Page) -> Iterator[Out]:
        """Meet one page: pairs come out, rows that must not come out alone are marked."""
        held = read_page(self._store, page)
        mine = matched if self._keeps[port] else None
        # What another method let wait met the rows below the floor on their way out.
        admit = not_below(page.floor, held) if page.floor > page.min_time else None
        if not self._keeps[1 - port]:
            yield from self._pairing.meet(port, arrivals, mine, held, None, admit)
            return
        with self._budget.hold(2 * page.end, "the marks of a page"):
            marks = self._marks(page)
            before = np.count_nonzero(marks)
            yield from self._pairing.meet(port, arrivals, mine, held, marks[page.begin :], admit)
            if np.count_nonzero(marks) > before:
                self._pages[1 - port][place] = self._mark(page, marks)

    def _settle(self, port: int, arrivals: pa.RecordBatch, times: Times, matched: Mask) -> Iterator[Out]:
        """Hold the arrivals that may still be met; those that must come out now do."""
        alive = times >= horizon(self._reach, port, self._bounds[1 - port])
        if self._keeps[port]:
            yield from self._pairing.unmatched(port, arrivals, np.flatnonzero(~alive & ~matched))
            if self._config.how in LEFT_ONLY:
                alive &= ~matched
        if not alive.any():
            return
        if not alive.all():
            kept = np.flatnonzero(alive)
            arrivals, matched = arrivals.take(pa.array(kept)), matched[kept]
        page = write_page(self._store, port, arrivals)
        self._made.add(page.name)
        if self._keeps[port] and matched.any():
            page = self._mark(page, matched)
        self._pages[port].append(page)

    def _unmatched(self, page: Page, dead: Time) -> Iterator[Out]:
        """The rows of `page` that die unmatched: not below its floor, below `dead`."""
        held = read_page(self._store, page)
        with self._budget.hold(4 * held.num_rows, "looking for unmatched rows"):
            alone = dying(times_of(held), page.floor, dead, TIME_MAX)
            alone &= ~self._marks(page)[page.begin : page.end]
            yield from self._pairing.unmatched(page.kind, held, np.flatnonzero(alone))

    def _marks(self, page: Page) -> Mask:
        """Which rows of the stored batch have met a partner."""
        if page.marks is None:
            return np.zeros(page.end, np.bool_)
        return self._store.get(page.marks).column(0).to_numpy(zero_copy_only=False)[: page.end].copy()  # type: ignore[no-any-return]

    def _mark(self, page: Page, marks: Mask) -> Page:
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


def _as_run(pages: list[Page]) -> Iterator[Page]:
    """Pages as one run, by a name that only depends on them."""
    for page in pages:
        first = pages[0]
        yield page if len(pages) == 1 else replace(page, maker=f"{first.name}:{first.min_hash:x}:{first.max_time}")
