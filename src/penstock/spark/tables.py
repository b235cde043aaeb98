"""Master tables on Spark: any batch DataFrame, which a job writes into pages at the first start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from penstock.core.budget import parse_bytes
from penstock.core.errors import ConfigError, FlowError, TableError
from penstock.core.master import Freshness, Master, MasterTable, TableSource
from penstock.kernels.hashing import hash_keys
from penstock.kernels.route import shard_of
from penstock.spark.session import exists
from penstock.spark.types import arrow_columns, spark_type
from penstock.storage.tables.arrow import ArrowTable
from penstock.storage.tables.build import PageBuild, build_page_table
from penstock.storage.tables.delta import LOG, DeltaLog
from penstock.storage.tables.manifest import Versions
from penstock.storage.tables.pages import PageTable
from penstock.storage.tables.parquet import ParquetTable
from penstock.storage.tables.reading import copied, pinned

_PLACE = "__place"
"""A column beside each row: which task writes it."""


@dataclass(frozen=True)
class FrameTable:
    """A DataFrame as a master table."""

    frame: DataFrame
    keys: tuple[str, ...]

    store: ClassVar[str] = "pages"
    versioned: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.frame.isStreaming:
            raise ConfigError("The table is a stream. Join two streams with .join(…, within=…).")
        for name in self.keys:
            if name not in self.frame.columns:
                raise ConfigError.unknown_key(name, self.frame.columns)

    @property
    def columns(self) -> pa.Schema:
        """The table's columns."""
        return arrow_columns(self.frame.schema)

    def open(self, version: str | None = None) -> MasterTable:
        """Not before it is in pages."""
        raise FlowError("A DataFrame can be looked up only once the flow has written it into pages: start the flow.")

    def __str__(self) -> str:
        return "a DataFrame, in pages"


def read_table_on_spark(spark: SparkSession, table: Any, keys: tuple[str, ...], freshness: Freshness) -> Any:
    """A user's master table, if Spark has its own way to read it.

    A snapshot of a folder of Parquet files is a DataFrame like any other.
    """
    if isinstance(table, str) and freshness == "snapshot":
        table = _frame(spark, table, keys)
    if not isinstance(table, DataFrame):
        return table
    if freshness == "latest":
        raise ConfigError(
            "A DataFrame supports only freshness='snapshot': it is written into pages once, at the first start. "
            "For freshness='latest', pass the path of its Parquet files, a pk.PageTable(…) or a pk.SqlTable(…)."
        )
    return FrameTable(table, keys)


def _frame(spark: SparkSession, path: str, keys: tuple[str, ...]) -> DataFrame:
    """The Parquet files of a folder; of a Delta table those that its log says."""
    try:
        if not exists(spark, f"{path}/{LOG}"):
            return spark.read.parquet(path)
    except Exception as error:
        _ = ParquetTable(path, keys).columns  # It says what is wrong, as far as it can tell.
        raise TableError(f"Spark cannot read the Parquet files {path}: {str(error).splitlines()[0]}") from error
    log = DeltaLog(path)
    columns = st.StructType([st.StructField(field.name, spark_type(field.type)) for field in log.columns])
    files = [f"{path}/{name}" for name in sorted(log.files)]
    return spark.read.schema(columns).parquet(*files) if files else spark.createDataFrame([], columns)


def pinned_on_spark(master: Master, folder: str, memory: int) -> TableSource:
    """The table to read from now on: a DataFrame's pages under `folder`, written there if they are missing."""
    table: Any = master.table
    if isinstance(table, ArrowTable) and master.freshness == "snapshot":
        return copied(table, folder)  # A restart may bring another one.
    if not isinstance(table, FrameTable):
        return pinned(table, master.freshness, folder)
    if Versions(folder).numbers():
        return PageTable(folder)
    return write_pages(table.frame, folder, table.keys, memory=memory)


_LAYOUT = ("by", "partition", "partition_rows", "page")


def write_page_table(
    rows: Any, uri: str, keys: str | Sequence[str], *, memory: str | int = "256 MB", **layout: Any
) -> PageTable:
    """Write a page table to a folder: a Spark DataFrame by a job, Arrow tables or batches in this process.

    `layout` takes `partition` and `page` (bytes), and ``by="range"`` to keep neighbouring keys together.

    >>> import tempfile
    >>> write_page_table(pa.table({"id": [1, 2]}), tempfile.mkdtemp(), keys="id").open().size.rows
    2
    """
    names = [keys] if isinstance(keys, str) else list(keys) if isinstance(keys, Iterable) else []
    if not names:
        raise ConfigError(f"keys={keys!r} names no column. Write keys='id', or a list of columns.")
    known = _LAYOUT if isinstance(rows, DataFrame) else (*_LAYOUT, "columns")
    for name in layout:
        if name not in known:
            raise ConfigError(f"{name}= is not an option of a page table. Write one of {', '.join(known)}.")
    if isinstance(rows, DataFrame):
        return write_pages(rows, uri, names, memory, **layout)
    if isinstance(rows, pa.Table | pa.RecordBatch):
        rows = [rows]
    if not isinstance(rows, Iterable):
        raise ConfigError(f"rows is a {type(rows).__name__}. Pass a DataFrame, or Arrow tables or batches.")
    return build_page_table(uri, rows, names, memory=memory, **layout)


def write_pages(
    frame: DataFrame, uri: str, keys: Sequence[str], memory: str | int = "256 MB", **layout: Any
) -> PageTable:
    """Write a batch DataFrame as a page table, by a job whose tasks take `memory` all together."""
    build = PageBuild.begin(uri, arrow_columns(frame.schema), keys, **layout)
    if build.layout.by != "hash":
        raise ConfigError(
            "by='range' does not work with a DataFrame. Write pk.write_page_table(arrow_batches, …, by='range')."
        )
    tasks = max(1, int(frame.sparkSession.sparkContext.defaultParallelism))
    placed = frame.mapInArrow(
        partial(_placed, tuple(keys), tasks), frame.schema.simpleString()[7:-1] + f", {_PLACE} int"
    )
    written = partial(_written, build, parse_bytes(memory) // tasks)
    reports = placed.repartitionById(tasks, _PLACE).mapInArrow(written, "report binary").collect()
    return build.commit([bytes(row.report) for row in reports])


def _placed(keys: tuple[str, ...], tasks: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Which task writes each row: by ranges of the hash that look-ups go by."""
    for batch in batches:
        hashes = hash_keys([batch.column(name) for name in keys])
        place = pa.array(shard_of(hashes, tasks).astype(np.int32))
        yield batch.append_column(_PLACE, place)


def _written(build: PageBuild, memory: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of one range in pages, and the report of it."""
    report = build.write((batch.drop_columns([_PLACE]).cast(build.layout.columns) for batch in batches), memory)
    yield pa.record_batch({"report": pa.array([report], pa.binary())})
