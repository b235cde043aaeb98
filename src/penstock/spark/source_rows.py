"""Rows of all sources in one set of columns: each source is scanned once, however often its rows are used.

A number tells sources apart, and columns of the same type share a place: (source, time, mark, column0, column1 …). Only
columns that the flow needs are there, and of structs only the fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from penstock.core.progress import Punctuated
from penstock.core.rows import TIME
from penstock.flow.graph import SourceNode
from penstock.spark.types import allot, col, column_name, nullable, nulls, renamed, said_as_long, time_as_long
from penstock.storage.scans import as_type

SOURCE, MARK = "__source", "__mark"
"""Which source a row is of, as a number; and what it says of its progress, as a long."""


@dataclass(frozen=True)
class SourceRows:
    """Where each column of each source is among those that they share."""

    columns: Mapping[SourceNode, pa.Schema]
    """What is needed of each source."""
    fields: Mapping[SourceNode, tuple[st.StructField, ...]]
    """The same in Spark's types."""
    places: Mapping[SourceNode, tuple[int, ...]]
    kinds: tuple[st.DataType, ...]

    @classmethod
    def of(cls, columns: Mapping[SourceNode, pa.Schema]) -> SourceRows:
        """Find a place for each of these columns."""
        kinds: list[st.DataType] = []
        fields = {source: _pruned(source.data.schema, needed) for source, needed in columns.items()}
        places = {source: allot([field.dataType for field in some], kinds) for source, some in fields.items()}
        return cls(columns, fields, places, tuple(kinds))

    @property
    def sources(self) -> list[SourceNode]:
        """The sources, in the order of their numbers."""
        return list(self.columns)

    def number(self, source: SourceNode) -> int:
        """The number of a source."""
        return self.sources.index(source)

    def gathered(self, source: SourceNode, rows: DataFrame, *beside: Column) -> DataFrame:
        """Rows of a source, in the columns that all share, and others `beside` them."""
        shown = dict(zip(self.places[source], self.fields[source], strict=True))
        whole = {field.name: field.dataType for field in source.data.schema}
        columns = [sf.expr(f"CAST({self.number(source)} AS SHORT) AS {SOURCE}"), *self._times(source)]
        for place, kind in enumerate(self.kinds):
            name = column_name(place)
            if place not in shown:
                columns.append(nulls(kind, name))
            elif whole[shown[place].name] == kind:
                columns.append(renamed(shown[place].name, name))
            else:
                columns.append(_only(col(shown[place].name), kind).cast(kind).alias(name))
        return rows.select(*columns, *beside)

    def nothing(self) -> list[Column]:
        """The shared columns, all null."""
        times = [nulls("long", name) for name in ((TIME, MARK) if self.marked else (TIME,))]
        shared = [nulls(kind, column_name(place)) for place, kind in enumerate(self.kinds)]
        return [nulls("short", SOURCE), *times, *shared]

    @property
    def shared(self) -> list[str]:
        """The columns that are fetched: what time a row has is known from its own."""
        return [SOURCE, *(column_name(place) for place in range(len(self.kinds)))]

    def place_of_row(self, source: SourceNode) -> str:
        """The shared column that has the places of a source's rows."""
        names = [field.name for field in self.fields[source]]
        return column_name(self.places[source][names.index(str(source.row))])

    @property
    def marked(self) -> bool:
        """Whether a source has punctuation."""
        return any(_mark(source) is not None for source in self.columns)

    def given_back(self, source: SourceNode, rows: DataFrame, beside: Sequence[str]) -> DataFrame:
        """The rows of one source under the names of its columns, and columns that stand `beside` them."""
        ours = rows.where(f"{SOURCE} = {self.number(source)}") if len(self.columns) > 1 else rows
        names = (field.name for field in self.fields[source])
        named = [renamed(column_name(place), name) for name, place in zip(names, self.places[source], strict=True)]
        return ours.select(*named, *beside)

    def tables(self, rows: pa.Table) -> dict[SourceNode, pa.Table]:
        """The rows of each source, of those of all that were fetched."""
        return {source: self._table(source, rows) for source in self.columns}

    def _table(self, source: SourceNode, rows: pa.Table) -> pa.Table:
        if len(self.columns) > 1:
            rows = rows.filter(pc.equal(rows.column(SOURCE), self.number(source)))
        columns = self.columns[source]
        held = (rows.column(column_name(place)) for place in self.places[source])
        arrays = [
            array if array.type == field.type else as_type(array, field.type)
            for array, field in zip(held, columns, strict=True)
        ]
        return pa.table(arrays, schema=columns)

    def _times(self, source: SourceNode) -> list[Column]:
        """The event time of rows, and what they say of their source's progress, as longs."""
        kinds = {field.name: field.dataType for field in source.data.schema}
        time, mark = str(source.time), _mark(source)
        times = [time_as_long(col(time), kinds[time]).alias(TIME)]
        if self.marked:
            times.append(nulls("long", MARK) if mark is None else said_as_long(col(mark), kinds[mark]).alias(MARK))
        return times


def _mark(source: SourceNode) -> str | None:
    return source.progress.linear if isinstance(source.progress, Punctuated) else None


def _pruned(schema: st.StructType, needed: pa.Schema) -> tuple[st.StructField, ...]:
    """The fields that are needed, and of structs the fields that are needed of those; any of them may be null.

    What Spark knows never to be null inside a struct that may be null, it does not send as Arrow.
    """
    whole = {field.name: field.dataType for field in schema}
    fields = []
    for field in needed:
        kind = whole[field.name]
        if isinstance(kind, st.StructType):
            kind = st.StructType(list(_pruned(kind, pa.schema(list(field.type)))))
        fields.append(st.StructField(field.name, nullable(kind)))
    return tuple(fields)


def _only(column: Column, kind: st.DataType) -> Column:
    """Of a struct the fields that its type has; Spark then reads no others."""
    if not isinstance(kind, st.StructType):
        return column
    parts = [_only(column.getField(field.name), field.dataType).alias(field.name) for field in kind]
    return sf.when(column.isNotNull(), sf.struct(*parts))
