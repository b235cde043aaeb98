"""Which run of a task counts. Spark may run a task several times, even at once, and takes the results of only one run.

The new state of a shard must come from the same run. Rows arrive in another order each time, and an operator that
defers results may defer others: the results of one run and the state of another would lose rows, or duplicate some. So
every run stages its own record, whose name reaches the driver through Spark's accumulators: with the results, and only
from tasks that Spark counts as done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyspark import Accumulator, AccumulatorParam, SparkContext


class Run(NamedTuple):
    """A completed run of a shard."""

    attempt: str
    operator: str
    shard: int
    name: str


class _Listed(AccumulatorParam):  # type: ignore[misc]
    """A list that tasks add to."""

    def zero(self, value: list[Run]) -> list[Run]:
        """None yet."""
        return []

    def addInPlace(self, value1: list[Run], value2: list[Run]) -> list[Run]:  # noqa: N802 – as Spark has it
        """Both."""
        return value1 + value2


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs that Spark counts as done, as the driver and the tasks of a flow share it."""

    told: Accumulator[list[Run]]

    @classmethod
    def on(cls, context: SparkContext) -> Runs:
        """None yet."""
        return cls(context.accumulator([], _Listed()))

    def tell(self, run: Run) -> None:
        """Say that a run went to its end; called where it did."""
        self.told.add([run])

    def of(self, attempt: str, operator: str) -> dict[int, str]:
        """The run of each shard of an operator in an attempt; the last one if there were more."""
        return {run.shard: run.name for run in self._of(attempt, operator)}

    def repeated(self, attempt: str, operator: str) -> bool:
        """Whether a shard ran to its end more than once, as it does if Spark loses what its first run had sent on."""
        return len(self._of(attempt, operator)) > len(self.of(attempt, operator))

    def forget(self) -> None:
        """An epoch is over."""
        self.told.value = []

    def _of(self, attempt: str, operator: str) -> list[Run]:
        return [run for run in self.told.value if (run.attempt, run.operator) == (attempt, operator)]
