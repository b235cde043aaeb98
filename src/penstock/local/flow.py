"""Flows in this process: the same graph and the same operators as on Spark, over Arrow tables, without a JVM."""

from __future__ import annotations

import os
import tempfile
import time as clock
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileType

from penstock.core.budget import Budget, BudgetPart, parse_bytes
from penstock.core.errors import ConfigError, FlowError, PenstockError, SinkError, SourceError
from penstock.core.kept import LEFT, hand_over, kept_by
from penstock.core.master import TableSource
from penstock.core.meter import Tally
from penstock.core.operator import Logic, Out, Quiet, State, compacts
from penstock.core.pages import PageStore, names_of
from penstock.core.progress import Policy, Seen, Track, follow, wake
from penstock.core.rows import TIME, with_times
from penstock.core.time import TIME_MAX, TIME_MIN, Time, as_times, in_range, show_time
from penstock.flow.display import Explanation, Status, preformatted
from penstock.flow.display import State as DisplayState
from penstock.flow.explain import explain
from penstock.flow.failures import named
from penstock.flow.flow import Flow, read_timeout, read_trigger
from penstock.flow.graph import (
    MISSED,
    AggregateNode,
    Freshness,
    GuardNode,
    JoinNode,
    LookupNode,
    Node,
    OperatorNode,
    SelectNode,
    SourceNode,
    StatementNode,
    UnionNode,
    WhereNode,
    guards_of,
    keeps_time,
    late_columns,
    sources_of,
    walk,
    windows_of,
)
from penstock.flow.pace import Paces
from penstock.flow.pilots import Cockpit, Flown, Master, look_at, tell
from penstock.flow.report import EpochReport, OperatorReport, Report, added_up, all_waits, counts_of, waits_of
from penstock.flow.sinks import ConsoleSink, ForeachSink, MemorySink, ParquetSink, Sink, operators_needed
from penstock.flow.stream import Stream
from penstock.kernels.hashing import hash_keys
from penstock.kernels.plain import plain_columns, plain_rows
from penstock.kernels.route import shard_of
from penstock.local import sql
from penstock.operators.aggregate.missed import missed
from penstock.operators.lookup import LookupJoin
from penstock.storage.compaction import compact
from penstock.storage.files import FilePages, find_folder, folder_for, make_folder
from penstock.storage.memory import MemoryPages
from penstock.storage.sharing import SharedPages
from penstock.storage.tables.reading import kind_of, read_table, settled

_SMALLEST_SHARE = 1_000
"""Bytes a shard needs at least: a few rows of arrivals and one of output."""


@dataclass(frozen=True, slots=True)
class _Feed:
    """A source's tables, one per epoch, and the columns of the first, as plain types."""

    schema: pa.Schema
    tables: Iterable[pa.Table]

    @classmethod
    def of(cls, data: Any) -> Any:
        """A feed of `data` if it is tables; anything else as it is, to be refused."""
        if isinstance(data, pa.Table):
            return cls(plain_columns(data.schema), [data])
        if isinstance(data, Iterator):
            first = next(data, None)
            return cls(plain_columns(first.schema), chain([first], data)) if isinstance(first, pa.Table) else data
        if isinstance(data, Sequence) and data and isinstance(data[0], pa.Table):
            return cls(plain_columns(data[0].schema), data)
        return data


class LocalFlow(Flow):
    """A flow that runs here and now: sources are Arrow tables, or iterables of them, one per epoch.

    `shards` cuts the key space as Spark's tasks would; the budget is divided over them. State that does not fit
    goes to files in a temporary folder. Expressions have the values, types and errors that they have in Spark 4; one
    that would have others in process is refused. Only the last digit may differ of what exp, ln, log2, log10, pow, sin,
    cos, tan, atan, atan2, degrees and radians give.

    >>> flow = LocalFlow(memory="64 MB")
    >>> rows = flow.source([pa.table({"t": [1]}), pa.table({"t": [2]})], time="t").to_memory()
    >>> flow.run().progress().rows_in
    2
    """

    def __init__(self, memory: str | int = "256 MB", shards: int = 1, now: Callable[[], int] | None = None) -> None:
        super().__init__(memory)
        if not isinstance(shards, int) or shards < 1:
            raise ConfigError(f"shards={shards!r} must be a whole number of at least 1.")
        self.shards = shards
        self._check_memory(memory)
        self._has_run = False
        self._now = now or (lambda: clock.time_ns() // 1000)

    def source(self, data: Any, time: str, progress: Policy | None = None, name: str | None = None) -> Stream:
        """Take rows from Arrow tables: one, or several in a list or a generator, one per epoch; see `Flow.source`.

        >>> flow = LocalFlow()
        >>> rows = flow.source((pa.table({"t": [n]}) for n in range(3)), time="t").to_memory()
        >>> flow.run().progress().rows_in
        3
        """
        return super().source(_Feed.of(data), time, progress, name)

    def start(self, trigger: str | None = None) -> LocalQuery:
        """Run over everything there is and leave the streams open; in process there is nothing to wait for.

        With a `trigger`, a lookup that may shed load has that time for an epoch, as on Spark: rows that it cannot
        answer in it are put aside, and come out in silent epochs after the last.
        """
        query = self._run(None if trigger is None else read_trigger(trigger) / 1e6)
        while query._put_aside:
            query.epoch({})
        return query

    def run(self, *, end: bool = True) -> LocalQuery:
        """Run epoch after epoch until every source is exhausted; with `end`, one more ends the streams.

        Each epoch has all the time it takes: a lookup sheds no load here.
        """
        query = self._run(None)
        if end:
            query.epoch({}, end=True)
        return query

    def _run(self, trigger: float | None) -> LocalQuery:
        self._check_ready()
        if self._has_run:
            raise FlowError(
                "This flow has run. In process a flow keeps no checkpoint to go on from, and its sources may have been "
                "read to their end. Build it again to run it again."
            )
        for sink in self._sinks:
            if isinstance(sink, ParquetSink) and os.path.isdir(sink.path):
                sink.refuse_results(os.listdir(sink.path))
        self._has_run = True
        query = LocalQuery(self, trigger)
        feeds = {node: iter(node.data.tables) for node in sources_of(*self._roots)}
        while feeds:
            tables = {node: query._next(node, feed) for node, feed in feeds.items()}
            feeds = {node: feed for node, feed in feeds.items() if tables[node] is not None}
            if feeds:
                query.epoch({node: rows for node, rows in tables.items() if rows is not None})
        return query

    @property
    def _place(self) -> str:
        return "flow in process"

    def _columns_of(self, data: Any) -> pa.Schema:
        if isinstance(data, pa.Table):
            return data.schema
        if isinstance(data, _Feed):
            return data.schema
        if isinstance(data, Sequence) and not isinstance(data, str) and not data:
            raise ConfigError(
                "This source is empty, so it has no columns. Give at least one pyarrow.Table; it may have no rows."
            )
        raise ConfigError(
            f"A local flow reads Arrow tables, but this source is a {type(data).__name__}. "
            f"Give a pyarrow.Table, or some of them in a list or a generator, one per epoch."
        )

    def _selected(self, node: Node, expressions: Sequence[Any]) -> tuple[pa.Schema, bool]:
        return sql.select(node.columns.empty_table(), expressions).schema, False

    def _check_where(self, node: Node, condition: Any) -> None:
        sql.where(node.columns.empty_table(), condition)

    def _check_pairs(self, node: JoinNode, condition: str) -> None:
        sql.where_pairs(node.columns.empty_table(), condition, node.sides)

    def _check_memory(self, memory: str | int) -> int:
        size = parse_bytes(memory)
        if size // self.shards < _SMALLEST_SHARE:
            raise ConfigError(
                f"memory={memory!r} over {self.shards} shards is too small for one page. "
                f"Write at least memory={_SMALLEST_SHARE * self.shards}."
            )
        return size

    def _master_table(self, table: Any, keys: tuple[str, ...], freshness: Freshness) -> TableSource:
        return read_table(table, keys)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a shard of an operator works: its memory, and the store of its pages."""

    budget: Budget
    store: PageStore

    def settle(self, gone: Iterable[str]) -> None:
        """What logics hold goes with them; what is saved stays, but for what is `gone`, and what is kept of tables."""
        for name in gone:
            self.store.drop(name)
        saved = self.store.held if isinstance(self.store, MemoryPages) else 0
        self.budget.release(self.budget.held - saved - kept_by(self.budget))


class LocalQuery:
    """A local flow at work, or done. An epoch has `trigger` seconds, or all the time it takes."""

    def __init__(self, flow: LocalFlow, trigger: float | None = None) -> None:
        self._flow = flow
        self._trigger = trigger
        self._paces = Paces()
        self._sinks = flow._sinks
        roots = flow._roots
        self._tracks = {node: Track() for node in sources_of(*roots)}
        self._report = Report()
        self._spill = tempfile.TemporaryDirectory(prefix="penstock-")
        budgets = [Budget(max(1, flow.memory // flow.shards)) for _ in range(flow.shards)]
        shared = [_Place(budget, MemoryPages(budget, FilePages(self._spill.name))) for budget in budgets]
        self._states: dict[OperatorNode, list[State]] = {
            node: [State()] * flow.shards for node in operators_needed(self._sinks)
        }
        operators = list(self._states)
        self._places = {node: self._places_of(node, shared) for node in operators}
        self._ports: dict[OperatorNode, tuple[Time, ...]] = {node: (TIME_MIN,) * len(node.inputs) for node in operators}
        lookups = [node for node in operators if isinstance(node, LookupNode)]
        self._tables = {node.name: self._settled(node) for node in lookups}
        self._versions: dict[str, str] = {}
        cockpit = Cockpit(flow.memory, flow.shards, self._master)
        pilots = {node: cockpit.pilot(node, feeds=_feeds(node, operators)) for node in operators}
        self._pilots = {node: pilot for node, pilot in pilots.items() if pilot is not None}
        self._ended = False
        self._failure: PenstockError | None = None

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
        pilots = {node.name: pilot for node, pilot in self._pilots.items()}
        return explain(self._sinks, self.progress(), pilots, self._flow.memory, self._flow.shards, "In process")

    def progress(self) -> Report:
        """What the epochs measured."""
        return self._report

    @property
    def status(self) -> Status:
        """Whether the query has stopped, failed or ended, and its last epoch.

        >>> flow = LocalFlow()
        >>> rows = flow.source(pa.table({"t": [1]}), time="t").to_memory()
        >>> flow.run().status
        ended, last committed epoch: 1
        """
        epochs = self._report.totals.epochs
        state: DisplayState = "failed" if self._failure else "ended" if self._ended else "stopped"
        return Status(state, epochs - 1 if epochs else None)

    @property
    def exception(self) -> PenstockError | None:
        """The error the query failed with, or None."""
        return self._failure

    def __repr__(self) -> str:
        return f"<query in process: {self.status}; {self.progress()}>"

    def _repr_html_(self) -> str:
        return preformatted(repr(self))

    def epoch(self, tables: dict[SourceNode, pa.Table], end: bool = False) -> None:
        """All rows first, then the bounds; with `end`, every bound is the end of time."""
        if self._ended:
            raise FlowError("The streams of this flow have ended. Make a new flow to run again.")
        try:
            self._one(tables, end)
        except PenstockError as failure:
            self._failure = failure
            raise

    def _one(self, tables: dict[SourceNode, pa.Table], end: bool) -> None:
        begun = clock.perf_counter()
        epoch = _Epoch(self, tables, end)
        given: dict[Node, int] = {}
        for sink in self._sinks:
            rows = epoch.late(sink.node) if sink.emits == "late" else self._computed(epoch, sink)
            self._deliver(sink, rows)
            if sink.emits == "results":
                given[sink.node] = rows.num_rows
        self._tracks = epoch.tracks
        self._states |= epoch.states
        self._ended = end
        report = epoch.report(self._report.totals.epochs, clock.perf_counter() - begun, sum(given.values()))
        self._report = self._report.after(report)

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

    def _computed(self, epoch: _Epoch, sink: Sink) -> pa.Table:
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

    def _places_of(self, node: OperatorNode, shared: list[_Place]) -> list[_Place]:
        """Where an operator's shards work: all in the same place, but for lookups that ask for less, or put rows aside.

        Their pages are files, as on Spark: what they ask for is for the rest.
        """
        if not isinstance(node, LookupNode) or (node.memory is None and not node.config.shed.on):
            return shared
        share = self._share_of(node)
        folder = f"{self._spill.name}/pages-{node.name}"
        for place in node.config.elsewhere.values():
            make_folder(folder_for(folder, place), f"to={place!r}")
            # State that is lost with the query leaves nothing behind.
            weakref.finalize(self, _remove, folder_for(folder, place))
        return [
            _Place(BudgetPart(place.budget, share), FilePages(folder, elsewhere=node.config.elsewhere))
            for place in shared
        ]

    def _share_of(self, node: LookupNode) -> int:
        """The memory of one of a lookup's shards."""
        return min(self._flow.memory, node.memory or self._flow.memory) // self._flow.shards

    def _settled(self, node: LookupNode) -> TableSource:
        return settled(node.config.table, node.freshness, f"{self._spill.name}/{node.name}")

    def _master(self, node: LookupNode) -> Master:
        table = self._tables[node.name]
        return Master(table.open(), kind_of(table), self._share_of(node))

    def _look_at_table(self, node: LookupNode) -> None:
        """Find out which version of its table a lookup sees now, and tell its pilot if it is another."""
        last = self._versions.get(node.name)
        if last is not None and node.freshness == "snapshot":
            return
        table = self._tables[node.name].open()
        self._versions[node.name] = table.version
        if table.version != last:
            look_at(table, self._pilots.get(node))

    def _looking_up(self, node: LookupNode, config: LookupJoin, end: bool) -> LookupJoin:
        """A lookup against the version of its table that this epoch sees, as often as its time allows."""
        quota = None
        if config.shed.on and not end:
            quota = self._paces.quota(node.name, self._trigger, in_turn=self._flow.shards)
        return replace(config, table=self._tables[node.name], version=self._versions[node.name], quota=quota)

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
            raise ConfigError(f"{sink} is a writer of Spark's. In a local flow use to_parquet, or foreach_epoch(…).")


class _Epoch:
    """One epoch at work: each stream's rows are computed once, however many consumers it has."""

    def __init__(self, query: LocalQuery, tables: dict[SourceNode, pa.Table], end: bool) -> None:
        self._query = query
        self._done: dict[Node, pa.Table] = {}
        self._late: dict[SourceNode, pa.Table] = {}
        self._given: dict[SourceNode, pa.Table] = {}
        self._turned_away: dict[SourceNode, int] = {}
        """How many rows of a source were found late only behind it."""
        self._operators: dict[str, OperatorReport] = {}
        self._seen: dict[SourceNode, Seen] = {}
        self._bounds: dict[Node, Time] = {}
        self.states: dict[OperatorNode, list[State]] = {}
        self._end = end
        for node in query._tracks:
            self._given[node] = tables.get(node, node.columns.empty_table())
            self._take(node, self._given[node])
        self.tracks = self._follow(end)

    def rows(self, node: Node) -> pa.Table:
        """The rows of a stream in this epoch, its event time with them."""
        if node not in self._done:
            self._done[node] = self._compute(node)
        return self._done[node]

    def bound(self, node: Node) -> Time:
        """How far a stream has promised, once its rows are computed."""
        if isinstance(node, SourceNode):
            return self.tracks[node].bound
        if isinstance(node, OperatorNode):
            return self._bounds[node]
        return min(self.bound(part) for part in node.inputs)

    def late(self, node: Node) -> pa.Table:
        """The late rows of the sources of a stream."""
        for guard in guards_of(node):
            self.rows(guard)
        columns = late_columns(node)
        return pa.concat_tables(
            [_widened(_missing(self._late[source], source, node), columns) for source in sources_of(node)]
        )

    def report(self, number: int, seconds: float, rows_out: int) -> EpochReport:
        """What this epoch measured."""
        return EpochReport(
            epoch=number,
            seconds=seconds,
            rows_in={node.name: self._given[node].num_rows for node in self.tracks},
            rows_out=rows_out,
            late={node.name: _count(self._late[node], "late") for node in self.tracks},
            no_time={n.name: self._late[n].num_rows - _count(self._late[n], "late") for n in self.tracks},
            bounds={node.name: show_time(track.bound, node.unit) for node, track in self.tracks.items()},
            operators=self._operators,
        )

    def _take(self, node: SourceNode, rows: pa.Table) -> None:
        """Split a source's rows into those in time and those late; a row at its bound is in time."""
        if rows.schema.names != node.columns.names or rows.schema.types != node.columns.types:
            raise FlowError(f"Source {node.name!r} changed its columns from {node.columns} to {rows.schema}.")
        # Tables that differ in nullability or metadata only are alike.
        rows = pa.Table.from_arrays(rows.columns, schema=node.columns)
        times = as_times(rows.column(node.time))
        usable = pc.fill_null(in_range(times, node.unit), fill_value=False)
        late = pc.or_(pc.invert(usable), pc.less(times, self._query._tracks[node].bound))
        late = pc.fill_null(late, fill_value=True)
        missing = pc.is_null(rows.column(node.time)).combine_chunks()
        reason = pc.if_else(missing, "no-time", pc.if_else(usable, "late", "out-of-range")).filter(late)
        kept = rows.append_column(TIME, times).filter(pc.invert(late))
        source = pa.array([node.name] * len(reason), pa.string())
        self._late[node] = rows.filter(late).append_column("late_source", source).append_column("late_reason", reason)
        self._done[node] = kept
        self._seen[node] = Seen(
            rows=kept.num_rows,
            max_time=_largest(kept.column(TIME)),
            mark=_mark(node, rows),
        )

    def _follow(self, end: bool) -> dict[SourceNode, Track]:
        before = self._query._tracks
        if end:
            return {node: replace(track, bound=TIME_MAX) for node, track in before.items()}
        now = self._query._flow._now()
        nodes = list(before)
        after = [follow(before[node], node.progress, node.unit, self._seen[node], now) for node in nodes]
        woken = wake(after, [node.progress for node in nodes], [node.unit for node in nodes], now)
        return dict(zip(nodes, woken, strict=True))

    def _compute(self, node: Node) -> pa.Table:
        if isinstance(node, SelectNode):
            return sql.select(self.rows(node.input), node.expressions)
        if isinstance(node, WhereNode):
            return sql.where(self.rows(node.input), node.condition)
        if isinstance(node, UnionNode):
            return pa.concat_tables([self.rows(member).select([*node.columns.names, TIME]) for member in node.members])
        if isinstance(node, OperatorNode):
            return self._operate(node)
        if isinstance(node, StatementNode):
            given = self._given[node.input]
            stated = given.select(node.columns.names).append_column(TIME, as_times(given.column(node.said)))
            return stated.filter(pc.is_valid(stated.column(TIME)))
        raise TypeError(node)

    def _operate(self, node: OperatorNode) -> pa.Table:
        # All inputs first: what operators before this one hold, and their time, must not mix with its own.
        given = [self.rows(part) for part in node.inputs]
        begun = clock.perf_counter()
        pilot = self._query._pilots.get(node)
        if isinstance(node, LookupNode):
            self._query._look_at_table(node)
        config = node.config if pilot is None else replace(node.config, method=pilot.decide().method)
        if isinstance(node, LookupNode):
            config = self._query._looking_up(node, config, self._end)
        tally = Tally()
        shards = self._logics(node, config, tally)
        outs: list[Out] = []
        arrived = [rows.num_rows for rows in given]
        # Bounds are the host's to remember: a logic that takes up its state learns from the first how far it had got.
        for port, bound in enumerate(self._query._ports[node]):
            for logic in shards:
                outs += logic.advance(port, bound)
        for port, arriving in enumerate(given):
            before = self._query._ports[node][port]
            for logic, rows in zip(shards, _routed(node, port, arriving, len(shards), before), strict=True):
                outs += logic.rows(port, rows)
        for port, part in enumerate(node.inputs):
            for logic in shards:
                outs += logic.advance(port, self.bound(part))
        for logic in shards:
            outs += logic.idle(Quiet(sum(arrived)))
        self._bounds[node] = min(config.bound(logic.bounds()) for logic in shards)
        batches = [out.rows for out in outs if out.outlet != "late"]
        results = pa.Table.from_batches(batches, schema=node.columns)
        if isinstance(node, GuardNode):
            self._turn_away(node.input, [out.rows for out in outs if out.outlet == "late"])
        self._save(node, shards)
        pages = [page for state in self.states[node] for page in state.pages]
        self._operators[node.name] = OperatorReport(
            rows_in=sum(n for n, part in zip(arrived, node.inputs, strict=True) if not isinstance(part, StatementNode)),
            rows_out=results.num_rows,
            state_rows=sum(page.rows for page in pages),
            state_bytes=sum(page.nbytes for page in pages),
            pages=len(pages),
            phases={"work": clock.perf_counter() - begun},
            peak_memory=max(place.budget.peak for place in self._query._places[node]),
            method=node.method(config),
            deferred=tally.deferred,
            counts=added_up(map(counts_of, shards)),
            waits=all_waits(map(waits_of, shards)),
        )
        if isinstance(node, LookupNode):
            report = self._operators[node.name]
            self._query._paces.saw(node.name, report.seconds, report.counts["reads"])
        after = tuple(self.bound(part) for part in node.inputs)
        if pilot is not None:
            epoch = Flown(
                before=self._query._ports[node],
                after=after,
                rows=tuple(arrived),
                results=results.num_rows,
                lifted=(tally.rows_lifted, tally.lifted),
                seconds=clock.perf_counter() - begun,
                counts=self._operators[node.name].counts,
                pages=pages,
            )
            tell(pilot, node, epoch)
        self._query._ports[node] = after
        if isinstance(node, JoinNode) and node.where:
            results = sql.where_pairs(results, node.where, node.sides)
        return _timed(node, results)

    def _turn_away(self, source: SourceNode, late: list[pa.RecordBatch]) -> None:
        """Rows of a source that are late by what was said of their group."""
        rows = pa.Table.from_batches(late, schema=source.columns)
        self._turned_away[source] = rows.num_rows
        for name, value in (("late_source", source.name), ("late_reason", "late")):
            rows = rows.append_column(name, pa.array([value] * rows.num_rows, pa.string()))
        self._late[source] = pa.concat_tables([self._late[source], rows])

    def _logics(self, node: OperatorNode, config: Any, meter: Tally) -> list[Logic]:
        query = self._query
        if isinstance(node, LookupNode):
            payer = query._places[node][0].budget
            hand_over(payer, payer.limit // LEFT)
        parts = zip(query._places[node], query._states[node], strict=True)
        return [
            config.logic(node.types, SharedPages(place.store, state.pages), place.budget, state, meter)
            for place, state in parts
        ]

    def _save(self, node: OperatorNode, shards: list[Logic]) -> None:
        """Keep what the shards have become; joins leave many small pages, aggregations merge their own."""
        before, places = self._query._states[node], self._query._places[node]
        states = [logic.state() for logic in shards]
        if compacts(node.config):
            stores = [SharedPages(place.store, old.pages) for place, old in zip(places, before, strict=True)]
            parts = zip(states, stores, places, strict=True)
            states = [replace(s, pages=compact(s.pages, store, place.budget)) for s, store, place in parts]
        for place, old, new in zip(places, before, states, strict=True):
            gone = names_of(old.pages) - names_of(new.pages)
            if isinstance(node, LookupNode):
                place.settle(gone)
            else:
                for name in gone:
                    place.store.drop(name)
        self.states[node] = states


def _remove(uri: str) -> None:
    """Delete a folder of pages, if it was made."""
    files, path = find_folder(uri)
    if files.get_file_info(path).type == FileType.Directory:
        files.delete_dir(path)


def _feeds(node: OperatorNode, operators: Sequence[OperatorNode]) -> bool:
    """Whether an operator's results go into another."""
    return any(node in walk(*other.inputs) for other in operators)


def _routed(node: OperatorNode, port: int, rows: pa.Table, shards: int, before: Time) -> list[pa.RecordBatch]:
    """The rows of a port by shard. Rows that have lost their event time enter at the port's bound."""
    types = node.types[port]
    for key in types.keys:
        kind, held = types.columns.field(key).type, rows.schema.field(key).type
        if pa.types.is_dictionary(kind) and pa.types.is_dictionary(held):
            rows = rows.set_column(rows.schema.get_field_index(key), key, rows.column(key).cast(held.value_type))
    try:
        cast = rows.select([*types.columns.names, TIME]).cast(types.columns.append(pa.field(TIME, pa.int64())))
    except pa.ArrowInvalid as wrong:
        raise FlowError(f"A key of {node.name} cannot be compared: {wrong}.") from wrong
    keys = [cast.column(key).combine_chunks() for key in types.keys]
    hashes = hash_keys(keys) if keys else np.zeros(cast.num_rows, np.uint64)
    entered = with_times(types.enter(cast, hashes), before)
    if shards == 1:
        return [entered]
    shard = shard_of(hashes, shards)
    return [entered.take(pa.array(np.flatnonzero(shard == number))) for number in range(shards)]


def _timed(node: OperatorNode, rows: pa.Table) -> pa.Table:
    """Results with the event time that the operator gives them."""
    if not node.clock:
        return rows.append_column(TIME, pa.nulls(rows.num_rows, pa.int64()))
    times = [as_times(rows.column(name)) for name in node.clock]
    rule = node.timed_as
    if isinstance(rule, AggregateNode):
        return rows.append_column(TIME, pc.subtract(times[0], 1))
    if len(times) == 1:
        return rows.append_column(TIME, times[0])
    pick = pc.max_element_wise if rule.config.time == "latest" else pc.min_element_wise
    return rows.append_column(TIME, pick(*times))


def _missing(late: pa.Table, source: SourceNode, node: Node) -> pa.Table:
    """A source's late rows with the windows that they missed, if the stream is of windows and their time tells."""
    windows = windows_of(node)
    if windows is None or not keeps_time(windows.input, source):
        return late
    timed = pc.equal(late.column("late_reason"), "late").combine_chunks()
    times = pc.if_else(timed, as_times(late.column(source.time)), None)
    edges = missed(windows.config, times, windows.columns.field(windows.config.start).type)
    for name, edge in zip(MISSED, edges, strict=True):
        late = late.append_column(name, edge)
    return late


def _widened(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Rows in more columns than they have: null where there is none, as text where there must be."""
    held = set(rows.column_names)
    arrays = [
        rows.column(field.name).cast(field.type) if field.name in held else pa.nulls(len(rows), field.type)
        for field in columns
    ]
    return pa.table(arrays, schema=columns)


def _mark(node: SourceNode, rows: pa.Table) -> Time:
    column = getattr(node.progress, "linear", None)
    return TIME_MIN if column is None else _largest(as_times(rows.column(column)))


def _largest(times: pa.Array | pa.ChunkedArray) -> Time:
    top = pc.max(times).as_py()
    return TIME_MIN if top is None else int(top)


def _count(late: pa.Table, reason: str) -> int:
    return int(pc.sum(pc.equal(late.column("late_reason"), reason)).as_py() or 0)
