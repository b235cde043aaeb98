"""The operator contract: what every algorithm is, whichever host runs it.

An operator is a frozen config (what the user asked for) and a logic built from it (what runs on one shard of the
key space). The logic is a deterministic state machine: no clock, no I/O but its page store, no randomness but a
seeded one. Its state is pages and a small `meta` record, so that a host can save, move and inspect it.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, Protocol

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.durations import Duration
from penstock.core.master import Master, TableSource
from penstock.core.meter import Meter
from penstock.core.pages import Page, PageStore
from penstock.core.prelude import Prelude
from penstock.core.progress import Bounds
from penstock.core.routes import KEYED, Route
from penstock.core.rows import RowType
from penstock.core.time import Time
from penstock.core.windows import Sessions, Slides

Outlet = Literal["results", "late"]
"""Where rows leave: answers, and rows below their bound."""

Timing = Literal["column", "before end", "latest", "earliest"]
"""The event time of a result: what one column shows, the step before the end of its window, or one of two columns."""

NullKeys = Literal["group", "drop", "spread"]
"""Rows with null in a key: a group like any other; of no use; kept, and placed by their time as they meet nobody."""

Arrivals = Literal["streamed", "sorted", "spooled"]
"""Rows are processed as they come, sorted by hash, or in order of time; the last two once all of them are there."""

_LARGE_STATE = 16
"""From so many times the share on, state is in so many pages that sorting arrivals first costs less than it saves."""


class Origin(NamedTuple):
    """The column of a port that a column of the results has its type from."""

    port: int
    column: str


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


_SINCE: tuple[tuple[str, Any], ...] = (("punctuated", ()), ("keys", "merged"), ("near", ()), ("matching", None))
"""Settings that older checkpoints do not know, with the values that mean they are not used: these are not noted."""


def _identity(value: Any) -> Any:
    return value if isinstance(value, str | int | bool) else getattr(value, "identity", str(value))


def sorted_if_large(held: int, share: int) -> Arrivals:
    """How arrivals best meet `held` bytes of pages in `share` of memory: of much state, sorted ones meet few each.

    >>> sorted_if_large(10, share=100), sorted_if_large(10_000, share=100)
    ('streamed', 'sorted')
    """
    return "sorted" if held > _LARGE_STATE * share else "streamed"


class Operator(abc.ABC):
    """A config: what an operator is asked to do. It answers whatever a host asks, and builds the logic.

    This is all that hosts know of operators. Whoever has nothing special to say leaves the default.
    """

    __slots__ = ()

    # What it does.

    def output(self, inputs: tuple[RowType, ...]) -> pa.Schema:
        """The columns of the results."""
        return inputs[0].columns

    @abc.abstractmethod
    def logic(
        self,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        meter: Meter | None = None,
    ) -> Logic:
        """The algorithm, ready to go on from `state`; `meter` is told of its work."""

    @abc.abstractmethod
    def says(self, inputs: tuple[RowType, ...] = ()) -> str:
        """What it does with such rows, in words, for `explain()`."""

    @property
    def method_name(self) -> str:
        """The name of the method that runs; where there is only one, its own."""
        return type(self).__name__

    def with_method(self, method: str) -> Operator:
        """The same by another method, where there are several."""
        raise TypeError(f"{type(self).__name__} has only one method")

    # Event time.

    @abc.abstractmethod
    def bounds(self, *ports: Time) -> Bounds:
        """What can still come out once the ports are bound so."""

    def bound(self, bounds: Bounds) -> Time:
        """The bound on the event time of the results, which one of their times is."""
        return bounds.individual[0]

    @property
    def timing(self) -> Timing:
        """How the event time of a result is made from the columns that show it."""
        return "column"

    def keeps_time(self, port: int, clock: tuple[str, ...], inputs: tuple[RowType, ...]) -> bool:
        """Whether the time of a result is that of its row of `port`; `clock` are the columns that show it."""
        return True

    @property
    def reach(self) -> int:
        """How far the event time of a result may be from that of its rows."""
        return 0

    @property
    def ahead(self) -> int | None:
        """How much later than one of its rows a result may be, or a row that waits for one; None if without limit."""
        return self.reach

    @property
    def slides_at(self) -> tuple[Duration, Duration] | None:
        """How far apart the bounds are that make a difference, and from when on; None if any may."""
        return None

    @property
    def sees_ahead(self) -> bool:
        """Whether an epoch's own rows may complete its results: then the bounds after it are known before it runs."""
        return False

    # Windows.

    @property
    def window_start(self) -> str | None:
        """The column of the results that shows where their window starts, if they have one."""
        return None

    @property
    def windows_by_time(self) -> Slides | Sessions | None:
        """Its windows, if a row's time alone tells which it is in."""
        return None

    @property
    def updates(self) -> str | None:
        """How `emit=` is written, if results come out before they are final; else None."""
        return None

    @property
    def passes_updates(self) -> bool:
        """Whether each row is answered by itself and in its epoch, so that updates of windows stay updates."""
        return False

    @property
    def does_to_updates(self) -> str:
        """What it would do to updates of windows, where it cannot pass them on."""
        return "would take each of them for a row of its own"

    # Rows on their way in.

    def route(self, port: int) -> Route:
        """How rows of `port` find shards. It may not depend on what may change from one start to the next."""
        return KEYED

    def null_keys(self, port: int) -> NullKeys:
        """What becomes of rows of `port` that have null in a key, if they are placed by key."""
        return "group"

    def origins(self, inputs: tuple[RowType, ...]) -> dict[str, Origin]:
        """For columns of the results, of which column of which port they have the type, if the types are alike."""
        return {name: Origin(0, name) for name in inputs[0].columns.names}

    def carries(self, inputs: tuple[RowType, ...]) -> dict[str, Origin]:
        """The columns of the results that it passes on from a row and never looks at: they may come later."""
        return {}

    def arrivals(self, held: int, share: int) -> Arrivals:
        """In which order an epoch's rows are best processed, with `held` bytes of state in `share` of memory."""
        return "streamed"

    @property
    def piece(self) -> int:
        """Arrivals are processed in pieces of this part of a task's share; the rest is for the work itself."""
        return 4

    def prelude(self, inputs: tuple[RowType, ...]) -> Prelude | None:
        """What a host may make of rows before they are shuffled, if it can. Lane n enters by port 1 + n."""
        return None

    # State and memory.

    @property
    def compacts(self) -> bool:
        """Whether a host is to merge the pages of its state between epochs; most merge their own."""
        return False

    @property
    def keeps_between_epochs(self) -> bool:
        """Whether it uses what a process keeps of tables from one task to the next."""
        return False

    @property
    def lists_pages(self) -> bool:
        """Whether its state may have so many pages that they come as one `PageList`."""
        return False

    @property
    def elsewhere(self) -> dict[str, str]:
        """The folders of segments of pages that are not to be kept with the others."""
        return {}

    @property
    def defers(self) -> bool:
        """Whether results may be put off to a later epoch, and which are may depend on the order of arrivals."""
        return False

    @property
    def held_kinds(self) -> frozenset[int]:
        """The kinds of pages with rows that have yet to be answered, if rows may wait over epochs."""
        return frozenset()

    def has_enough(self, states: Sequence[State]) -> bool:
        """Whether nothing more comes out, whatever arrives, once its shards are in these states."""
        return False

    # The world outside.

    @property
    def finds_late(self) -> bool:
        """Whether it turns rows away by the late outlet."""
        return False

    @property
    def master(self) -> Master | None:
        """The table that rows are looked up in, if it is such an operator."""
        return None

    def reading(self, table: TableSource, version: str, quota: int | None) -> Operator:
        """The same over `table` in this `version`, which it may read `quota` times in an epoch."""
        raise TypeError(f"{type(self).__name__} looks nothing up")

    @property
    def sheds(self) -> bool:
        """Whether it may put rows aside when there is no time for them: then it is told how often it may read."""
        return False

    @property
    def waits_for_bounds(self) -> bool:
        """Whether state would grow, or results would wait, if bounds did not move."""
        return True

    @property
    def may_change(self) -> frozenset[str]:
        """Which settings may change from one start of a flow to the next: its state does not depend on them."""
        return frozenset()

    def fixed(self) -> dict[str, Any]:
        """All other settings, for a checkpoint to compare."""
        kept = [setting.name for setting in fields(self) if setting.name not in self.may_change]  # type: ignore[arg-type]
        given = {name: getattr(self, name) for name in kept}
        return {name: _identity(value) for name, value in given.items() if (name, value) not in _SINCE}

    def tells(self, epochs: Sequence[Mapping[str, int]], waits: str) -> list[str]:
        """What its logic's counts of the latest epochs say, in words, for `explain()`."""
        return []
