"""Guard: lets no row pass that an earlier punctuation excludes.

A row is a violator iff its time is below its stream's bound, or below the bound of its group. Violators leave by the
late outlet and are counted; all other rows pass untouched, in their order. State: the bounds, of no row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import RowType, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.operators.progress.groups import GroupBounds
from penstock.operators.progress.outlets import split


@dataclass(frozen=True, slots=True)
class Guard:
    """Guard one stream; its groups, if punctuations speak of any, are what its keys say (F01)."""

    def output(self, inputs: tuple[RowType, ...]) -> pa.Schema:
        """The same columns."""
        return inputs[0].columns

    def logic(
        self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State, meter: Meter | None = None
    ) -> Guarding:
        """At work."""
        return Guarding(inputs[0], store, budget, state)


class Guarding:
    """A guard at work."""

    def __init__(self, rows: RowType, store: PageStore, budget: Budget, state: State) -> None:
        self._type = rows
        self._store = store
        self._bound: Time = state.meta.get("bound", TIME_MIN)
        self.violators: int = state.meta.get("violators", 0)
        """How many rows have been turned away."""
        self._groups = GroupBounds(rows, budget)
        self._groups.take_up(store, state.pages)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Rows pass, or are late."""
        late = times_of(rows) < np.maximum(self._bound, self._groups.of(rows))
        self.violators += int(np.count_nonzero(late))
        yield from split(self._type, rows, late)

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """A linear punctuation: it also holds for every group."""
        self._bound = max(self._bound, bound)
        self._groups.purge(self._bound)
        return iter(())

    def advance_groups(self, port: int, bounds: pa.RecordBatch) -> Iterator[Out]:
        """Group-wise punctuations, see `group_batch`."""
        self._groups.rise(bounds)
        self._groups.purge(self._bound)
        return iter(())

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing is deferred."""
        return iter(())

    def end(self) -> Iterator[Out]:
        """No row may come any more."""
        return self.advance(0, TIME_MAX)

    def bounds(self) -> Bounds:
        """As the input's."""
        return Bounds((self._bound, self._bound), (self._bound, self._bound))

    def state(self) -> State:
        """The bounds, and how many violators there were."""
        return State(tuple(self._groups.save(self._store, 0)), {"bound": self._bound, "violators": self.violators})
