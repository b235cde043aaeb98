"""An epoch in the driver: Arrow reads its files, Spark sends the rows of DataFrames, and operators run here.

Its pages, staged records and results are the same as those of tasks, so that both can alternate on the same state. It
takes no more memory than a task: an epoch that turns out to need more is started again with tasks.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from penstock.core.budget import Budget
from penstock.core.errors import BudgetError, ConfigError
from penstock.core.files import InputFile, as_read, pruned
from penstock.core.operator import Out
from penstock.core.progress import Seen, Track
from penstock.core.rows import TIME, HashedBy
from penstock.expressions import evaluate
from penstock.expressions.needs import needed
from penstock.flow.graph import Node, OperatorNode, SelectNode, SourceNode, WhereNode, walk
from penstock.flow.report import OperatorReport
from penstock.flow.sinks import MemorySink, ParquetSink, Sink
from penstock.kernels.xxhash import can_xxhash
from penstock.runtime.course import IN_FLIGHT
from penstock.runtime.epoch import Epoch, taken_by_one
from penstock.runtime.lateness import Judge
from penstock.runtime.shard import PortBounds
from penstock.runtime.tracks import Tracks, followed
from penstock.spark.allocator import TrimmedBudget, allocating_within
from penstock.spark.assembly import Assembly
from penstock.spark.few import at_most, if_few
from penstock.spark.lateness import Counted
from penstock.spark.session import Meant
from penstock.spark.sinks import deliver_tables, drops
from penstock.spark.types import arrow_columns, union
from penstock.spark.work import TURNED_AWAY
from penstock.storage.payload import read_placed
from penstock.storage.scans import Portion, read_file, stamped
from penstock.storage.versioned import Plan

READ_HERE = 16
"""The part of a task's share that is read of a file at a time,"""

IN_PIECES = 4
"""and the part that rows on their way to an operator may take if they come piece by piece;"""

FETCHED_HERE = 2
"""and the part that rows may take which Spark sends: they go, batch by batch, as what is kept of them comes."""


class EpochHere:
    """One attempt at an epoch without Spark tasks."""

    native: Sequence[OperatorNode] = ()

    def __init__(
        self,
        flow: Assembly,
        plan: Plan,
        attempt: str,
        files: Mapping[SourceNode, Sequence[InputFile]],
        in_pieces: bool = False,
    ) -> None:
        self.attempt = attempt
        self._in_pieces = in_pieces
        self._in_flight = IN_PIECES if in_pieces else IN_FLIGHT
        self._flow = flow
        self._plan = plan
        self._files = {source: stamped(some) for source, some in files.items()} if in_pieces else files
        self._rows_out = 0
        self.tracks: Tracks = plan.tracks
        """How far the sources are, as operators are told."""

    def deliver(self, batch: DataFrame | None, planned: Callable[[], None]) -> dict[str, Counted]:
        """Run every operator and hand every sink its rows; what each source showed comes back.

        `planned` is called once rows are read: it returns when the plan is on disk.
        """
        with allocating_within(self._flow.course.share):
            return self._deliver(batch, planned)

    def _deliver(self, batch: DataFrame | None, planned: Callable[[], None]) -> dict[str, Counted]:
        course, epoch = self._flow.course, self._plan.epoch
        workers = _Workers(self._flow, self._plan, self.attempt, self._in_flight)
        self._budget = budget = TrimmedBudget(course.share // self._in_flight)
        budget.give_back()
        again = taken_by_one(self._flow.sinks, course.operators) & self._files.keys() if self._in_pieces else ()
        pieces: dict[SourceNode, Sequence[Iterator[pa.Table]]] = {
            source: self._times(source) if source in again else self._runs(source) for source in self._files
        }
        fetched = self._fetched(batch)
        for source in list(fetched):
            pieces[source] = [_let_go(_charged(fetched.pop(source), budget), budget)]
        anew = {source: partial(self._runs, source) for source in again}
        run = Epoch(course, self._plan, self._flow.sinks, pieces, workers, self._followed, budget, self._threads, anew)
        self.tracks = run.tracks
        planned()
        twice = [sink for sink in self._flow.sinks if sink.delivery == "exactly once" or drops(sink)]
        once = [sink for sink in self._flow.sinks if sink not in twice]
        # What may not be delivered twice is computed first and delivered last: the memory may turn out to be too small.
        held = {sink: list(self._tables(run, sink)) for sink in once}
        rows_out = {sink: deliver_tables(self._flow, sink, self._tables(run, sink), epoch) for sink in twice}
        for node in course.operators:
            if node not in workers.ran:
                run.rows(node)
        rows_out |= {sink: deliver_tables(self._flow, sink, iter(held.pop(sink)), epoch) for sink in once}
        self._rows_out = sum({s.node: rows for s, rows in rows_out.items() if s.emits == "results"}.values())
        return {
            node.name: Counted(
                run.seen[node.name],
                run.late_in[node.name],
                run.timeless_in[node.name],
                run.turned_away[node.name],
            )
            for node in course.sources
        }

    def _tables(self, run: Epoch, sink: Sink) -> Iterator[pa.Table]:
        """What a sink takes; rows that it takes whole are charged."""
        if sink.emits == "late":
            yield run.late(sink.node)
            return
        whole = not isinstance(sink, ParquetSink | MemorySink) and not drops(sink)
        for rows in run.stream(sink.node):
            plain = rows.drop_columns([TIME]) if TIME in rows.column_names else rows
            if whole:
                self._budget.charge(plain.nbytes, f"rows for sink {sink}")
            yield plain

    def followed(self, seen: Mapping[str, Counted]) -> Tracks:
        """How far the sources are once this epoch's rows are in."""
        return self._followed({name: counted.seen for name, counted in seen.items()})

    def rows_out(self, operators: Mapping[str, OperatorReport], seen: Mapping[str, Counted]) -> int:
        """How many rows the streams had that sinks take, each stream counted once."""
        return self._rows_out

    def _followed(self, seen: Mapping[str, Seen]) -> Tracks:
        if self._plan.end:
            return self._plan.tracks
        return followed(self._flow.course.sources, self._plan.tracks, seen, self._plan.now)

    def _fetched(self, batch: DataFrame | None) -> dict[SourceNode, pa.Table]:
        """The rows of DataFrames; raise if they are more than there is room for."""
        sources, frames = self._flow.source_rows, self._flow.frames
        parts = [self._flow.unsegmented(batch, self._plan)] if batch is not None and self._flow.streaming else []
        if self._plan.static:
            parts += [self._flow.rows_given(source) for source in frames if not source.data.isStreaming]
        if not parts:
            return {}
        tasks, size = self._flow.course.tasks, self._flow.course.share // FETCHED_HERE
        rows = union(parts).select(*sources.shared).coalesce(tasks)
        few = if_few(at_most(size // tasks, arrow_columns(rows.schema)).of(rows))
        if few is None:
            raise BudgetError(f"The rows that Spark has for this epoch are more than {size:,} bytes.")
        tables = sources.tables(few)
        return {source: tables[source] for source in frames}

    @property
    def _threads(self) -> int:
        """How many files are read at a time: as many as there would be tasks, if the driver has the cores."""
        return min(self._flow.course.tasks, os.cpu_count() or 1)

    def _times(self, source: SourceNode) -> list[Iterator[pa.Table]]:
        """The same, with the times of its rows alone."""
        files, judge = source.data.files, Judge.of(source, self._flow.course.ledger.tracks.get(source.name, Track()))
        columns = judge.looks_at(source.columns)
        return [
            read_file(as_read(files, file.segment), file.path, columns, values=file.values, stamp=file.stamp)
            for file in self._files[source]
        ]

    def _runs(self, source: SourceNode) -> list[Iterator[pa.Table]]:
        """What can be read side by side: files, or if they are few, their parts."""
        files, given = source.data.files, self._files[source]
        columns, threads = self._flow.source_rows.columns[source], self._threads
        size = self._flow.course.share // READ_HERE // threads
        if source.name in self._plan.late or len(given) < threads:
            parts = self._flow.portions(source, self._plan, given)
        else:
            parts = [Portion(f.path, 0, None, f.values, segment=f.segment, stamp=f.stamp) for f in given]
        return [read_placed(files, part, columns, source.row, source.lets_go, size, texts="encoded") for part in parts]


def _charged(rows: pa.Table, budget: Budget) -> deque[pa.RecordBatch]:
    """Rows that Spark sent, batch by batch."""
    batches = deque(rows.to_batches())
    for batch in batches:
        budget.charge(batch.nbytes, "rows that Spark sends")
    return batches


def _let_go(batches: deque[pa.RecordBatch], budget: Budget) -> Iterator[pa.Table]:
    """The same; each goes before the next comes."""
    while batches:
        batch = batches.popleft()
        size = batch.nbytes
        yield pa.Table.from_batches([batch])
        del batch
        budget.release(size)


class _Workers:
    """Runs the shards of operators one after the other, each with the memory of a task."""

    hashed_by: HashedBy = "xxhash64"

    def __init__(self, flow: Assembly, plan: Plan, attempt: str, in_flight: int) -> None:
        self._flow = flow
        self._attempt = attempt
        self._in_flight = in_flight
        """The part of the share that rows on their way take."""
        self.ran: set[OperatorNode] = set()

    def work(
        self, node: OperatorNode, plan: Plan, ports: Sequence[PortBounds], arrivals: Sequence[Iterable[pa.RecordBatch]]
    ) -> Iterator[Out]:
        """Run an epoch of an operator."""
        self.ran.add(node)
        task = self._flow.shard_task(node, plan, ports, self._attempt)
        # What an epoch's rows may take here is not for the shard.
        share = self._flow.course.share
        task = replace(task, share=min(task.share, share - share // self._in_flight))
        for rows in task.here(dict(enumerate(arrivals))):
            if not node.config.finds_late:
                yield Out("results", rows)
                continue
            late = rows.column(TURNED_AWAY)
            plain = rows.drop_columns([TURNED_AWAY])
            yield Out("results", plain.filter(pc.invert(late)))
            yield Out("late", plain.filter(late))


def columns_here(
    operators: Sequence[OperatorNode], sinks: Sequence[Sink], meant: Meant
) -> dict[SourceNode, pa.Schema] | str:
    """The columns to read of each source of a flow that can run here; else why it cannot.

    It can if its expressions have the same meaning and types in process as on Spark, whose session has these settings,
    and its keys the same hashes.
    """
    for node in walk(*(sink.node for sink in sinks), *operators):
        reason = _differs(node) or _needs_session(node, meant)
        if reason is not None:
            return reason
    try:
        return {source: pruned(source.columns, paths) for source, paths in needed(sinks, operators).items()}
    except ConfigError as unknown:
        return str(unknown)


_UTC = ("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00")
"""Names of the zone in which expressions are computed in process."""


def _needs_session(node: Node, meant: Meant) -> str | None:
    """Why a step may have another value in Spark's session than in UTC and in ANSI mode; None if it has not."""
    if meant.zone in _UTC and meant.ansi:
        return None
    for text, sides in _written(node):
        columns = node.columns if sides is not None else node.inputs[0].columns
        if meant.zone not in _UTC and evaluate.goes_by_zone(text, columns, sides):
            return f"{text!r} depends on the session's time zone, {meant.zone}, but Python computes in UTC"
        if not meant.ansi and evaluate.goes_by_ansi(text, columns, sides):
            return f"{text!r} may depend on spark.sql.ansi.enabled, which is false, but Python computes in ANSI mode"
    return None


def _written(node: Node) -> Iterator[tuple[str, evaluate.Sides | None]]:
    """The expressions of a step; one over pairs, with what its names mean."""
    if isinstance(node, SelectNode):
        yield from ((text, None) for text in node.expressions)
    elif isinstance(node, WhereNode):
        yield node.condition, None
    elif isinstance(node, OperatorNode) and node.pairs is not None:
        yield node.pairs.condition, node.pairs.sides


def _differs(node: Node) -> str | None:
    """Why a step cannot be done here as on Spark; None if it can."""
    try:
        if isinstance(node, SelectNode):
            made = evaluate.select(node.input.columns.empty_table(), node.expressions).schema
            if made.types != node.columns.types or made.names != node.columns.names:
                return f"select({', '.join(map(str, node.expressions))}) has other types in process"
        elif isinstance(node, WhereNode):
            evaluate.where(node.input.columns.empty_table(), node.condition)
        elif isinstance(node, OperatorNode) and node.pairs is not None:
            evaluate.where_pairs(node.columns.empty_table(), node.pairs.condition, node.pairs.sides)
    except ConfigError as unknown:
        return str(unknown)
    if isinstance(node, OperatorNode):
        for types in node.types:
            for key in types.keys:
                if not can_xxhash(types.columns.field(key).type):
                    return f"{node.name} has a key of type {types.columns.field(key).type}, which only Spark can hash"
    return None
