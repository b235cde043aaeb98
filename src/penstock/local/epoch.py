"""One epoch in this process: from a table of each source to the rows of each stream, computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import FlowError
from penstock.core.progress import Seen, Track
from penstock.core.rows import TIME, with_times
from penstock.core.time import TIME_MIN, Time, as_times, in_range, show_time
from penstock.expressions import evaluate
from penstock.flow.graph import (
    MISSED,
    Node,
    OperatorNode,
    SelectNode,
    SourceNode,
    StatementNode,
    UnionNode,
    WhereNode,
    guarded_by,
    guards_of,
    keeps_time,
    late_columns,
    sources_of,
    windows_of,
)
from penstock.flow.report import EpochReport, OperatorReport
from penstock.kernels.hashing import hash_keys
from penstock.kernels.missed import missed
from penstock.kernels.route import shard_of
from penstock.local.shards import Place, work
from penstock.runtime.course import Course
from penstock.runtime.shard import PortBounds
from penstock.runtime.tracks import ended, followed, woken
from penstock.storage.versioned import Ledger, Plan


class Epoch:
    """One epoch at work: each stream's rows are computed once, however many consumers it has."""

    def __init__(
        self,
        course: Course,
        plan: Plan,
        tables: Mapping[SourceNode, pa.Table],
        places: Mapping[str, Sequence[Place]],
    ) -> None:
        self._course = course
        self._places = places
        self._given = {node: tables.get(node, node.columns.empty_table()) for node in course.sources}
        self._done: dict[Node, pa.Table] = {}
        self._late: dict[SourceNode, pa.Table] = {}
        self._operators: dict[str, OperatorReport] = {}
        self._states = dict(course.ledger.states)
        seen = {node.name: self._take(node, rows) for node, rows in self._given.items()}
        self.plan = replace(plan, tracks=self._tracks(plan, seen))

    def rows(self, node: Node) -> pa.Table:
        """The rows of a stream in this epoch, its event time with them."""
        if node not in self._done:
            self._done[node] = self._compute(node)
        return self._done[node]

    def late(self, node: Node) -> pa.Table:
        """The late rows of the sources of a stream."""
        for guard in guards_of(node):
            self.rows(guard)
        columns = late_columns(node)
        return pa.concat_tables(
            [_widened(_missing(self._late[source], source, node), columns) for source in sources_of(node)]
        )

    def left(self) -> Ledger:
        """What the epoch leaves."""
        return self._course.left(self.plan, self.plan.tracks, self.plan.tracks, self._states)

    def report(self, seconds: float, rows_out: int) -> EpochReport:
        """What this epoch measured."""
        late = {node.name: _count(rows, "late") for node, rows in self._late.items()}
        return EpochReport(
            epoch=self.plan.epoch,
            seconds=seconds,
            rows_in={node.name: rows.num_rows for node, rows in self._given.items()},
            rows_out=rows_out,
            late=late,
            no_time={node.name: rows.num_rows - late[node.name] for node, rows in self._late.items()},
            bounds={node.name: show_time(self.plan.tracks[node.name].bound, node.unit) for node in self._given},
            operators=self._operators,
        )

    def _take(self, node: SourceNode, rows: pa.Table) -> Seen:
        """Split a source's rows into those in time and those late; a row at its bound is in time."""
        if rows.schema.names != node.columns.names or rows.schema.types != node.columns.types:
            raise FlowError(f"Source {node.name!r} changed its columns from {node.columns} to {rows.schema}.")
        # Tables that differ in nullability or metadata only are alike.
        rows = pa.Table.from_arrays(rows.columns, schema=node.columns)
        times = as_times(rows.column(node.time))
        usable = pc.fill_null(in_range(times, node.unit), fill_value=False)
        bound = self._course.ledger.tracks.get(node.name, Track()).bound
        late = pc.fill_null(pc.or_(pc.invert(usable), pc.less(times, bound)), fill_value=True)
        missing = pc.is_null(rows.column(node.time)).combine_chunks()
        reason = pc.if_else(missing, "no-time", pc.if_else(usable, "late", "out-of-range")).filter(late)
        kept = rows.append_column(TIME, times).filter(pc.invert(late))
        self._late[node] = _called_late(rows.filter(late), node, reason)
        self._done[node] = kept
        return Seen(rows=kept.num_rows, max_time=_largest(kept.column(TIME)), mark=_mark(node, rows))

    def _tracks(self, plan: Plan, seen: Mapping[str, Seen]) -> dict[str, Track]:
        sources, before = self._course.sources, self._course.ledger.tracks
        if plan.end:
            return ended(sources, before)
        return woken(sources, followed(sources, before, seen, plan.now), plan.now)

    def _compute(self, node: Node) -> pa.Table:
        if isinstance(node, SelectNode):
            return evaluate.select(self.rows(node.input), node.expressions)
        if isinstance(node, WhereNode):
            return evaluate.where(self.rows(node.input), node.condition)
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
        course, plan, places = self._course, self.plan, self._places[node.name]
        after = course.after(node, plan, plan.tracks)
        ports = [PortBounds(*bounds) for bounds in zip(course.before(node), after, strict=True)]
        arrivals = [_routed(node, port, rows, len(places), ports[port].before) for port, rows in enumerate(given)]
        worked = work(course.config(node, plan), node, places, course.held(node), ports, arrivals)
        batches = [out.rows for out in worked.outs if out.outlet != "late"]
        results = pa.Table.from_batches(batches, schema=node.columns)
        if node.config.finds_late:
            self._turn_away(guarded_by(node), [out.rows for out in worked.outs if out.outlet == "late"])
        self._states[node.name] = worked.states
        self._operators[node.name] = course.report(node, plan, plan.tracks, worked.records, worked.states)
        if node.pairs is not None:
            results = evaluate.where_pairs(results, node.pairs.condition, node.pairs.sides)
        return _timed(node, results)

    def _turn_away(self, source: SourceNode, late: list[pa.RecordBatch]) -> None:
        """Rows of a source that are late by what was said of their group."""
        rows = pa.Table.from_batches(late, schema=source.columns)
        reason = pa.array(["late"] * rows.num_rows, pa.string())
        self._late[source] = pa.concat_tables([self._late[source], _called_late(rows, source, reason)])


def _called_late(rows: pa.Table, source: SourceNode, reason: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Late rows with their source and why they are late."""
    named = rows.append_column("late_source", pa.array([source.name] * rows.num_rows, pa.string()))
    return named.append_column("late_reason", reason)


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
    if node.timing == "before end":
        return rows.append_column(TIME, pc.subtract(times[0], 1))
    if node.timing == "column":
        return rows.append_column(TIME, times[0])
    pick = pc.max_element_wise if node.timing == "latest" else pc.min_element_wise
    return rows.append_column(TIME, pick(*times))


def _missing(late: pa.Table, source: SourceNode, node: Node) -> pa.Table:
    """A source's late rows with the windows that they missed, if the stream is of windows and their time tells."""
    windows = windows_of(node)
    if windows is None or not keeps_time(windows.inputs[0], source):
        return late
    timed = pc.equal(late.column("late_reason"), "late").combine_chunks()
    times = pc.if_else(timed, as_times(late.column(source.time)), None)
    axis = windows.columns.field(windows.config.window_start).type
    for name, edge in zip(MISSED, missed(windows.config.windows_by_time, times, axis), strict=True):
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
