"""A running flow on Spark: one Structured Streaming query, which can be watched, awaited and stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.core.errors import FlowError, PenstockError
from penstock.flow.display import Explanation, State, Status, preformatted
from penstock.flow.explain import explain
from penstock.flow.flow import read_timeout
from penstock.flow.report import Report
from penstock.flow.sinks import Sink
from penstock.spark.batches import EachBatch
from penstock.spark.engine import Engine
from penstock.spark.failures import in_epoch
from penstock.spark.session import file_system, settings
from penstock.spark.stopping import GracefulStop, InterruptedEpochError, ends_with, signals_stop
from penstock.spark.use import CheckpointUse
from penstock.storage.payload import forget_start

log = logging.getLogger("penstock")

_BATCH_ROWS = 1 << 16
"""Rows in one Arrow batch between the JVM and Python at most: larger ones gain nothing."""

_BATCH_SHARE = 16
"""The part of a task's share that one such batch may take."""

_WAIT = 0.5
"""Seconds to wait for the end of a query at a time."""

_SOON = 0.01
"""Seconds between two looks at whether a query has been started."""

_INITIALIZED = 10.0
"""Seconds to wait at most until Spark has made the sources of a query."""

_LOG_WRITER = "spark.sql.streaming.checkpointFileManagerClass"
_BY_FILE_SYSTEM = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""How Spark writes the logs of a query: which offsets an epoch has, and that it is done."""

_LOCAL_FILES = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""Hadoop's local files without the permissions that it sets, and the checksums that it adds: for these logs alone."""

_NO_SCANS = {"spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan": "true"}
"""Lets Spark leave out scans that it knows to be empty; it does not where a query of its own may keep state."""


class SparkQuery:
    """A flow that has been started on Spark."""

    def __init__(
        self, spark: SparkSession, sinks: Sequence[Sink], memory: int, engine: Engine, use: CheckpointUse
    ) -> None:
        self._spark = spark
        self._sinks = sinks
        self._memory = memory
        self._engine = engine
        self._use = use
        for start in {source.home.start for source in engine.course.sources if source.home is not None}:
            use.then(partial(forget_start, start))
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
        stop = self._spark.sparkContext.cancelAllJobs if self._query is None else self._query.stop
        threading.Thread(target=stop, name="penstock-cancel", daemon=True).start()

    def explain(self) -> Explanation:
        """The plan as text: what each operator does, by which method and why, and what was measured.

        A prompt or a notebook shows it when it is the last expression; in a script, print it.
        """
        course = self._engine.course
        told = self.progress(), course.pilots, self._memory, course.tasks, "On Spark"
        return explain(self._sinks, *told, [*course.homes_told, *self._engine.notes], course.joins_told)

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
        if self._engine.ledger.ended:
            return
        self._refuse_unfinished_end()
        stream = self._engine.assembly.stream()
        batches = EachBatch(stream.sparkSession, self._epoch)
        self._use.then(batches.let_go)
        writer = batches.writer_of(stream)
        spark_checkpoint = f"{self._engine.checkpoint.uri}/spark"
        # The query's own session is a copy of the user's as it is now.
        logs = _logs_without_programs(self._spark, spark_checkpoint)
        wanted = self._wanted | logs
        if not self._engine.assembly.brings_rows:
            wanted |= _NO_SCANS
        with settings(self._spark, wanted):
            self._query = writer.option("checkpointLocation", spark_checkpoint).trigger(**trigger).start()
            self._await_sources(self._query)
        _forget_local_files(self._query, logs)
        self._use.query = self._query
        self._stop_if_ended()

    def _await_sources(self, query: StreamingQuery) -> None:
        """Wait until Spark has made the sources: they keep their logs by what the user's session says then."""
        end = time.monotonic() + _INITIALIZED
        while query.isActive and query.status["message"].startswith("Initializing") and time.monotonic() < end:
            time.sleep(_SOON)

    def _run(self, end: bool) -> None:
        unfinished = self._engine.checkpoint.planned(self._engine.ledger.epoch + 1)
        with signals_stop(self._ask_to_stop, self._cancel) as signals:
            if unfinished is None or not unfinished.end:
                self._start(availableNow=True)
                self._wait(None, signals)
            if end and not self._stop.asked and not signals and not self._engine.ledger.ended:
                try:
                    self._one(None, self._engine.ledger.epoch + 1, end=True)
                except PenstockError:
                    raise
                except Exception as failure:
                    raise self._told(failure) from failure
        if signals:
            raise ends_with(signals[0])

    def _refuse_unfinished_end(self) -> None:
        planned = self._engine.checkpoint.planned(self._engine.ledger.epoch + 1)
        if planned is not None and planned.end:
            raise FlowError("This flow was ending when it was interrupted. Call run() to let it end.")

    def _stop_if_ended(self) -> None:
        """No epoch follows if every sink has the head of its stream."""
        if self._engine.ledger.ended and self._query is not None:
            self._stop.ask(self._query)

    def _epoch(self, batch: DataFrame, epoch: int) -> None:
        while self._engine.ledger.ended and not self._stop.asked:
            time.sleep(_SOON)  # the query is not known here before Spark has started it
        self._stop.gate(self._query)
        self._thread = threading.get_ident()
        try:
            self._one(batch, epoch)
            self._stop_if_ended()
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
            "spark.sql.execution.arrow.maxBytesPerBatch": str(self._engine.course.share // _BATCH_SHARE),
        }

    def _one(self, batch: DataFrame | None, epoch: int, end: bool = False) -> None:
        with settings(self._spark, self._wanted) if batch is None else nullcontext():
            report = self._engine.run(batch, epoch, end)
        if report is not None:
            self._report = self._report.after(report)
            log.info("%s", report)

    def _told(self, failure: BaseException) -> PenstockError:
        """What the query failed of: the error of its epoch, if one failed, which Spark wraps in its own."""
        if self._failure is None:
            self._failure = in_epoch(failure, self._engine.ledger.epoch + 1, self._engine.course.sources)
            self._failure.__cause__ = failure
        return self._failure


def _up_to(seconds: float, end: float) -> float:
    """Seconds until `end` by the monotonic clock, at most `seconds` and at least Spark's shortest wait."""
    return max(0.001, min(seconds, end - time.monotonic()))


def _logs_without_programs(session: SparkSession, checkpoint: str) -> dict[str, str]:
    """The settings by which a query keeps Spark's own logs on a local disk without starting programs, if it may.

    What Spark writes them by, unless told, asks the system's `stat` and `chmod` wherever Hadoop's native library is
    missing, as in the Python package: 80 ms of each epoch. The other way also writes beside and renames. Hadoop's local
    files still start `chmod` for each file and its checksums, six times an epoch; what lies below them does not.
    Plans and ledgers have checksums of their own of what these logs say.
    """
    if file_system(session, checkpoint).getScheme() != "file" or session.conf.get(_LOG_WRITER, None) is not None:
        return {}
    theirs = any(session.conf.get(name, None) is not None for name in _LOCAL_FILES)
    return {_LOG_WRITER: _BY_FILE_SYSTEM} | ({} if theirs else _LOCAL_FILES)


def _forget_local_files(query: StreamingQuery, logs: Mapping[str, str]) -> None:
    """Let what epochs read and write go through Hadoop's usual local files; logs keep what they were opened with."""
    settings_of_query: Any = query._jsq.streamingQuery().sparkSessionForStream().conf()
    for name in _LOCAL_FILES.keys() & logs.keys():
        settings_of_query.unset(name)
