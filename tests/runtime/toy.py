"""An operator for tests, whole as a contributor writes it. Rows leave `by` steps after the bound has passed them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Operator, Out, State
from penstock.core.pages import PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import RowType
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.operators.progress.held import Held


@dataclass(frozen=True, slots=True)
class Delayed(Operator):
    """Hold rows back; none is changed or dropped."""

    by: int

    def says(self, inputs: tuple[RowType, ...] = ()) -> str:
        """What it does."""
        return f"rows are held back for {self.by}"

    def bounds(self, *ports: Time) -> Bounds:
        """Behind the rows'."""
        bound = ports[0] if ports[0] in (TIME_MIN, TIME_MAX) else ports[0] - self.by
        return Bounds.at(bound)

    def logic(
        self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State, meter: Meter | None = None
    ) -> Delaying:
        """At work."""
        return Delaying(self, inputs[0], store, budget, state)


class Delaying:
    """Rows wait in pages."""

    def __init__(self, config: Delayed, rows: RowType, store: PageStore, budget: Budget, state: State) -> None:
        self._config, self._type, self._bound = config, rows, TIME_MIN
        self._held = Held(rows.inside, store, budget, state.pages)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Rows wait."""
        self._held.put(rows)
        return iter(())

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Let go of what has waited long enough."""
        self._bound = max(self._bound, bound)
        for rows in self._held.take(self.bounds().individual[0]):
            yield Out("results", self._type.leave(rows))

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing is put off."""
        return iter(())

    def bounds(self) -> Bounds:
        """As the config says."""
        return self._config.bounds(self._bound)

    def state(self) -> State:
        """What waits."""
        return State(tuple(self._held.pages))
