"""Native preludes: the stateless half of an aggregation, run by Spark before the shuffle.

Rows are aggregated by pane and group in the JVM; what is shuffled, and what Python sees, is one partial for each pane
and group of an epoch. The partials are those that `Function.lift` would have made of the same rows.

Expressions are SQL text: every call into the JVM costs as much as a thousand rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from penstock.core.rows import HASH, TIME
from penstock.flow.graph import AggregateNode
from penstock.operators.aggregate.config import Panes, WindowAggregate
from penstock.operators.aggregate.functions import Count, Edge, Extreme, Function, Mean, Sum, Variance
from penstock.operators.aggregate.lanes import Lane
from penstock.operators.aggregate.sketches import ApproxCountDistinct, ApproxQuantile
from penstock.spark.types import long, quoted, spark_type

IN_TIME = "__in_time"
"""Beside the rows of an epoch: whether they came in time; null if they have none, or one out of range."""

LATE, TOP = "__late", "__top"
"""Beside partials that also count: why rows are late, and the latest time of any."""

OVER = "__over"
"""Beside partials of which only so many are wanted: whether there are more."""

_PLACE = "monotonically_increasing_id() & 8589934591L"
"""A row's place in its partition."""


def is_native(node: AggregateNode, config: WindowAggregate) -> bool:
    """Whether Spark can make all the partials of an aggregation: windows made of panes, functions it has, too.

    `config` is the node's, by the method that runs: some hold rows, and need them as they are.
    """
    if config.panes is None or config.takes_rows:
        return False
    lanes = node.config.lanes(node.types)
    return all(
        type(part.function) in _PARTIALS and not _outgrows_spark(part.function, part.kind)
        for lane in lanes
        for part in lane.parts
    )


def _outgrows_spark(function: Function, kind: pa.DataType) -> bool:
    """Whether partials may have more digits than Spark's decimals."""
    return any(pa.types.is_decimal256(partial) for _, partial in function.fields(kind))


def partials(node: AggregateNode, lane: Lane, rows: DataFrame) -> DataFrame:
    """One row for each pane, group and key of a lane, in the columns of its schema; `rows` have a time as a long."""
    keys, made = _keys(node, lane), _made(lane)
    grouped = rows.groupBy(*map(sf.expr, keys)).agg(*map(sf.expr, made))
    return grouped.selectExpr(_placed(lane), *(quoted(name) for name in lane.schema.names[1:]))


def partials_and_counts(node: AggregateNode, lane: Lane, rows: str, inputs: Mapping[str, str], ours: str) -> str:
    """A query for the same partials of a view, and what must be known of the rows to follow their source's progress.

    `inputs` says in which column each of the aggregation's is, `ours` which rows count, in SQL. Rows
    that are late (1) or have no time in range (2) are partials by themselves; `__top` is the latest time.
    """
    keys, made = _keys(node, lane), _made(lane)
    names = ", ".join(quoted(name) for name in lane.schema.names[1:])
    grouping = ", ".join(str(place + 1) for place in range(len(keys) + 1))
    late = f"CASE WHEN {IN_TIME} THEN 0 WHEN {IN_TIME} IS NULL THEN 2 ELSE 1 END"
    # Late rows have no groups here: however many there are, they are one partial for each pane.
    given = "".join(f", CASE WHEN {IN_TIME} THEN {place} END AS {quoted(n)}" for n, place in inputs.items())
    return (
        f"SELECT {_placed(lane)}, {names}, {LATE}, {TOP} FROM ("
        f"SELECT {', '.join(keys)}, {LATE}, {', '.join(made)}, max({TIME}) AS {TOP} FROM ("
        f"SELECT CASE WHEN {IN_TIME} IS NOT NULL THEN {TIME} END AS {TIME}, {late} AS {LATE}{given} "
        f"FROM {rows} WHERE {ours}) GROUP BY {grouping})"
    )


class Cap(NamedTuple):
    """What keeps a number of partials down: which are kept by their `__place`, and what of them."""

    where: str
    columns: Sequence[str]

    def of(self, partials: DataFrame) -> DataFrame:
        """Those of a DataFrame. In a query over a view of it Spark would not find what is observed of its rows."""
        numbered = partials.selectExpr("*", f"{_PLACE} AS __place")
        return numbered.where(self.where).selectExpr(*self.columns)

    def of_query(self, partials: str) -> str:
        """Those of a query, as a query: a DataFrame would be analysed three times more."""
        numbered = f"SELECT *, {_PLACE} AS __place FROM ({partials})"
        return f"SELECT {', '.join(self.columns)} FROM ({numbered}) WHERE {self.where}"


def at_most(size: int, rows: int, schema: pa.Schema, more: Sequence[str] = ()) -> Cap:
    """So many partials of each partition, and about so many bytes; `OVER` is true somewhere if that is not all.

    A partial is over if it and as many others as are before it, were they of its width, are more than `size`. So what
    is not is a small multiple of `size` however widths differ, and nothing must be counted first. `more` are columns
    beside those of the schema.
    """
    fixed = 8 * len(schema)
    texts = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_binary(field.type)]
    width = " + ".join([f"{fixed}L", *(f"coalesce(octet_length({quoted(name)}), 0)" for name in texts)])
    most = min(rows, size // fixed)
    over = f"__place >= {most}L OR (__place + 1L) * ({width}) > {size}L"
    columns = [
        f"CASE WHEN NOT ({over}) THEN {quoted(name)} END AS {quoted(name)}" if name in texts else quoted(name)
        for name in (*schema.names, *more)
    ]
    return Cap(f"__place <= {most}L", [*columns, f"{over} AS {OVER}"])


def _keys(node: AggregateNode, lane: Lane) -> list[str]:
    panes = node.config.panes
    if panes is None:
        raise TypeError(node)
    names = [quoted(field.name) for field in lane.schema]
    keys = [f"{pane_start(panes)} AS {TIME}"]
    keys += [f"{quoted(name)} AS {names[place]}" for name, place in zip(lane.groups, lane.group_places, strict=True)]
    keys += [f"{quoted(name)} AS {names[place]}" for name, place in zip(lane.keys, lane.key_places, strict=True)]
    return keys


def _made(lane: Lane) -> list[str]:
    made: list[str] = []
    for part in lane.parts:
        fields = [lane.schema.field(place) for place in range(part.first, part.last)]
        texts = _PARTIALS[type(part.function)](part.function, part.kind)
        made += [
            f"CAST({text} AS {spark_type(field.type).simpleString()}) AS {quoted(field.name)}"
            for text, field in zip(texts, fields, strict=True)
        ]
    return made


def _placed(lane: Lane) -> str:
    groups = ", ".join(quoted(lane.schema.field(place).name) for place in lane.group_places)
    return f"xxhash64({groups}) AS {HASH}" if groups else f"0L AS {HASH}"


def pane_start(panes: Panes) -> str:
    """The first moment of each row's pane, as SQL.

    >>> pane_start(Panes(size=60, origin=0, count=1, step=1))
    '(__time - pmod(__time - 0L, 60L))'
    """
    return f"({TIME} - pmod({TIME} - {long(panes.origin)}, {long(panes.size)}))"


def _count(function: Count, _: pa.DataType) -> Sequence[str]:
    return ["count(1)" if function.column is None else f"count({quoted(function.column)})"]


def _sum(function: Sum | Mean, kind: pa.DataType) -> Sequence[str]:
    """Longs in two words, as `sum_words` has them: Spark's sum of longs wraps around or fails, by its settings."""
    value = quoted(function.column)
    if kind == pa.int64():
        return [f"sum(shiftright({value}, 32))", f"sum({value} & 4294967295L)", f"count({value})"]
    return [f"sum({value})", f"count({value})"]


def _extreme(function: Extreme, _: pa.DataType) -> Sequence[str]:
    return [f"{function.which}({quoted(function.column)})"]


def _variance(function: Variance, _: pa.DataType) -> Sequence[str]:
    value = f"CAST({quoted(function.column)} AS DOUBLE)"
    return [f"count({value})", f"coalesce(avg({value}), 0D)", f"coalesce(var_pop({value}) * count({value}), 0D)"]


def _edge(function: Edge, _: pa.DataType) -> Sequence[str]:
    """The least of (time, value), or of (inverted time, value): of several at the same time the least value."""
    value = quoted(function.column)
    sign = "" if function.which == "first" else "~"
    best = f"min(CASE WHEN {value} IS NOT NULL THEN struct({sign}{TIME} AS towards, {value} AS value) END)"
    return [f"{sign}({best}.towards)", f"{best}.value"]


def _distinct(function: ApproxCountDistinct, kind: pa.DataType) -> Sequence[str]:
    """All integers as longs, whose hashes are those of the same numbers in process."""
    value = quoted(function.column)
    value = f"CAST({value} AS BIGINT)" if pa.types.is_integer(kind) else value
    return [f"hll_sketch_agg({value}, {function.precision})"]


def _quantile(function: ApproxQuantile, _: pa.DataType) -> Sequence[str]:
    """All numbers as doubles, as in process: sketches of longs or floats have other formats."""
    return [f"kll_sketch_agg_double(CAST({quoted(function.column)} AS DOUBLE), {function.size})"]


_PARTIALS: dict[type, Callable[[Any, pa.DataType], Sequence[str]]] = {
    Count: _count,
    Sum: _sum,
    Mean: _sum,
    Extreme: _extreme,
    Variance: _variance,
    Edge: _edge,
    ApproxCountDistinct: _distinct,
    ApproxQuantile: _quantile,
}
