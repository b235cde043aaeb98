"""Streaming DataFrames over Parquet files whose payload stays there: which they are, and where each row is.

Spark scans what a query selects before it starts. So rows of such a source are scanned without their payload, and each
says by `_metadata` in which file it is, and which row of it. An epoch numbers its files, and rows get their places
before anything else becomes of them. Only columns that a DataFrame passes on stay behind; what it computes travels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from penstock.core.errors import StateError
from penstock.core.files import Path
from penstock.kernels.xxhash import xxhash64
from penstock.spark.source_rows import SOURCE
from penstock.spark.types import col, each_of, long, nulls
from penstock.storage.payload import Paths

FILE = "__file"
"""Beside the rows of a micro-batch: the hash of the path of the file that each is in."""

_METADATA = "_metadata"

_PASSES_ON = {
    "EventTimeWatermark",
    "Filter",
    "Project",
    "Repartition",
    "RepartitionByExpression",
    "ResolvedHint",
    "SubqueryAlias",
}
"""Steps of Spark's plans that leave each row where it is, or out."""

_BUCKET = 8
"""Files, in the mean, among which that of a row is searched for."""

_ROWS = 32
"""Bits of a place that number the rows of a file."""


@dataclass(frozen=True, slots=True)
class ParquetScan:
    """What a streaming DataFrame reads that passes on columns of Parquet files."""

    folder: str
    names: Mapping[str, str]
    """What columns are called in the files which the DataFrame has as they are there."""

    def can_stay(self, path: Path) -> bool:
        """Whether a column, or a field of a struct, is in the files as the DataFrame has it."""
        return path[0] in self.names


def why_not_read_again(rows: DataFrame) -> str | None:
    """Why rows of a DataFrame cannot be found again in Parquet files; None if they can."""
    found = parquet_relation(rows)
    return found if isinstance(found, str) else None


def parquet_scan(rows: DataFrame) -> ParquetScan | str:
    """What a DataFrame reads, if rows of it can be found again in Parquet files; else why they cannot."""
    found = parquet_relation(rows)
    if isinstance(found, str):
        return found
    relation, steps = found
    shown = {_id(each): str(each.name()) for each in each_of(rows._jdf.queryExecution().analyzed().output())}
    for step in steps:
        if kind_of(step) == "Project":
            shown = _before(step, shown)
    return _scan(relation, shown, rows)


def parquet_relation(rows: DataFrame) -> tuple[Any, list[Any]] | str:
    """The relation that a DataFrame scans, and the steps between, the last one first; else why it has none."""
    if not rows.isStreaming:
        return "it is a DataFrame that is no stream"
    plan, steps = rows._jdf.queryExecution().analyzed(), []
    while plan.children().size() == 1:
        step = kind_of(plan)
        if step not in _PASSES_ON:
            return f"its rows pass {_SAID.get(step, step)} on the way from the files"
        if step == "Project" and _METADATA in str(plan.projectList().mkString(" ")).lower():
            return f"it selects {_METADATA!r}"
        steps.append(plan)
        plan = plan.children().head()
    if plan.children().size() or kind_of(plan) != "StreamingRelation":
        return "it is no stream of Parquet files"
    if _METADATA in str(plan.output().mkString(" ")).lower():
        return f"its files have a column {_METADATA!r}"
    return _why_not(rows, plan.dataSource()) or (plan, steps)


def kind_of(part: Any) -> str:
    """What a part of one of Spark's plans is."""
    return str(part.getClass().getSimpleName())


_SAID = {
    "Deduplicate": "dropDuplicates",
    "Generate": "explode, or the like,",
    "View": "a view",
    "Aggregate": "an aggregation",
    "Sample": "sample",
}
"""What users call steps of Spark's plans."""


def _before(project: Any, shown: Mapping[int, str]) -> dict[int, str]:
    """What attributes are called in the end that come into a projection and leave it as they are."""
    found: dict[int, str] = {}
    for each in each_of(project.projectList()):
        name = shown.get(_id(each))
        given = each.child() if kind_of(each) == "Alias" else each
        if name is not None and kind_of(given) == "AttributeReference":
            # Of two columns that are the same in the files, one travels.
            found.setdefault(_id(given), name)
    return found


def _why_not(rows: DataFrame, source: Any) -> str | None:
    """Why rows of a data source cannot be found again; None if they can."""
    kind = str(source.className())
    if kind.lower() != "parquet" and not kind.endswith(".ParquetFileFormat"):
        return f"it reads {kind}, not Parquet files"
    options = {str(each._1()).lower(): str(each._2()).lower() for each in each_of(source.options().toSeq())}
    if options.get("cleansource", "off") != "off":
        return "Spark deletes or moves its files once they are read (cleanSource)"
    for name in ("ignoreCorruptFiles", "ignoreMissingFiles"):
        told = options.get(name.lower(), str(rows.sparkSession.conf.get(f"spark.sql.files.{name}", "false")).lower())
        if told == "true":
            return f"it passes over files that cannot be read ({name})"
    return None


def _scan(relation: Any, shown: Mapping[int, str], rows: DataFrame) -> ParquetScan:
    source = relation.dataSource()
    apart = {str(each).lower() for each in each_of(source.sourceInfo().partitionColumns())}
    kinds = {field.name: field.dataType for field in rows.schema}
    names = {}
    for each in each_of(relation.output()):
        name, ours = str(each.name()), shown.get(_id(each))
        if ours is not None and name.lower() not in apart and reads_alike(kinds[ours]):
            names[ours] = name
    path = source.options().get("path")
    return ParquetScan(str(path.get()) if path.isDefined() else "", names)


def reads_alike(kind: st.DataType, times: bool = False) -> bool:
    """Whether Arrow reads values of a type as Spark does, whoever wrote them; old files have other calendars.

    `times` counts dates and times as well, for those who look into the files for their calendar.
    """
    if isinstance(kind, st.StructType):
        return all(reads_alike(field.dataType, times) for field in kind)
    if isinstance(kind, st.ArrayType):
        return reads_alike(kind.elementType, times)
    if isinstance(kind, st.MapType):
        return reads_alike(kind.keyType, times) and reads_alike(kind.valueType, times)
    if isinstance(kind, st.CharType | st.VarcharType):
        return False
    plain = st.StringType | st.BinaryType | st.BooleanType | st.IntegralType | st.FractionalType
    return isinstance(kind, plain) or (times and isinstance(kind, st.DateType | st.TimestampType | st.TimestampNTZType))


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


class PlacedFrame:
    """A streaming DataFrame whose rows leave columns in its Parquet files. `late` are those that are not scanned.

    `left` are those that results get from the files: a step before a join may need some of them all the same.
    """

    isStreaming = True  # noqa: N815 – as a DataFrame has it

    def __init__(self, given: DataFrame, row: str, left: Paths, late: Paths) -> None:
        self.given = given
        self.left = left
        self.sparkSession = given.sparkSession
        self.schema = st.StructType([*given.schema.fields, st.StructField(row, st.LongType())])
        self._row = row
        self._late = late

    @property
    def frame(self) -> DataFrame:
        """Its rows, with their number in the file in the column of places, and the file's hash beside it."""
        columns = [
            _without(col(field.name), field.dataType, [path[1:] for path in self._late if path[0] == field.name]).alias(
                field.name
            )
            for field in self.given.schema
        ]
        row = sf.col(f"{_METADATA}.row_index").alias(self._row)
        return self.given.select(*columns, row, sf.xxhash64(sf.col(f"{_METADATA}.file_path")).alias(FILE))


def _without(column: Column, kind: st.DataType, late: Collection[Path]) -> Column:
    """A column without some fields of a struct, or with nothing at all; they are null."""
    if not late:
        return column
    if () in late or not isinstance(kind, st.StructType):
        return sf.lit(None).cast(kind)
    parts = [
        _without(
            column.getField(field.name), field.dataType, [path[1:] for path in late if path[0] == field.name]
        ).alias(field.name)
        for field in kind
    ]
    return sf.when(column.isNotNull(), sf.struct(*parts)).cast(kind)


@dataclass(frozen=True, slots=True)
class Placed:
    """Rows of one source in a micro-batch: its number, the column of places, and the numbers of its files by URI."""

    source: int
    column: str
    files: Mapping[str, int]


def with_places(batch: DataFrame, placed: Sequence[Placed]) -> DataFrame:
    """The rows of a micro-batch with their places; a row of a file that has no number is an error."""
    columns = []
    for name in (name for name in batch.columns if name != FILE):
        place = col(name)
        for each in placed:
            if each.column == name:
                found = sf.shiftleft(sf.expr(_number(each.files)), _ROWS).bitwiseOR(col(name))
                place = sf.when(sf.expr(f"{SOURCE} = {each.source}"), found).otherwise(place)
        columns.append(place.alias(name))
    return batch.select(*columns)


def _number(files: Mapping[str, int]) -> str:
    """The number of the file that a row is in, as an expression.

    Arrays are no part of the code that Spark compiles, so the same code serves all epochs.
    """
    hashed = {number: file_hashes(uri) for uri, number in files.items()}
    known = {one: number for number, some in hashed.items() for one in some}
    if len(known) < sum(map(len, hashed.values())):
        raise StateError(
            "Two files of one epoch have paths with the same hash, so that their rows cannot be told apart. Rename one "
            "of them, or write payload='row', and start again."
        )
    unknown = "CAST(raise_error('a row is of a file that this epoch does not have') AS BIGINT)"
    if not known:
        return unknown
    count = max(1, len(known) // _BUCKET)
    buckets: list[list[str]] = [[] for _ in range(count)]
    for one, number in known.items():
        buckets[one % count].append(f"{long(one)}, {long(number)}")
    # A map needs an entry to have a type.
    nobody = next(one for one in range(len(known) + 1) if one not in known)
    maps = ", ".join(f"map({', '.join(some or [f'{long(nobody)}, CAST(NULL AS BIGINT)'])})" for some in buckets)
    mine = f"element_at(array({maps}), CAST(pmod({FILE}, {long(count)}) AS INT) + 1)"
    return f"coalesce(try_element_at({mine}, {FILE}), {unknown})"


def file_hashes(uri: str) -> set[int]:
    """The hashes that Spark may give a file of its log: the log writes an empty authority, `_metadata` does not.

    >>> len(file_hashes("file:///in/a.parquet")), len(file_hashes("s3://in/a.parquet"))
    (2, 1)
    """
    forms = {uri, uri.replace("file:///", "file:/", 1) if uri.startswith("file:///") else uri}
    return {int(one) for one in xxhash64([pa.array(sorted(forms))]).view("int64")}


def no_file() -> Column:
    """What rows of other sources have beside them."""
    return nulls("long", FILE)
