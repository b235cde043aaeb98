"""The operator contract: what every algorithm is, whichever host runs it.

An operator is a frozen config (what the user asked for) and a logic built from it (what runs on one shard of the
key space). The logic is a deterministic state machine: no clock, no I/O but its page store, no randomness but a
seeded one. Its state is pages and a small `meta` record, so that a host can save, move and inspect it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.pages import Page, PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import RowType
from penstock.core.time import Time

Outlet = Literal["results", "late", "shed"]
"""Where rows leave: answers, rows below their bound, rows put aside under overload."""


class Out(NamedTuple):
    """Rows that leave an operator, in a bounded chunk."""

    outlet: Outlet
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class State:
    """An operator's state on one shard: its pages, and a JSON-able record of whatever else it must remember."""

    pages: Sequence[Page] = ()
    meta: dict[str, Any] = field(default_factory=dict)


class Allowance(Protocol):
    """How much deferred work may be done now."""

    def left(self) -> bool:
        """Whether to go on."""
        ...


@dataclass(frozen=True, slots=True)
class Quiet:
    """Allows deferred work in epochs that bring no rows.

    >>> Quiet(rows=0).left(), Quiet(rows=12).left()
    (True, False)
    """

    rows: int

    def left(self) -> bool:
        """Whether nothing arrived."""
        return not self.rows


class Logic(Protocol):
    """An algorithm at work on one shard. Every call yields its output in chunks that fit the budget.

    Streams end by `advance` to `TIME_MAX` on every port, then `idle`: all that was held back comes out.
    """

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Rows arrive on `port`, in any order, none below the port's bound; shaped as `RowType.inside`."""
        ...

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """No later row on `port` has a time below `bound`."""
        ...

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing more arrives for now, as at the end of each epoch: do deferred work while there is allowance."""
        ...

    def bounds(self) -> Bounds:
        """What can still come out."""
        ...

    def state(self) -> State:
        """What the next epoch, perhaps on another machine, has to start from."""
        ...


def compacts(config: Any) -> bool:
    """Whether a host is to merge the pages of an operator's state between epochs; those of most merge their own.

    >>> compacts(object())
    False
    """
    return bool(getattr(config, "compacts", False))


class Operator(Protocol):
    """A config: says what it takes, what it gives, and builds the logic."""

    def output(self, inputs: tuple[RowType, ...]) -> pa.Schema:
        """The columns of the results."""
        ...

    def logic(
        self,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        meter: Meter | None = None,
    ) -> Logic:
        """The algorithm, ready to go on from `state`; `meter` is told of its work."""
        ...
