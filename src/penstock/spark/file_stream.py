"""Files as a source on Spark: Spark lists them and remembers which were read, Arrow reads their rows.

The streaming query carries no rows of such a source. Its log says which files an epoch has, and where they are read is
decided epoch by epoch: where the driver is, or in tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.core.files import Files
from penstock.storage.files import local_path
from penstock.storage.scans import read_file

_FILE = "file"

_BINARY_FILE = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
"""What Spark knows of a file of any format; without rows, none of it is looked at."""


class FileStream:
    """The files of a source, as Spark follows them."""

    isStreaming = True  # noqa: N815 – as a DataFrame has it

    def __init__(self, spark: SparkSession, files: Files) -> None:
        self.sparkSession = spark
        self.files = files
        self.schema: st.StructType = from_arrow_schema(files.columns, prefer_timestamp_ntz=True)

    def names(self) -> DataFrame:
        """A stream over the files that has no rows: it is there for the offsets that Spark keeps of it."""
        reader = (
            self.sparkSession.readStream.format("binaryFile").schema(_BINARY_FILE).option("recursiveFileLookup", "true")
        )
        if self.files.max_files is not None:
            reader = reader.option("maxFilesPerTrigger", self.files.max_files)
        if self.files.max_bytes is not None:
            reader = reader.option("maxBytesPerTrigger", self.files.max_bytes)
        # Spark takes some characters for a pattern.
        return reader.load(re.sub(r"([\\*?\[\]{}])", r"\\\1", self.files.path)).where(sf.lit(False))

    def rows(self, paths: Sequence[str], tasks: int) -> DataFrame:
        """The rows of some files, read by so many tasks at a time."""
        named = self.sparkSession.createDataFrame([(path,) for path in paths], f"{_FILE} string")
        spread = named.repartition(min(len(paths), tasks)) if len(paths) > 1 else named.coalesce(1)
        return spread.mapInArrow(_Reading(self.files), self.schema)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a task does that reads files for Spark."""

    files: Files

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                for piece in read_file(self.files, path, self.files.columns):
                    yield from piece.to_batches()


def path_in_log(uri: str) -> str:
    """A path or URI as pyarrow takes it, of one that Spark's log has, in which names are escaped.

    >>> path_in_log("file:///in/a%20b.parquet")
    '/in/a b.parquet'
    """
    return local_path(uri) or unquote(uri)
