"""What a query measured: one record per epoch, the sums over all of them, and how they read in a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.budget import show_bytes


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """One operator in one epoch, over all its shards."""

    rows_in: int = 0
    rows_out: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    pages: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds of its tasks: waiting for input, working, handing over output, settling its state."""
    peak_memory: int = 0
    """The most bytes that one task of the operator had charged to its budget."""

    @property
    def seconds(self) -> float:
        """Seconds of its tasks, all together."""
        return sum(self.phases.values())


@dataclass(frozen=True, slots=True)
class EpochReport:
    """One epoch: what came in, what was late, what went out, how far each source has promised, how long it took."""

    epoch: int
    seconds: float
    rows_in: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    no_time: Mapping[str, int] = field(default_factory=dict)
    bounds: Mapping[str, str] = field(default_factory=dict)
    operators: Mapping[str, OperatorReport] = field(default_factory=dict)

    def __str__(self) -> str:
        """One line for a log."""
        state = sum(op.state_rows for op in self.operators.values())
        size = sum(op.state_bytes for op in self.operators.values())
        out = sum(op.rows_out for op in self.operators.values())
        late = sum(self.late.values()) + sum(self.no_time.values())
        bounds = ", ".join(f"{name} {bound}" for name, bound in self.bounds.items())
        return (
            f"epoch {self.epoch}: {sum(self.rows_in.values()):,} rows in, {out:,} out, {late:,} late, "
            f"state {state:,} rows / {show_bytes(size)}, bounds {bounds}, {self.seconds:.2f} s"
        )


@dataclass(frozen=True, slots=True)
class Report:
    """All the epochs of a query so far.

    >>> report = Report((EpochReport(0, 0.5, rows_in={"s": 100}), EpochReport(1, 0.5, rows_in={"s": 300})))
    >>> report.rows_in, report.rows_per_second
    (400, 400.0)
    """

    epochs: tuple[EpochReport, ...] = ()

    @property
    def rows_in(self) -> int:
        """Rows taken from all the sources."""
        return sum(sum(epoch.rows_in.values()) for epoch in self.epochs)

    @property
    def rows_out(self) -> int:
        """Rows that operators gave."""
        return sum(op.rows_out for epoch in self.epochs for op in epoch.operators.values())

    @property
    def late(self) -> int:
        """Rows that came below their bound or without a time."""
        return sum(sum(epoch.late.values()) + sum(epoch.no_time.values()) for epoch in self.epochs)

    @property
    def seconds(self) -> float:
        """Time spent in epochs."""
        return sum(epoch.seconds for epoch in self.epochs)

    @property
    def rows_per_second(self) -> float:
        """Rows taken per second of epoch time."""
        return self.rows_in / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        """A few lines for people."""
        head = (
            f"{len(self.epochs)} epochs, {self.rows_in:,} rows in, {self.rows_out:,} out, {self.late:,} late, "
            f"{self.rows_per_second:,.0f} rows/s"
        )
        return head if not self.epochs else f"{head}\nlast: {self.epochs[-1]}"
