"""The operator contract: what every operator provides, whichever host runs it.

An operator is a frozen config (what the user asked for) and a logic built from it (what runs on one shard of the
key space). The logic is a deterministic state machine: no clock, no I/O except its page store, no unseeded randomness.
Its state is pages and a small `meta` record, so that a host can save, move and inspect it.
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
"""Where rows leave an operator: results, and rows below their bound."""

Timing = Literal["column", "before end", "latest", "earliest"]
"""The event time of a result: that of one column, the step before the end of its window, or one of two columns."""

NullKeys = Literal["group", "drop", "spread"]
"""Rows with null in a key: a group like any other; dropped; or kept, and placed by their time because they match
nothing."""

Arrivals = Literal["streamed", "sorted", "spooled"]
"""Rows are processed as they arrive, sorted by hash, or in order of time; the last two once all have arrived."""

_LARGE_STATE = 16
"""If state is more than this many times the share, it has so many pages that sorting arrivals first pays off."""


class Origin(NamedTuple):
    """The column of a port that gives a column of the results its type."""

    port: int
    column: str


class Out(NamedTuple):
    """Rows that leave an operator, in a bounded chunk."""

    outlet: Outlet
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class State:
    """An operator's state on one shard: its pages, and a JSON-able record of everything else."""

    pages: Sequence[Page] = ()
    meta: dict[str, Any] = field(default_factory=dict)


class Allowance(Protocol):
    """How much deferred work may be done now."""

    def left(self) -> bool:
        """Whether there is more allowance."""
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
    """An algorithm running on one shard. Every call yields its output in chunks that fit the budget.

    Streams end with `advance` to `TIME_MAX` on every port, then `idle`: everything that was held back is emitted.
    """

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Rows arrive on `port`, in any order, none below the port's bound; their schema is `RowType.inside`."""
        ...

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """No later row on `port` has a time below `bound`."""
        ...

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing more arrives for now, as at the end of each epoch: do deferred work while the allowance lasts."""
        ...

    def bounds(self) -> Bounds:
        """Bounds on the results that are still to come."""
        ...

    def state(self) -> State:
        """The state that the next epoch, perhaps on another machine, starts from."""
        ...


_SINCE: tuple[tuple[str, Any], ...] = (("punctuated", ()), ("keys", "merged"), ("near", ()), ("matching", None))
"""Settings that older checkpoints do not have, with the values that mean "not used": these are not recorded."""


def _identity(value: Any) -> Any:
    return value if isinstance(value, str | int | bool) else getattr(value, "identity", str(value))


def sorted_if_large(held: int, share: int) -> Arrivals:
    """The best order of arrivals for `held` bytes of pages: with much state, sorted arrivals probe few pages.

    >>> sorted_if_large(10, share=100), sorted_if_large(10_000, share=100)
    ('streamed', 'sorted')
    """
    return "sorted" if held > _LARGE_STATE * share else "streamed"


class Operator(abc.ABC):
    """The config of an operator. It answers the questions of hosts, and builds the logic.

    This is all that hosts know about operators. Subclasses override only what differs from the default.
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
        """The algorithm, resumed from `state`; it reports its work to `meter`."""

    @abc.abstractmethod
    def says(self, inputs: tuple[RowType, ...] = ()) -> str:
        """Its description for `explain()`, given the types of its inputs."""

    @property
    def method_name(self) -> str:
        """The name of the method that runs; if there is only one, the operator's own."""
        return type(self).__name__

    def with_method(self, method: str) -> Operator:
        """The same operator with another method, if there are several."""
        raise TypeError(f"{type(self).__name__} has only one method")

    # Event time.

    @abc.abstractmethod
    def bounds(self, *ports: Time) -> Bounds:
        """Bounds on later results, given the bounds of the ports."""

    def bound(self, bounds: Bounds) -> Time:
        """The bound on the event time of the results, which is one of their times."""
        return bounds.individual[0]

    @property
    def timing(self) -> Timing:
        """How the event time of a result follows from the columns that hold it."""
        return "column"

    def keeps_time(self, port: int, clock: tuple[str, ...], inputs: tuple[RowType, ...]) -> bool:
        """Whether the time of a result is that of its row of `port`; `clock` are the columns that hold it."""
        return True

    @property
    def reach(self) -> int:
        """How far the event time of a result may be from that of its rows."""
        return 0

    @property
    def ahead(self) -> int | None:
        """How much later than one of its rows a result, or a row that waits for one, may be; None if unlimited."""
        return self.reach

    @property
    def slides_at(self) -> tuple[Duration, Duration] | None:
        """The interval and origin of the bounds that it can use; None if it can use any."""
        return None

    @property
    def sees_ahead(self) -> bool:
        """Whether an epoch's own rows may complete its results: then its final bounds must be known before it runs."""
        return False

    # Windows.

    @property
    def window_start(self) -> str | None:
        """The column of the results with the start of their window, if they have one."""
        return None

    @property
    def windows_by_time(self) -> Slides | Sessions | None:
        """Its windows, if a row's time alone determines which ones hold it."""
        return None

    @property
    def updates(self) -> str | None:
        """The value of `emit=`, if results are emitted before they are final; else None."""
        return None

    @property
    def passes_updates(self) -> bool:
        """Whether each row is processed alone and in its epoch, so that updates of windows stay updates."""
        return False

    @property
    def does_to_updates(self) -> str:
        """What it would do to updates of windows, if it cannot pass them on."""
        return "would take each of them for a row of its own"

    # Rows on their way in.

    def route(self, port: int) -> Route:
        """How rows of `port` find shards. It must not depend on anything that may change from one start to the next."""
        return KEYED

    def null_keys(self, port: int) -> NullKeys:
        """What happens to rows of `port` with null in a key, if rows are placed by key."""
        return "group"

    def origins(self, inputs: tuple[RowType, ...]) -> dict[str, Origin]:
        """For columns of the results, the column and port that they have their type from."""
        return {name: Origin(0, name) for name in inputs[0].columns.names}

    def carries(self, inputs: tuple[RowType, ...]) -> dict[str, Origin]:
        """The columns of the results that it passes on without reading them: they may be fetched later."""
        return {}

    @property
    def takes_less(self) -> bool:
        """Whether rows may come without columns that it only carries, if nobody asks its results for them."""
        return False

    def arrivals(self, held: int, share: int) -> Arrivals:
        """The best order to process an epoch's rows in, with `held` bytes of state and `share` of memory."""
        return "streamed"

    @property
    def piece(self) -> int:
        """Arrivals are processed in pieces of this fraction of a task's share; the rest is for the work itself."""
        return 4

    def prelude(self, inputs: tuple[RowType, ...]) -> Prelude | None:
        """What a host may compute from rows before the shuffle, if it can. Lane n enters through port 1 + n."""
        return None

    # State and memory.

    @property
    def compacts(self) -> bool:
        """Whether the host merges the pages of its state between epochs; most operators merge their own."""
        return False

    @property
    def sorts_arrivals(self) -> bool:
        """Whether it sorts arrivals by hash, then time, whatever their order: a host may do so for all shards."""
        return False

    @property
    def keeps_between_epochs(self) -> bool:
        """Whether it uses the tables that a process caches from one task to the next."""
        return False

    @property
    def lists_pages(self) -> bool:
        """Whether its state may have so many pages that they are passed as one `PageList`."""
        return False

    @property
    def elsewhere(self) -> dict[str, str]:
        """The folders of segments of pages that are stored elsewhere."""
        return {}

    @property
    def defers(self) -> bool:
        """Whether results may be deferred to a later epoch; which ones may depend on the order of arrivals."""
        return False

    @property
    def held_kinds(self) -> frozenset[int]:
        """The kinds of pages with waiting rows, if rows may wait across epochs."""
        return frozenset()

    def has_enough(self, states: Sequence[State]) -> bool:
        """Whether it emits nothing more, whatever arrives, once its shards are in these states."""
        return False

    # The world outside.

    @property
    def finds_late(self) -> bool:
        """Whether it sends rows to the late outlet."""
        return False

    @property
    def master(self) -> Master | None:
        """The master table, if it is a lookup."""
        return None

    def reading(self, table: TableSource, version: str, quota: int | None) -> Operator:
        """The same operator over this `version` of `table`, which it may read `quota` times in an epoch."""
        raise TypeError(f"{type(self).__name__} looks nothing up")

    @property
    def sheds(self) -> bool:
        """Whether it may put rows aside under overload: then the host limits how often it may read."""
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
        """All other settings, which a checkpoint compares."""
        kept = [setting.name for setting in fields(self) if setting.name not in self.may_change]  # type: ignore[arg-type]
        given = {name: getattr(self, name) for name in kept}
        return {name: _identity(value) for name, value in given.items() if (name, value) not in _SINCE}

    def tells(self, epochs: Sequence[Mapping[str, int]], waits: str) -> list[str]:
        """Lines for `explain()` from its logic's counts of the latest epochs."""
        return []
