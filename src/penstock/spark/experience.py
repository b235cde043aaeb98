"""How many rows operators took lately: where their work is best done, and whether pre-aggregation in Spark pays."""

from __future__ import annotations

from penstock.flow.graph import OperatorNode

_FEW = 50_000
"""Partials that are aggregated in the driver: more are worth a task on each core."""

HERE = 4
"""The part of a task's share that partials, or results, may take in the driver: what is more goes to tasks."""

_SAVING = 2
"""So many rows must make one partial: with fewer, Spark's first half of an aggregation costs more than it saves."""

_TRY_AGAIN = 16
"""After so many epochs without Spark's first half it is tried again: streams change."""


class Experience:
    """What the arrivals of earlier epochs suggest about the next one."""

    def __init__(self) -> None:
        self.few = _FEW
        self._arrived: dict[str, tuple[int, int]] = {}
        """How many rows, or partials of rows, each operator took in the last epoch, and how many bytes they were."""
        self._as_rows: dict[str, int] = {}
        """Until which epoch an operator takes rows as they are: they make almost as many partials."""
        self.late_rows = False
        """Whether rows of the last epoch came late: then they are best counted as they pass."""

    def saw(self, node: OperatorNode, rows: int, nbytes: int) -> None:
        """An operator took so many rows, or partials of rows."""
        self._arrived[node.name] = rows, nbytes

    def saw_partials(self, node: OperatorNode, rows: int, epoch: int) -> None:
        """What it took were partials of so many rows: if they are almost as many, it takes rows for a while."""
        partials, _ = self._arrived[node.name]
        if partials > self.few and partials * _SAVING > rows:
            self._as_rows[node.name] = epoch + 1 + _TRY_AGAIN

    def took_few(self, node: OperatorNode, share: int) -> bool:
        """Whether an operator's arrivals of the last epoch could have been handled in the driver."""
        rows, size = self._arrived.get(node.name, (self.few + 1, 0))
        return rows <= self.few and size <= share // HERE

    def gains(self, node: OperatorNode, epoch: int) -> bool:
        """Whether an operator gains by partials made natively, as far as earlier epochs tell; of few it does."""
        return self._arrived.get(node.name, (0, 0))[0] <= self.few or self._as_rows.get(node.name, epoch) <= epoch
