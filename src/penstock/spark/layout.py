"""The tagged union: every edge of the graph that rows cross between tasks, laid out in one set of columns.

An edge leads from a source or an operator, through stateless expressions, to an operator's port or a sink. Rows of all
the edges travel together, told apart by a tag. Columns of the same type share a place, so that a row is hardly
wider than the widest edge: (tag, hash, time, mark, column0, column1 …).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from penstock.core.progress import Punctuated
from penstock.core.rows import HASH, RESERVED, TIME
from penstock.core.within import LEFT
from penstock.flow.graph import (
    Node,
    OperatorNode,
    Pairs,
    SelectNode,
    SourceNode,
    StatementNode,
    UnionNode,
    WhereNode,
    sources_of,
)
from penstock.flow.sinks import Sink
from penstock.spark.file_stream import FileStream
from penstock.spark.schemas import Schemas, expressions
from penstock.spark.types import any_null, col, nulls, renamed, said_as_long, time_as_long, time_from_long

TAG, MARK = RESERVED[2:4]

TAG_TYPE = "short"
"""Wide enough for 32,768 branches; Spark's own plan gives up long before."""


@dataclass(frozen=True, eq=False)
class Edge:
    """From a source or an operator through stateless steps."""

    root: SourceNode | OperatorNode
    steps: tuple[SelectNode | WhereNode | StatementNode, ...] = ()

    @property
    def filtered(self) -> bool:
        """Whether rows may be missing that its root had, be there several times, or have another time."""
        return any(
            step.expands if isinstance(step, SelectNode) else isinstance(step, WhereNode | StatementNode)
            for step in self.steps
        )


@dataclass(frozen=True, eq=False)
class Branch:
    """An edge and where it leads: its tag, the columns it ships, and the place of each.

    `use` is what becomes of its rows: they enter a port of an operator, go to sinks, are kept for the late outlet,
    or are only counted, to follow the source's progress.
    """

    tag: int
    edge: Edge
    use: Literal["port", "sink", "late", "witness"]
    node: Node
    shipped: tuple[str, ...]
    places: tuple[int, ...]
    operator: OperatorNode | None = None
    port: int = LEFT

    @property
    def from_source(self) -> bool:
        """Whether its rows come straight from outside."""
        return isinstance(self.edge.root, SourceNode)

    @property
    def streams(self) -> bool:
        """Whether Spark streams them; it does not stream the rows of files that Arrow reads."""
        root = self.edge.root
        return isinstance(root, SourceNode) and self.from_frame and root.data.isStreaming

    @property
    def from_frame(self) -> bool:
        """Whether they come from a DataFrame, and not from files that Arrow reads."""
        return isinstance(self.edge.root, SourceNode) and not isinstance(self.edge.root.data, FileStream)


@dataclass(frozen=True)
class Layout:
    """All the branches of a flow and the types of the columns that they share."""

    branches: tuple[Branch, ...]
    kinds: tuple[st.DataType, ...]

    @property
    def columns(self) -> list[tuple[str, Any]]:
        """The columns of the tagged union; the mark is there only if a source has punctuation."""
        marked = any(_marked(branch) for branch in self.branches)
        leading = [(TAG, TAG_TYPE), (HASH, "long"), (TIME, "long"), *([(MARK, "long")] if marked else [])]
        return [*leading, *((column_name(place), kind) for place, kind in enumerate(self.kinds))]

    def into(self, operator: OperatorNode) -> list[Branch]:
        """The branches that enter an operator."""
        return [branch for branch in self.branches if branch.operator is operator]

    def of_sink(self, node: Node) -> list[Branch]:
        """The branches whose rows are those of `node`, for its sinks."""
        return [branch for branch in self.branches if branch.use == "sink" and branch.node is node]

    def witness(self, source: SourceNode) -> Branch:
        """The branch that shows every row of a source, in time or late."""
        ours = [b for b in self.branches if b.edge.root is source and not b.edge.filtered]
        return ours[0]

    def raw(self, source: SourceNode) -> Branch | None:
        """The branch that ships a source's rows as they came: one made for the late outlet, or one that does anyway."""
        return next((b for b in self.branches if b.edge.root is source and _is_raw(b)), None)


def lay_out(sinks: Sequence[Sink], operators: Sequence[OperatorNode], schemas: Schemas) -> Layout:
    """Find every edge, give it a tag, and its columns places."""
    kinds: list[st.DataType] = []
    branches: list[Branch] = []

    def add(edge: Edge, use: Literal["port", "sink", "late", "witness"], node: Node, **of: object) -> None:
        operator, port = of.get("operator"), of.get("port", LEFT)
        shipped: tuple[str, ...] = ()
        types: list[st.DataType] = []
        if isinstance(operator, OperatorNode) and isinstance(port, int):
            shipped = tuple(operator.types[port].inside.names[2:])
            types = [schemas.in_port(operator, port, name) for name in shipped]
        elif use != "witness":
            shipped = tuple(node.columns.names)
            types = [schemas.types_of(node)[name] for name in shipped]
        branches.append(
            Branch(len(branches), edge, use, node, shipped, _allot(types, kinds), **of)  # type: ignore[arg-type]
        )

    for operator in operators:
        for port, part in enumerate(operator.inputs):
            for edge in edges(part):
                add(edge, "port", part, operator=operator, port=port)
    for node in dict.fromkeys(sink.node for sink in sinks if sink.emits == "results"):
        for edge in edges(node):
            if isinstance(edge.root, SourceNode):
                add(edge, "sink", node)
    for source in dict.fromkeys(s for sink in sinks if sink.emits == "late" for s in sources_of(sink.node)):
        if not any(b.edge.root is source and _is_raw(b) for b in branches):
            add(Edge(source), "late", source)
    for source in sources_of(*(sink.node for sink in sinks)):
        if all(b.edge.filtered for b in branches if b.edge.root is source):
            add(Edge(source), "witness", source)
    return Layout(tuple(branches), tuple(kinds))


def edges(node: Node) -> list[Edge]:
    """The edges that lead to a stream: one, or one per member of a union."""
    if isinstance(node, SourceNode | OperatorNode):
        return [Edge(node)]
    if isinstance(node, SelectNode | WhereNode | StatementNode):
        return [Edge(edge.root, (*edge.steps, node)) for edge in edges(node.input)]
    if isinstance(node, UnionNode):
        return [edge for member in node.members for edge in edges(member)]
    raise TypeError(node)


def tagged(branch: Branch, layout: Layout, rows: DataFrame, schemas: Schemas) -> DataFrame:
    """A branch's rows, with steps applied, in the columns of the tagged union."""
    rows = through(branch.edge, rows)
    shown = {column_name(place): name for place, name in zip(branch.places, branch.shipped, strict=True)}
    columns: list[Column] = []
    for name, kind in layout.columns:
        if name == TAG:
            columns.append(sf.lit(branch.tag).cast(kind).alias(name))
        elif name == HASH:
            columns.append(_hash(branch, schemas).alias(name))
        elif name in shown and _is_as_shipped(branch, shown[name], kind, schemas):
            columns.append(renamed(shown[name], name))
        elif name in shown:
            columns.append(col(shown[name]).cast(kind).alias(name))
        elif name == TIME or (name == MARK and MARK in rows.columns):
            columns.append(col(name))
        else:
            columns.append(nulls(kind, name))
    return rows.select(*columns)


def through(edge: Edge, rows: DataFrame) -> DataFrame:
    """The rows of an edge's root after its steps, all of them native."""
    for step in edge.steps:
        if isinstance(step, WhereNode):
            rows = rows.where(step.condition)
        else:
            rows = _select_step(rows, step) if isinstance(step, SelectNode) else _statement_step(rows, step)
    return rows


def with_time(source: SourceNode, rows: DataFrame) -> DataFrame:
    """A source's rows with their event time, and their punctuation if it has any, as longs beside them."""
    kinds = {field.name: field.dataType for field in rows.schema}
    added: list[Column] = [time_as_long(col(str(source.time)), kinds[str(source.time)]).alias(TIME)]
    if isinstance(source.progress, Punctuated) and source.progress.linear is not None:
        mark = source.progress.linear
        added.append(said_as_long(col(mark), kinds[mark]).alias(MARK))
    return rows.select("*", *added)


def untagged(branch: Branch, rows: DataFrame, schemas: Schemas, *also: Column) -> DataFrame:
    """The user's columns of a branch's rows, back from their places, and what else is computed from the tagged row."""
    places = dict(zip(branch.shipped, branch.places, strict=True))
    named = [
        renamed(column_name(places[field.name]), name)
        if field.name in places
        else time_from_long(col(TIME), field.dataType).alias(name)
        for field, name in zip(schemas.of(branch.node), branch.node.columns.names, strict=True)
    ]
    return rows.where(col(TAG) == branch.tag).select(*named, *also)


def where_pairs(rows: DataFrame, pairs: Pairs) -> DataFrame:
    """The rows for which a condition over ``l`` and ``r`` holds.

    The condition sees these two structs alone. The columns of the pairs have other names beside them, and are no third
    struct: to take all the fields of a struct apart takes Spark time quadratic in their number.
    """
    sides = [
        sf.struct(*(renamed(shown, name) for name, shown in columns.items())).alias(side)
        for side, columns in zip(("l", "r"), pairs.sides, strict=True)
    ]
    aside = {name: f"__pair{place}" for place, name in enumerate(rows.columns)}
    whole = [renamed(name, hidden) for name, hidden in aside.items()]
    back = [renamed(hidden, name) for name, hidden in aside.items()]
    return rows.select(*sides, *whole).where(pairs.condition).select(*back)


def column_name(place: int) -> str:
    """What a shared column is called."""
    return f"column{place}"


def _select_step(rows: DataFrame, node: SelectNode) -> DataFrame:
    hidden = [name for name in (TIME, MARK) if name in rows.columns]
    return rows.select(*expressions(node), *hidden)


def _statement_step(rows: DataFrame, node: StatementNode) -> DataFrame:
    """What rows say of their groups; those that say nothing have no time then, and are left behind with such rows."""
    bound = said_as_long(col(node.said), rows.schema[node.said].dataType).alias(TIME)
    return rows.select(*map(col, node.columns.names), bound)


def _is_as_shipped(branch: Branch, name: str, kind: st.DataType, schemas: Schemas) -> bool:
    return branch.operator is None or schemas.types_of(branch.node)[name] == kind


def _shipped(branch: Branch, name: str, kind: st.DataType, schemas: Schemas) -> Column:
    return col(name) if _is_as_shipped(branch, name, kind, schemas) else col(name).cast(kind)


def _hash(branch: Branch, schemas: Schemas) -> Column:
    """The key's hash; null where rows with a null key are of no use. Those that are kept are spread by time."""
    operator = branch.operator
    if operator is None:
        return sf.lit(None).cast("long")
    keys = operator.types[branch.port].keys
    cast = [_shipped(branch, key, schemas.in_port(operator, branch.port, key), schemas) for key in keys]
    nulls = operator.config.null_keys(branch.port)
    if nulls == "group":
        return group_hash(cast)
    return sf.when(any_null(keys), sf.xxhash64(TIME) if nulls == "spread" else None).otherwise(sf.xxhash64(*cast))


def group_hash(keys: Sequence[Column]) -> Column:
    """The hash of a group; null is a group, and without keys all rows are one."""
    return sf.xxhash64(*keys) if keys else sf.lit(0).cast("long")


def _marked(branch: Branch) -> bool:
    progress = branch.edge.root.progress if isinstance(branch.edge.root, SourceNode) else None
    return isinstance(progress, Punctuated) and progress.linear is not None


def _is_raw(branch: Branch) -> bool:
    if branch.edge.steps or branch.use == "witness":
        return False
    operator = branch.operator
    return operator is None or operator.types[branch.port].columns == branch.node.columns


def _allot(types: Sequence[st.DataType], kinds: list[st.DataType]) -> tuple[int, ...]:
    """A place of its type for each column, no two the same; where `kinds` are too few, more are added.

    >>> kinds = [st.LongType(), st.StringType()]
    >>> _allot([st.StringType(), st.LongType(), st.LongType()], kinds), len(kinds)
    ((1, 0, 2), 3)
    """
    free: dict[st.DataType, deque[int]] = {}
    for place, kind in enumerate(kinds):
        free.setdefault(kind, deque()).append(place)
    taken: list[int] = []
    for kind in types:
        if free.get(kind):
            taken.append(free[kind].popleft())
        else:
            taken.append(len(kinds))
            kinds.append(kind)
    return tuple(taken)
