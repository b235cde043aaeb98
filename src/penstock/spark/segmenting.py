"""Writes the rows of an epoch into segments before it is planned: by a job for DataFrames, by copying for files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.core.files import InputFile
from penstock.flow.graph import SourceNode
from penstock.spark.allocator import allocating_within
from penstock.spark.assembly import Assembly
from penstock.spark.blobs import spread
from penstock.spark.parquet_frames import FILE
from penstock.spark.segments import as_input, copied, spooled
from penstock.spark.types import union
from penstock.storage.scans import portions
from penstock.storage.segments import Segment, delete_segments
from penstock.storage.versioned import Ledger

Inputs = dict[SourceNode, list[InputFile]]
"""What an epoch reads of some sources."""


class Segmenting:
    """One attempt at writing the segments of an epoch; `static` is whether sources that are not streams come now."""

    def __init__(self, flow: Assembly, ledger: Ledger, static: bool) -> None:
        self._flow = flow
        self._ledger = ledger
        self._static = static
        self._written: dict[SourceNode, list[Segment]] = {}

    def rows(self, batch: DataFrame | None, some: Collection[SourceNode] | None = None) -> Inputs:
        """Write the rows of DataFrames, of some if not of all, and give the segments."""
        flow = self._flow
        ours = [s for s in flow.segmented if s not in flow.file_sources and (some is None or s in some)]
        parts = [flow.rows_given(source) for source in ours if self._static and not source.data.isStreaming]
        if batch is not None and flow.brings_rows and (parts or any(source.data.isStreaming for source in ours)):
            parts.insert(0, batch.drop(FILE))
        if not parts:
            return {}
        folders = {source: self._folder(source) for source in ours}
        written = spooled(union(parts), flow.source_rows, folders, flow.course.tasks)
        return {source: self._wrote(source, folders[source], found) for source, found in written.items()}

    def files(self, files: Mapping[SourceNode, Sequence[InputFile]], here: bool) -> Inputs:
        """Copy what an epoch reads of files to segments, and give these; in the driver, or by tasks."""
        flow, made = self._flow, Inputs()
        for source in flow.segmented:
            given = [file for file in files.get(source, ()) if not file.segment]
            if not given:
                continue
            read = source.data.files
            parts = [(0, part) for file in given for part in portions(read, file.path, file.values)]
            work = [parts] if here else spread(parts, flow.course.tasks)
            numbers = None if here else flow.spark.range(0, len(work), 1, len(work))
            needed = flow.source_rows.columns[source]
            columns = pa.schema([field for field in needed if field.name != source.row])
            folder = self._folder(source)
            with allocating_within(flow.course.share) if here else nullcontext():
                found = copied(numbers, work, read, columns, folder, flow.course.share)
            made[source] = self._wrote(source, folder, found)
        return made

    def noted(self) -> dict[str, tuple[int, int]]:
        """Number the segments that were written, which is on record from then on."""
        late = {}
        for source, segments in self._written.items():
            if segments:
                first = self._first(source)
                late[source.name] = (first, source.home.note_segments(first, segments))
        return late

    def again(self, source: SourceNode, first: int) -> list[InputFile]:
        """The segments of an earlier attempt; none if rows stayed in files then."""
        source.home.check(first)
        return [
            InputFile(part.path, part.values, part.nbytes, segment=True)
            for part in source.home.portions(first)
            if part.segment
        ]

    def _wrote(self, source: SourceNode, folder: str, found: list[Segment]) -> list[InputFile]:
        # What tasks left that failed, or that Spark ran twice.
        delete_segments(folder, frozenset(segment.path.rpartition("/")[2] for segment in found))
        self._written[source] = found
        return list(map(as_input, found))

    def _folder(self, source: SourceNode) -> str:
        return str(source.home.new_folder(self._first(source)))

    def _first(self, source: SourceNode) -> int:
        return self._ledger.units.get(source.name, 0)
