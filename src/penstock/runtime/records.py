"""What shards report about an epoch, and the report of an operator that follows from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from operator import add
from typing import Any, Self

from penstock.core.budget import Budget
from penstock.core.meter import Tally
from penstock.core.operator import Logic, State
from penstock.core.waits import Waits
from penstock.flow.graph import OperatorNode, StatementNode
from penstock.flow.report import OperatorReport, PortReport
from penstock.runtime.shard import Arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRecord:
    """One shard of an operator in one epoch, small enough to be staged."""

    rows_by_port: Sequence[int]
    """Rows that arrived by port; ports after those of the inputs take partials."""
    rows_out: int
    seconds: Mapping[str, float]
    """Seconds by phase: waiting for input, working, handing over output, writing the state."""
    peak: int
    """The most bytes charged to its budget."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """The logic's own counts."""
    waits: Waits | None = None
    deferred: int = 0
    lifted: tuple[int, int] = (0, 0)
    """Rows of an aggregation, and the partials that they became."""
    bytes_by_port: Sequence[int] = ()
    """Of the rows that arrived."""
    payload_by_port: Sequence[int] = ()
    """Of these, the bytes of columns that the operator only passes on."""
    bytes_in: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @classmethod
    def of(cls, logic: Logic, tally: Tally, budget: Budget, arrived: Arrived, **seen: Any) -> Self:
        """What a logic that has run says of itself, beside what its host has `seen`; most count nothing."""
        return cls(
            rows_by_port=arrived.rows,
            bytes_by_port=arrived.nbytes,
            payload_by_port=arrived.payload,
            peak=budget.peak,
            counts=logic.counts() if hasattr(logic, "counts") else {},
            waits=logic.waits() if hasattr(logic, "waits") else None,
            deferred=tally.deferred,
            lifted=(tally.rows_lifted, tally.lifted),
            **seen,
        )

    @property
    def rows_in(self) -> int:
        """Rows, or partials of rows, that arrived."""
        return sum(self.rows_by_port)

    def to_json(self) -> dict[str, Any]:
        """For a checkpoint."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """From a checkpoint."""
        waits = record["waits"]
        return cls(
            **{
                **record,
                "waits": None if waits is None else Waits.from_json(waits),
                "lifted": tuple(record["lifted"]),
            }
        )


def report_of(
    node: OperatorNode, method: str, records: Sequence[ShardRecord], states: Sequence[State]
) -> OperatorReport:
    """The report of an operator on an epoch, over all its shards. Statements about groups are not counted as rows."""
    pages = [page for state in states for page in state.pages]
    said = [port for port, part in enumerate(node.inputs) if isinstance(part, StatementNode)]
    return OperatorReport(
        rows_in=sum(record.rows_in - sum(record.rows_by_port[port] for port in said) for record in records),
        rows_out=sum(record.rows_out for record in records),
        state_rows=sum(page.rows for page in pages),
        state_bytes=sum(page.nbytes for page in pages),
        pages=len(pages),
        phases={name: sum(record.seconds[name] for record in records) for name in records[0].seconds},
        peak_memory=max(record.peak for record in records),
        method=method,
        deferred=sum(record.deferred for record in records),
        bytes_read=sum(record.bytes_read for record in records),
        bytes_written=sum(record.bytes_written for record in records),
        counts=added_up(record.counts for record in records),
        waits=_all_waits(record.waits for record in records),
        ports=_ports(node, records),
    )


def _ports(node: OperatorNode, records: Sequence[ShardRecord]) -> tuple[PortReport, ...]:
    """What arrived at each input, over all shards; partials of rows are left out."""
    counted = ("rows_by_port", "bytes_by_port", "payload_by_port")
    sums = [list(map(sum, zip(*(getattr(record, each) for record in records), strict=True))) for each in counted]
    return tuple(PortReport(*each) for each in zip(*sums, strict=False))[: len(node.inputs)]


def rows_by_input(node: OperatorNode, records: Iterable[ShardRecord]) -> tuple[int, ...]:
    """Rows that arrived at an operator, by input; partials are those of the first."""
    arrived = [sum(rows) for rows in zip(*(record.rows_by_port for record in records), strict=True)]
    ports = len(node.inputs)
    return (arrived[0] + sum(arrived[ports:]), *arrived[1:ports])


def added_up(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The counts of all the shards of an operator.

    >>> added_up([{"hits": 2, "reads": 0}, {"hits": 3, "reads": 0}])
    {'hits': 5, 'reads': 0}
    """
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


def _all_waits(waits: Iterable[Waits | None]) -> Waits | None:
    """Those of all the shards; their number adds up, the oldest is the oldest of all."""
    known = [each for each in waits if each is not None]
    return reduce(add, known) if known else None
