"""A flow at work in this process: epoch after epoch, each stream's rows to its sinks."""

from __future__ import annotations

import tempfile
import time as clock
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.errors import ConfigError, FlowError, PenstockError, SinkError, SourceError
from penstock.core.files import Payload
from penstock.core.master import TableSource
from penstock.core.operator import State
from penstock.core.progress import Seen
from penstock.core.rows import TIME
from penstock.core.time import show_time
from penstock.flow.display import Explanation, Status, preformatted
from penstock.flow.display import State as DisplayState
from penstock.flow.explain import explain
from penstock.flow.failures import named
from penstock.flow.flow import read_timeout
from penstock.flow.graph import Node, OperatorNode, SourceNode, sources_of
from penstock.flow.report import EpochReport, Report
from penstock.flow.sinks import ConsoleSink, ForeachSink, MemorySink, ParquetSink, Sink, operators_needed
from penstock.kernels.plain import plain_rows
from penstock.local.files import detached_here
from penstock.local.shards import LocalWorkers, Places
from penstock.runtime.course import Course
from penstock.runtime.epoch import Epoch
from penstock.runtime.partials import narrowed
from penstock.runtime.tracks import Tracks, ended, followed, woken
from penstock.storage.tables.reading import pinned
from penstock.storage.versioned import Ledger, Plan


class LocalQuery:
    """A local flow at work, or done. An epoch has `trigger` seconds, or all the time it takes."""

    def __init__(
        self,
        sinks: Sequence[Sink],
        memory: int,
        shards: int,
        now: Callable[[], int],
        trigger: float | None = None,
        homes: Mapping[SourceNode, Payload] | None = None,
    ) -> None:
        self._spill = tempfile.TemporaryDirectory(prefix="penstock-")
        self._sinks = sinks = detached_here(narrowed(sinks)[0], self._spill.name, homes or {})
        self._memory = memory
        self._shards = shards
        self._now = now
        self._trigger = trigger
        self._report = Report()
        nothing = {node.name: (State(),) * shards for node in operators_needed(sinks)}
        self._course = Course(sinks, memory, shards, Ledger(states=nothing), self._pinned)
        places = Places(self._spill.name, memory, shards)
        self._places = {
            node.name: places.of(node, self._course.share_of(node), self) for node in self._course.operators
        }
        self._failure: PenstockError | None = None

    @property
    def sources(self) -> list[SourceNode]:
        """Where its rows come from."""
        return sources_of(*(sink.node for sink in self._sinks))

    def stop(self, timeout: float | None = None) -> bool:
        """Do nothing: a local query runs only while `start` or `run` do, and has stopped when they return."""
        read_timeout(timeout)
        return True

    def await_end(self, timeout: float | None = None) -> bool:
        """It has ended by the time it is there."""
        read_timeout(timeout)
        return True

    def explain(self) -> Explanation:
        """The plan as text, with what was measured. A prompt shows it; in a script, print it."""
        course = self._course
        told = self.progress(), course.pilots, self._memory, self._shards, "In process"
        return explain(self._sinks, *told, joins=course.joins_told)

    def progress(self) -> Report:
        """What the epochs measured."""
        return self._report

    @property
    def status(self) -> Status:
        """Whether the query has stopped, failed or ended, and its last epoch.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> rows = flow.source(pa.table({"t": [1]}), time="t").to_memory()
        >>> flow.run().status
        ended, last committed epoch: 1
        """
        epochs = self._report.totals.epochs
        state: DisplayState = "failed" if self._failure else "ended" if self._has_ended else "stopped"
        return Status(state, epochs - 1 if epochs else None)

    @property
    def exception(self) -> PenstockError | None:
        """The error the query failed with, or None."""
        return self._failure

    def __repr__(self) -> str:
        return f"<query in process: {self.status}; {self.progress()}>"

    def _repr_html_(self) -> str:
        return preformatted(repr(self))

    def epoch(self, tables: Mapping[SourceNode, pa.Table], end: bool = False) -> None:
        """All rows first, then the bounds; with `end`, every bound is the end of time."""
        if self._has_ended:
            raise FlowError("The streams of this flow have ended. Make a new flow to run again.")
        try:
            self._one(tables, end)
        except PenstockError as failure:
            self._failure = failure
            raise

    @property
    def _has_ended(self) -> bool:
        return self._course.ledger.ended

    def _one(self, tables: Mapping[SourceNode, pa.Table], end: bool) -> None:
        begun = clock.perf_counter()
        pieces = {node: [[_as_declared(node, rows)]] for node, rows in tables.items()}
        course = self._course
        workers = LocalWorkers(course, self._places)
        plan = self._plan(end)
        epoch = Epoch(course, plan, self._sinks, pieces, workers, partial(self._followed, plan))
        given: dict[Node, int] = {}
        for sink in self._sinks:
            rows = epoch.late(sink.node) if sink.emits == "late" else self._computed(epoch, sink)
            self._deliver(sink, rows)
            if sink.emits == "results":
                given[sink.node] = rows.num_rows
        course.ledger = course.left(epoch.plan, epoch.tracks, epoch.tracks, workers.states)
        report = EpochReport(
            epoch=plan.epoch,
            seconds=clock.perf_counter() - begun,
            rows_in={node.name: epoch.rows_in[node.name] for node in course.sources},
            rows_out=sum(given.values()),
            late={node.name: epoch.late_in[node.name] + epoch.turned_away[node.name] for node in course.sources},
            no_time={node.name: epoch.timeless_in[node.name] for node in course.sources},
            bounds={node.name: show_time(epoch.tracks[node.name].bound, node.unit) for node in course.sources},
            operators=workers.reports,
            left_behind=tuple(plan.late),
        )
        self._report = self._report.after(report)

    def _followed(self, plan: Plan, seen: Mapping[str, Seen]) -> Tracks:
        sources, before = self._course.sources, self._course.ledger.tracks
        return (
            ended(sources, before) if plan.end else woken(sources, followed(sources, before, seen, plan.now), plan.now)
        )

    def _plan(self, end: bool) -> Plan:
        """What the next epoch is to do, but for the bounds that its rows will tell."""
        course = self._course
        versions = course.versions()
        return Plan(
            self._report.totals.epochs,
            self._now(),
            self._shards,
            tracks={},
            end=end,
            methods=course.methods(),
            versions=versions,
            quotas={} if end else course.quotas(self._trigger, in_turn=self._shards),
            spare=None if end else course.spare(self._trigger, in_turn=self._shards),
            late={source.name: (0, 0) for source in course.sources if source.row is not None},
            sites=course.sites(self._shards),
        )

    def _next(self, node: SourceNode, feed: Iterator[pa.Table]) -> pa.Table | None:
        """A source's rows for the next epoch, as plain types; None at its end."""
        try:
            rows = next(feed, None)
            if rows is None:
                return None
            if not isinstance(rows, pa.Table):
                raise ConfigError(f"It gave a {type(rows).__name__}, not a pyarrow.Table.")
            return plain_rows(rows)
        except Exception as failure:
            raise SourceError.in_epoch(self._report.totals.epochs, f"source {node.name!r}", named(failure)) from failure

    def _computed(self, epoch: Epoch, sink: Sink) -> pa.Table:
        try:
            return epoch.rows(sink.node)
        except OSError as failure:
            number = self._report.totals.epochs
            raise FlowError.in_epoch(number, f"the state that {sink} needs", named(failure)) from failure

    @property
    def _put_aside(self) -> int:
        """Rows that were put aside, or not let in, and have yet to be answered."""
        if not self._report.epochs:
            return 0
        counts = [operator.counts for operator in self._report.epochs[-1].operators.values()]
        return sum(count.get("shed", 0) + count.get("queued", 0) for count in counts)

    def _pinned(self, node: OperatorNode) -> TableSource:
        if node.config.master is None:
            raise TypeError(node)
        return pinned(*node.config.master, f"{self._spill.name}/{node.name}")

    def _deliver(self, sink: Sink, rows: pa.Table) -> None:
        number = self._report.totals.epochs
        if TIME in rows.column_names:
            rows = rows.drop_columns([TIME])
        try:
            self._write(sink, rows, number)
        except ConfigError:
            raise
        except Exception as failure:
            raise SinkError.in_epoch(number, f"sink {sink}", named(failure)) from failure

    def _write(self, sink: Sink, rows: pa.Table, number: int) -> None:
        if isinstance(sink, MemorySink):
            sink.epochs[number] = rows
        elif isinstance(sink, ForeachSink):
            sink.function(rows, number)
        elif isinstance(sink, ConsoleSink):
            if rows.num_rows:
                print(f"-- epoch {number}\n{rows.slice(0, sink.rows).to_string(preview_cols=sink.rows)}")
        elif isinstance(sink, ParquetSink):
            folder = Path(sink.path) / f"epoch={number}"
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, folder / "part-0.parquet")
        else:
            raise ConfigError(f"{sink} is a Spark writer. In a local flow use to_parquet, or foreach_epoch(…).")


def _as_declared(node: SourceNode, rows: pa.Table) -> pa.Table:
    """A source's rows in its columns; tables that differ in nullability or metadata only are alike."""
    if rows.schema.names != node.columns.names or rows.schema.types != node.columns.types:
        raise FlowError(f"Source {node.name!r} changed its columns from {node.columns} to {rows.schema}.")
    return pa.Table.from_arrays(rows.columns, schema=node.columns)
