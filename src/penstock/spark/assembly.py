"""A flow as Spark runs it: its sinks, the layout of its rows, its checkpoint, and what earlier epochs showed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession

from penstock.flow.graph import SourceNode
from penstock.flow.sinks import Sink
from penstock.runtime.course import Course
from penstock.spark.experience import Experience
from penstock.spark.layout import Branch, Layout, lay_out, tagged, with_time
from penstock.spark.schemas import Schemas
from penstock.spark.types import nulls, union
from penstock.storage.versioned import Checkpoint


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

    def stream(self) -> DataFrame:
        """The streaming sources' rows, tagged, and a heartbeat that keeps epochs coming when they are silent."""
        beat = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1)
        silence = beat.load().where("value < 0").select(*self.empty_columns())
        return union([*map(self.tagged, self.scans), silence])

    def tagged(self, branch: Branch) -> DataFrame:
        """The rows of a branch from a source, in the tagged union."""
        if not isinstance(branch.edge.root, SourceNode):
            raise TypeError(branch)
        return tagged(branch, self.layout, with_time(branch.edge.root), self.schemas)

    def empty_columns(self) -> list[Column]:
        """The columns of the tagged union, all null."""
        return [nulls(kind, name) for name, kind in self.layout.columns]
