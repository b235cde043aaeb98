"""OPIB-Join: order-preserving by an input buffer. Its results are born by the left row's time.

Left rows wait until all the right rows that they can meet are there, and then meet them by time. Both inputs may be in
any order. Against OPOB-Join it holds rows and not results, which is less where a row has many partners; against
OA-Join its results come later: none before the right bound has passed the left row's window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import RowType, hashes_of, times_of
from penstock.core.time import TIME_MIN, Time
from penstock.core.within import LEFT, RIGHT, horizon
from penstock.kernels.sort import page_order
from penstock.operators.progress.held import Held, by_time, halves
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.methods import JoinMethod
from penstock.operators.window_join.pairing import OneWay

OPIB_ROWS = (3, 4)
"""The kinds of pages that hold rows, left and right, which have not met."""


@dataclass(frozen=True, slots=True)
class Opib(JoinMethod):
    """OPIB-Join has no parameters."""

    inner_only: ClassVar[bool] = True
    in_order: ClassVar[bool] = True
    holds: ClassVar[tuple[int, ...]] = OPIB_ROWS
    takes_over: ClassVar[bool] = False


class OPIBJoin:
    """OPIB-Join on one shard (spec 2.9, F20); order is that of the shard."""

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
        self._budget = budget
        self._pairing = OneWay(config, inputs, budget)
        self._bounds: list[Time] = [TIME_MIN, TIME_MIN]
        self._left, self._right = (
            Held(rows.inside, store, budget, [page for page in state.pages if page.kind == port])
            for rows, port in zip(inputs, OPIB_ROWS, strict=True)
        )

    @property
    def held(self) -> int:
        """How many rows wait."""
        return self._left.rows + self._right.rows

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Rows wait; one without a key meets nothing."""
        known, _ = self._pairing.with_keys(port, rows)
        (self._left, self._right)[port].put(known, OPIB_ROWS[port])
        return iter(())

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Left rows that can meet no further right row, and that no left row can come before, meet all they can."""
        self._bounds[port] = max(self._bounds[port], bound)
        ready = self.bounds().individual[LEFT]
        yield from self._process(ready)
        self._left.forget(ready)
        self._right.forget(horizon(self._pairing.reach, RIGHT, ready))

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing is deferred that could be done."""
        return iter(())

    def bounds(self) -> Bounds:
        """What can still come out."""
        return self._config.bounds(self._bounds[LEFT], self._bounds[RIGHT])

    def state(self) -> State:
        """The rows that wait."""
        return State((*self._left.pages, *self._right.pages))

    def _process(self, until: Time) -> Iterator[Out]:
        """Let the left rows below `until` meet right rows, by time, in spans whose rows of both sides fit."""
        spans = self._left.due(until)
        while spans:
            first, last = spans.pop()
            mine, near = self._left.cost(first, last), self._reach(first, last)
            cost = mine + self._right.cost(*near) if mine else 0
            if cost <= self._budget.room // 3:
                with self._budget.hold(cost, "rows that meet by time"):
                    left, right = by_time(self._left.gather(first, last)), self._right.gather(*near)
                    yield from self._meet(left, right.take(pa.array(page_order(hashes_of(right), times_of(right)))))
            elif first == last:
                yield from self._meet_page_by_page(first, near)
            else:
                spans += halves(first, last)

    def _meet_page_by_page(self, time: Time, near: tuple[Time, Time]) -> Iterator[Out]:
        """Left rows of one time meet in any order."""
        for left in self._left.page_by_page(time, time):
            for right in self._right.page_by_page(*near):
                yield from self._meet(left, right)

    def _meet(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Iterator[Out]:
        return self._pairing.meet(LEFT, left, None, right, None)

    def _reach(self, first: Time, last: Time) -> tuple[Time, Time]:
        """The right times that left rows from `first` to `last` can meet."""
        starts, stops = self._pairing.reach.of(LEFT, np.array([first, last], np.int64))
        return int(starts[0]), int(stops[1])
