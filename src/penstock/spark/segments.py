"""Sources whose rows are written into segments of the checkpoint: written by tasks, then read like files.

A source that cannot be read again – Kafka, JDBC, any DataFrame – becomes one that can. A job writes the rows of an
epoch, each task its own file, and Spark reports to the driver the files of the task runs that count. From then on the
epoch, and a repetition of it, is like one of files whose payload stays in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from penstock.core.files import Files, InputFile
from penstock.flow.graph import SourceNode
from penstock.spark.blobs import Portions
from penstock.spark.collector import pass_over_modules
from penstock.spark.file_stream import FileStream, rows_of
from penstock.spark.source_rows import SOURCE, SourceRows
from penstock.spark.types import column_name
from penstock.storage.scans import Portion, as_type, read_file
from penstock.storage.segments import Segment, SegmentWriter

_WRITTEN = "source int, path string, rows long"
"""What a task that writes segments tells the driver, as Spark declares it."""

_READ = 8
"""The part of a task's share that is read of a file at a time."""


class SegmentStream:
    """A source whose rows are put into segments; `given` is what they come from."""

    def __init__(self, given: DataFrame | FileStream, files: Files, row: str) -> None:
        self.given = given
        self.files = files
        """What the source reads; of a DataFrame, only its columns."""
        self.sparkSession = given.sparkSession
        self.isStreaming = given.isStreaming
        self._row = row
        self.schema = st.StructType([*given.schema.fields, st.StructField(row, st.LongType())])

    @property
    def frame(self) -> DataFrame:
        """The rows of a DataFrame, with a column for their places that is empty."""
        if isinstance(self.given, FileStream):
            raise TypeError(self.given)
        return with_row(self.given, self._row)

    def rows(self, portions: Sequence[Portion], late: frozenset[tuple[str, ...]], tasks: int) -> DataFrame:
        """The rows of some segments, or files, read by so many tasks at a time."""
        return rows_of(self.sparkSession, self.files, self.schema, self._row, portions, late, tasks)


def with_row(rows: DataFrame, row: str) -> DataFrame:
    """Rows of a source with a column for their places that is null: they bring all that they have."""
    return rows.withColumn(row, sf.lit(None).cast("long"))


def as_input(segment: Segment) -> InputFile:
    """A segment as what an epoch reads."""
    return InputFile(segment.path, (), segment.nbytes, segment=True)


@dataclass(frozen=True, slots=True)
class Spool:
    """What is written of one source: its rows among those of all sources, and their columns."""

    number: int
    held: tuple[str, ...]
    columns: pa.Schema
    folder: str

    def of(self, rows: pa.Table) -> pa.Table:
        """The rows of the source, in its own columns."""
        numbers = rows.column(SOURCE)
        if not pc.all(pc.equal(numbers, self.number), min_count=0).as_py():
            rows = rows.filter(pc.equal(numbers, self.number))
        arrays = [
            column if column.type == field.type else as_type(column, field.type)
            for column, field in zip(map(rows.column, self.held), self.columns, strict=True)
        ]
        return pa.table(arrays, schema=self.columns)


@dataclass(frozen=True, slots=True)
class SpoolTask:
    """Writes rows that Spark has to segments."""

    spools: tuple[Spool, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write."""
        pass_over_modules()
        part = TaskContext.get().partitionId()
        writers: dict[int, SegmentWriter] = {}
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            for spool in self.spools:
                ours = spool.of(rows)
                if ours.num_rows:
                    if spool.number not in writers:
                        writers[spool.number] = SegmentWriter(spool.folder, part, spool.columns)
                    writers[spool.number].write(ours)
                del ours
            del rows, batch
        for number, writer in writers.items():
            yield from _told(number, writer.close())


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Copies rows of files to segments. Its input rows are numbers of tasks."""

    work: Portions
    files: Files
    columns: pa.Schema
    folder: str
    size: int
    """Bytes that are read at a time."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Copy."""
        pass_over_modules()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from _told(0, self.copied(task))

    def copied(self, task: int) -> Segment | None:
        """What a task copies."""
        writer = SegmentWriter(self.folder, task, self.columns)
        for _, portion in self.work[task]:
            group, values, stamp = portion.group, portion.values, portion.stamp
            for piece in read_file(self.files, portion.path, self.columns, self.size, group, values, stamp=stamp):
                writer.write(piece)
        return writer.close()


def spooled(
    rows: DataFrame, sources: SourceRows, folders: Mapping[SourceNode, str], tasks: int
) -> dict[SourceNode, list[Segment]]:
    """Write rows of some sources, in the columns that all share, to segments in a folder for each."""
    spools = [Spool(sources.number(source), *_held(sources, source), folder) for source, folder in folders.items()]
    some = ", ".join(str(spool.number) for spool in spools)
    ours = rows.where(f"{SOURCE} IN ({some})").select(*sources.shared).coalesce(tasks)
    found = ours.mapInArrow(SpoolTask(tuple(spools)), _WRITTEN).collect()
    return {
        source: [Segment(path, count) for number, path, count in found if number == sources.number(source)]
        for source in folders
    }


def copied(
    session_rows: DataFrame | None, work: Portions, files: Files, columns: pa.Schema, folder: str, share: int
) -> list[Segment]:
    """Copy rows of files to segments: by tasks, whose numbers are the rows of a DataFrame, or here."""
    task = CopyTask(work, files, columns, folder, share // _READ)
    if session_rows is None:
        return [segment for number in range(len(work)) if (segment := task.copied(number)) is not None]
    return [Segment(path, rows) for _, path, rows in session_rows.mapInArrow(task, _WRITTEN).collect()]


def _held(sources: SourceRows, source: SourceNode) -> tuple[tuple[str, ...], pa.Schema]:
    """The shared columns that a source's own are in, but for that of places, and what these are."""
    pairs = [
        (column_name(place), field)
        for place, field in zip(sources.places[source], sources.columns[source], strict=True)
        if field.name != source.row
    ]
    return tuple(name for name, _ in pairs), pa.schema([field for _, field in pairs])


def _told(number: int, segment: Segment | None) -> Iterator[pa.RecordBatch]:
    if segment is not None:
        told = {"source": pa.array([number], pa.int32()), "path": [segment.path], "rows": [segment.rows]}
        yield pa.RecordBatch.from_pydict(told)
