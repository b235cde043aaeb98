"""Flows on Spark: one Structured Streaming query over all the sources, an epoch per micro-batch."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import fields
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.core.budget import parse_bytes, show_bytes
from penstock.core.errors import CheckpointError, ConfigError, FlowError, PenstockError
from penstock.core.master import TableSource
from penstock.flow.display import Explanation, State, Status, preformatted
from penstock.flow.explain import explain
from penstock.flow.flow import Flow, read_timeout, read_trigger
from penstock.flow.graph import Freshness, JoinNode, LookupNode, Node, OperatorNode, SelectNode
from penstock.flow.report import Report
from penstock.flow.sinks import ParquetSink, Sink, operators_needed
from penstock.spark.branches import Schemas, select, steps_of, where_pairs
from penstock.spark.epoch import Engine
from penstock.spark.failures import in_epoch
from penstock.spark.inputs import folders_read
from penstock.spark.restarts import Start
from penstock.spark.session import create_file, file_system, names_in, settings
from penstock.spark.stopping import GracefulStop, InterruptedEpochError, ends_with, signals_stop
from penstock.spark.tables import FrameTable, read_table_on_spark
from penstock.spark.types import arrow_columns
from penstock.spark.use import CheckpointUse
from penstock.spark.workers import check_workers, use_this_python
from penstock.storage.files import folder_for, is_within, make_folder
from penstock.storage.tables.reading import read_table
from penstock.storage.versioned import Checkpoint

log = logging.getLogger("penstock")

_SMALLEST_SHARE = 1_000_000
"""Bytes a task needs at least: one page of arrivals and one chunk of output."""

_BATCH_ROWS = 1 << 16
"""Rows in one Arrow batch between the JVM and Python at most: larger ones gain nothing."""

_BATCH_SHARE = 16
"""The part of a task's share that one such batch may take."""

_DEFAULT_TRIGGER = "1 s"
"""How often an epoch begins where the user does not say; a heartbeat fills those without data."""

_WAIT = 0.5
"""Seconds to wait for the end of a query at a time."""

_LOG_WRITER = "spark.sql.streaming.checkpointFileManagerClass"
_BY_FILE_SYSTEM = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""How Spark writes the logs of a query: which offsets an epoch has, and that it is done."""


class SparkFlow(Flow):
    """A flow on Spark. `memory` is for all of its operators' tasks together, over the whole cluster.

    `checkpoint` is a folder (a path or a URI) that holds the flow's state; a flow started again on it goes on where it
    was, on any number of cores. `shards` is the number of tasks per operator: one per core, unless given.

        flow = pk.Flow(spark, checkpoint="/data/paid", memory="512 MB")
        orders = flow.source(spark.readStream…, time="ts", progress=pk.bounded_delay("30 s"))
    """

    def __init__(self, spark: SparkSession, checkpoint: str, memory: str | int, shards: int | None = None) -> None:
        super().__init__(memory)
        if shards is not None and shards < 1:
            raise ConfigError(f"shards={shards} leaves no task to run. Leave it out for one per core.")
        self.shards = shards
        self.spark = spark
        self.checkpoint = str(checkpoint)
        self._schemas = Schemas()
        self._check_memory(memory)

    def start(self, trigger: str | None = None) -> SparkQuery:
        """Start, and go on until stopped. An epoch begins every `trigger` (every second), with data or without."""
        every = read_trigger(trigger or _DEFAULT_TRIGGER)
        query = self._query()
        query._engine.trigger = every / 1e6
        with query._use:
            query._start(processingTime=f"{every // 1000} milliseconds")
        return query

    def run(self, *, end: bool = True) -> SparkQuery:
        """Run over everything that is there now. With `end`, then end the streams: all that was held back comes out.

        An ended flow refuses to start again on its checkpoint; ``run(end=False)`` leaves it open. On SIGTERM or Ctrl-C
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
                f"checkpoint={self.checkpoint!r} is in the folder {sink.folder!r} of a sink, so whoever reads the "
                f"results would read state. Put the checkpoint beside it, as in 'state/paid'."
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
                for sink in self._sinks:
                    if sink.folder is not None and is_within(folder, sink.folder):
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
            return SparkQuery(self, self._engine(checkpoint), use)
        except BaseException:
            use.end()
            raise

    def _make_folders(self, checkpoint: Checkpoint) -> None:
        """Make the folders that lookups put rows aside in, or refuse what cannot be written to."""
        for node in operators_needed(self._sinks):
            for place in node.config.elsewhere.values() if isinstance(node, LookupNode) else ():
                make_folder(folder_for(checkpoint.pages(node.name), place), f"to={place!r}")

    def _engine(self, checkpoint: Checkpoint) -> Engine:
        engine = Engine(self.spark, self._sinks, checkpoint, self.memory, self.shards)
        if engine.ledger.ended:
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
        start = Start.of(self._sources, engine.scanned, engine.operators)
        start.follow(checkpoint, self._configs)
        checkpoint.vacuum()
        return engine

    def _fingerprint(self) -> dict[str, Any]:
        """What the checkpoint's state depends on: sources, and operators with what they were asked to do."""
        sources = {
            node.name: {
                "columns": {f.name: f.dataType.simpleString() for f in self._schemas.of(node)},
                "time": node.time,
            }
            for node in self._sources
        }
        return {"sources": sources, "operators": self._configs}

    @property
    def _configs(self) -> dict[str, Any]:
        """What each operator is asked to do, as far as it must not change."""
        return {node.name: _config(node) for node in operators_needed(self._sinks)}

    @property
    def _place(self) -> str:
        return f"flow on Spark, checkpoint {self.checkpoint!r}"

    def _columns_of(self, data: Any) -> pa.Schema:
        if not hasattr(data, "isStreaming"):
            raise ConfigError(
                f"A Spark flow reads DataFrames, but this source is a {type(data).__name__}. "
                f"Give spark.readStream…, any batch DataFrame, or use pk.LocalFlow for Arrow tables."
            )
        return arrow_columns(data.schema)

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

    def _check_pairs(self, node: JoinNode, condition: str) -> None:
        _analysed(lambda: where_pairs(node, self._empty(node), condition), [condition])

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


class SparkQuery:
    """A flow that has been started on Spark."""

    def __init__(self, flow: SparkFlow, engine: Engine, use: CheckpointUse) -> None:
        self._flow = flow
        self._engine = engine
        self._use = use
        self._report = Report()
        self._query: StreamingQuery | None = None
        self._failure: PenstockError | None = None
        self._stop = GracefulStop()
        self._thread: int | None = None
        """The thread of the running epoch."""

    @property
    def streaming_query(self) -> StreamingQuery | None:
        """The Structured Streaming query underneath, for what Spark itself measures."""
        return self._query

    def stop(self, timeout: float | None = None) -> bool:
        """Stop once the running epoch has committed; the flow can be started again from its checkpoint.

        True if the query has stopped. False if the epoch still runs after `timeout` seconds, or if it is the epoch that
        calls: then it goes on, no other epoch starts, and the query stops when it has committed. An epoch too long to
        wait for is best ended with its process: the next start repeats it.
        """
        seconds = read_timeout(timeout)
        if self._query is None:
            return True
        self._stop.ask(self._query)
        stopped = threading.get_ident() != self._thread and self._stop.wait(seconds)
        self._use.end_if_over()
        return stopped

    def await_end(self, timeout: float | None = None) -> bool:
        """Wait until the query has stopped, at most `timeout` seconds, and re-raise its error. True if it has stopped.

        SIGTERM or Ctrl-C while waiting in the main thread stops the query as `stop` does, and await_end returns True. A
        second one cancels the running epoch, which the next start repeats, and raises SystemExit or KeyboardInterrupt.
        Signals that the program handles itself stay with it.
        """
        seconds = read_timeout(timeout)
        with signals_stop(self._ask_to_stop, self._cancel) as signals:
            return self._wait(seconds, signals)

    def _wait(self, timeout: float | None, signals: Sequence[int]) -> bool:
        if self._query is None:
            return True
        end = None if timeout is None else time.monotonic() + timeout
        try:
            # In short waits, between which Python handles signals; a stop that one of them asked for is waited for.
            while not self._query.awaitTermination(_WAIT if end is None else _up_to(_WAIT, end)):
                if end is not None and time.monotonic() >= end and not signals:
                    return False
            # A query counts as ended before its thread has left the epoch that a stop holds back.
            self._stop.wait(None)
        except Exception as failure:
            raise self._told(failure) from self._told(failure).__cause__
        finally:
            self._use.end_if_over()
        return True

    def _ask_to_stop(self) -> None:
        if self._query is not None:
            self._stop.ask(self._query)

    def _cancel(self) -> None:
        """Stop without waiting for the running epoch, in a thread of its own: a signal handler must not wait."""
        stop = self._flow.spark.sparkContext.cancelAllJobs if self._query is None else self._query.stop
        threading.Thread(target=stop, name="penstock-cancel", daemon=True).start()

    def explain(self) -> Explanation:
        """The plan as text: what each operator does, by which method and why, and what was measured.

        A prompt or a notebook shows it when it is the last expression; in a script, print it.
        """
        engine = self._engine
        return explain(self._flow._sinks, self.progress(), engine.pilots, self._flow.memory, engine.slots, "On Spark")

    def progress(self) -> Report:
        """What the epochs since this start measured."""
        return self._report

    @property
    def status(self) -> Status:
        """Whether the query is running, stopping, stopped, failed or ended, and the last epoch that it committed."""
        epoch = self._engine.ledger.epoch
        return Status(self._state, epoch if epoch >= 0 else None)

    @property
    def exception(self) -> PenstockError | None:
        """The error the query failed with, or None; `await_end` raises it."""
        if self._failure is None and self._query is not None and not self._is_active:
            failure = self._query.exception()
            return None if failure is None else self._told(failure)
        return self._failure

    def __repr__(self) -> str:
        return f"<query on Spark: {self.status}; {self.progress()}>"

    def _repr_html_(self) -> str:
        return preformatted(repr(self))

    @property
    def _state(self) -> State:
        if self._engine.ledger.ended:
            return "ended"
        if self._is_active:
            return "stopping" if self._stop.asked else "running"
        return "stopped" if self.exception is None else "failed"

    @property
    def _is_active(self) -> bool:
        return self._query is not None and bool(self._query.isActive)

    def _start(self, **trigger: Any) -> None:
        self._refuse_unfinished_end()
        writer = self._engine.stream().writeStream.foreachBatch(self._epoch)
        spark_checkpoint = f"{self._flow.checkpoint.rstrip('/')}/spark"
        # The query's own session is a copy of the user's as it is now.
        with settings(self._flow.spark, self._wanted | _logs_without_programs(self._flow.spark, spark_checkpoint)):
            self._query = writer.option("checkpointLocation", spark_checkpoint).trigger(**trigger).start()
        self._use.query = self._query

    def _run(self, end: bool) -> None:
        unfinished = self._engine._checkpoint.planned(self._engine.ledger.epoch + 1)
        with signals_stop(self._ask_to_stop, self._cancel) as signals:
            if unfinished is None or not unfinished.end:
                self._start(availableNow=True)
                self._wait(None, signals)
            if end and not self._stop.asked and not signals:
                try:
                    self._one(None, self._engine.ledger.epoch + 1, end=True)
                except PenstockError:
                    raise
                except Exception as failure:
                    raise self._told(failure) from failure
        if signals:
            raise ends_with(signals[0])

    def _refuse_unfinished_end(self) -> None:
        planned = self._engine._checkpoint.planned(self._engine.ledger.epoch + 1)
        if planned is not None and planned.end:
            raise FlowError("This flow was ending when it was interrupted. Call run() to let it end.")

    def _epoch(self, batch: DataFrame, epoch: int) -> None:
        self._stop.gate(self._query)
        self._thread = threading.get_ident()
        try:
            self._one(batch, epoch)
        except Exception as failure:
            if self._was_cancelled():
                raise InterruptedEpochError from None
            self._failure = failure if isinstance(failure, PenstockError) else self._told(failure)
            # Spark repeats in its log, and in errors of its own, the whole traceback that it gets.
            raise FlowError(str(self._failure)) from None
        finally:
            self._thread = None

    def _was_cancelled(self) -> bool:
        """Whether somebody stopped the Structured Streaming query while its epoch ran."""
        return self._query is not None and not self._is_active

    @property
    def _wanted(self) -> dict[str, str]:
        """The settings that epochs need."""
        return {
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(_BATCH_ROWS),
            "spark.sql.execution.arrow.maxBytesPerBatch": str(self._engine.share // _BATCH_SHARE),
        }

    def _one(self, batch: DataFrame | None, epoch: int, end: bool = False) -> None:
        with settings(self._flow.spark, self._wanted) if batch is None else nullcontext():
            report = self._engine.run(batch, epoch, end)
        if report is not None:
            self._report = self._report.after(report)
            log.info("%s", report)

    def _told(self, failure: BaseException) -> PenstockError:
        """What the query failed of: the error of its epoch, if one failed, which Spark wraps in its own."""
        if self._failure is None:
            self._failure = in_epoch(failure, self._engine.ledger.epoch + 1, self._engine.sources)
            self._failure.__cause__ = failure
        return self._failure


def _up_to(seconds: float, end: float) -> float:
    """Seconds until `end` by the monotonic clock, at most `seconds` and at least Spark's shortest wait."""
    return max(0.001, min(seconds, end - time.monotonic()))


def _logs_without_programs(session: SparkSession, checkpoint: str) -> dict[str, str]:
    """The setting by which a query keeps Spark's own logs on a local disk without starting programs, if it may.

    What Spark writes them by, unless told, asks the system's `stat` and `chmod` wherever Hadoop's native library is
    missing, as in the Python package: 80 ms of each epoch. The other way also writes beside and renames.
    """
    told = session.conf.get(_LOG_WRITER, None) is not None
    local = file_system(session, checkpoint).getScheme() == "file"
    return {_LOG_WRITER: _BY_FILE_SYSTEM} if local and not told else {}


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


_FREE: dict[type, tuple[str, ...]] = {
    JoinNode: ("method",),
    LookupNode: ("method", "table", "max_age", "version", "quota", "shed"),
}
"""What may change from one start to the next."""

_SINCE: tuple[tuple[str, Any], ...] = (("punctuated", ()), ("keys", "merged"))
"""Settings that older checkpoints do not know, with the values that mean they are not used: these are not noted."""


def _config(node: OperatorNode) -> dict[str, Any]:
    """What of an operator must not change while its state is in use; the method may, it is a matter of cost."""
    fixed: dict[str, Any] = {"types": [{f.name: str(f.type) for f in types.columns} for types in node.types]}
    free = _FREE.get(type(node), ())
    for field in fields(node.config):
        value = getattr(node.config, field.name)
        if field.name not in free and (field.name, value) not in _SINCE:
            fixed[field.name] = value if isinstance(value, str | int | bool) else getattr(value, "identity", str(value))
    if isinstance(node, JoinNode):
        fixed["on"] = node.config.on
    return fixed
