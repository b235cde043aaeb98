"""The graph of a flow: immutable nodes from sources to the inputs of sinks, and functions over it for hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

import pyarrow as pa

from penstock.core.durations import TimeUnit
from penstock.core.errors import ConfigError
from penstock.core.files import Path, Payload
from penstock.core.operator import Operator, Timing
from penstock.core.progress import Policy
from penstock.core.rows import RowType, first_twice
from penstock.flow.plans import Part
from penstock.operators.aggregate.config import EMITTED


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """A stream in the graph: its columns, the unit of its event time, and the column that holds it, if there is one.

    Event time travels with the rows even if no column holds it; `timed` is False only if it cannot, after a join of
    streams whose time columns were dropped.
    """

    columns: pa.Schema
    time: str | None
    unit: TimeUnit
    timed: bool = True

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The streams that it is made from."""
        return ()


@dataclass(frozen=True, eq=False, kw_only=True)
class SourceNode(Node):
    """Rows from outside. `data` is the host's own: a Spark DataFrame, or Arrow tables."""

    name: str
    progress: Policy
    data: Any
    payload: Payload = "row"
    """Where the columns that only results need are kept."""
    files: bool = False
    """Whether its rows are in files that can be read again."""
    row: str | None = None
    """The last column, if rows can leave payload behind: the place of each row in its source; null if the row has all
    of it."""
    home: Any = None
    """The host's object that finds the payload of such rows."""
    lets_go: frozenset[Path] = frozenset()
    """The columns that they leave behind,"""
    width: float = 0.0
    """and about how many bytes these take per row."""
    why: str = ""
    """Why payload is kept where it is, if that is fixed while the flow runs; empty otherwise."""

    @property
    def given(self) -> pa.Schema:
        """The columns that users know."""
        return self.columns if self.row is None else pa.schema([f for f in self.columns if f.name != self.row])


@dataclass(frozen=True, eq=False, kw_only=True)
class SelectNode(Node):
    """Columns computed from each row; it `expands` if a row may become several, or none, as with explode."""

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


class Fetched(NamedTuple):
    """Columns that rows fetch from their source, by a column of places, and the field of the source for each."""

    row: str
    home: Any
    columns: tuple[tuple[str, Path], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class FetchNode(Node):
    """Rows with the payload that stayed in their sources; rows that carry their payload pass unchanged."""

    input: Node
    fetched: tuple[Fetched, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """One."""
        return (self.input,)


@dataclass(frozen=True, eq=False, kw_only=True)
class UnionNode(Node):
    """All rows of several streams with the same columns: Meld."""

    members: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The members."""
        return self.members


StepNode = SelectNode | WhereNode | FetchNode
"""The stateless steps, which a row passes alone."""


@dataclass(frozen=True, eq=False, kw_only=True)
class StatementNode(Node):
    """The statements of a source's rows about their groups, taken before any other step: the columns of a group, and as
    event time the bound of its later rows. Every row with a statement counts, even if it is late or has no time.
    """

    input: SourceNode
    said: str
    """The column of the source that holds the bounds."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The source."""
        return (self.input,)


@dataclass(frozen=True, eq=False, kw_only=True)
class OperatorNode(Node):
    """The results of an operator with state: its config, and the row types of its ports."""

    name: str
    config: Operator
    inputs: tuple[Node, ...] = ()
    """The streams of its ports."""
    types: tuple[RowType, ...]
    clock: tuple[str, ...]
    """The columns of the results that their event time is made from; two for 'latest' and 'earliest'."""
    timing: Timing = "column"
    """How it follows from them."""
    pairs: Pairs | None = None
    """A condition on its results, if they are pairs."""
    memory: int | None = None
    """How much of the flow's memory it may use; by default all."""
    part: Part | None = None
    """Its part in a multi-way join."""

    def __post_init__(self) -> None:
        """Refuse updates of windows as input, unless each row is answered by itself."""
        windows = next(filter(None, map(updates_of, self.inputs)), None)
        if windows is not None and not self.config.passes_updates:
            raise _counts_updates(self, windows)

    @property
    def statements(self) -> StatementNode | None:
        """The statements about its groups, if there are any."""
        return next((part for part in self.inputs if isinstance(part, StatementNode)), None)


@dataclass(frozen=True, slots=True)
class Pairs:
    """A condition on pairs, over ``l`` and ``r``: for each the columns, and what the results call them."""

    condition: str
    sides: tuple[dict[str, str], dict[str, str]]


MISSED = ("missed_from", "missed_until")
"""Columns of the late rows of a window aggregation: the start of the first window that they missed, the end of the
last."""


def check_unique(columns: pa.Schema, what: str) -> None:
    """Raise an error if two columns have the same name."""
    twice = first_twice(columns.names)
    if twice is not None:
        raise ConfigError(f"{what} two columns {twice!r}. Give one of them another name.")


def late_columns(node: Node) -> pa.Schema:
    """The columns of a stream's late rows: those of all its sources, the source, the reason, and the windows missed.

    If two sources have a column of the same name and different types, late rows have it as text.
    """
    kinds: dict[str, pa.DataType] = {}
    for field in (field for source in sources_of(node) for field in source.given):
        kinds[field.name] = field.type if kinds.get(field.name, field.type) == field.type else pa.string()
    ours = [("late_source", pa.string()), ("late_reason", pa.string())]
    windows = windows_of(node)
    if windows is not None:
        ours += [(name, windows.columns.field(windows.config.window_start).type) for name in MISSED]
    return pa.schema([*kinds.items(), *ours])


def windows_of(node: Node) -> OperatorNode | None:
    """The operator whose windows a stream holds, all or some of them, if it is only one."""
    while isinstance(node, StepNode):
        node = node.input
    return node if _has_windows(node) else None


def _has_windows(node: Node) -> TypeGuard[OperatorNode]:
    return isinstance(node, OperatorNode) and node.config.window_start is not None


def updates_of(node: Node) -> OperatorNode | None:
    """The operator whose open windows a stream holds besides the final ones, if there is one.

    Updates pass through everything but ``.where("emitted = 'final'")``.
    """
    if _has_windows(node):
        return node if node.config.updates is not None else None
    if isinstance(node, WhereNode) and _FINAL.fullmatch(str(node.condition)) and _shows_emitted(node.input):
        return None
    return next(filter(None, map(updates_of, node.inputs)), None)


_FINAL = re.compile(rf"\s*`?{EMITTED}`?\s*==?\s*'final'\s*")


def _shows_emitted(node: Node) -> bool:
    """Whether the column `emitted` of a stream is the one that its aggregations made."""
    if isinstance(node, SelectNode) and not passes(EMITTED, node.expressions):
        return False
    return _has_windows(node) or all(map(_shows_emitted, node.inputs))


def _counts_updates(node: OperatorNode, windows: OperatorNode) -> ConfigError:
    return ConfigError(
        f"{windows.name} has emit={windows.config.updates}: it sends updates of each window before the final result, "
        f"and {node.name} {node.config.does_to_updates}. Write emit='final', or keep final results only: "
        f".where(\"{EMITTED} = 'final'\"). To see updates as well, write {windows.name} to a sink of its own."
    )


def passes(column: str | None, expressions: Sequence[Any]) -> bool:
    """Whether a select passes a column on unchanged."""
    return any(str(e).strip() in ("*", column, f"`{column}`", f"Column<'{column}'>") for e in expressions)


def time_type(node: Node) -> pa.DataType | None:
    """The type of the column that holds the event time of a stream, if there is one."""
    return None if node.time is None else node.columns.field(node.time).type


def clock_of(node: Node) -> tuple[tuple[str, ...], Timing]:
    """The columns that hold the event time of a stream's rows, if any, and how it follows from them."""
    if node.time is not None:
        return (node.time,), "column"
    if isinstance(node, OperatorNode):
        return node.clock, node.timing
    if isinstance(node, StepNode):
        clock, timing = clock_of(node.input)
        hidden = isinstance(node, SelectNode) and not all(passes(name, node.expressions) for name in clock)
        return ((), "column") if hidden else (clock, timing)
    return (), "column"


def keeps_time(node: Node, source: SourceNode) -> bool:
    """Whether each row of `source` keeps its own time in a stream, on every path to it.

    It does not after windows, where the time is the window's, nor after a join that keeps the other row's time.
    """
    parts = [(port, part) for port, part in enumerate(node.inputs) if source in sources_of(part)]
    if isinstance(node, OperatorNode) and not all(
        node.config.keeps_time(port, node.clock, node.types) for port, _ in parts
    ):
        return False
    return all(keeps_time(part, source) for _, part in parts)


def reach_of(node: Node) -> int:
    """How far windows may move the event time of a stream's rows from that of the sources' rows."""
    reach: dict[Node, int] = {}
    for part in walk(node):
        own = part.config.reach if isinstance(part, OperatorNode) else 0
        reach[part] = own + max((reach[before] for before in part.inputs), default=0)
    return reach[node]


def ahead_of(node: Node) -> int | None:
    """How much later than the rows of its sources a stream's rows, or rows that wait for it, may be; None if unlimited.

    >>> import penstock as pk
    >>> flow = pk.LocalFlow()
    >>> a, b = (flow.source(pa.table({"k": [1], "t": [1]}), time="t") for _ in range(2))
    >>> ahead_of(a.join(b, on="k", within=pk.band(before=5, after=2))._node)
    5
    """
    ahead: dict[Node, int | None] = {}
    for part in walk(node):
        own = part.config.ahead if isinstance(part, OperatorNode) else 0
        before = [ahead[one] for one in part.inputs]
        known = [each for each in before if each is not None]
        ahead[part] = None if own is None or len(known) < len(before) else own + max(known, default=0)
    return ahead[node]


def sources_of(*nodes: Node) -> list[SourceNode]:
    """Every source that `nodes` are made from, each once, in order of first use."""
    return [node for node in walk(*nodes) if isinstance(node, SourceNode)]


def guards_of(*nodes: Node) -> list[OperatorNode]:
    """Every operator that rejects rows of a source as late."""
    return [node for node in operators_of(*nodes) if node.config.finds_late]


def guarded_by(node: OperatorNode) -> SourceNode:
    """The source whose rows an operator rejects as late."""
    source = node.inputs[0]
    if not isinstance(source, SourceNode):
        raise TypeError(f"{node.name} turns rows away that are not a source's")
    return source


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
