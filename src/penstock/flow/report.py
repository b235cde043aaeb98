"""What a query has measured: a record of each of the latest epochs, totals over all of them, and both as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.core.budget import show_bytes
from penstock.core.waits import Waits
from penstock.flow.display import table

KEPT = 1000
"""Number of epochs whose reports are kept individually."""

_SHOWN = 10
"""Number of epochs that a notebook shows."""


class PortReport(NamedTuple):
    """What arrived at a port of an operator in one epoch: rows, their bytes, and the bytes that are only passed on.

    >>> PortReport(rows=2, bytes=80, payload=48)
    PortReport(rows=2, bytes=80, payload=48)
    """

    rows: int = 0
    bytes: int = 0
    payload: int = 0


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """One operator in one epoch, over all its shards."""

    rows_in: int = 0
    rows_out: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    pages: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds of its tasks by phase: waiting for input, working, handing over output, writing its state."""
    peak_memory: int = 0
    """Peak of the bytes that one task of the operator had charged to its budget."""
    method: str = ""
    """The method that it ran by."""
    deferred: int = 0
    """Results that were emitted after the epoch in which the later of their rows arrived."""
    bytes_read: int = 0
    """Bytes of the pages that it read."""
    bytes_written: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    """Other counts of the operator: for a lookup its hits, misses, reads of the table and waiting rows."""
    waits: Waits | None = None
    """Waiting rows of a lookup, and how old the oldest is: ``waits.rows``, ``waits.oldest``."""
    ports: tuple[PortReport, ...] = ()
    """What arrived at each of its inputs."""

    @property
    def seconds(self) -> float:
        """Seconds of its tasks, all together."""
        return sum(self.phases.values())

    @property
    def share_out(self) -> float | None:
        """Estimated fraction of the pairs of its rows so far that was emitted; None except for joins without a window.

        >>> OperatorReport(counts={"expected": 400, "owed": 100}).share_out
        0.75
        """
        owed = self.counts.get("owed")
        return None if owed is None else 1.0 if not owed else 1 - owed / self.counts["expected"]


@dataclass(frozen=True, slots=True)
class EpochReport:
    """One epoch: rows in, late rows, rows out, the bound of each source, and how long it took."""

    epoch: int
    seconds: float
    rows_in: Mapping[str, int] = field(default_factory=dict)
    """Rows of each source, including late ones."""
    late: Mapping[str, int] = field(default_factory=dict)
    """How many of these were below their bound."""
    no_time: Mapping[str, int] = field(default_factory=dict)
    """How many of these had no time, or one out of range."""
    rows_out: int = 0
    """Rows of the streams that have sinks, each stream counted once."""
    bounds: Mapping[str, str] = field(default_factory=dict)
    operators: Mapping[str, OperatorReport] = field(default_factory=dict)
    place: str = ""
    """Where it ran, if the host has a choice, and why there."""
    left_behind: tuple[str, ...] = ()
    """The sources whose rows left payload behind."""
    payload_bytes: Mapping[str, int] = field(default_factory=dict)
    """By source, the bytes of payload in segments of the checkpoint that are kept for rows in state."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds on Spark by phase: planning, reading and running, committing."""

    def __str__(self) -> str:
        """One line for a log."""
        number, rows, late, out, state, size, bounds, seconds = self.cells()
        waits = "".join(f", {name}: {op.waits}" for name, op in self.operators.items() if op.waits and op.waits.rows)
        payload = sum(self.payload_bytes.values())
        segments = f" and {show_bytes(payload)} of payload" if payload else ""
        return (
            f"epoch {number}: {rows} rows in ({late} late), {out} out, "
            f"state {state} rows / {size}{segments}{waits}, bounds {bounds}, {seconds} s"
        )

    def cells(self) -> list[str]:
        """The epoch in the columns of a table: number, rows in, late, out, state in rows and bytes, bounds, seconds."""
        operators = self.operators.values()
        return [
            str(self.epoch),
            f"{sum(self.rows_in.values()):,}",
            f"{sum(self.late.values()) + sum(self.no_time.values()):,}",
            f"{self.rows_out:,}",
            f"{sum(op.state_rows for op in operators):,}",
            show_bytes(sum(op.state_bytes for op in operators)),
            ", ".join(f"{name} {bound}" for name, bound in self.bounds.items()),
            f"{self.seconds:.2f}",
        ]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over epochs."""

    epochs: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    seconds: float = 0.0

    def __add__(self, epoch: EpochReport) -> Totals:
        """With one more epoch."""
        return Totals(
            self.epochs + 1,
            self.rows_in + sum(epoch.rows_in.values()),
            self.rows_out + epoch.rows_out,
            self.late + sum(epoch.late.values()) + sum(epoch.no_time.values()),
            self.seconds + epoch.seconds,
        )


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What a query has done so far: the latest epochs one by one, and the sums over all of them.

    >>> report = Report().after(EpochReport(0, 0.5, rows_in={"s": 100})).after(EpochReport(1, 0.5, rows_in={"s": 300}))
    >>> report.rows_in, report.rows_per_second
    (400, 400.0)
    """

    epochs: tuple[EpochReport, ...] = ()
    totals: Totals = Totals()

    def after(self, epoch: EpochReport) -> Report:
        """The report after `epoch`; old epochs are dropped, so that a query that runs for months does not grow."""
        return Report((*self.epochs[1 - KEPT :], epoch), self.totals + epoch)

    @property
    def rows_in(self) -> int:
        """Rows of all sources, including late ones."""
        return self.totals.rows_in

    @property
    def rows_out(self) -> int:
        """Rows of the streams that have sinks, each stream counted once; late outlets are not counted."""
        return self.totals.rows_out

    @property
    def late(self) -> int:
        """Rows that were below their bound, had no time, or one out of range."""
        return self.totals.late

    @property
    def seconds(self) -> float:
        """Time spent in epochs."""
        return self.totals.seconds

    @property
    def switches(self) -> dict[str, list[int]]:
        """By source, the epochs in which its payload began to travel, or to stay behind.

        >>> first, second = (EpochReport(n, 0.1, {"s": 9}, left_behind=left) for n, left in enumerate(((), ("s",))))
        >>> Report().after(first).after(second).switches
        {'s': [1]}
        """
        found: dict[str, list[int]] = {}
        last: dict[str, bool] = {}
        for epoch in self.epochs:
            for source, rows in epoch.rows_in.items():
                if rows:
                    left = source in epoch.left_behind
                    if last.get(source, left) != left:
                        found.setdefault(source, []).append(epoch.epoch)
                    last[source] = left
        return found

    @property
    def shares_out(self) -> dict[str, float]:
        """By join without a window, the estimated fraction of the pairs of its rows so far that was emitted.

        >>> last = EpochReport(0, 0.1, operators={"ever": OperatorReport(counts={"expected": 40, "owed": 10})})
        >>> Report().after(last).shares_out
        {'ever': 0.75}
        """
        operators = self.epochs[-1].operators if self.epochs else {}
        return {name: share for name, op in operators.items() if (share := op.share_out) is not None}

    @property
    def rows_per_second(self) -> float:
        """Rows processed per second of epoch time."""
        return self.rows_in / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        """A few lines for people."""
        head = (
            f"{self.totals.epochs} epochs, {self.rows_in:,} rows in ({self.late:,} late), {self.rows_out:,} out, "
            f"{self.rows_per_second:,.0f} rows/s"
        )
        for source, epochs in self.switches.items():
            head += f"\npayload of {source} changed its place in epochs {', '.join(map(str, epochs))}"
        for join, share in ((join, share) for join, share in self.shares_out.items() if share < 1):
            head += f"\n{join}: about {100 * share:.0f} % of the results of its rows so far are out"
        return head if not self.epochs else f"{head}\nlast: {self.epochs[-1]}"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        head = ["epoch", "rows in", "late", "rows out", "state rows", "state", "bounds", "seconds"]
        title = str(self).partition("\n")[0]
        return table(title, head, [epoch.cells() for epoch in self.epochs[-_SHOWN:]])
