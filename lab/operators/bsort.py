"""BSort: puts a stream in order that is never more than some slack out of it.

Rows leave by time once the latest row seen is more than `slack` ahead of them, or a bound has passed them. A row that
comes later than that is late: it could not leave in order. Punctuation is exact; slack is a guess, too small (late
rows) or too large (latency, memory).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lab.operators.ordering import Ordering
from penstock.core.budget import Budget
from penstock.core.durations import Duration, DurationLike, TimeUnit
from penstock.core.errors import ConfigError
from penstock.core.meter import Meter
from penstock.core.operator import Out, State
from penstock.core.pages import PageStore
from penstock.core.rows import RowType, times_of
from penstock.core.time import TIME_MIN, Time, clamp


@dataclass(frozen=True, slots=True)
class BSort:
    """Sort one stream by its time (F21).

    >>> BSort(slack="3 s", unit="microseconds").steps
    3000000
    """

    slack: DurationLike
    unit: TimeUnit = "ticks"

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ConfigError(f"slack={self.slack!r} is negative. Write how far behind the latest row one may come.")

    @property
    def steps(self) -> int:
        """The slack in steps of the time column."""
        return Duration.of(self.slack, "slack").on(self.unit, "slack")

    def output(self, inputs: tuple[RowType, ...]) -> pa.Schema:
        """The same columns."""
        return inputs[0].columns

    def logic(
        self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State, meter: Meter | None = None
    ) -> Sorting:
        """At work."""
        return Sorting(self.steps, inputs, store, budget, state)


class Sorting(Ordering):
    """A sort at work."""

    def __init__(self, slack: int, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State) -> None:
        super().__init__(inputs, store, budget, state)
        self._slack = slack

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Rows wait, and let those go that they are far enough ahead of."""
        if rows.num_rows:
            yield from self._wait(port, rows)
            yield from self.advance(port, clamp(int(times_of(rows).max()) - self._slack))

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Rows below `bound` leave."""
        if bound > max(self._left, TIME_MIN):
            yield from self._release(bound, bound)
