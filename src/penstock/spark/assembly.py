"""A flow as Spark runs it: its sinks, the layout of its rows, its checkpoint, and what earlier epochs have shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.core.files import InputFile, as_read
from penstock.flow.graph import OperatorNode, SourceNode
from penstock.flow.sinks import Sink
from penstock.runtime.course import Course
from penstock.runtime.shard import PortBounds
from penstock.spark.arrivals import Inlet
from penstock.spark.arrow_frames import ArrowFrame
from penstock.spark.experience import Experience
from penstock.spark.file_stream import FileStream, path_in_log
from penstock.spark.layout import Layout, lay_out
from penstock.spark.parquet_frames import FILE, Placed, PlacedFrame, no_file, with_places
from penstock.spark.runs import Runs
from penstock.spark.schemas import Schemas
from penstock.spark.segments import SegmentStream
from penstock.spark.source_rows import SOURCE, SourceRows
from penstock.spark.task import ShardTask, packed
from penstock.spark.types import col, each_of, union
from penstock.storage.scans import Portion, portions
from penstock.storage.versioned import Checkpoint, Plan


@dataclass(frozen=True, slots=True)
class Assembly:
    """What all epochs of a flow on Spark share: sinks, the layout of rows, the checkpoint, and measurements."""

    spark: SparkSession
    sinks: Sequence[Sink]
    checkpoint: Checkpoint
    course: Course
    schemas: Schemas
    source_rows: SourceRows
    layout: Layout
    experience: Experience
    in_process: bool
    """Whether all stateless steps can run where Arrow has the rows."""
    runs: Runs

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        sinks: Sequence[Sink],
        checkpoint: Checkpoint,
        course: Course,
        columns: Mapping[SourceNode, pa.Schema] | None,
    ) -> Assembly:
        """A flow that has yet to run; `columns` are what it needs of its sources if its steps can run in process."""
        schemas = Schemas()
        rows = SourceRows.of(columns or {source: source.columns for source in course.sources})
        layout = lay_out(sinks, course.operators, schemas, rows)
        runs = Runs.on(spark.sparkContext)
        return cls(spark, sinks, checkpoint, course, schemas, rows, layout, Experience(), columns is not None, runs)

    @property
    def frames(self) -> list[SourceNode]:
        """The sources that are DataFrames, and stay so: their rows are not put into segments."""
        return [source for source in self.course.sources if not isinstance(source.data, FileStream | SegmentStream)]

    @property
    def streaming(self) -> list[SourceNode]:
        """Those that stream."""
        return [source for source in self.frames if source.data.isStreaming]

    @property
    def segmented(self) -> list[SourceNode]:
        """The sources whose rows are put into segments first."""
        return [source for source in self.course.sources if isinstance(source.data, SegmentStream)]

    @property
    def file_sources(self) -> list[SourceNode]:
        """The sources whose files Arrow reads."""
        return [source for source in self.course.sources if isinstance(_given(source), FileStream)]

    @property
    def named(self) -> list[SourceNode]:
        """Those that are no DataFrames, of which Spark is told the files by name."""
        return [source for source in self.file_sources if not isinstance(_given(source), ArrowFrame)]

    @property
    def scanned(self) -> list[SourceNode]:
        """The sources as Spark follows them, in the order by which its offsets know them.

        Files come first where a DataFrame has several places in the query, or shares one with another.
        """
        named = self.named
        streaming = [source for source in self.course.sources if source.data.isStreaming and source not in named]
        # By name: the order in which sinks need them may be another at the next start.
        files, frames = sorted(named, key=_name), sorted(streaming, key=_name)
        scans = [_scans(source) for source in frames] if files else []
        one_each = len({scan for some in scans for scan in some}) == len(scans) and all(
            len(some) == 1 for some in scans
        )
        return [*frames, *files] if one_each else [*files, *frames]

    def rows_given(self, source: SourceNode, *beside: Column) -> DataFrame:
        """The rows of a DataFrame, in the columns that sources share, and others `beside` them."""
        data = source.data.frame if isinstance(source.data, SegmentStream | PlacedFrame) else source.data
        return self.source_rows.gathered(source, data, *beside)

    @property
    def placed(self) -> list[SourceNode]:
        """The DataFrames whose rows leave payload in Parquet files."""
        return [source for source in self.frames if isinstance(source.data, PlacedFrame)]

    def placed_files(self, epoch: int) -> dict[SourceNode, list[str]]:
        """The URIs of the files that an epoch has of each of them."""
        return self._scanned_files(epoch, self.placed)

    def _scanned_files(self, epoch: int, sources: Sequence[SourceNode]) -> dict[SourceNode, list[str]]:
        """The URIs of the files that an epoch has of some sources that are DataFrames over one folder each."""
        named = self.named
        scans = [[-1 - place] if s in named else _scans(s) for place, s in enumerate(self.scanned)]
        lines = [scan for some in scans for scan in some]
        folders = list(dict.fromkeys(lines))
        if len(lines) > len(folders) and self.checkpoint.spark.sources_in(epoch) == len(folders) + 1:
            lines = folders
        found = {}
        for source, some in zip(self.scanned, scans, strict=True):
            if source in sources:
                found[source] = self.checkpoint.spark.files_of(epoch, lines.index(some[0]), folders.index(some[0]))
        return found

    @property
    def brings_rows(self) -> bool:
        """Whether the streaming query has rows: those of files are read beside it."""
        return any(source not in self.file_sources for source in self.scanned)

    def stream(self) -> DataFrame:
        """The streaming sources' rows, and a heartbeat that keeps epochs coming when they are silent."""
        beat = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1)
        # What Spark knows to be empty it does not plan for.
        silent = beat.load().where(sf.lit(False))
        nothing = self.source_rows.nothing() if self.brings_rows else [sf.lit(0).alias(SOURCE)]
        placed = self.placed
        beside = [no_file()] if placed else []
        rows = [
            _given(source).names(partial(self.checkpoint.spark.all_files, place)).select(*nothing, *beside)
            if source in self.file_sources
            else self.rows_given(source, *([col(FILE)] if source in placed else beside))
            for place, source in enumerate(self.scanned)
        ]
        return union([*rows, silent.select(*nothing, *beside)])

    def unsegmented(self, batch: DataFrame, plan: Plan) -> DataFrame:
        """The rows of a micro-batch that are not put into segments, with their places; it has some (`brings_rows`)."""
        gone = [str(self.source_rows.number(source)) for source in self.segmented if source not in self.file_sources]
        rows = batch.where(f"{SOURCE} NOT IN ({', '.join(gone)})") if gone else batch
        if not self.placed:
            return rows
        files = self.placed_files(plan.epoch)
        return with_places(rows, [self._placed_in(source, plan, uris) for source, uris in files.items()])

    def _placed_in(self, source: SourceNode, plan: Plan, uris: Sequence[str]) -> Placed:
        """Where rows of a source are in the files that an epoch has of it."""
        parts = source.home.portions(plan.late[source.name][0]) if source.name in plan.late else []
        numbers = {part.path: part.number for part in parts if part.group is None}
        files = {uri: numbers[path_in_log(uri)] for uri in uris}
        return Placed(self.source_rows.number(source), self.source_rows.place_of_row(source), files)

    def no_rows(self) -> DataFrame:
        """No rows, in the columns that sources share."""
        return self.spark.range(0).select(*self.source_rows.nothing())

    def files(self, epoch: int, end: bool) -> dict[SourceNode, list[InputFile]]:
        """The files that an epoch has of each source that reads files; the end of the streams brings none."""
        none: dict[SourceNode, list[InputFile]] = {source: [] for source in (*self.segmented, *self.file_sources)}
        if end or not self.file_sources:
            return none
        log, scanned, named = self.checkpoint.spark, self.scanned, self.named
        logged = (log.files_by_place(epoch) or {}) if named else {}
        uris = {source: logged.get(place, ()) for place, source in enumerate(scanned) if source in named}
        uris |= self._scanned_files(epoch, [source for source in self.file_sources if source not in named])
        return none | {
            source: _given(source).inputs(epoch, some, partial(log.all_files, scanned.index(source), epoch))
            for source, some in uris.items()
        }

    def portions(self, source: SourceNode, plan: Plan, files: Sequence[InputFile]) -> list[Portion]:
        """What an epoch reads of a source; numbered, if rows leave payload behind."""
        if source.name in plan.late:
            return list(source.home.portions(plan.late[source.name][0]))
        return [
            replace(part, segment=file.segment)
            for file in files
            for part in portions(as_read(source.data.files, file.segment), file.path, file.values, file.stamp)
        ]

    def shard_task(
        self,
        node: OperatorNode,
        plan: Plan,
        ports: Sequence[PortBounds],
        attempt: str,
        partials: Sequence[pa.Schema] = (),
        inlets: Sequence[Inlet] = (),
        roll_call: bool = False,
        blobs: bool = False,
    ) -> ShardTask:
        """What runs a shard of an operator in an epoch; `partials` are the columns of its further ports."""
        config = self.course.config(node, plan)
        return ShardTask(
            operator=node.name,
            config=config,
            types=node.types,
            inside=(*(types.inside for types in node.types), *partials),
            inlets=tuple(inlets),
            ports=tuple(ports),
            states=tuple(packed(state, listed=config.lists_pages) for state in self.course.held(node)),
            shards=plan.shards,
            share=self.course.share_of(node),
            checkpoint=self.checkpoint.uri,
            epoch=plan.epoch,
            attempt=attempt,
            roll_call=roll_call,
            blobs=blobs,
            runs=self.runs,
            spare=plan.spare,
        )

    def staged(self, node: OperatorNode, attempt: str, shards: int) -> list[dict[str, Any]]:
        """What every shard of an operator has become in an attempt, by the runs whose results Spark took."""
        return self.checkpoint.staged(attempt, node.name, shards, self.runs.of(attempt, node.name))


def _given(source: SourceNode) -> Any:
    """What the rows of a source come from: a DataFrame, or files that Spark follows."""
    return source.data.given if isinstance(source.data, SegmentStream | PlacedFrame) else source.data


def _scans(source: SourceNode) -> list[int]:
    """What identifies the streams that a DataFrame reads."""
    if source not in _KNOWN:
        given = _given(source)
        frame = given.stream if isinstance(given, ArrowFrame) else given
        leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
        _KNOWN[source] = [int(leaf.output().apply(0).exprId().id()) for leaf in each_of(leaves) if leaf.isStreaming()]
    return _KNOWN[source]


_KNOWN: WeakKeyDictionary[SourceNode, list[int]] = WeakKeyDictionary()
"""What was asked of Spark before: it takes a call of the JVM for each part of a plan."""


def _name(source: SourceNode) -> str:
    return source.name
