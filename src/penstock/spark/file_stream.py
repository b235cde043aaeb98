"""Files as a source on Spark: Spark lists them and records which were read, Arrow reads their rows.

The streaming query carries no rows of such a source. Its log says which files an epoch has, and where they are read is
decided epoch by epoch: in the driver, or in tasks.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.core.files import Files, InputFile
from penstock.storage.files import local_path
from penstock.storage.payload import Paths, read_placed
from penstock.storage.scans import Portion

_BINARY_FILE = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
"""What Spark knows of a file of any format; without rows, none of it is looked at."""


class FileStream:
    """The files of a source, as Spark follows them."""

    isStreaming = True  # noqa: N815 – as a DataFrame has it
    deep = True
    """Whether files of subfolders count."""

    def __init__(self, spark: SparkSession, files: Files) -> None:
        self.sparkSession = spark
        self.files = files
        self.schema: st.StructType = from_arrow_schema(files.columns, prefer_timestamp_ntz=True)
        self._row: str | None = None

    def with_row(self, row: str) -> Self:
        """The same with a column that says where rows are."""
        again = copy.copy(self)
        again._row = row
        again.schema = st.StructType([*self.schema.fields, st.StructField(row, st.LongType())])
        return again

    def names(self, given: Callable[[], Sequence[str]]) -> DataFrame:
        """A stream over the files that has no rows: it is there for the offsets that Spark keeps of it.

        `given` tells the files that Spark gave at earlier starts.
        """
        reader = self.sparkSession.readStream.format("binaryFile").schema(_BINARY_FILE).option(*self._which(given))
        if self.files.max_files is not None:
            reader = reader.option("maxFilesPerTrigger", self.files.max_files)
        if self.files.max_bytes is not None:
            reader = reader.option("maxBytesPerTrigger", self.files.max_bytes)
        return reader.load(no_pattern(self._folder)).where(sf.lit(False))

    def inputs(self, epoch: int, uris: Sequence[str], given: Callable[[], Sequence[str]]) -> list[InputFile]:
        """What an epoch reads, by the files that Spark gave it, and those that it gave the epochs before."""
        return [InputFile(path_in_log(uri)) for uri in uris]

    def rows(self, portions: Sequence[Portion], late: Paths, tasks: int) -> DataFrame:
        """The rows of some files, read by so many tasks at a time; those of numbered ones lack what is `late`."""
        return rows_of(self.sparkSession, self.files, self.schema, self._row, portions, late, tasks)

    @property
    def _folder(self) -> str:
        """Where Spark lists files."""
        return self.files.path

    def _which(self, given: Callable[[], Sequence[str]]) -> tuple[str, str]:
        """The option that tells Spark which files there count."""
        return "recursiveFileLookup", "true"


def rows_of(
    session: SparkSession,
    files: Files,
    schema: st.StructType,
    row: str | None,
    portions: Sequence[Portion],
    late: Paths,
    tasks: int,
) -> DataFrame:
    """The rows of some parts of files as Spark has them; `row` is the column of places, if there is one."""
    work = tuple(tuple(portions[task::tasks]) for task in range(min(len(portions), tasks)))
    numbers = session.range(0, len(work), 1, max(1, len(work)))
    return numbers.mapInArrow(_Reading(files, row, late, work), schema)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a task does that reads files for Spark."""

    files: Files
    row: str | None
    late: Paths
    work: tuple[tuple[Portion, ...], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        place = [] if self.row is None else [pa.field(self.row, pa.int64())]
        columns = pa.schema([*self.files.columns, *place])
        for batch in batches:
            for part in (part for task in batch.column(0).to_pylist() for part in self.work[task]):
                for piece in read_placed(self.files, part, columns, self.row, self.late, None):
                    yield from piece.to_batches()


def no_pattern(path: str) -> str:
    """A path as Spark takes it: some characters would make it a pattern.

    >>> print(no_pattern("/in/a[1].parquet"))
    /in/a\\[1\\].parquet
    """
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def path_in_log(uri: str) -> str:
    """A path or URI as pyarrow takes it, of one that Spark's log has, in which names are escaped.

    >>> path_in_log("file:///in/a%20b.parquet")
    '/in/a b.parquet'
    """
    return local_path(uri) or unquote(uri)
