"""What Merge and BSort share: rows wait until the output has got as far as they are, then leave in order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import RowType, times_of
from penstock.core.time import TIME_MIN, Time
from penstock.operators.progress.held import Held


class Ordering:
    """Rows leave by time, never before one that has left: a row that comes too late for that is late, and counted.

    Order is that of one shard, so an operator that orders has one.
    """

    def __init__(self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State) -> None:
        self._type = inputs[0]
        self._held = Held(self._type.inside, store, budget, state.pages)
        self._left: Time = state.meta.get("left", TIME_MIN)
        """Rows below this have left, and no more of them will."""
        self.violators: int = state.meta.get("violators", 0)
        """How many rows came too late to be put in order."""

    @property
    def held(self) -> int:
        """How many rows wait."""
        return self._held.rows

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing is deferred."""
        return iter(())

    def bounds(self) -> Bounds:
        """How far the output has got."""
        return Bounds.at(self._left)

    def state(self) -> State:
        """The rows that wait, and how far the output has got."""
        return State(tuple(self._held.pages), {"left": self._left, "violators": self.violators})

    def _wait(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        late = times_of(rows) < self._left
        if late.any():
            self.violators += int(np.count_nonzero(late))
            yield Out("late", self._type.leave(rows.filter(pa.array(late))))
            rows = rows.filter(pa.array(~late))
        self._held.put(rows, port)

    def _release(self, until: Time, left: Time) -> Iterator[Out]:
        """Let the rows below `until` go; none below `left` may follow."""
        for rows in self._held.take(until):
            yield Out("results", self._type.leave(rows))
        self._left = max(self._left, left)
