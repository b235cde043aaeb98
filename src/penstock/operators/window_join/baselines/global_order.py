"""Global-order join: the window join of engines that take all their input to be in one order (spec 3.2). Wrong else.

An arrival first lets go of the other stream's rows that are too old for it, as if no older row could come any more,
and then meets all that are left, as if none could be too young. If one stream is behind the other, pairs are missing
and others are false. It is here to be compared with, and heeds no bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import Page, PageStore, read_page, write_page
from penstock.core.progress import Bounds
from penstock.core.rows import RowType, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time, Times
from penstock.core.within import LEFT, RIGHT
from penstock.kernels.sort import page_order
from penstock.operators.pieces import pieces
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.methods import JoinMethod
from penstock.operators.window_join.pairing import OneWay, not_below

_MATCHING = 112
"""Bytes that sorting and matching one arrival takes besides its own."""


@dataclass(frozen=True, slots=True)
class GlobalOrder(JoinMethod):
    """The global-order join has no parameters."""

    inner_only: ClassVar[bool] = True


class GlobalOrderJoin:
    """The global-order join on one shard (F20)."""

    def __init__(
        self,
        config: WindowJoin,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        meter: Meter | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._budget = budget
        self._pairing = _Since(config, inputs, budget)
        self._bounds: list[Time] = [TIME_MIN, TIME_MIN]
        self._pages: tuple[list[Page], list[Page]] = ([], [])
        for page in state.pages:
            self._pages[page.kind].append(page)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Each arrival, in the order of arrival: let go of what is too old, meet what is left, be held."""
        known, _ = self._pairing.with_keys(port, rows)
        for piece in pieces(known, self._budget, _MATCHING):
            with self._budget.hold(piece.nbytes + _MATCHING * piece.num_rows, "sorting and matching arrivals"):
                yield from self._arrive(port, piece)

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Bounds are not heeded, but for the end of both streams."""
        self._bounds[port] = max(self._bounds[port], bound)
        if min(self._bounds) == TIME_MAX:
            for side in (LEFT, RIGHT):
                self._let_go(side, TIME_MAX)
        return iter(())

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing is deferred."""
        return iter(())

    def bounds(self) -> Bounds:
        """What would be so if both streams were one in order."""
        return self._config.bounds(self._bounds[LEFT], self._bounds[RIGHT])

    def state(self) -> State:
        """The rows of both ports."""
        return State((*self._pages[LEFT], *self._pages[RIGHT]))

    def _arrive(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        oldest, _ = self._pairing.reach.of(port, times_of(rows))
        since = np.maximum.accumulate(oldest)
        order = page_order(hashes_of(rows), times_of(rows))
        arrivals, self._pairing.since = rows.take(pa.array(order)), since[order]
        for page in self._pages[1 - port]:
            held = read_page(self._store, page)
            yield from self._pairing.meet(port, arrivals, None, held, None, not_below(page.floor, held))
        self._let_go(1 - port, int(since[-1]))
        self._pages[port].append(write_page(self._store, port, arrivals))

    def _let_go(self, port: int, until: Time) -> None:
        kept = []
        for page in self._pages[port]:
            if page.max_time < until or until == TIME_MAX:
                self._store.drop(page.name)
            else:
                kept.append(replace(page, floor=max(page.floor, until)))
        self._pages[port][:] = kept


class _Since(OneWay):
    """Meets every row that has not been let go of when the arrival comes."""

    since: Times

    def _near(self, port: int, needles: pa.RecordBatch) -> tuple[Times, Times]:
        return self.since, np.full(needles.num_rows, TIME_MAX, np.int64)
