"""The graph of a flow: immutable nodes from sources to the streams that sinks take, and the questions hosts ask it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from penstock.core.durations import TimeUnit
from penstock.core.errors import ConfigError
from penstock.core.progress import Policy
from penstock.core.rows import RowType, first_twice
from penstock.core.time import Time
from penstock.core.within import LEFT, RIGHT
from penstock.operators.aggregate.config import EMITTED, WindowAggregate
from penstock.operators.lookup import LookupJoin, lookup_method_name
from penstock.operators.progress.guard import Guard
from penstock.operators.window_join import WindowJoin, method_name

Freshness = Literal["snapshot", "latest"]
"""Which version of a master table rows see: that of the flow's first start, or in each epoch the newest."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """A stream in the graph: its columns, the unit of its event time, and the column that shows it, if one does.

    Event time travels with the rows even where no column shows it; `timed` is False only where it cannot, after a
    join of streams whose time columns were projected away.
    """

    columns: pa.Schema
    time: str | None
    unit: TimeUnit
    timed: bool = True

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The streams it is made from."""
        return ()


@dataclass(frozen=True, eq=False, kw_only=True)
class SourceNode(Node):
    """Rows from outside. `data` is the host's own: a Spark DataFrame, or Arrow tables."""

    name: str
    progress: Policy
    data: Any


@dataclass(frozen=True, eq=False, kw_only=True)
class SelectNode(Node):
    """Columns computed from each row; it `expands` if a row may become several, or none, as by explode."""

    input: Node
    expressions: tuple[Any, ...]
    expands: bool = False

    @property
    def inputs(self) -> tuple[Node, ...]:
        """One."""
        return (self.input,)


@dataclass(frozen=True, eq=False, kw_only=True)
class WhereNode(Node):
    """The rows for which a condition holds."""

    input: Node
    condition: Any

    @property
    def inputs(self) -> tuple[Node, ...]:
        """One."""
        return (self.input,)


@dataclass(frozen=True, eq=False, kw_only=True)
class UnionNode(Node):
    """All the rows of several streams of the same columns: Meld."""

    members: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The members."""
        return self.members


@dataclass(frozen=True, eq=False, kw_only=True)
class OperatorNode(Node):
    """A stream that an operator with state makes: what it is asked to do, and the rows of each of its ports."""

    name: str
    config: Any
    types: tuple[RowType, ...]
    clock: tuple[str, ...]
    """The columns of the results that their event time is made from; two for 'latest' and 'earliest'."""

    def __post_init__(self) -> None:
        """Refuse updates of windows as input, unless each row is answered by itself."""
        windows = next(filter(None, map(updates_of, self.inputs)), None)
        if windows is not None and not self.passes_updates:
            raise _counts_updates(self, windows)

    @property
    def timed_as(self) -> OperatorNode:
        """The operator by whose rule the event time of the results is made from the `clock` columns."""
        return self

    @property
    def passes_updates(self) -> bool:
        """Whether each input row is answered by itself and in its epoch, so that updates of windows stay updates."""
        return False

    def bound(self, config: Any, *ports: Time) -> Time:
        """The bound of the results once the ports are bound so; `config` is the node's, by the method that runs."""
        return config.bound(config.bounds(*ports))  # type: ignore[no-any-return]

    def method(self, config: Any) -> str:
        """The name of the method that runs."""
        return str(config.method)


@dataclass(frozen=True, eq=False, kw_only=True)
class StatementNode(Node):
    """What the rows of a source say of their groups, taken before any other step: the columns of a group, and as event
    time the bound of its later rows. Every row counts that says something, also one that is late or has no time.
    """

    input: SourceNode
    said: str
    """The column of the source that holds the bounds."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The source."""
        return (self.input,)


@dataclass(frozen=True, eq=False, kw_only=True)
class GuardNode(OperatorNode):
    """The rows of a source without those that lie below the bound of their own group, which are late."""

    input: SourceNode
    statements: StatementNode
    config: Guard
    types: tuple[RowType, RowType]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Rows, and what they say of their groups."""
        return (self.input, self.statements)

    @property
    def passes_updates(self) -> bool:
        """A row passes, or is late, by itself and at once."""
        return True


@dataclass(frozen=True, eq=False, kw_only=True)
class AggregateNode(OperatorNode):
    """The windows of a stream, aggregated. The event time of a result is the step before its window's end."""

    input: Node
    config: WindowAggregate
    types: tuple[RowType, ...]
    statements: StatementNode | None = None
    """What closes windows group by group, if something does."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Rows, and what closes their groups."""
        return (self.input,) if self.statements is None else (self.input, self.statements)


@dataclass(frozen=True, eq=False, kw_only=True)
class JoinNode(OperatorNode):
    """Two streams joined; `where` is a condition on pairs, over l and r."""

    left: Node
    right: Node
    config: WindowJoin
    types: tuple[RowType, RowType]
    where: str | None

    def method(self, config: WindowJoin) -> str:
        """The name of the method that runs."""
        return method_name(config.method)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Left and right, in the order of the ports."""
        return (self.left, self.right)

    @property
    def clock_port(self) -> int | None:
        """The port whose rows give the results their event time; None if both do."""
        if len(self.clock) != 1:
            return None
        return next(column.port for column in self.config.columns(self.types) if column.name == self.clock[0])

    @property
    def sides(self) -> tuple[dict[str, str], dict[str, str]]:
        """Each side's columns that the results have, and what they are called there."""
        columns = self.config.columns(self.types)
        shown = {(c.port, c.column): c.name for c in columns}
        shown |= {(RIGHT, c.twin): c.name for c in columns if c.twin is not None}
        left, right = (
            {name: shown[port, name] for name in self.types[port].columns.names if (port, name) in shown}
            for port in (LEFT, RIGHT)
        )
        return left, right


@dataclass(frozen=True, eq=False, kw_only=True)
class LookupNode(OperatorNode):
    """A stream whose rows were looked up in a master table. The event time of a result is its stream row's."""

    input: Node
    config: LookupJoin
    types: tuple[RowType]
    freshness: Freshness = "snapshot"
    memory: int | None = None
    """What of the flow's memory the lookup may take; all that there is if not given."""

    @property
    def passes_updates(self) -> bool:
        """Unless rows may wait: then an update could come out after the final result."""
        return self.config.max_age is None and not self.config.defers

    def method(self, config: LookupJoin) -> str:
        """The name of the method that runs."""
        return lookup_method_name(config.method)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """One: the table is no stream."""
        return (self.input,)


@dataclass(frozen=True, eq=False, kw_only=True)
class ProgressNode(OperatorNode):
    """Rows of one stream, or of several of the same columns, that an operator drops, holds back or puts in order.

    Rows leave as they came, so the event time of a result is that of the row.
    """

    members: tuple[Node, ...]
    timing: OperatorNode | None = None
    """Whose rule makes the event time, if it is not simply the `clock` column."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The members, in the order of the ports."""
        return self.members

    @property
    def timed_as(self) -> OperatorNode:
        """The operator that gave the rows their event time."""
        return self.timing or self

    def method(self, config: Any) -> str:
        """Its name: there is only one."""
        return type(config).__name__


MISSED = ("missed_from", "missed_until")
"""Columns of late rows beside a window aggregation: where the first window that they missed starts, the last ends."""


def check_unique(columns: pa.Schema, what: str) -> None:
    """Refuse columns of which two have one name."""
    twice = first_twice(columns.names)
    if twice is not None:
        raise ConfigError(f"{what} two columns {twice!r}. Give one of them another name.")


def late_columns(node: Node) -> pa.Schema:
    """The columns of a stream's late rows: those of all its sources, which one it was, why, and the windows missed.

    Where two sources give a name different types, the late rows have it as text.
    """
    kinds: dict[str, pa.DataType] = {}
    for field in (field for source in sources_of(node) for field in source.columns):
        kinds[field.name] = field.type if kinds.get(field.name, field.type) == field.type else pa.string()
    ours = [("late_source", pa.string()), ("late_reason", pa.string())]
    windows = windows_of(node)
    if windows is not None:
        ours += [(name, windows.columns.field(windows.config.start).type) for name in MISSED]
    return pa.schema([*kinds.items(), *ours])


def windows_of(node: Node) -> AggregateNode | None:
    """The aggregation whose results a stream has, all or some of them, if it is one alone."""
    while isinstance(node, SelectNode | WhereNode):
        node = node.input
    return node if isinstance(node, AggregateNode) else None


def updates_of(node: Node) -> AggregateNode | None:
    """The aggregation whose open windows a stream has as well as the final ones, if there is one.

    Updates pass through everything but ``.where("emitted = 'final'")``.
    """
    if isinstance(node, AggregateNode):
        return node if node.config.emit != "final" else None
    if isinstance(node, WhereNode) and _FINAL.fullmatch(str(node.condition)) and _shows_emitted(node.input):
        return None
    return next(filter(None, map(updates_of, node.inputs)), None)


_FINAL = re.compile(rf"\s*`?{EMITTED}`?\s*==?\s*'final'\s*")


def _shows_emitted(node: Node) -> bool:
    """Whether the column `emitted` of a stream is the one that its aggregations made."""
    if isinstance(node, SelectNode) and not passes(EMITTED, node.expressions):
        return False
    return isinstance(node, AggregateNode) or all(map(_shows_emitted, node.inputs))


def _counts_updates(node: OperatorNode, windows: AggregateNode) -> ConfigError:
    emit = windows.config.emit
    shown = repr(emit) if isinstance(emit, str) else f"pk.early('{emit.every}')"
    harm = (
        "lets rows wait (method=, max_age=, shed=), so an update could leave it after the final result"
        if isinstance(node, LookupNode)
        else "would take each of them for a row of its own"
    )
    return ConfigError(
        f"{windows.name} has emit={shown}: it sends updates of each window before the final result, and {node.name} "
        f"{harm}. Write emit='final', or keep final results only: .where(\"{EMITTED} = 'final'\"). To see updates as "
        f"well, write {windows.name} to a sink of its own."
    )


def passes(column: str | None, expressions: Sequence[Any]) -> bool:
    """Whether a select hands a column on untouched."""
    return any(str(e).strip() in ("*", column, f"`{column}`", f"Column<'{column}'>") for e in expressions)


def clock_of(node: Node) -> tuple[tuple[str, ...], OperatorNode | None]:
    """The columns that show the event time of a stream's rows, and the operator whose rule makes it from them.

    No columns if none show it; no operator if the one column is the time itself.
    """
    if node.time is not None:
        return (node.time,), None
    if isinstance(node, OperatorNode):
        return node.clock, node.timed_as
    if isinstance(node, SelectNode | WhereNode):
        clock, rule = clock_of(node.input)
        hidden = isinstance(node, SelectNode) and not all(passes(name, node.expressions) for name in clock)
        return ((), None) if hidden else (clock, rule)
    return (), None


def keeps_time(node: Node, source: SourceNode) -> bool:
    """Whether each row that `source` gives a stream has its own time there, on whatever way it comes.

    It has not behind windows, where the time is the window's, nor behind a join that goes by the other row's.
    """
    if isinstance(node, AggregateNode):
        return False
    parts = [(port, part) for port, part in enumerate(node.inputs) if source in sources_of(part)]
    if isinstance(node, JoinNode) and any(port != node.clock_port for port, _ in parts):
        return False
    return all(keeps_time(part, source) for _, part in parts)


def reach_of(node: Node) -> int:
    """How far the event time of a stream's rows may be from that of the sources' rows: what windows add to it."""
    reach: dict[Node, int] = {}
    for part in walk(node):
        window = part.config.window.reach(part.unit) if isinstance(part, AggregateNode) else 0
        reach[part] = window + max((reach[before] for before in part.inputs), default=0)
    return reach[node]


def sources_of(*nodes: Node) -> list[SourceNode]:
    """Every source that `nodes` are made from, each once, in order of first use."""
    return [node for node in walk(*nodes) if isinstance(node, SourceNode)]


def guards_of(*nodes: Node) -> list[GuardNode]:
    """Every guard that turns rows of a source away."""
    return [node for node in walk(*nodes) if isinstance(node, GuardNode)]


def operators_of(*nodes: Node) -> list[OperatorNode]:
    """Every operator, inputs before the operators that use them."""
    return [node for node in walk(*nodes) if isinstance(node, OperatorNode)]


def walk(*nodes: Node) -> Iterator[Node]:
    """Every node once, inputs first."""
    seen: set[int] = set()

    def visit(node: Node) -> Iterator[Node]:
        if id(node) in seen:
            return
        seen.add(id(node))
        for part in node.inputs:
            yield from visit(part)
        yield node

    for node in nodes:
        yield from visit(node)
