"""A flow as Spark runs it: its sinks, the layout of its rows, its checkpoint, and what earlier epochs showed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession

from penstock.flow.graph import OperatorNode, SourceNode
from penstock.flow.sinks import Sink
from penstock.runtime.course import Course
from penstock.runtime.shard import PortBounds
from penstock.spark.arrivals import Inlet
from penstock.spark.experience import Experience
from penstock.spark.file_stream import FileStream, path_in_log
from penstock.spark.layout import Branch, Layout, lay_out, tagged, with_time
from penstock.spark.schemas import Schemas
from penstock.spark.task import ShardTask, packed
from penstock.spark.types import nulls, union
from penstock.storage.versioned import Checkpoint, Plan


@dataclass(frozen=True, slots=True)
class Assembly:
    """A flow on Spark, as all its epochs share it: sinks, how rows travel, where state is, and what is known of it."""

    spark: SparkSession
    sinks: Sequence[Sink]
    checkpoint: Checkpoint
    course: Course
    schemas: Schemas
    layout: Layout
    experience: Experience

    @classmethod
    def of(cls, spark: SparkSession, sinks: Sequence[Sink], checkpoint: Checkpoint, course: Course) -> Assembly:
        """A flow that has yet to run."""
        schemas = Schemas()
        layout = lay_out(sinks, course.operators, schemas)
        return cls(spark, sinks, checkpoint, course, schemas, layout, Experience())

    @property
    def scans(self) -> list[Branch]:
        """The branches that stream from sources, in the order by which Spark's offsets know them."""
        return [branch for branch in self.layout.branches if branch.streams]

    @property
    def file_sources(self) -> list[SourceNode]:
        """The sources whose files Arrow reads; Spark follows them behind the scans."""
        return [source for source in self.course.sources if isinstance(source.data, FileStream)]

    @property
    def scanned(self) -> list[SourceNode]:
        """The sources as Spark follows them, in the order by which its offsets know them."""
        roots = [branch.edge.root for branch in self.scans]
        return [*(root for root in roots if isinstance(root, SourceNode)), *self.file_sources]

    def stream(self) -> DataFrame:
        """The streaming sources' rows, tagged, and a heartbeat that keeps epochs coming when they are silent."""
        beat = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1)
        quiet = [*(source.data.names() for source in self.file_sources), beat.load().where("value < 0")]
        return union([*map(self.tagged, self.scans), *(rows.select(*self.empty_columns()) for rows in quiet)])

    def files(self, epoch: int, end: bool) -> dict[SourceNode, list[str]]:
        """The files that an epoch has of each source that reads files; the end of the streams brings none."""
        if not self.file_sources:
            return {}
        first = len(self.scans)
        logged = {} if end else self.checkpoint.spark.files_by_place(epoch) or {}
        return {
            source: [path_in_log(uri) for uri in logged.get(first + place, ())]
            for place, source in enumerate(self.file_sources)
        }

    def tagged(self, branch: Branch, rows: DataFrame | None = None) -> DataFrame:
        """The rows of a branch from a source, in the tagged union; of a source of files, `rows` are what was read."""
        source = branch.edge.root
        if not isinstance(source, SourceNode):
            raise TypeError(branch)
        given = source.data if rows is None else rows
        return tagged(branch, self.layout, with_time(source, given), self.schemas)

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
        )

    def empty_columns(self) -> list[Column]:
        """The columns of the tagged union, all null."""
        return [nulls(kind, name) for name, kind in self.layout.columns]
