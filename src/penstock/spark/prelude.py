"""Native preludes: the stateless half of an aggregation, run by Spark before the shuffle.

Rows are aggregated by pane and group in the JVM; what is shuffled, and what Python sees, is one partial for each pane
and group of an epoch. The partials are those that `Function.lift` would have made of the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from penstock.core.rows import HASH, TIME
from penstock.flow.graph import AggregateNode
from penstock.operators.aggregate.config import Panes
from penstock.operators.aggregate.functions import Count, Edge, Extreme, Function, Mean, Sum, Variance
from penstock.operators.aggregate.lanes import Lane
from penstock.spark.branches import group_hash
from penstock.spark.types import col, long, spark_type


def is_native(node: AggregateNode) -> bool:
    """Whether Spark can make all the partials of an aggregation: windows made of panes, functions it has, too."""
    if node.config.panes is None:
        return False
    lanes = node.config.lanes(node.types)
    return all(type(part.function) in _PARTIALS for lane in lanes for part in lane.parts)


def partials(node: AggregateNode, lane: Lane, rows: DataFrame) -> DataFrame:
    """One row for each pane, group and key of a lane, in the columns of its schema; `rows` have a time as a long."""
    panes = node.config.panes
    if panes is None:
        raise TypeError(node)
    names = [field.name for field in lane.schema]
    keys = [pane_start(panes).alias(TIME)]
    keys += [col(name).alias(names[place]) for name, place in zip(lane.groups, lane.group_places, strict=True)]
    keys += [col(name).alias(names[place]) for name, place in zip(lane.keys, lane.key_places, strict=True)]
    made: list[Column] = []
    for part in lane.parts:
        fields = [lane.schema.field(place) for place in range(part.first, part.last)]
        columns = _PARTIALS[type(part.function)](part.function)
        made += [c.cast(spark_type(f.type)).alias(f.name) for c, f in zip(columns, fields, strict=True)]
    grouped = rows.groupBy(*keys).agg(*made)
    groups = [col(names[place]) for place in lane.group_places]
    return grouped.select(group_hash(groups).alias(HASH), *map(col, names[1:]))


def pane_start(panes: Panes) -> Column:
    """The first moment of each row's pane."""
    return sf.expr(f"{TIME} - pmod({TIME} - {long(panes.origin)}, {long(panes.size)})")


def _count(function: Count) -> Sequence[Column]:
    return [sf.count(sf.lit(1) if function.column is None else col(function.column))]


def _sum(function: Sum | Mean) -> Sequence[Column]:
    value = col(function.column)
    return [sf.sum(value), sf.count(value)]


def _extreme(function: Extreme) -> Sequence[Column]:
    return [(sf.min if function.which == "min" else sf.max)(col(function.column))]


def _variance(function: Variance) -> Sequence[Column]:
    value = col(function.column).cast("double")
    count = sf.count(value)
    return [count, sf.coalesce(sf.avg(value), sf.lit(0.0)), sf.coalesce(sf.var_pop(value) * count, sf.lit(0.0))]


def _edge(function: Edge) -> Sequence[Column]:
    """The least of (time, value), or of (inverted time, value): of several at the same time the least value."""
    value, time = col(function.column), col(TIME)
    towards = time if function.which == "first" else sf.bitwise_not(time)
    best = sf.min(sf.when(value.isNotNull(), sf.struct(towards.alias("towards"), value.alias("value"))))
    found = best.getField("towards")
    return [found if function.which == "first" else sf.bitwise_not(found), best.getField("value")]


_PARTIALS: dict[type, Callable[..., Sequence[Column]]] = {
    Count: _count,
    Sum: _sum,
    Mean: _sum,
    Extreme: _extreme,
    Variance: _variance,
    Edge: _edge,
}


def partial_functions() -> tuple[type[Function], ...]:
    """The functions whose partials Spark can make."""
    return tuple(_PARTIALS)
