"""Native preludes: the stateless half of an aggregation, run by Spark before the shuffle.

Rows are aggregated by pane and group in the JVM; what is shuffled, and what Python sees, is one partial for each pane
and group of an epoch. The partials are those that `Function.lift` would have made of the same rows.

Expressions are SQL text: every call into the JVM costs as much as a thousand rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from penstock.core.prelude import LanePart, Prelude, PreludeLane
from penstock.core.rows import HASH, TIME
from penstock.spark.layout import IN_TIME, LATE, LATENESS
from penstock.spark.types import long, quoted, spark_type

TOP = "__top"
"""Beside partials that also count: the latest time of any row."""

_COUNTS = f"{LATENESS} = {IN_TIME}"


def in_sql(prelude: Prelude) -> bool:
    """Whether Spark can make all the partials of a prelude."""
    return all(_written(part) is not None for lane in prelude.lanes for part in lane.parts)


def partials(prelude: Prelude, lane: PreludeLane, rows: DataFrame) -> DataFrame:
    """One row for each pane, group and key of a lane, in the columns of its schema; `rows` have a time as a long."""
    keys, made = _keys(prelude, lane), _made(lane)
    grouped = rows.groupBy(*map(sf.expr, keys)).agg(*map(sf.expr, made))
    return grouped.selectExpr(_placed(lane), *(quoted(name) for name in lane.schema.names[1:]))


def partials_and_counts(prelude: Prelude, lane: PreludeLane, rows: str, inputs: Mapping[str, str], ours: str) -> str:
    """A query for the same partials of a view, and what must be known of the rows to follow their source's progress.

    `inputs` says in which column each of the operator's is, `ours` which rows are meant, in SQL. Rows that are late are
    partials by themselves, told apart by their `LATENESS`; `TOP` is the latest time.
    """
    keys, made = _keys(prelude, lane), _made(lane)
    names = ", ".join(quoted(name) for name in lane.schema.names[1:])
    grouping = ", ".join(str(place + 1) for place in range(len(keys) + 1))
    # Late rows have no groups here: however many there are, they are one partial for each pane.
    given = "".join(f", CASE WHEN {_COUNTS} THEN {place} END AS {quoted(n)}" for n, place in inputs.items())
    return (
        f"SELECT {_placed(lane)}, {names}, {LATENESS}, {TOP} FROM ("
        f"SELECT {', '.join(keys)}, {LATENESS}, {', '.join(made)}, max({TIME}) AS {TOP} FROM ("
        f"SELECT CASE WHEN {LATENESS} <= {LATE} THEN {TIME} END AS {TIME}, {LATENESS}{given} "
        f"FROM {rows} WHERE {ours}) GROUP BY {grouping})"
    )


def _keys(prelude: Prelude, lane: PreludeLane) -> list[str]:
    names = [quoted(field.name) for field in lane.schema]
    keys = [f"{pane_start(prelude.size, prelude.origin)} AS {TIME}"]
    keys += [f"{quoted(name)} AS {names[place]}" for name, place in zip(lane.groups, lane.group_places, strict=True)]
    keys += [f"{quoted(name)} AS {names[place]}" for name, place in zip(lane.keys, lane.key_places, strict=True)]
    return keys


def _made(lane: PreludeLane) -> list[str]:
    made: list[str] = []
    for part in lane.parts:
        fields = [lane.schema.field(place) for place in range(part.first, part.last)]
        made += [
            f"CAST({text} AS {spark_type(field.type).simpleString()}) AS {quoted(field.name)}"
            for text, field in zip(_written(part) or (), fields, strict=True)
        ]
    return made


def _written(part: LanePart) -> Sequence[str] | None:
    return part.function.in_sql(part.kind, "" if part.function.column is None else quoted(part.function.column))


def _placed(lane: PreludeLane) -> str:
    groups = ", ".join(quoted(lane.schema.field(place).name) for place in lane.group_places)
    return f"xxhash64({groups}) AS {HASH}" if groups else f"0L AS {HASH}"


def pane_start(size: int, origin: int) -> str:
    """The first moment of each row's pane, as SQL.

    >>> pane_start(size=60, origin=0)
    '(__time - pmod(__time - 0L, 60L))'
    """
    return f"({TIME} - pmod({TIME} - {long(origin)}, {long(size)}))"
