"""Merge: the union of ordered streams that is ordered itself, as in-order processing needs it.

Each input is taken to be ordered, so it has got as far as its latest row or its bound, whichever is further. Rows
leave by time once every input has got there; until then they wait, without limit while one input is silent or behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lab.operators.ordering import Ordering
from penstock.core.budget import Budget
from penstock.core.errors import ConfigError
from penstock.core.meter import Meter
from penstock.core.operator import Out, State
from penstock.core.pages import PageStore
from penstock.core.rows import RowType, times_of
from penstock.core.time import TIME_MIN, Time, clamp


@dataclass(frozen=True, slots=True)
class Merge:
    """The ordered union of `inputs` ordered streams of the same columns (F21): what Meld does without a buffer."""

    inputs: int

    def __post_init__(self) -> None:
        if self.inputs < 1:
            raise ConfigError(f"inputs={self.inputs} is a union of nothing. Write how many streams there are.")

    def output(self, inputs: tuple[RowType, ...]) -> pa.Schema:
        """The columns of the first; the others have the same."""
        return inputs[0].columns

    def logic(
        self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State, meter: Meter | None = None
    ) -> Merging:
        """At work."""
        return Merging(inputs, store, budget, state)


class Merging(Ordering):
    """An ordered union at work."""

    def __init__(self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State) -> None:
        super().__init__(inputs, store, budget, state)
        self._latest: list[Time] = state.meta.get("latest", [TIME_MIN] * len(inputs))

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Rows wait for the other inputs, and let theirs go."""
        if rows.num_rows:
            yield from self._wait(port, rows)
            yield from self.advance(port, int(times_of(rows).max()))

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """An input has got further."""
        self._latest[port] = max(self._latest[port], bound)
        slowest = min(self._latest)
        # Rows at the slowest input's own time may go: what follows is no earlier.
        if slowest > TIME_MIN:
            yield from self._release(clamp(slowest + 1), slowest)

    def state(self) -> State:
        """The rows that wait, and how far each input has got."""
        state = super().state()
        return State(state.pages, {**state.meta, "latest": self._latest})
