"""Streaming DataFrames over Parquet files that Arrow reads in place of Spark: which they are, and as what they go on.

Spark follows the files of such a DataFrame as it would otherwise, by the DataFrame's own scan and all its options. Only
the rows are read by Arrow, as those of `flow.parquet` are. To a checkpoint both are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.core.errors import ConfigError
from penstock.core.files import Files, ScanBy
from penstock.spark.file_stream import FileStream, no_pattern
from penstock.spark.parquet_frames import kind_of, parquet_relation, reads_alike
from penstock.spark.session import file_system
from penstock.spark.types import arrow_columns, col, each_of
from penstock.storage.alike import why_not_alike
from penstock.storage.files import find_folder
from penstock.storage.payload import Paths
from penstock.storage.scans import Portion, listed_files

_OPTIONS = ("datetimerebasemode", "int96rebasemode")
"""Options by which Spark reads dates and times of other calendars."""

_PLAIN = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "corrected",
    "spark.sql.parquet.int96RebaseModeInRead": "corrected",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "false",
}
"""Settings of a session under which Spark reads Parquet files as Arrow does."""


class ArrowFrame(FileStream):
    """A streaming DataFrame over Parquet files; Spark follows the files, and Arrow reads them."""

    deep = False

    def __init__(self, stream: DataFrame, folder: str) -> None:
        super().__init__(stream.sparkSession, Files("parquet", folder, arrow_columns(stream.schema), as_spark=True))
        self.stream = stream
        self.schema = stream.schema

    def names(self, given: Callable[[], Sequence[str]]) -> DataFrame:
        """The DataFrame without its rows."""
        return self.stream.where(sf.lit(False))

    def rows(self, portions: Sequence[Portion], late: Paths, tasks: int) -> DataFrame:
        """The rows of some files as Spark has them: it reads them itself, unless rows must say where they are."""
        if self._row is not None or not portions:
            return super().rows(portions, late, tasks)
        paths = dict.fromkeys(no_pattern(part.path) for part in portions)
        whole = self.sparkSession.read.schema(self.schema).parquet(*paths)
        return whole.select(*map(col, self.schema.names))


def arrow_frame(rows: DataFrame, scan: ScanBy) -> ArrowFrame | str:
    """A DataFrame that Arrow may read, as what it goes on; else why Spark reads it."""
    if scan == "spark":
        return "scan='spark' says so"
    found = parquet_relation(rows)
    if isinstance(found, str):
        return found
    relation, steps = found
    why = _why_other_rows(relation, steps, rows) or _why_other_values(relation, rows)
    path = relation.dataSource().options().get("path")
    folder = str(path.get()) if path.isDefined() else ""
    why = (
        why
        or _why_not_here(rows.sparkSession, folder, far=scan == "arrow")
        or _why_not_first(folder, arrow_columns(rows.schema))
    )
    return why or ArrowFrame(rows, folder)


def refuse_spark(why: str) -> ConfigError:
    """The error of a DataFrame that Arrow is told to read and cannot."""
    return ConfigError(
        f"scan='arrow' lets Arrow read the files of a streaming DataFrame, but {why}. Leave scan= out, so that Spark "
        f"reads them, or read the files with flow.parquet(…)."
    )


def _why_other_rows(relation: Any, steps: Sequence[Any], rows: DataFrame) -> str | None:
    """Why a DataFrame has other rows, or columns, than its files; None if it only leaves columns out."""
    names = {int(each.exprId().id()): str(each.name()) for each in each_of(relation.output())}
    for step in steps:
        kind = kind_of(step)
        if kind == "Filter":
            return "its rows pass a filter. Write .where(…) after flow.source(…) to let Arrow read them"
        if kind == "Project" and any(kind_of(each) != "AttributeReference" for each in each_of(step.projectList())):
            return "it computes or renames columns. Write .select(…) after flow.source(…) to let Arrow read them"
    shown = each_of(rows._jdf.queryExecution().analyzed().output())
    if any(names.get(int(each.exprId().id())) != str(each.name()) for each in shown):
        return "it has columns under other names than the files"
    apart = {str(each) for each in each_of(relation.dataSource().sourceInfo().partitionColumns())}
    if apart:
        return f"{', '.join(sorted(apart))} comes from the names of folders"
    return None


def _why_other_values(relation: Any, rows: DataFrame) -> str | None:
    """Why Spark may read other values than Arrow; None if it does not."""
    for name, plain in _PLAIN.items():
        told = rows.sparkSession.conf.get(name, plain)
        if str(told).lower() != plain:
            return f"{name} is {told}"
    options = {str(each._1()).lower() for each in each_of(relation.dataSource().options().toSeq())}
    told = next((name for name in _OPTIONS if name in options), None)
    if told is not None:
        return f"the stream has option {told}"
    odd = next((field for field in rows.schema if not reads_alike(field.dataType, times=True)), None)
    return None if odd is None else f"column {odd.name!r} is {odd.dataType.simpleString()}"


def _why_not_here(session: SparkSession, folder: str, far: bool) -> str | None:
    """Why Arrow may not reach a folder that Spark reads."""
    if not folder or any(sign in folder for sign in "*?[]{}\\"):
        return "its path is a pattern"
    if file_system(session, folder).getScheme() != "file" and not far:
        return "its files are not on a local disk. Write scan='arrow' if Arrow can read them by the same path"
    return None


def _why_not_first(folder: str, columns: pa.Schema) -> str | None:
    """Why Arrow reads the first file of a folder otherwise than Spark; a folder without one may yet get others."""
    try:
        system, root = find_folder(folder)
        below = len(root.rstrip("/")) + 1
        there = (path for path in listed_files(Files("parquet", folder, columns)) if "/" not in path[below:])
        first = next((path for path in there if system.get_file_info(path).size), None)
        if first is None:
            return None
        _, place = find_folder(first)
        with pq.ParquetFile(place, filesystem=system) as file:
            return why_not_alike(file, first, columns)
    except (ConfigError, pa.ArrowInvalid, OSError):
        return None  # Reading it tells what is wrong.
