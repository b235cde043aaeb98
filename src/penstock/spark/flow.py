"""Flows on Spark: one Structured Streaming query over all sources, one epoch per micro-batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, get_args

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.core.budget import parse_bytes, show_bytes
from penstock.core.errors import CheckpointError, ConfigError, PenstockError
from penstock.core.files import Changes, Format, Payload, ScanBy, Sizes
from penstock.core.master import Freshness, TableSource
from penstock.core.progress import Policy
from penstock.core.rows import first_twice
from penstock.flow.flow import Flow, read_trigger
from penstock.flow.graph import Node, OperatorNode, Pairs, SelectNode, SourceNode
from penstock.flow.sinks import ParquetSink, Sink, operators_needed
from penstock.flow.stream import Stream
from penstock.spark.arrow_frames import ArrowFrame, arrow_frame, refuse_spark
from penstock.spark.delta_stream import DeltaStream
from penstock.spark.engine import Engine
from penstock.spark.file_stream import FileStream
from penstock.spark.inputs import folders_read
from penstock.spark.layout import where_pairs
from penstock.spark.parquet_frames import why_not_read_again
from penstock.spark.partials import narrowed_on_spark, partials_on_record
from penstock.spark.payload import detached_on_spark
from penstock.spark.query import SparkQuery
from penstock.spark.restarts import Start
from penstock.spark.schemas import Schemas, select, steps_of
from penstock.spark.session import Meant, create_file, file_system, names_in
from penstock.spark.sinks import sweep
from penstock.spark.tables import FrameTable, read_table_on_spark
from penstock.spark.types import arrow_columns, geometries_as_wkb
from penstock.spark.use import CheckpointUse
from penstock.spark.workers import check_workers, use_this_python
from penstock.storage.delta import delta_files
from penstock.storage.files import folder_for, is_hidden_in, is_within, make_folder, whole_path
from penstock.storage.payload import sizes_of
from penstock.storage.scans import files_of
from penstock.storage.tables.reading import read_table
from penstock.storage.versioned import Checkpoint

log = logging.getLogger("penstock")

_SMALLEST_SHARE = 1_000_000
"""Least memory of a task, in bytes: one page of arrivals and one chunk of output."""

_DEFAULT_TRIGGER = "1 s"
"""How often an epoch starts by default; a heartbeat fills epochs without data."""


class SparkFlow(Flow):
    """A flow on Spark. `memory` is for all tasks of its operators together, over the whole cluster.

    `checkpoint` is the folder (a path or a URI) of the flow's state; a flow that is started again with it continues
    where it stopped, on any number of cores. `shards` is the number of tasks per operator, by default one per core.

        flow = pk.Flow(spark, checkpoint="/data/paid", memory="512 MB")
        orders = flow.source(spark.readStream…, time="ts", progress=pk.bounded_delay("30 s"))
    """

    def __init__(self, spark: SparkSession, checkpoint: str, memory: str | int, shards: int | None = None) -> None:
        super().__init__(memory)
        if shards is not None and shards < 1:
            raise ConfigError(f"shards={shards} must be at least 1. Leave it out for one per core.")
        self.shards = shards
        self.spark = spark
        self.checkpoint = str(checkpoint)
        if file_system(spark, self.checkpoint).getScheme() == "file":
            self.checkpoint = whole_path(self.checkpoint)
        self._schemas = Schemas()
        self._scanned_by_spark: list[tuple[DataFrame, str]] = []
        """Streams that Spark reads though nobody asked for that, and why."""
        self._check_memory(memory)

    def source(
        self,
        data: Any,
        time: str,
        progress: Policy | None = None,
        name: str | None = None,
        payload: Payload = "auto",
        scan: ScanBy = "auto",
    ) -> Stream:
        """Add a DataFrame, streaming or batch, as a source; see `Flow.source` for the other arguments.

        `scan` says who reads the rows of a streaming DataFrame over Parquet files. With "arrow" it is Arrow, as in
        `parquet`, which is often several times faster; Spark only follows the files. With "spark" it is Spark. "auto"
        lets Arrow read where that gives the same rows: files on a local disk, of which the DataFrame takes all rows and
        some of the columns as they are. It may change at a restart. `explain()` says who reads, and why.

            orders = flow.source(spark.readStream.schema(…).parquet("in/orders"), time="ts")
        """
        if scan not in get_args(ScanBy):
            raise ConfigError(f"scan={scan!r} must be one of {', '.join(get_args(ScanBy))}.")
        rows = self._read_by(geometries_as_wkb(data), scan)
        return self._source(rows, time, progress, name, payload, files=isinstance(rows, ArrowFrame))

    def start(self, trigger: str | None = None) -> SparkQuery:
        """Start the flow; it runs until stopped. An epoch starts every `trigger` (1 s), even without data."""
        every = read_trigger(trigger or _DEFAULT_TRIGGER)
        query = self._query()
        query._engine.trigger = every / 1e6
        with query._use:
            query._start(processingTime=f"{every // 1000} milliseconds")
        return query

    def run(self, *, end: bool = True) -> SparkQuery:
        """Process all rows available now. With `end`, then end the streams, which emits everything that was held back.

        An ended flow cannot be started again from its checkpoint; ``run(end=False)`` leaves it
        open. On SIGTERM or Ctrl-C
        the running epoch commits, the streams stay open, and run() raises SystemExit or KeyboardInterrupt; a second
        signal cancels the epoch.
        """
        query = self._query()
        with query._use:
            query._run(end)
        return query

    def _add(self, sink: Sink) -> None:
        if sink.folder is not None and is_within(sink.folder, self.checkpoint):
            raise ConfigError(
                f"The folder {sink.folder!r} of a sink is in checkpoint={self.checkpoint!r}. A flow deletes old files "
                f"there, so nothing else may be in it. Write results beside it, as in 'out/paid'."
            )
        if sink.folder is not None and is_within(self.checkpoint, sink.folder):
            raise ConfigError(
                f"checkpoint={self.checkpoint!r} is in the folder {sink.folder!r} of a sink, so readers of the results "
                f"would read state. Put the checkpoint beside it, as in 'state/paid'."
            )
        super()._add(sink)

    def _check_ready(self) -> None:
        super()._check_ready()
        for node in self._sources:
            for folder in folders_read(node.data):
                if is_within(folder, self.checkpoint):
                    raise ConfigError(
                        f"Source {node.name!r} reads {folder!r}, which is in checkpoint={self.checkpoint!r}: the flow "
                        f"would read its own state. Read another folder."
                    )
                deep = isinstance(node.data, FileStream) and node.data.deep
                if deep and is_within(self.checkpoint, folder) and not is_hidden_in(self.checkpoint, folder):
                    raise ConfigError(
                        f"checkpoint={self.checkpoint!r} is in {folder!r}, and source {node.name!r} reads all files "
                        f"there: it would read the flow's state. Put the checkpoint beside it."
                    )
                for sink in self._sinks:
                    inside = sink.folder is not None and deep and is_within(sink.folder, folder)
                    if sink.folder is not None and (
                        is_within(folder, sink.folder) or (inside and not is_hidden_in(sink.folder, folder))
                    ):
                        raise ConfigError(
                            f"Source {node.name!r} reads {folder!r}, to which {sink} of the same flow writes: its "
                            f"results would come back as rows. Write them to another folder."
                        )

    def _query(self) -> SparkQuery:
        self._check_ready()
        use_this_python(self.spark)
        _use_the_systems_allocator(self.spark)
        check_workers(self.spark)
        checkpoint = Checkpoint(self.checkpoint, partial(create_file, self.spark))
        checkpoint.claim(self._fingerprint(), partial(self._make_folders, checkpoint))
        use = CheckpointUse(checkpoint)
        try:
            return SparkQuery(self.spark, self._sinks, self.memory, self._engine(checkpoint), use)
        except BaseException:
            use.end()
            raise

    def _scan_notes(self) -> Iterator[str]:
        """Who reads the Parquet files of streaming DataFrames, and why if it is Spark."""
        for source in self._sources:
            if isinstance(source.data, ArrowFrame):
                yield f"Arrow reads the files of source {source.name} in place of Spark; scan='spark' would let Spark"
            for rows, why in self._scanned_by_spark:
                if rows is source.data:
                    yield f"Spark reads the rows of source {source.name}: {why}"

    def _make_folders(self, checkpoint: Checkpoint) -> None:
        """Make the folders that lookups put rows aside in, or refuse what cannot be written to."""
        for node in operators_needed(self._sinks):
            for place in node.config.elsewhere.values():
                make_folder(folder_for(checkpoint.pages(node.name), place), f"to={place!r}")

    def _engine(self, checkpoint: Checkpoint) -> Engine:
        narrow = narrowed_on_spark(self._sinks, checkpoint)
        sinks, notes = detached_on_spark(narrow, checkpoint, Meant.of(self.spark), self._homes)
        engine = Engine(self.spark, sinks, checkpoint, self.memory, self.shards)
        engine.notes = [*self._scan_notes(), *notes]
        if engine.ledger.ended and not engine.course.has_all:
            raise CheckpointError(
                f"The streams of checkpoint {self.checkpoint} have ended: run() drained them and closed their windows, "
                f"so later rows could not be joined exactly. Start with a new checkpoint folder, or leave streams open "
                f"with run(end=False)."
            )
        checkpoint.check(engine.ledger)
        if engine.ledger.epoch < 0 and checkpoint.planned(0) is None:
            for sink in self._sinks:
                if isinstance(sink, ParquetSink):
                    sink.refuse_results(names_in(self.spark, sink.path))
        kept = partials_on_record(checkpoint)
        start = Start.of(self._sources, engine.assembly.scanned, operators_needed(self._sinks), kept)
        start.follow(checkpoint, self._configs)
        checkpoint.vacuum()
        for source in engine.course.sources:
            if source.home is not None:
                source.home.forget_after(engine.ledger.units.get(source.name, 0))
        sweep(self._sinks)
        return engine

    _prefers_arrow = True
    """Whether Arrow reads streams of Parquet files in place of Spark unless told otherwise."""

    def _fingerprint(self) -> dict[str, Any]:
        """What the checkpoint's state depends on: sources, and operators with what they were asked to do."""
        sources = {
            node.name: {
                "columns": {f.name: f.dataType.simpleString() for f in self._schemas.of(node)},
                "time": node.time,
            }
            for node in self._sources
        }
        plans = {
            node.part.join.name: str(node.part.join.plan)
            for node in operators_needed(self._sinks)
            if node.part is not None
        }
        whole = {"sources": sources, "operators": self._configs}
        # A checkpoint from before plans were on record goes on without.
        return whole | {"plans": plans} if plans and self._plans_on_record != {} else whole

    @property
    def _plans_on_record(self) -> Mapping[str, str] | None:
        try:
            return Checkpoint.plans(self.checkpoint)
        except (PenstockError, OSError):
            return None  # Starting it tells what is wrong.

    def _sizes_of(self, source: SourceNode) -> Sizes | None:
        return sizes_of(source.data.files) if isinstance(source.data, FileStream) else None

    @property
    def _configs(self) -> dict[str, Any]:
        """What each operator is asked to do, as far as it must not change."""
        return {node.name: _config(node) for node in operators_needed(self._sinks)}

    @property
    def _place(self) -> str:
        return f"flow on Spark, checkpoint {self.checkpoint!r}"

    def _files(
        self, kind: Format, path: Any, schema: pa.Schema | None, max_files: int | None, max_bytes: int | None
    ) -> FileStream:
        return FileStream(self.spark, files_of(kind, path, schema, max_files, max_bytes))

    def _delta(self, path: Any, schema: pa.Schema | None, max_commits: int | None, changes: Changes) -> DeltaStream:
        return DeltaStream(self.spark, delta_files(path, schema, max_commits, changes))

    def _read_by(self, data: Any, scan: ScanBy) -> Any:
        """What a source reads: a DataFrame, or its files if Arrow reads them."""
        if not hasattr(data, "isStreaming") or (scan == "auto" and not self._prefers_arrow):
            return data
        found = arrow_frame(data, scan)
        if isinstance(found, ArrowFrame):
            return found
        if scan == "arrow":
            raise refuse_spark(found)
        if scan == "auto" and data.isStreaming:
            self._scanned_by_spark.append((data, found))
        return data

    def _columns_of(self, data: Any) -> pa.Schema:
        if not hasattr(data, "isStreaming"):
            raise ConfigError(
                f"A Spark flow reads DataFrames, but this source is a {type(data).__name__}. "
                f"Pass spark.readStream… or any batch DataFrame, or use pk.LocalFlow for Arrow tables."
            )
        columns = arrow_columns(data.schema)
        twin = None if self._case_matters else first_twice(name.lower() for name in columns.names)
        if twin is not None:
            alike = " and ".join(repr(name) for name in columns.names if name.lower() == twin)
            raise ConfigError(
                f"This source has columns {alike}, which Spark cannot distinguish. Rename one of them, or set "
                f"spark.sql.caseSensitive to true."
            )
        return columns

    def _why_not_read_again(self, data: Any) -> str | None:
        return why_not_read_again(data)

    @property
    def _case_matters(self) -> bool:
        return str(self.spark.conf.get("spark.sql.caseSensitive")).lower() == "true"

    def _selected(self, node: Node, expressions: Sequence[Any]) -> tuple[pa.Schema, bool]:
        trial = SelectNode(columns=node.columns, time=None, unit=node.unit, input=node, expressions=tuple(expressions))
        rows = _analysed(lambda: select(self._empty(node), trial), expressions)
        steps = steps_of(rows)
        if steps & {"Aggregate", "Window"}:
            raise ConfigError(
                f"{', '.join(map(str, expressions))!r} is computed from several rows, but an expression computes a "
                f"value from one row. Aggregate over windows instead: .window(range=…).agg(total=pk.sum('amount'))."
            )
        return arrow_columns(rows.schema), "Generate" in steps

    def _check_where(self, node: Node, condition: Any) -> None:
        _analysed(lambda: self._empty(node).where(condition), [condition])

    def _check_pairs(self, node: Node, pairs: Pairs) -> None:
        _analysed(lambda: where_pairs(self._empty(node), pairs), [pairs.condition])

    def _check_memory(self, memory: str | int) -> int:
        size, slots = parse_bytes(memory), max(1, self.spark.sparkContext.defaultParallelism)
        if size // slots < _SMALLEST_SHARE:
            raise ConfigError(
                f"memory={memory!r} over {slots} tasks at a time leaves {show_bytes(size // slots)} each, "
                f"too small for one page. Write at least memory='{_SMALLEST_SHARE * slots // 10**6} MB'."
            )
        return size

    def _master_table(self, table: Any, keys: tuple[str, ...], freshness: Freshness) -> TableSource:
        given = read_table_on_spark(self.spark, table, keys, freshness)
        return given if isinstance(given, FrameTable) else read_table(given, keys)

    def _empty(self, node: Node) -> DataFrame:
        return self.spark.createDataFrame([], self._schemas.of(node))


def _use_the_systems_allocator(spark: SparkSession) -> None:
    """Let workers take memory from the system's allocator, unless the session says which (`spark.executorEnv.…`).

    The one that Arrow brings keeps what was freed, and asks for huge pages: it grows by 2 MB when the kernel likes.
    """
    spark.sparkContext.environment.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def _analysed(build: Callable[[], DataFrame], written: Sequence[Any]) -> DataFrame:
    try:
        return build()
    except Exception as error:
        shown = ", ".join(map(str, written))
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigError(f"{shown!r} cannot be computed from this stream: {why}") from error


def _config(node: OperatorNode) -> dict[str, Any]:
    """What of an operator must not change while its state is in use."""
    return {"types": [{f.name: str(f.type) for f in types.columns} for types in node.types], **node.config.fixed()}
