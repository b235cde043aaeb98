"""Spark's types and expressions for what penstock means: event time as a long, shards of a hash, Arrow schemas."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema

from penstock.core.errors import ConfigError
from penstock.core.time import TIME_MAX, TIME_MIN


def arrow_columns(schema: st.StructType) -> pa.Schema:
    """A DataFrame's columns as Arrow's, any of which may be null; zoned timestamps are UTC."""
    if len(set(schema.names)) < len(schema.names):
        twice = next(name for name in schema.names if schema.names.count(name) > 1)
        raise ConfigError(f"Column {twice!r} appears twice. Rename one of them before flow.source(…).")
    for field in schema:
        if isinstance(field.dataType, st.StringType) and field.dataType.collation not in (None, "UTF8_BINARY"):
            raise ConfigError(
                f"Column {field.name!r} has the collation {field.dataType.collation}; penstock compares bytes. "
                f"Select CAST({field.name} AS STRING COLLATE UTF8_BINARY) first."
            )
    try:
        return to_arrow_schema(nullable_columns(schema), timezone="UTC")
    except Exception as error:
        raise ConfigError(
            f"These columns cannot be converted to Arrow: {error}. Cast them or leave them out."
        ) from error


def each_of(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    return (sequence.apply(place) for place in range(sequence.size()))


def nullable_columns(schema: st.StructType) -> st.StructType:
    """Columns that may be null, and so may all that is in them: what Spark knows of that depends on the place."""
    return st.StructType([st.StructField(field.name, nullable(field.dataType)) for field in schema])


def nullable(kind: st.DataType) -> st.DataType:
    """A type whose parts may be null.

    >>> nullable(st.ArrayType(st.LongType(), containsNull=False)).containsNull
    True
    """
    if isinstance(kind, st.StructType):
        return nullable_columns(kind)
    if isinstance(kind, st.ArrayType):
        return st.ArrayType(nullable(kind.elementType))
    if isinstance(kind, st.MapType):
        return st.MapType(nullable(kind.keyType), nullable(kind.valueType))
    return kind


def spark_type(kind: pa.DataType) -> st.DataType:
    """The Spark type of an Arrow type."""
    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def geometries_as_wkb(data: Any) -> Any:
    """A DataFrame whose columns of Spark's own type GEOMETRY are WKB; anything else as it is.

    Spark hands these to Python as structs, which its functions do not take back.
    """
    if not isinstance(data, DataFrame):
        return data
    shapes = [field.name for field in data.schema if isinstance(field.dataType, st.GeometryType)]
    return data.withColumns({name: sf.st_asbinary(col(name)) for name in shapes}) if shapes else data


def time_as_long(column: Column, kind: st.DataType) -> Column:
    """Event time as a long, computed natively; no zone can shift it."""
    if isinstance(kind, st.TimestampType):
        return sf.unix_micros(column)
    if isinstance(kind, st.TimestampNTZType):
        epoch = sf.expr("timestamp_ntz '1970-01-01 00:00:00'")
        return sf.timestamp_diff("MICROSECOND", epoch, column)
    if isinstance(kind, st.DateType):
        return sf.unix_date(column).cast("long")
    return column.cast("long")


def said_as_long(column: Column, kind: st.DataType) -> Column:
    """What a punctuation says, as a long; the two ends of the axis, before and after every row, say nothing."""
    number = time_as_long(column, kind)
    return sf.when(~number.isin(TIME_MIN, TIME_MAX), number) if isinstance(kind, st.LongType) else number


def time_from_long(column: Column, kind: st.DataType) -> Column:
    """The inverse of `time_as_long`."""
    if isinstance(kind, st.TimestampType):
        return sf.timestamp_micros(column)
    if isinstance(kind, st.TimestampNTZType):
        return sf.timestamp_add("MICROSECOND", column, sf.expr("timestamp_ntz '1970-01-01 00:00:00'"))
    if isinstance(kind, st.DateType):
        return sf.date_from_unix_date(column.cast("int"))
    return column.cast(kind)


def shard_of(hash_column: str, shards: int) -> str:
    """The shard of a hash, as SQL: the same rule as `kernels.route.shard_of`.

    >>> shard_of("h", 2)
    'CAST(shiftright(shiftrightunsigned(h, 32) * 2L, 32) AS INT)'
    """
    return f"CAST(shiftright(shiftrightunsigned({hash_column}, 32) * {shards}L, 32) AS INT)"


def long(value: int) -> str:
    """A long as SQL; the smallest one has no literal of its own.

    >>> long(5), long(-(2**63))
    ('5L', '(-9223372036854775807L - 1L)')
    """
    return f"{value}L" if value > -(2**63) else "(-9223372036854775807L - 1L)"


def signed(value: int) -> int:
    """An unsigned 64-bit value as the long that has its bits.

    >>> signed(2**64 - 1)
    -1
    """
    return value - 2**64 if value >= 2**63 else value


def any_null(columns: Sequence[str]) -> Column:
    """Whether any of the columns is null."""
    condition = sf.col(quoted(columns[0])).isNull()
    for name in columns[1:]:
        condition = condition | sf.col(quoted(name)).isNull()
    return condition


def col(name: str) -> Column:
    """A column by its exact name, dots and all."""
    # SQL text is the faster way into the JVM, and wide rows have thousands of columns. But in text Spark puts variables
    # in the place of ${…}, quoted or not.
    return sf.expr(quoted(name)) if name.isidentifier() else sf.col(quoted(name))


def renamed(name: str, shown: str) -> Column:
    """A column under another name."""
    if name.isidentifier() and shown.isidentifier():
        return sf.expr(f"{quoted(name)} AS {quoted(shown)}")
    return col(name).alias(shown)


def nulls(kind: st.DataType | str, shown: str) -> Column:
    """A column of nulls of a type."""
    named = kind.simpleString() if isinstance(kind, _NAMED) else kind
    if isinstance(named, str) and shown.isidentifier():
        return sf.expr(f"CAST(NULL AS {named}) AS {quoted(shown)}")
    return sf.lit(None).cast(kind).alias(shown)


_NAMED = (st.NumericType, st.StringType, st.BinaryType, st.BooleanType, st.DateType, st.TimestampNTZType)
"""Types that SQL knows by the name that Python has for them. What ``timestamp`` means there is up to the session."""


def quoted(name: str) -> str:
    """A column's exact name as SQL.

    >>> quoted("a.b")
    '`a.b`'
    """
    return "`" + name.replace("`", "``") + "`"


def column_name(place: int) -> str:
    """What a column is called that streams share."""
    return f"column{place}"


def allot(types: Sequence[st.DataType], kinds: list[st.DataType]) -> tuple[int, ...]:
    """A place of its type for each column, no two the same; where `kinds` are too few, more are added.

    >>> kinds = [st.LongType(), st.StringType()]
    >>> allot([st.StringType(), st.LongType(), st.LongType()], kinds), len(kinds)
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


def union(parts: Sequence[DataFrame], by_name: bool = False) -> DataFrame:
    """All the rows of several DataFrames."""
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part, allowMissingColumns=True) if by_name else whole.union(part)
    return whole


def run(rows: DataFrame) -> None:
    """Compute rows for what happens on the way: they are counted or kept, and go nowhere."""
    rows.write.format("noop").mode("append").save()
