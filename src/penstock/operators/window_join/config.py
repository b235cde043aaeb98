"""The config of a window join: keys, the condition on time, the kind of join, and the columns of its results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import pyarrow as pa

from penstock.core.checks import check_suffix
from penstock.core.durations import TimeUnit
from penstock.core.errors import ConfigError, StateError
from penstock.core.methods import ByMethod, Methods
from penstock.core.operator import Arrivals, NullKeys, Operator, Origin, State, Timing, sorted_if_large
from penstock.core.progress import Bounds
from penstock.core.routes import KEYED, Cells, Route
from penstock.core.rows import RowType, show_keys
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.core.within import LEFT, RIGHT, Always, Band, Within, horizon, reach_end
from penstock.operators.window_join.matching import Matching
from penstock.operators.window_join.methods import METHODS, JoinMethod, JoinMethodLike

How = Literal["inner", "left", "right", "full", "semi", "anti"]
"""Which rows are emitted: matching pairs; with unmatched left, right or both; left rows with, or without, a match."""

JoinTime = Literal["left", "right", "latest", "earliest"]
"""The event time of a result: that of its left row, its right row, the later or the earlier of the two."""

JoinKeys = Literal["merged", "apart"]
"""Whether keys of the same name share one column, filled from whichever row exists, or each side has its own."""

_HOW_ALIASES = {
    "outer": "full",
    "fullouter": "full",
    "leftouter": "left",
    "rightouter": "right",
    "leftsemi": "semi",
    "leftanti": "anti",
    "cross": "cross",
}
LEFT_ONLY: tuple[How, ...] = ("semi", "anti")
KEEPS_LEFT: tuple[How, ...] = ("left", "full", "semi", "anti")
KEEPS_RIGHT: tuple[How, ...] = ("right", "full")


Near = tuple[str, str, Band]
"""A time column of each side, and how close their times must be."""


class OutputColumn(NamedTuple):
    """One column of the results: the `column` of `port`; a key is taken from whichever row exists."""

    name: str
    port: int
    column: str
    twin: str | None = None


@dataclass(frozen=True, slots=True)
class WindowJoin(ByMethod[JoinMethod]):
    """Join left and right rows with equal keys whose times satisfy `within`.

    A pair (l, r) is emitted once iff all its keys are equal (null equals nothing, NaN equals NaN) and `within` holds.
    With `how` other than inner, an unmatched row is emitted once its bound says that no partner can arrive any more.
    Columns: the shared keys, the other left ones, the other right ones, with `suffix` if a name is taken. With `keys`
    apart no key is shared: that of a missing row is null.

    >>> from penstock.core.within import band
    >>> join = WindowJoin(on=(("k", "k"),), within=band(before=5, after=5))
    >>> rows = RowType(pa.schema({"k": pa.int64(), "t": pa.int64()}), keys=("k",), time="t")
    >>> join.output((rows, rows)).names
    ['k', 't', 't_right']
    """

    on: tuple[tuple[str, str], ...]
    within: Within
    how: How = "inner"
    time: JoinTime = "left"
    suffix: str = "_right"
    unit: TimeUnit = "ticks"
    method: JoinMethodLike = "auto"
    keys: JoinKeys = "merged"
    near: tuple[Near, ...] = ()
    """More times that must be close to each other, if rows have several."""
    matching: Matching | None = None
    """The predicate that replaces equal keys; `on` is then empty."""

    methods: ClassVar[Methods[JoinMethod]] = METHODS

    def __post_init__(self) -> None:
        if not self.on and self.matching is None:
            raise ConfigError("on=[] names no key. Write on='order_id', or a list of columns.")
        if self.time not in get_args(JoinTime):
            raise ConfigError(f"time={self.time!r} is not one of {', '.join(get_args(JoinTime))}.")
        if self.time == "right" and self.how in LEFT_ONLY:
            raise ConfigError(
                f"time='right' needs a right row, but how={self.how!r} gives left rows only. Write time='left'."
            )
        if self.time in ("left", "right") and self.time not in _TIMES[self.how]:
            raise ConfigError(
                f"time={self.time!r} would be null for unmatched rows of how={self.how!r}. "
                f"Write one of {', '.join(dict.fromkeys((*_TIMES[self.how], 'latest', 'earliest')))}."
            )
        if self.parameters.inner_only and self.how != "inner":
            raise ConfigError(
                f"method={self.method!r} is for inner joins only, but how={self.how!r}. "
                f"Write method='oa', which does every kind of join, or how='inner'."
            )
        always = isinstance(self.within, Always)
        if always and not self.parameters.windowless and (self.parameters.defers or self.parameters.in_order):
            raise ConfigError(
                f"method={self.method!r} needs a window that rows leave, but within={self.within} has no end. Write "
                f"method='oa' or method='rrpj', or a window, as in within=pk.band(before='1 h', after='1 h')."
            )
        if self.parameters.windowless and not always:
            raise ConfigError(
                f"method={self.method!r} keeps rows forever, but within={self.within} lets them expire. "
                f"Leave within= out to join the full history of both streams, or write method='oa'."
            )
        if self.matching is not None and not always and self.method_name not in ("auto", "oa"):
            raise ConfigError(
                f"method={self.method!r} joins equal keys within a window, but on={self.matching} is something else. "
                f"Write method='oa', or leave within= out to join the full history of both streams."
            )
        check_suffix(self.suffix)
        self.within.reach(self.unit)
        self.parameters.check(self.unit)

    def columns(self, inputs: tuple[RowType, ...]) -> tuple[OutputColumn, ...]:
        """Where each column of the results comes from."""
        left, right = inputs
        shared = self.keys == "merged" and self.how not in LEFT_ONLY
        twins = {ours for ours, theirs in self.on if shared and ours == theirs}
        columns = [OutputColumn(name, LEFT, name, twin=name if name in twins else None) for name in left.columns.names]
        if self.how in LEFT_ONLY:
            return tuple(columns)
        taken = set(left.columns.names)
        for name in right.columns.names:
            if name in twins:
                continue
            shown = name + self.suffix if name in taken else name
            if shown in taken:
                raise ConfigError(
                    f"The right column {name!r} would be called {shown!r}, which is taken. "
                    f"Rename it with .select(…), or write another suffix=."
                )
            taken.add(shown)
            columns.append(OutputColumn(shown, RIGHT, name))
        return tuple(columns)

    def output(self, inputs: tuple[RowType, ...]) -> pa.Schema:
        """The columns of the results."""
        return pa.schema([(c.name, inputs[c.port].columns.field(c.column).type) for c in self.columns(inputs)])

    def clock(self, inputs: tuple[RowType, ...]) -> tuple[str, ...]:
        """The columns of the results that their event time is made from; none if an input's time is not shown."""
        ports = {"left": (LEFT,), "right": (RIGHT,)}.get(self.time, (LEFT, RIGHT))
        ports = (LEFT,) if self.how in LEFT_ONLY else ports
        shown = {(c.port, c.column): c.name for c in self.columns(inputs)}
        names = tuple(shown.get((port, inputs[port].time or ""), "") for port in ports)
        return names if all(names) else ()

    def says(self, inputs: tuple[RowType, ...] = ()) -> str:
        """What it does, in words."""
        on = show_keys(self.on) if self.matching is None else self.matching
        together = ", all rows in one task" if self.matching is not None and self.how == "full" else ""
        return f"{self.how} join on {on} within {self.within}, time of results: {self.time}{together}"

    def tells(self, epochs: Sequence[Mapping[str, int]], waits: str) -> list[str]:
        """The estimated fraction of its pairs that was emitted, if some are deferred, and whether streams drift."""
        last = epochs[-1] if epochs else {}
        owed, expected, drifting = (last.get(name, 0) for name in ("owed", "expected", "drifting"))
        share = f"{100 * (1 - owed / max(1, expected)):.0f} %"
        said = [f"about {share} of the {expected:,} pairs of its rows so far are out"] if owed else []
        if drifting:
            shards = "1 shard" if drifting == 1 else f"{drifting} shards"
            said.append(f"the streams drift: in {shards}, rows stay in memory by their latest results only (sigma = 0)")
        return said

    @property
    def timing(self) -> Timing:
        """Which of two times, where a result has two."""
        return self.time if self.time in ("latest", "earliest") and self.how not in LEFT_ONLY else "column"

    def keeps_time(self, port: int, clock: tuple[str, ...], inputs: tuple[RowType, ...]) -> bool:
        """Whether the one time that a result has is that of its row of `port`."""
        shown = {column.name: column.port for column in self.columns(inputs)}
        return len(clock) == 1 and shown[clock[0]] == port

    def route(self, port: int) -> Route:
        """By key, or as the predicate says."""
        keeps = self.how in KEEPS_LEFT, self.how in KEEPS_RIGHT
        return KEYED if self.matching is None else self.matching.route(port, keeps)

    def null_keys(self, port: int) -> NullKeys:
        """A null matches nothing: such rows are kept only to be emitted unmatched. Without keys, all rows are one
        group."""
        if self.matching is not None:
            return "group"
        return "spread" if self.how in (KEEPS_LEFT if port == LEFT else KEEPS_RIGHT) else "drop"

    def origins(self, inputs: tuple[RowType, ...]) -> dict[str, Origin]:
        """Every column is one side's."""
        return {column.name: Origin(column.port, column.column) for column in self.columns(inputs)}

    def carries(self, inputs: tuple[RowType, ...]) -> dict[str, Origin]:
        """All but keys and times; nothing where vectors are compared, which are most of a row."""
        if self.matching is not None:
            return {}
        near = {(port, names[port]) for names in self.near for port in (LEFT, RIGHT)}
        looked_at = near | {(port, name) for port, rows in enumerate(inputs) for name in (*rows.keys, rows.time)}
        return {name: origin for name, origin in self.origins(inputs).items() if tuple(origin) not in looked_at}

    def sides(self, inputs: tuple[RowType, ...]) -> tuple[dict[str, str], dict[str, str]]:
        """Each side's columns that the results have, and what they are called there."""
        columns = self.columns(inputs)
        shown = {(c.port, c.column): c.name for c in columns}
        shown |= {(RIGHT, c.twin): c.name for c in columns if c.twin is not None}
        left, right = (
            {name: shown[port, name] for name in inputs[port].columns.names if (port, name) in shown}
            for port in (LEFT, RIGHT)
        )
        return left, right

    def arrivals(self, held: int, share: int) -> Arrivals:
        """A method that keeps recent rows in memory gains by seeing both ports at about the same time.

        Of much state, sorted arrivals meet few pages each; but where rows of a site meet whatever their keys, all.
        Without a window, no page is passed by for its time: it is worth it sooner.
        """
        if self.defers:
            return "spooled"
        if self.matching is not None and not isinstance(self.route(LEFT), Cells):
            return "streamed"
        if isinstance(self.within, Always):
            return "sorted" if held > share else "streamed"
        return sorted_if_large(held, share)

    @property
    def sorts_arrivals(self) -> bool:
        """As OA-Join does; the other methods are told when rows come."""
        return self.parameters.sorts_arrivals and self.matching is None

    @property
    def may_change(self) -> frozenset[str]:
        """The method is a matter of cost."""
        return frozenset({"method"})

    def fixed(self) -> dict[str, Any]:
        """Its other settings; the keys as a list of pairs."""
        return {**Operator.fixed(self), "on": self.on}

    def bounds(self, *ports: Time) -> Bounds:
        """What can still come out once the ports are bound.

        Individual: ``min(b_j, horizon of j)``. Joint: the box of both bounds, clipped to what can pair, which covers as
        much as the box does (Fig 7-3's filter as printed is a tautology).
        """
        left, right = ports
        if self.parameters.windowless and min(ports) < TIME_MAX:
            # Any two rows may still come out together until both streams have ended.
            return Bounds((TIME_MIN, TIME_MIN), (TIME_MIN, TIME_MIN))
        if self.slide > 1:
            left, right = (b if b in (TIME_MIN, TIME_MAX) else b // self.slide * self.slide for b in ports)
        reach, b = self.within.reach(self.unit), (left, right)
        individual = [min(b[j], horizon(reach, j, b[1 - j])) for j in (LEFT, RIGHT)]
        if self.parameters.in_order:
            # What is held back has a left time from the left bound on, and a right time near that.
            individual[RIGHT] = min(individual[RIGHT], horizon(reach, RIGHT, individual[LEFT]))
        if self.defers or self.parameters.in_order:
            return Bounds((individual[0], individual[1]), (individual[0], individual[1]))
        joint = [min(b[j], reach_end(reach, j, b[1 - j])) for j in (LEFT, RIGHT)]
        return Bounds((individual[0], individual[1]), (joint[0], joint[1]))

    @property
    def ahead(self) -> int | None:
        """A result has the time of one of its rows, and they are so near each other."""
        return self.within.reach(self.unit).farthest

    @property
    def compacts(self) -> bool:
        """Its pages may be merged between epochs."""
        return True

    @property
    def defers(self) -> bool:
        """Whether the method defers joins: a pair may then be emitted after the bounds of both rows have passed."""
        return self.parameters.defers

    @property
    def slide(self) -> int:
        """How far bounds move at a time, in steps of the time column."""
        return self.parameters.step(self.within, self.unit)

    def bound(self, bounds: Bounds) -> Time:
        """The bound on the event time of the results, by what `time` says it is.

        'latest' goes by the joint box, which is ahead of the individual bounds. An unmatched row has only one time, so
        in outer joins the individual bound of the kept side holds 'latest' back.

        >>> from penstock.core.within import band
        >>> join = WindowJoin((("k", "k"),), band(before=2, after=3), time="latest")
        >>> join.bounds(10, 10).individual, join.bound(join.bounds(10, 10))
        ((7, 8), 10)
        """
        left, right = bounds.individual
        if self.time == "left" or self.how in LEFT_ONLY:
            return left
        if self.time == "right":
            return right
        if self.time == "earliest":
            return bounds.earliest
        alone = [b for b, keeps in ((left, KEEPS_LEFT), (right, KEEPS_RIGHT)) if self.how in keeps]
        return min([bounds.latest, *alone])

    def check_state(self, state: State) -> None:
        """Deferred joins and held-back results can only be resumed by the method that holds them."""
        holders = {port: each.name for each in METHODS.values() for port in each.parameters.holds}
        method = METHODS.of(self.method)
        left_by = {holders.get(page.kind, "oa") for page in state.pages}
        strangers = left_by - {method.name, *(["oa"] if method.parameters.takes_over else [])}
        if strangers:
            other = min(strangers)
            raise StateError(
                f"The state was written by method={other!r}, and method={method.name!r} cannot resume from it: some "
                f"pairs of its rows are still due. Start with method={other!r}, or with a new checkpoint directory."
            )


_TIMES: dict[str, tuple[str, ...]] = {
    "inner": ("left", "right"),
    "left": ("left",),
    "right": ("right",),
    "full": ("latest",),
    "semi": ("left",),
    "anti": ("left",),
}


def read_how(how: str) -> How:
    """Read `how=` in any of Spark's spellings, such as ``left_outer``, ``leftsemi`` and ``full_outer``.

    >>> read_how("left_anti")
    'anti'
    """
    plain = str(how).lower().replace("_", "").replace(" ", "")
    plain = _HOW_ALIASES.get(plain, plain)
    if plain not in get_args(How):
        raise ConfigError(f"how={how!r} is not a kind of window join. Write one of {', '.join(get_args(How))}.")
    return plain  # type: ignore[return-value]


def read_on(on: str | Sequence[str] | Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Read `on=`: a column both streams have, several, or a mapping from left to right names.

    >>> read_on("k"), read_on({"id": "order_id"})
    ((('k', 'k'),), (('id', 'order_id'),))
    """
    if isinstance(on, Mapping):
        pairs = tuple(on.items())
    else:
        names = [on] if isinstance(on, str) or not isinstance(on, Iterable) else on
        pairs = tuple((name, name) for name in names)
    if not all(isinstance(name, str) for pair in pairs for name in pair):
        raise ConfigError(
            f"on={on!r} names no columns. Write on='order_id', a list of columns, on={{'ours': 'theirs'}} where "
            f"their names differ, or one predicate alone, as on=pk.near('embedding', distance=0.3)."
        )
    return pairs


def default_time(how: How) -> JoinTime:
    """The default event time of the results: the left row's, if there always is one."""
    return _TIMES[how][0]  # type: ignore[return-value]
