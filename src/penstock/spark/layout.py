"""The tagged union: every edge of the graph that rows cross between tasks, laid out in one set of columns.

An edge leads from a source or an operator, through stateless expressions, to an operator's port or a sink. Rows of all
the edges travel together, told apart by a tag. Columns of the same type share a place, so that a row is hardly
wider than the widest edge: (tag, hash, time, column0, column1 …).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from penstock.core.rows import HASH, RESERVED, TIME
from penstock.core.within import LEFT
from penstock.flow.graph import (
    FetchNode,
    Node,
    OperatorNode,
    Pairs,
    SelectNode,
    SourceNode,
    StatementNode,
    StepNode,
    UnionNode,
    WhereNode,
    sources_of,
)
from penstock.flow.sinks import Sink
from penstock.runtime.steps import Fetch, all_of
from penstock.runtime.steps import step as step_of
from penstock.spark.fetching import FetchTask
from penstock.spark.schemas import Schemas, expressions
from penstock.spark.source_rows import SOURCE, SourceRows
from penstock.spark.types import allot, any_null, col, column_name, nulls, renamed, said_as_long, time_from_long

TAG = RESERVED[2]

LATENESS = "__late"
"""Beside the rows of an epoch: what they are, as a number."""

IN_TIME, LATE, OUT_OF_RANGE, NO_TIME = range(4)
"""At or above its source's bound; below it; too far from zero; null."""

TAG_TYPE = "short"
"""Wide enough for 32,768 branches; Spark's own plan gives up long before."""


@dataclass(frozen=True, eq=False)
class Edge:
    """From a source or an operator through stateless steps."""

    root: SourceNode | OperatorNode
    steps: tuple[StepNode | StatementNode, ...] = ()

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

    `use` says where its rows go: into a port of an operator, to sinks, or to the late outlet.
    """

    tag: int
    edge: Edge
    use: Literal["port", "sink", "late"]
    node: Node
    shipped: tuple[str, ...]
    places: tuple[int, ...]
    operator: OperatorNode | None = None
    port: int = LEFT
    direct: bool = False
    """Whether its rows are those of a source as they came, each in the columns that it has there."""

    @property
    def from_source(self) -> bool:
        """Whether its rows come straight from outside."""
        return isinstance(self.edge.root, SourceNode)


@dataclass(frozen=True)
class Layout:
    """All the branches of a flow and the types of the columns that they share."""

    branches: tuple[Branch, ...]
    kinds: tuple[st.DataType, ...]

    @property
    def columns(self) -> list[tuple[str, Any]]:
        """The columns of the tagged union."""
        leading = [(TAG, TAG_TYPE), (HASH, "long"), (TIME, "long")]
        return [*leading, *((column_name(place), kind) for place, kind in enumerate(self.kinds))]

    def into(self, operator: OperatorNode) -> list[Branch]:
        """The branches that enter an operator."""
        return [branch for branch in self.branches if branch.operator is operator]

    def of_sink(self, node: Node) -> list[Branch]:
        """The branches whose rows are those of `node`, for its sinks."""
        return [branch for branch in self.branches if branch.use == "sink" and branch.node is node]

    def raw(self, source: SourceNode) -> Branch | None:
        """The branch that ships a source's rows as they came: one made for the late outlet, or one that does anyway."""
        return next((b for b in self.branches if b.edge.root is source and _is_raw(b)), None)


def lay_out(sinks: Sequence[Sink], operators: Sequence[OperatorNode], schemas: Schemas, sources: SourceRows) -> Layout:
    """Find every edge, give it a tag, and its columns places; of each source, one edge without steps keeps its own."""
    kinds = list(sources.kinds)
    branches: list[Branch] = []
    as_they_came: set[Node] = set()

    def add(edge: Edge, use: Literal["port", "sink", "late"], node: Node, **of: object) -> None:
        operator, port = of.get("operator"), of.get("port", LEFT)
        shipped: tuple[str, ...] = ()
        types: list[st.DataType] = []
        if isinstance(operator, OperatorNode) and isinstance(port, int):
            shipped = tuple(operator.types[port].inside.names[2:])
            types = [schemas.in_port(operator, port, name) for name in shipped]
        else:
            shipped = tuple(node.columns.names)
            types = [schemas.types_of(node)[name] for name in shipped]
        own = None if edge.steps or edge.root in as_they_came else _own_places(sources, edge.root, shipped, types)
        if own is not None:
            as_they_came.add(edge.root)
        places = allot(types, kinds) if own is None else own
        branches.append(
            Branch(len(branches), edge, use, node, shipped, places, direct=own is not None, **of)  # type: ignore[arg-type]
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
    return Layout(tuple(branches), tuple(kinds))


def edges(node: Node) -> list[Edge]:
    """The edges that lead to a stream: one, or one per member of a union."""
    if isinstance(node, SourceNode | OperatorNode):
        return [Edge(node)]
    if isinstance(node, StepNode | StatementNode):
        return [Edge(edge.root, (*edge.steps, node)) for edge in edges(node.input)]
    if isinstance(node, UnionNode):
        return [edge for member in node.members for edge in edges(member)]
    raise TypeError(node)


def _own_places(
    sources: SourceRows, root: Node, shipped: Sequence[str], types: Sequence[st.DataType]
) -> tuple[int, ...] | None:
    """Where columns of a source are as it came; None if it is none, or has them in other types."""
    if not isinstance(root, SourceNode):
        return None
    pairs = zip(sources.fields[root], sources.places[root], strict=True)
    held = {(field.name, field.dataType): place for field, place in pairs}
    places = [held.get(each) for each in zip(shipped, types, strict=True)]
    known = tuple(place for place in places if place is not None)
    return known if len(known) == len(places) else None


def tagged_as_they_came(layout: Layout, rows: DataFrame, sources: SourceRows) -> DataFrame:
    """The rows of all branches that have those of sources as they came, in one pass over them."""
    branches = {
        sources.number(b.edge.root): b for b in layout.branches if b.direct and isinstance(b.edge.root, SourceNode)
    }
    tags = [str(branches[number].tag) if number in branches else "-1" for number in range(len(sources.sources))]
    used = {place for branch in branches.values() for place in branch.places}
    hashes: Column | None = None
    for number, branch in branches.items():
        if branch.operator is not None:
            at = dict(zip(branch.shipped, map(column_name, branch.places), strict=True))
            keys = [at[key] for key in branch.operator.types[branch.port].keys]
            made = _hash(branch.operator, branch.port, keys, [col(key) for key in keys])
            ours = sf.expr(f"{SOURCE} = {number}")
            hashes = sf.when(ours, made) if hashes is None else hashes.when(ours, made)
    columns = [
        sf.expr(f"CAST(element_at(array({', '.join(tags)}), {SOURCE} + 1) AS {TAG_TYPE}) AS {TAG}"),
        (sf.lit(None).cast("long") if hashes is None else hashes).alias(HASH),
        col(TIME),
        *(
            col(column_name(place)) if place in used else nulls(kind, column_name(place))
            for place, kind in enumerate(layout.kinds)
        ),
        col(LATENESS),
    ]
    some = ", ".join(map(str, branches))
    return (rows if len(branches) == len(tags) else rows.where(f"{SOURCE} IN ({some})")).select(*columns)


def tagged(branch: Branch, layout: Layout, rows: DataFrame, schemas: Schemas) -> DataFrame:
    """A branch's rows, with steps applied, in the columns of the tagged union, and their lateness if they have one."""
    rows = through(branch.edge, rows)
    shown = {column_name(place): name for place, name in zip(branch.places, branch.shipped, strict=True)}
    columns: list[Column] = []
    for name, kind in layout.columns:
        if name == TAG:
            columns.append(sf.lit(branch.tag).cast(kind).alias(name))
        elif name == HASH:
            columns.append(_hash_of(branch, schemas).alias(name))
        elif name in shown and _is_as_shipped(branch, shown[name], kind, schemas):
            columns.append(renamed(shown[name], name))
        elif name in shown:
            columns.append(col(shown[name]).cast(kind).alias(name))
        elif name == TIME:
            columns.append(col(name))
        else:
            columns.append(nulls(kind, name))
    return rows.select(*columns, *([LATENESS] if LATENESS in rows.columns else []))


def through(edge: Edge, rows: DataFrame) -> DataFrame:
    """The rows of an edge's root after its steps, all of them native but for fetches."""
    for step in edge.steps:
        if isinstance(step, WhereNode):
            rows = rows.where(step.condition)
        elif isinstance(step, FetchNode):
            rows = _fetch_step(rows, step)
        else:
            rows = _select_step(rows, step) if isinstance(step, SelectNode) else _statement_step(rows, step)
    return rows


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


def _select_step(rows: DataFrame, node: SelectNode) -> DataFrame:
    return rows.select(*expressions(node), *(name for name in (TIME, LATENESS) if name in rows.columns))


def _fetch_step(rows: DataFrame, node: FetchNode) -> DataFrame:
    """Rows with the payload that stayed in their sources, which tasks read."""
    given = {field.name: field for field in rows.schema}
    names = [*node.columns.names, *(name for name in (TIME,) if name in given)]
    task = FetchTask(step_of(node), tuple(rows.columns))
    # Spark would take a name with a dot for a field of a struct.
    numbered = rows.toDF(*map(column_name, range(len(rows.columns))))
    return numbered.mapInArrow(task, st.StructType([given[name] for name in names]))


def with_payload(rows: DataFrame, source: SourceNode) -> DataFrame:
    """Late rows of a source, and what stands beside them, with all that they have there."""
    names = source.given.names
    beside = [name for name in rows.columns if name not in source.columns.names]
    task = FetchTask(Fetch((all_of(source),), (*names, *beside)), tuple(rows.columns))
    given = {field.name: field for field in rows.schema}
    numbered = rows.toDF(*map(column_name, range(len(rows.columns))))
    return numbered.mapInArrow(task, st.StructType([given[name] for name in (*names, *beside)]))


def _statement_step(rows: DataFrame, node: StatementNode) -> DataFrame:
    """What rows say of their groups; those that say nothing have no time then, and are left behind with such rows."""
    bound = said_as_long(col(node.said), rows.schema[node.said].dataType).alias(TIME)
    said = rows.select(*map(col, node.columns.names), bound)
    return said.withColumn(LATENESS, sf.expr(f"IF({TIME} IS NULL, {NO_TIME}, {IN_TIME})"))


def _is_as_shipped(branch: Branch, name: str, kind: st.DataType, schemas: Schemas) -> bool:
    return branch.operator is None or schemas.types_of(branch.node)[name] == kind


def _shipped(branch: Branch, name: str, kind: st.DataType, schemas: Schemas) -> Column:
    return col(name) if _is_as_shipped(branch, name, kind, schemas) else col(name).cast(kind)


def _hash_of(branch: Branch, schemas: Schemas) -> Column:
    operator = branch.operator
    if operator is None:
        return sf.lit(None).cast("long")
    keys = operator.types[branch.port].keys
    cast = [_shipped(branch, key, schemas.in_port(operator, branch.port, key), schemas) for key in keys]
    return _hash(operator, branch.port, keys, cast)


def _hash(operator: OperatorNode, port: int, keys: Sequence[str], cast: Sequence[Column]) -> Column:
    """The key's hash; null where rows with a null key are of no use. Those that are kept are spread by time."""
    nulls = operator.config.null_keys(port)
    if nulls == "group":
        return group_hash(cast)
    return sf.when(any_null(keys), sf.xxhash64(TIME) if nulls == "spread" else None).otherwise(sf.xxhash64(*cast))


def group_hash(keys: Sequence[Column]) -> Column:
    """The hash of a group; null is a group, and without keys all rows are one."""
    return sf.xxhash64(*keys) if keys else sf.lit(0).cast("long")


def _is_raw(branch: Branch) -> bool:
    if branch.edge.steps:
        return False
    operator = branch.operator
    return operator is None or operator.types[branch.port].columns == branch.node.columns
