"""An epoch of files in tasks: they read the files, send rows to their shards as blobs, and run the operators there.

The driver reads the times alone, so that every bound is known before the first task runs, and one job does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from penstock.core.files import InputFile, as_read
from penstock.core.progress import Seen, Track
from penstock.core.rows import TIME
from penstock.flow.graph import Node, OperatorNode, SourceNode
from penstock.runtime.entering import Entry
from penstock.runtime.lateness import Judge, both
from penstock.runtime.shard import PortBounds
from penstock.runtime.steps import ResultTime, ways_to
from penstock.spark.assembly import Assembly
from penstock.spark.blobs import BLOBS, LateTask, Portions, ReadTask, RouteTask, Scan, ScanTask, Way, spread
from penstock.spark.frames import EpochFrames
from penstock.spark.lateness import REASON, Counted, missed
from penstock.spark.layout import LATENESS, edges, where_pairs
from penstock.spark.onward import Send, Then
from penstock.spark.types import col, column_name, union
from penstock.storage.scans import read_file
from penstock.storage.versioned import Plan

_READ = 8
"""The part of a task's share that times take in the driver while it reads them: all at once is read by threads, each
of which keeps some megabytes."""


class EpochTasks(EpochFrames):
    """One attempt at an epoch whose sources are all files."""

    def __init__(
        self,
        flow: Assembly,
        plan: Plan,
        attempt: str,
        files: Mapping[SourceNode, Sequence[InputFile]],
    ) -> None:
        super().__init__(flow, plan, attempt, files)
        self._columns = flow.source_rows.columns
        self._judges = {
            source: Judge.of(source, flow.course.ledger.tracks.get(source.name, Track())) for source in files
        }

    @property
    def native(self) -> list[OperatorNode]:
        """None: rows do not pass through Spark's own operators."""
        return []

    def deliver(self, batch: DataFrame | None) -> dict[str, Counted]:
        """Run every operator and hand every sink its rows; what each source showed comes back."""
        if batch is not None:
            self._session = batch.sparkSession  # It has the settings of the query: each shuffle would be a job else.
        seen = {source.name: self._count(source) for source in self._files}
        self.tracks = self.followed(seen)
        rows = self._flow.no_rows()
        try:
            self._deliver_results(rows)
            self._deliver_late(rows, seen)
        finally:
            self._let_go()
        return seen

    def _count(self, source: SourceNode) -> Counted:
        """What a source shows, by its times alone."""
        judge, size = self._judges[source], self._course.share // _READ
        columns = judge.looks_at(source.columns)
        seen, late, timeless = Seen(), 0, 0
        for file in self._files[source]:
            read = as_read(source.data.files, file.segment)
            for piece in read_file(read, file.path, columns, size, values=file.values, stamp=file.stamp):
                split = judge.split(piece)
                seen = both(seen, split.seen)
                late += split.below
                timeless += split.late.num_rows - split.below
        return Counted(seen, late, timeless)

    def _stream(self, node: Node, rows: DataFrame) -> DataFrame:
        parts = []
        for edge, (root, steps) in zip(edges(node), ways_to(node), strict=True):
            if isinstance(root, OperatorNode):
                parts.append(self._after(node, edge, root, rows))
            else:
                work = self._work([root])
                task = ReadTask(work, self._scan(root, self._columns[root]), steps, self._course.share)
                parts.append(self._numbers(work).mapInArrow(task, self._flow.schemas.of(node)))
        return union(parts)

    def _operate(self, node: OperatorNode, rows: DataFrame) -> DataFrame:
        if node not in self._results:
            results = self._shards_of(node, rows)
            if node.pairs is not None:
                results = where_pairs(results, node.pairs)
            self._results[node] = self._keep(results) if self._uses[node.name] > 1 else results
        return self._results[node]

    def _sent_on(self, node: OperatorNode, rows: DataFrame, then: Then) -> DataFrame:
        return self._shards_of(node, rows, then)

    def _shards_of(self, node: OperatorNode, rows: DataFrame, then: Then | None = None) -> DataFrame:
        """The operator at work: blobs to their shards, Python in each."""
        shards = self._plan.shards
        arriving = self._blobs(node, rows)
        roll_call = self._shares_a_stage(node)
        if roll_call:
            arriving = arriving.union(self._blob_call())
        ports = [
            PortBounds(*bounds) for bounds in zip(self._course.before(node), map(self._bound, node.inputs), strict=True)
        ]
        task = self._flow.shard_task(node, self._plan, ports, self.attempt, roll_call=roll_call, blobs=True)
        return self._run(node, task, arriving.repartitionById(shards, sf.col("shard")), then)

    def _blobs(self, node: OperatorNode, rows: DataFrame) -> DataFrame:
        """What enters an operator, in blobs: of files, read by tasks, and of other operators."""
        ways: dict[SourceNode, list[Way]] = {}
        parts: list[DataFrame] = []
        share, shards = self._course.share_of(node), self._plan.shards
        for port, part in enumerate(node.inputs):
            for root, steps in ways_to(part):
                way = Way(steps, port, Entry.of(node, port, self._plan.sites))
                if isinstance(root, SourceNode):
                    ways.setdefault(root, []).append(way)
                elif self._uses[root.name] == 1:
                    parts.append(self._sent_on(root, rows, Send(way, ResultTime.of(root), shards)))
                else:
                    timed = self._timed(root, rows)
                    task = RouteTask(way, tuple(timed.columns), shards, share)
                    numbered = timed.toDF(*map(column_name, range(len(timed.columns))))
                    parts.append(numbered.mapInArrow(task, BLOBS))
        if ways:
            scans = [self._scan(source, self._columns[source]) for source in ways]
            work = self._work(list(ways))
            scan = ScanTask(work, scans, list(ways.values()), shards, share)
            parts.insert(0, self._numbers(work).mapInArrow(scan, BLOBS))
        return union(parts)

    def _scan(self, source: SourceNode, columns: pa.Schema) -> Scan:
        return Scan(source.data.files, columns, self._judges[source], source.row, source.lets_go)

    def _work(self, sources: Sequence[SourceNode]) -> Portions:
        """What tasks read of some sources."""
        found = [
            (number, portion)
            for number, source in enumerate(sources)
            for portion in self._flow.portions(source, self._plan, self._files[source])
        ]
        return spread(found, self._course.tasks)

    def _numbers(self, work: Portions) -> DataFrame:
        """A row for each task, which says which it is."""
        return self._session.range(0, len(work), 1, len(work))

    def _late_rows(self, source: SourceNode, rows: DataFrame, windows: OperatorNode | None) -> DataFrame:
        schemas = self._flow.schemas
        more = [sf.lit(source.name).alias("late_source"), sf.expr(f"{REASON} AS late_reason")]
        if windows is not None:
            more += missed(windows, source, schemas.types_of(windows)[str(windows.config.window_start)])
        given = [field for field in schemas.of(source) if field.name != source.row]
        told = [*given, st.StructField(TIME, st.LongType()), st.StructField(LATENESS, st.IntegerType())]
        work = self._work([source])
        task = LateTask(work, Scan(source.data.files, source.given, self._judges[source]), self._course.share)
        late = self._numbers(work).mapInArrow(task, st.StructType(told))
        return late.select(*map(col, source.given.names), *more)
