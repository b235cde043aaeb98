"""Sinks on Spark: each takes an epoch's DataFrame whole, before the epoch is committed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from penstock.core.errors import PenstockError
from penstock.flow.graph import sources_of
from penstock.flow.sinks import ConsoleSink, ForeachSink, FormatSink, MemorySink, ParquetSink, Sink
from penstock.spark.assembly import Assembly
from penstock.spark.failures import in_function, in_sink
from penstock.spark.session import file_system, settings
from penstock.spark.types import arrow_columns
from penstock.storage.files import is_local, local_path, sync_tree, whole_path

_STAGED = re.compile(r"(epoch|tasks)=\d+")
"""What is written of an epoch before it gets its name, and by tasks."""

_AS_ARROW_WRITES = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""Epochs of one folder may be written by Spark or by Arrow. Left to itself, Spark writes times in a way of its own."""


def deliver(sink: Sink, rows: DataFrame, epoch: int) -> None:
    """Hand an epoch's rows to a sink. A rerun of the epoch comes here again with the same rows."""
    with _told(sink, epoch):
        _write(sink, rows, epoch)


def deliver_counted(sink: Sink, rows: DataFrame, epoch: int) -> int:
    """Hand an epoch's rows to a sink; how many there were."""
    count = Observation()
    deliver(sink, rows.observe(count, sf.count(sf.lit(1)).alias("rows")), epoch)
    return int(count.get["rows"])


def deliver_tables(flow: Assembly, sink: Sink, tables: Iterator[pa.Table], epoch: int) -> int:
    """Hand a sink an epoch's rows that are here, piece by piece; how many there were."""
    schema = flow.schemas.late(sink.node) if sink.emits == "late" else flow.schemas.of(sink.node)
    columns = arrow_columns(schema)
    tables = (pa.Table.from_arrays(table.columns, schema=columns) for table in tables)
    with _told(sink, epoch):
        if isinstance(sink, ParquetSink) and is_local(sink.path):
            return _parquet_here(sink, tables, columns, epoch)
        if drops(sink):
            return sum(table.num_rows for table in tables)
        whole = pa.concat_tables([columns.empty_table(), *tables])
        if isinstance(sink, MemorySink):
            sink.epochs[epoch] = whole
        else:
            _write(sink, flow.spark.createDataFrame(whole, schema), epoch)
        return int(whole.num_rows)


@contextmanager
def _told(sink: Sink, epoch: int) -> Iterator[None]:
    """Tell what goes wrong while a sink takes an epoch's rows by an error that names it."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as failure:
        raise in_sink(failure, epoch, sink, sources_of(sink.node)) from failure


def drops(sink: Sink) -> bool:
    """Whether a sink takes rows only to let them go."""
    return isinstance(sink, FormatSink) and sink.name == "noop"


def writes_here(sink: Sink) -> bool:
    """Whether a sink takes Parquet files that are written without Spark."""
    return isinstance(sink, ParquetSink) and is_local(sink.path)


def sweep(sinks: Iterable[Sink]) -> None:
    """Delete what attempts that died, and tasks that outlived them, left beside the results of local Parquet sinks."""
    for sink in sinks:
        if isinstance(sink, ParquetSink) and writes_here(sink) and os.path.isdir(staging := f"{_path(sink)}/_staging"):
            for name in filter(_STAGED.fullmatch, os.listdir(staging)):
                shutil.rmtree(f"{staging}/{name}", ignore_errors=True)


def deliver_written(
    sink: Sink, write: Callable[[str], Sequence[tuple[str, int]]], columns: pa.Schema, epoch: int
) -> int:
    """Let tasks write an epoch's rows into a folder, and hand a sink the files that they tell; how many rows there are.

    What else is in the folder was left by tasks that failed or ran twice, and goes.
    """
    with _told(sink, epoch):
        with _Staged(sink, epoch) as staged:
            os.makedirs(staged.by_tasks)
            written = write(staged.by_tasks)
            for number, (file, _) in enumerate(sorted(written)):
                os.rename(file, f"{staged.folder}/part-{number:05d}.parquet")
            if not written:
                pq.write_table(columns.empty_table(), f"{staged.folder}/part-00000.parquet")
            staged.rows = sum(rows for _, rows in written)
        return staged.rows


def deliver_dropped(sink: Sink, count: Callable[[], int], epoch: int) -> int:
    """Let tasks make an epoch's rows for a sink that drops them; how many there were."""
    with _told(sink, epoch):
        return count()


def _parquet_here(sink: ParquetSink, tables: Iterator[pa.Table], columns: pa.Schema, epoch: int) -> int:
    with _Staged(sink, epoch) as staged, pq.ParquetWriter(f"{staged.folder}/part-00000.parquet", columns) as writer:
        for table in tables:
            writer.write_table(table)
            staged.rows += table.num_rows
    return staged.rows


class _Staged:
    """An epoch's local folder of Parquet files, written beside and then renamed.

    An epoch without rows leaves no folder, but the first leaves the schema.
    """

    def __init__(self, sink: Sink, epoch: int) -> None:
        if not isinstance(sink, ParquetSink):
            raise TypeError(sink)
        path = _path(sink)
        self.folder, self.by_tasks = f"{path}/_staging/epoch={epoch}", f"{path}/_staging/tasks={epoch}"
        self._final = f"{path}/epoch={epoch}"
        self._epoch = epoch
        self.rows = 0

    def __enter__(self) -> _Staged:
        self._clear()
        os.makedirs(self.folder)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            shutil.rmtree(self._final, ignore_errors=True)
            if self.rows or self._epoch == 0:
                os.rename(self.folder, self._final)
                sync_tree(self._final)
            self._clear()

    def _clear(self) -> None:
        for folder in (self.folder, self.by_tasks):
            shutil.rmtree(folder, ignore_errors=True)


def _path(sink: ParquetSink) -> str:
    return whole_path(local_path(sink.path) or sink.path)


def _write(sink: Sink, rows: DataFrame, epoch: int) -> None:
    if isinstance(sink, ParquetSink):
        _parquet(sink, rows, epoch)
    elif isinstance(sink, FormatSink):
        writer = rows.write.format(sink.name).mode("append").options(**sink.options)
        (writer.partitionBy(*sink.partition_by) if sink.partition_by else writer).save()
    elif isinstance(sink, MemorySink):
        sink.epochs[epoch] = rows.toArrow().cast(arrow_columns(rows.schema))
    elif isinstance(sink, ConsoleSink):
        _console(sink, rows, epoch)
    elif isinstance(sink, ForeachSink):
        _whole(rows, lambda: _call(sink, rows, epoch))
    else:
        raise TypeError(sink)


def _call(sink: ForeachSink, rows: DataFrame, epoch: int) -> None:
    try:
        sink.function(rows, epoch)
    except (Exception, SystemExit) as failure:  # Spark would wait for ever for a thread that has ended
        raise in_function(failure, epoch, sink) from failure


def _parquet(sink: ParquetSink, rows: DataFrame, epoch: int) -> None:
    """Write beside, then rename. An epoch without rows leaves no folder, but the first leaves the schema."""
    count = Observation()
    folder = _Folder(rows.sparkSession, sink.path)
    path = whole_path(sink.path) if folder.is_local else sink.path
    staging, final = f"{path}/_staging/epoch={epoch}", f"{path}/epoch={epoch}"
    with settings(rows.sparkSession, _AS_ARROW_WRITES):
        rows.observe(count, sf.count(sf.lit(1)).alias("rows")).write.mode("overwrite").parquet(staging)
    folder.delete(final)
    if count.get["rows"] or epoch == 0:
        folder.rename(staging, final)
        folder.sync(final)
    else:
        folder.delete(staging)


def _console(sink: ConsoleSink, rows: DataFrame, epoch: int) -> None:
    def show() -> None:
        if not rows.isEmpty():
            print(f"-- epoch {epoch}")
            rows.show(sink.rows, truncate=False)

    _whole(rows, show)


def _whole(rows: DataFrame, use: Callable[[], None]) -> None:
    """Compute all of an epoch's rows before somebody looks at a part of them: operators must run to their end."""
    rows.persist()
    try:
        rows.write.format("noop").mode("overwrite").save()
        use()
    finally:
        rows.unpersist()


class _Folder:
    """Renames and deletes on whatever file system Spark itself writes to."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._path = spark._jvm.org.apache.hadoop.fs.Path
        self._files = file_system(spark, path)

    def delete(self, path: str) -> None:
        self._files.delete(self._path(path), True)

    def rename(self, source: str, target: str) -> None:
        if not self._files.rename(self._path(source), self._path(target)):
            raise OSError(f"{source} could not be renamed to {target}.")

    @property
    def is_local(self) -> bool:
        return bool(self._files.getScheme() == "file")

    def sync(self, path: str) -> None:
        """Make a local folder survive a power cut: once the epoch is committed its rows are not written again."""
        if self.is_local:
            sync_tree(path)
