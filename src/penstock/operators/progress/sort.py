"""Sort: sorts the rows of one or several streams by time, exactly, by their bounds.

A row leaves once the bound of every input has passed it, so no later row can come before it. Rows leave in ascending
order of time, within an epoch and from one epoch to the next; those of the same time in no particular order. Until then
they wait in pages. One shard does all the work, because order exists only within one task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.errors import ConfigError
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Operator, Out, State
from penstock.core.pages import PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import RowType
from penstock.core.time import TIME_MIN, Time
from penstock.operators.progress.held import Held


@dataclass(frozen=True, slots=True)
class Sort(Operator):
    """Sort the rows of `inputs` streams with the same columns by time (F21).

    >>> Sort().says(), Sort(inputs=2).says()
    ('sort by time, exact by bounds', 'merge of 2 streams by time, exact by bounds')
    """

    inputs: int = 1

    def __post_init__(self) -> None:
        if self.inputs < 1:
            raise ConfigError(f"inputs={self.inputs} must be at least 1: how many streams there are.")

    def says(self, inputs: tuple[RowType, ...] = ()) -> str:
        """What it does, in words."""
        what = "sort" if self.inputs == 1 else f"merge of {self.inputs} streams"
        return f"{what} by time, exact by bounds"

    @property
    def compacts(self) -> bool:
        """Its pages may be merged between epochs."""
        return True

    def bounds(self, *ports: Time) -> Bounds:
        """The least of the inputs' bounds: all rows below it have left."""
        bound = min(ports)
        return Bounds.at(bound)

    def logic(
        self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State, meter: Meter | None = None
    ) -> Sorting:
        """The running operator."""
        return Sorting(self, inputs, store, budget, state)


class Sorting:
    """The logic of a sort."""

    def __init__(
        self, config: Sort, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State
    ) -> None:
        self._config = config
        self._type = inputs[0]
        self._held = Held(self._type.inside, store, budget, state.pages)
        self._bounds: list[Time] = [TIME_MIN] * len(inputs)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Rows wait."""
        self._held.put(rows)
        return iter(())

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Emit rows that the bounds of all inputs have passed."""
        before = min(self._bounds)
        self._bounds[port] = max(self._bounds[port], bound)
        if min(self._bounds) > before:
            for rows in self._held.take(min(self._bounds)):
                yield Out("results", self._type.leave(rows))

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing is deferred."""
        return iter(())

    def bounds(self) -> Bounds:
        """The least of the inputs' bounds."""
        return self._config.bounds(*self._bounds)

    def state(self) -> State:
        """Rows that wait."""
        return State(tuple(self._held.pages))
