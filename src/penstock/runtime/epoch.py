"""One epoch in this process: from a table of each source to the rows of each stream, each computed once.

Local flows run every epoch this way; Spark flows those with few rows, or with few left after the first steps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.budget import Budget, ample
from penstock.core.operator import Out
from penstock.core.progress import Seen, Track
from penstock.core.rows import TIME, HashedBy, with_times
from penstock.core.time import Time, as_times
from penstock.expressions import evaluate
from penstock.expressions.view import View
from penstock.flow.graph import (
    MISSED,
    FetchNode,
    Node,
    OperatorNode,
    SourceNode,
    StatementNode,
    StepNode,
    UnionNode,
    guarded_by,
    guards_of,
    keeps_time,
    late_columns,
    sources_of,
    walk,
    windows_of,
)
from penstock.flow.sinks import Sink
from penstock.kernels.missed import missed
from penstock.runtime.course import Course
from penstock.runtime.entering import Entry
from penstock.runtime.lateness import Judge, Split, both
from penstock.runtime.shard import PortBounds
from penstock.runtime.side_by_side import side_by_side
from penstock.runtime.steps import Fetch, ResultTime, all_of, fetch_of, fetched_ahead, in_pieces, step, through, ways_to
from penstock.runtime.tracks import Tracks
from penstock.storage.versioned import Plan

_FETCHED = 16
"""The fraction of the memory that payload of results may take while it is handed over."""

_IN_THREADS = 1 << 21
"""Size of a piece, in bytes, above which several threads fetch payload: each needs some memory."""

_BATCH = 1 << 12
"""Rows per batch: smaller batches are combined before they enter an operator."""


Again = Callable[[], Iterable[Iterable[pa.Table]]]
"""Reads a source's rows from the beginning, in runs of pieces."""


@dataclass(frozen=True, slots=True)
class Anew:
    """Batches that are made each time they are asked for, so that they need not be kept."""

    make: Callable[[], Iterator[pa.RecordBatch]]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """From the first on."""
        return self.make()


class Workers(Protocol):
    """Runs the shards of operators, and keeps their state."""

    @property
    def hashed_by(self) -> HashedBy:
        """The hash function that assigns rows to shards."""
        ...

    def work(
        self, node: OperatorNode, plan: Plan, ports: Sequence[PortBounds], arrivals: Sequence[Iterable[pa.RecordBatch]]
    ) -> Iterator[Out]:
        """Run all shards of an operator over the batches that arrive at each port; the results must be consumed."""
        ...


class Epoch:
    """One running epoch: each stream's rows are computed once, however many consumers it has.

    Rows of sources come in runs of `pieces`, which `threads` process in parallel. Of each piece, only the output of the
    steps up to the next operator or sink is kept; it is charged to `budget`, and so are results that another operator
    waits for. Of sources whose rows are read `again`, `pieces` only tell times, and nothing is kept.
    """

    def __init__(
        self,
        course: Course,
        plan: Plan,
        sinks: Sequence[Sink],
        pieces: Mapping[SourceNode, Sequence[Iterable[pa.Table]]],
        workers: Workers,
        followed: Callable[[Mapping[str, Seen]], Tracks],
        budget: Budget | None = None,
        threads: int = 1,
        again: Mapping[SourceNode, Again] | None = None,
    ) -> None:
        self._threads = threads
        self._again = again or {}
        self._course = course
        self._workers = workers
        self._budget = budget or ample()
        self._piece = self._budget.limit // _FETCHED
        self._uses = _uses(sinks, course.operators)
        self._done: dict[Node, pa.Table] = {}
        self._charged: Counter[Node] = Counter()
        """Bytes charged for finished rows."""
        self._ran: set[OperatorNode] = set()
        self._late: dict[SourceNode, pa.Table] = {}
        self._keeps_late = {source for sink in sinks if sink.emits == "late" for source in sources_of(sink.node)}
        self.rows_in: Counter[str] = Counter()
        self.late_in: Counter[str] = Counter()
        """Rows below their source's bound."""
        self.turned_away: Counter[str] = Counter()
        """Rows below their group's bound only."""
        self.timeless_in: Counter[str] = Counter()
        """Rows without a usable time."""
        ends = _ends(sinks, course.operators)
        for source in self._again:
            del ends[source]
        self.seen = {node.name: self._read(node, pieces.get(node, ()), ends[node]) for node in course.sources}
        """What was seen of each source."""
        self.tracks = followed(self.seen)
        """The tracks of the sources after these rows."""
        self.plan = replace(plan, tracks=self.tracks)

    def rows(self, node: Node) -> pa.Table:
        """The rows of a stream in this epoch, with their event time."""
        if node not in self._done:
            self._done[node] = self._compute(node)
        return self._done[node]

    def stream(self, node: Node) -> Iterator[pa.Table]:
        """The same, piece by piece; results without another consumer are not kept."""
        if node in self._done or self._uses[node] > 1:
            yield self.rows(node)
        elif isinstance(node, OperatorNode) and not node.config.finds_late:
            yield from self._results(node)
        elif isinstance(node, FetchNode) and self._threads > 1 and self._piece >= _IN_THREADS:
            # Pieces that are fetched, and those that wait, are to take no more than one at a time would.
            yield from fetched_ahead(fetch_of(node), self.stream(node.input), self._piece // 2, self._threads)
        elif isinstance(node, StepNode):
            for piece in self.stream(node.input):
                yield from in_pieces((step(node),), piece, self._piece)
        else:
            yield self.rows(node)

    def late(self, node: Node) -> pa.Table:
        """The late rows of the sources of a stream."""
        for guard in guards_of(node):
            if guard not in self._ran:
                self.rows(guard)
        columns = late_columns(node)
        return pa.concat_tables(
            [_widened(_missing(self._late[source], source, node), columns) for source in sources_of(node)]
        )

    def _read(self, node: SourceNode, runs: Sequence[Iterable[pa.Table]], ends: Sequence[Node]) -> Seen:
        """Take a source's rows piece by piece: what each of its `ends` needs of them, and what they show."""
        seen, judge = Seen(), Judge.of(node, self._course.ledger.tracks.get(node.name, Track()))
        parts: dict[Node, list[tuple[int, pa.Table]]] = {end: [] for end in ends}
        late: list[tuple[int, pa.Table]] = []

        def work(given: pa.Table) -> tuple[int, Split, list[pa.Table]]:
            split = judge.split(given)
            made: dict[Node, View] = {node: View.of(split.kept, node.columns)} if ends else {}
            return given.num_rows, split, [_taken(end, node, given, made) for end in ends]

        with closing(side_by_side(runs, work, self._threads)) as coming:
            first = next(coming, None) or (0, work(node.columns.empty_table()))
            for run, (rows, split, taken) in chain([first], coming):
                seen = both(seen, split.seen)
                self.rows_in[node.name] += rows
                self.late_in[node.name] += split.below
                self.timeless_in[node.name] += split.late.num_rows - split.below
                if node in self._keeps_late:
                    self._budget.charge(split.late.nbytes, f"late rows of {node.name}")
                    plain = _whole(View.of(split.late, node.columns).table(), node)
                    late.append((run, _called_late(plain, node, split.reasons)))
                for end, part in zip(ends, taken, strict=True):
                    self._charge(end, part, f"rows of {node.name}")
                    parts[end].append((run, part))
        if node in self._keeps_late:
            self._late[node] = _in_order(late)
        self._done |= {end: _in_order(some) for end, some in parts.items()}
        return seen

    def _charge(self, node: Node, rows: pa.Table, what: str) -> None:
        self._budget.charge(rows.nbytes, what)
        self._charged[node] += rows.nbytes

    def _compute(self, node: Node) -> pa.Table:
        if isinstance(node, StepNode):
            return through((step(node),), self.rows(node.input))
        if isinstance(node, UnionNode):
            return pa.concat_tables([self.rows(member).select([*node.columns.names, TIME]) for member in node.members])
        if isinstance(node, OperatorNode):
            parts = []
            for part in self._results(node):
                self._charge(node, part, f"results of {node.name}")
                parts.append(part)
            return pa.concat_tables(parts) if parts else ResultTime.of(node).beside(node.columns.empty_table())
        raise TypeError(node)

    def _results(self, node: OperatorNode) -> Iterator[pa.Table]:
        """The results of an operator, as it makes them."""
        if node in self._ran:
            raise RuntimeError(f"{node.name} has run in this epoch")
        self._ran.add(node)
        # All inputs first: what operators before this one hold, and their time, must not mix with its own.
        for part in node.inputs:
            if self._read_again(part) is None:
                self.rows(part)
        course, plan = self._course, self.plan
        after = course.after(node, plan, plan.tracks)
        ports = [PortBounds(*bounds) for bounds in zip(course.before(node), after, strict=True)]
        turned_away: list[pa.RecordBatch] = []
        time = ResultTime.of(node)
        with self._budget.tab(f"rows that enter {node.name}") as charge:
            arrivals: list[Iterable[pa.RecordBatch]] = []
            for port, bounds in enumerate(ports):
                source = self._read_again(node.inputs[port])
                if source is None:
                    arrivals.append(self._entering(node, port, bounds.before, charge))
                else:
                    arrivals.append(Anew(partial(self._entering_anew, source, node, port, bounds.before)))
            for out in self._workers.work(node, plan, ports, arrivals):
                if out.outlet == "late":
                    turned_away.append(out.rows)
                    continue
                results = pa.Table.from_batches([out.rows], schema=node.columns)
                if node.pairs is not None:
                    results = evaluate.where_pairs(results, node.pairs.condition, node.pairs.sides)
                yield time.beside(results)
            del arrivals
        if node.config.finds_late:
            self._turn_away(guarded_by(node), turned_away)

    def _entering(
        self, node: OperatorNode, port: int, before: Time, charge: Callable[[int], None]
    ) -> list[pa.RecordBatch]:
        """What enters a port, batch by batch, so that columns need not be copied; rows that nobody else takes go."""
        part, entry = node.inputs[port], Entry.of(node, port, self.plan.sites)
        rows = self.rows(part)
        self._uses[part] -= 1
        if not self._uses[part] and part in self._charged:
            self._budget.release(self._charged.pop(part))
            del self._done[part]
            charge(rows.nbytes)
        few = rows.num_rows < _BATCH * rows.column(0).num_chunks
        batches = (rows.combine_chunks() if few else rows).to_batches()
        del rows
        hashed_by = self._workers.hashed_by
        entered: list[pa.RecordBatch] = []
        for batch in batches:
            for copy, placed in enumerate(entry.enter(pa.Table.from_batches([batch]), hashed_by)):
                charge(8 * placed.num_rows if not copy else placed.nbytes)
                entered.append(with_times(placed, before))
        return entered

    def _read_again(self, part: Node) -> SourceNode | None:
        """The source of a stream whose rows are not kept."""
        root = part
        while isinstance(root, StepNode):
            root = root.input
        return root if isinstance(root, SourceNode) and root in self._again else None

    def _entering_anew(
        self, source: SourceNode, node: OperatorNode, port: int, before: Time
    ) -> Iterator[pa.RecordBatch]:
        """What enters a port, read again: a piece goes before the next comes."""
        [(_, steps)] = ways_to(node.inputs[port])
        entry, hashed_by = Entry.of(node, port, self.plan.sites), self._workers.hashed_by
        judge = Judge.of(source, self._course.ledger.tracks.get(source.name, Track()))
        for run in self._again[source]():
            for given in run:
                for piece in in_pieces(steps, judge.split(given).kept, self._piece, source.columns):
                    with self._budget.hold(piece.nbytes, f"rows that enter {node.name}"):
                        for placed in entry.enter(piece, hashed_by):
                            yield with_times(placed, before)

    def _turn_away(self, source: SourceNode, late: list[pa.RecordBatch]) -> None:
        """Rows of a source that are late by what was said of their group."""
        rows = pa.Table.from_batches(late, schema=source.columns)
        self.turned_away[source.name] += rows.num_rows
        if source not in self._keeps_late:
            return
        reason = pa.array(["late"] * rows.num_rows, pa.string())
        self._late[source] = pa.concat_tables([self._late[source], _called_late(rows, source, reason)])


def _in_order(parts: Sequence[tuple[int, pa.Table]]) -> pa.Table:
    """The rows of several runs, one after the other, however their pieces came."""
    return pa.concat_tables([part for _, part in sorted(parts, key=lambda each: each[0])])


def _taken(end: Node, source: SourceNode, given: pa.Table, made: dict[Node, View]) -> pa.Table:
    """What a stream takes of a piece of a source."""
    if isinstance(end, StatementNode):
        return _stated(end, View.of(given, source.columns).table())
    return _through(end, made).table()


def _through(node: Node, made: dict[Node, View]) -> View:
    """Rows after all stateless steps up to `node`; what is made on the way is remembered."""
    if node not in made:
        if not isinstance(node, StepNode):
            raise TypeError(node)
        made[node] = step(node).of(_through(node.input, made))
    return made[node]


def _stated(node: StatementNode, rows: pa.Table) -> pa.Table:
    """What rows say of their groups."""
    stated = rows.select(node.columns.names).append_column(TIME, as_times(rows.column(node.said)))
    return stated.filter(pc.is_valid(stated.column(TIME)))


def _ends(sinks: Sequence[Sink], operators: Sequence[OperatorNode]) -> dict[SourceNode, list[Node]]:
    """For each source, the streams next to it that operators, sinks or unions take, each once."""
    ends: defaultdict[SourceNode, list[Node]] = defaultdict(list)

    def follow(node: Node) -> None:
        root = node
        while isinstance(root, StepNode):
            root = root.input
        if isinstance(root, UnionNode):
            for member in root.members:
                follow(member)
        source = root.input if isinstance(root, StatementNode) else root
        if isinstance(source, SourceNode) and node not in ends[source]:
            ends[source].append(node)

    for node in (part for operator in operators for part in operator.inputs):
        follow(node)
    for sink in sinks:
        if sink.emits == "results":
            follow(sink.node)
    return ends


def taken_by_one(sinks: Sequence[Sink], operators: Sequence[OperatorNode]) -> frozenset[SourceNode]:
    """The sources whose rows go into one port of an operator only: it can read them again and again.

    Those whose late rows a sink takes are not among them.
    """
    uses = _uses(sinks, operators)
    taken = Counter(part for operator in operators for part in operator.inputs)
    late = {source for sink in sinks if sink.emits == "late" for source in sources_of(sink.node)}
    return frozenset(
        source
        for source, ends in _ends(sinks, operators).items()
        if source not in late and len(ends) == 1 and uses[ends[0]] == taken[ends[0]] == 1
    )


def _uses(sinks: Sequence[Sink], operators: Sequence[OperatorNode]) -> Counter[Node]:
    """How often the rows of each stream are taken."""
    taken = [sink.node for sink in sinks if sink.emits == "results"]
    uses = Counter(taken)
    for node in walk(*taken, *operators):
        uses.update(node.inputs)
    return uses


def _whole(rows: pa.Table, source: SourceNode) -> pa.Table:
    """Rows of a source with all that they have there."""
    if source.row is None:
        return rows
    return Fetch((all_of(source),), tuple(source.given.names)).whole(rows)


def _called_late(rows: pa.Table, source: SourceNode, reason: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Late rows with their source and why they are late."""
    named = rows.append_column("late_source", pa.array([source.name] * rows.num_rows, pa.string()))
    return named.append_column("late_reason", reason)


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
