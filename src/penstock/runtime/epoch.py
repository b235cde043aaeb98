"""One epoch in this process: from a table of each source to the rows of each stream, computed once.

In process every epoch is run so; on Spark those that bring few rows, or leave few after their first steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.operator import Out
from penstock.core.progress import Seen, Track
from penstock.core.rows import TIME, HashedBy, with_times
from penstock.core.time import TIME_MIN, Time, as_times, in_range
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
from penstock.kernels.missed import missed
from penstock.runtime.course import Course
from penstock.runtime.entering import entering
from penstock.runtime.shard import PortBounds
from penstock.runtime.tracks import Tracks
from penstock.storage.versioned import Plan


class Workers(Protocol):
    """Who runs the shards of operators, and keeps what they leave."""

    @property
    def hashed_by(self) -> HashedBy:
        """What makes the hashes by which rows find their shards."""
        ...

    def work(
        self, node: OperatorNode, plan: Plan, ports: Sequence[PortBounds], arrivals: Sequence[pa.RecordBatch]
    ) -> list[Out]:
        """Run all shards of an operator over the rows that arrive at each port."""
        ...


class Epoch:
    """One epoch at work: each stream's rows are computed once, however many consumers it has."""

    def __init__(
        self,
        course: Course,
        plan: Plan,
        tables: Mapping[SourceNode, pa.Table],
        workers: Workers,
        followed: Callable[[Mapping[str, Seen]], Tracks],
    ) -> None:
        self._course = course
        self._workers = workers
        self._given = {node: tables.get(node, node.columns.empty_table()) for node in course.sources}
        self._done: dict[Node, pa.Table] = {}
        self._late: dict[SourceNode, pa.Table] = {}
        self.seen = {node.name: self._take(node, rows) for node, rows in self._given.items()}
        """What each source showed."""
        self.tracks = followed(self.seen)
        """How far the sources are once these rows are in."""
        self.plan = replace(plan, tracks=self.tracks)

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

    def late_rows(self, source: SourceNode) -> int:
        """How many rows of a source came below its bound, or were turned away."""
        return int(pc.sum(pc.equal(self._late[source].column("late_reason"), "late")).as_py() or 0)

    def timeless_rows(self, source: SourceNode) -> int:
        """How many rows of a source have no time, or none that can be used."""
        return int(self._late[source].num_rows) - self.late_rows(source)

    def _take(self, node: SourceNode, rows: pa.Table) -> Seen:
        """Split a source's rows into those in time and those late; a row at its bound is in time."""
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
        course, plan = self._course, self.plan
        after = course.after(node, plan, plan.tracks)
        ports = [PortBounds(*bounds) for bounds in zip(course.before(node), after, strict=True)]
        arrivals = [entering(node, port, rows, self._workers.hashed_by) for port, rows in enumerate(given)]
        timed = [with_times(rows, bounds.before) for rows, bounds in zip(arrivals, ports, strict=True)]
        outs = self._workers.work(node, plan, ports, timed)
        results = pa.Table.from_batches([out.rows for out in outs if out.outlet != "late"], schema=node.columns)
        if node.config.finds_late:
            self._turn_away(guarded_by(node), [out.rows for out in outs if out.outlet == "late"])
        if node.pairs is not None:
            results = evaluate.where_pairs(results, node.pairs.condition, node.pairs.sides)
        return timed_results(node, results)

    def _turn_away(self, source: SourceNode, late: list[pa.RecordBatch]) -> None:
        """Rows of a source that are late by what was said of their group."""
        rows = pa.Table.from_batches(late, schema=source.columns)
        reason = pa.array(["late"] * rows.num_rows, pa.string())
        self._late[source] = pa.concat_tables([self._late[source], _called_late(rows, source, reason)])


def _called_late(rows: pa.Table, source: SourceNode, reason: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Late rows with their source and why they are late."""
    named = rows.append_column("late_source", pa.array([source.name] * rows.num_rows, pa.string()))
    return named.append_column("late_reason", reason)


def timed_results(node: OperatorNode, rows: pa.Table) -> pa.Table:
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
