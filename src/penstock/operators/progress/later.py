"""Rows that leave one epoch after they arrived, so that expensive steps do not delay the operator before.

Every row is emitted once, unchanged: in the epoch after its own, or at the end of its stream. Until then it waits in
pages, which are state like any other. A decoupled multi-way join holds its results this way, as keys, times and places,
until they get their payload (F20).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Operator, Origin, Out, State
from penstock.core.pages import PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import RowType
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.operators.progress.held import Held

_WAITS = 0
"""The kind of pages with rows that wait."""


@dataclass(frozen=True, slots=True)
class Later(Operator):
    """Emit rows in the epoch after the one in which they arrived.

    >>> Later().says()
    'rows leave in the epoch after the one in which they came'
    """

    def says(self, inputs: tuple[RowType, ...] = ()) -> str:
        """What it does, in words."""
        return "rows leave in the epoch after the one in which they came"

    def bounds(self, *ports: Time) -> Bounds:
        """The bound of the rows, except those that wait, which the host sees from their pages."""
        return Bounds.at(ports[0])

    @property
    def held_kinds(self) -> frozenset[int]:
        """All its pages hold waiting rows."""
        return frozenset({_WAITS})

    @property
    def waits_for_bounds(self) -> bool:
        """Rows wait for the next epoch, not for a bound."""
        return False

    def carries(self, inputs: tuple[RowType, ...]) -> dict[str, Origin]:
        """All columns but keys and time."""
        (rows,) = inputs
        looked_at = {*rows.keys, rows.time}
        return {name: Origin(0, name) for name in rows.columns.names if name not in looked_at}

    @property
    def takes_less(self) -> bool:
        """Rows wait as they are."""
        return True

    def logic(
        self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State, meter: Meter | None = None
    ) -> Waiting:
        """The running operator."""
        return Waiting(self, inputs[0], store, budget, state, meter)


class Waiting:
    """Rows of the last epoch that leave in this one, and rows of this one that wait."""

    def __init__(
        self, config: Later, rows: RowType, store: PageStore, budget: Budget, state: State, meter: Meter | None
    ) -> None:
        self._config = config
        self._type = rows
        self._meter = meter
        self._due = Held(rows.inside, store, budget, state.pages)
        self._came = Held(rows.inside, store, budget)
        self._waiting = 0
        self._bound = TIME_MIN

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Rows wait."""
        self._waiting += rows.num_rows
        self._came.put(rows, _WAITS)
        return iter(())

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Emit rows that have waited since the last epoch; at the end of the stream, emit all."""
        self._bound = max(self._bound, bound)
        yield from self._leave(self._due)
        if self._bound == TIME_MAX:
            yield from self._leave(self._came)
            self._waiting = 0

    def _leave(self, held: Held) -> Iterator[Out]:
        for rows in held.take(TIME_MAX):
            if self._meter is not None:
                self._meter.defer(rows.num_rows)
            yield Out("results", self._type.leave(rows))

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing to do: all rows that are due have left."""
        return iter(())

    def bounds(self) -> Bounds:
        """As the config says."""
        return self._config.bounds(self._bound)

    def state(self) -> State:
        """Rows that wait for the next epoch."""
        return State((*self._due.pages, *self._came.pages))

    def counts(self) -> dict[str, int]:
        """How many rows wait for the next epoch."""
        return {"queued": self._waiting}
