"""Stateless steps between streams, told apart from the graph: a task can take them along."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.operator import Timing
from penstock.core.rows import TIME
from penstock.core.time import as_times
from penstock.expressions import evaluate
from penstock.expressions.view import View
from penstock.flow.graph import (
    Fetched,
    FetchNode,
    Node,
    OperatorNode,
    SelectNode,
    SourceNode,
    StepNode,
    UnionNode,
)

_FEW = 1 << 8
"""Rows that are fetched first, to see how wide they are."""

_READ = 1_000_000
"""Bytes that are read at a time of payload that is fetched without a limit."""


@dataclass(frozen=True, slots=True)
class Select:
    """Columns computed from each row."""

    expressions: tuple[str, ...]

    def of(self, rows: View) -> View:
        """What becomes of some rows."""
        return evaluate.selected(rows, self.expressions)


@dataclass(frozen=True, slots=True)
class Where:
    """The rows for which a condition holds."""

    condition: str

    def of(self, rows: View) -> View:
        """What becomes of some rows."""
        return evaluate.held(rows, self.condition)


@dataclass(frozen=True, slots=True)
class Fetch:
    """Rows with the payload that stayed in their sources."""

    fetched: tuple[Fetched, ...]
    columns: tuple[str, ...]
    """What they have then, beside their event time if that is there."""

    def of(self, rows: View) -> View:
        """What becomes of some rows."""
        return View.of(self.whole(rows.table()))

    def whole(self, rows: pa.Table, size: int = _READ) -> pa.Table:
        """Some rows with their payload; what of it is not at hand is read in pieces of about `size` bytes."""
        for each in self.fetched:
            rows = _with_fetched(rows, each, size)
        return rows.select([*self.columns, TIME] if TIME in rows.column_names else list(self.columns))

    def pieces(self, rows: pa.Table, size: int) -> Iterator[pa.Table]:
        """The same in pieces of about `size` bytes, in the order of their places in the source with most payload."""
        if all(rows.column(each.row).null_count == rows.num_rows for each in self.fetched):
            yield self.whole(rows)
            return
        if rows.num_rows > _FEW:
            rows = rows.take(pc.sort_indices(rows.column(self.fetched[-1].row)))
        start, more = 0, self._fit(rows, size)
        while start < rows.num_rows or not start:
            piece = self.whole(rows.slice(start, more), size)
            start += max(1, piece.num_rows)
            more = max(1, size * piece.num_rows // max(1, piece.nbytes))
            yield piece

    def _fit(self, rows: pa.Table, size: int) -> int:
        """How many rows may be fetched first: few, unless it is known how wide they are."""
        widths = [each.home.width([path for _, path in each.columns]) for each in self.fetched]
        known = sum(width for width in widths if width is not None)
        if not rows.num_rows or None in widths:
            return _FEW
        return max(_FEW, int(size / (known + rows.nbytes / rows.num_rows + 1)))


def _with_fetched(rows: pa.Table, what: Fetched, size: int) -> pa.Table:
    """Rows with some columns of theirs from a source; those without a place there keep what they have."""
    places = rows.column(what.row).combine_chunks()
    if places.null_count == len(places):
        return rows
    valid = places.is_valid().to_numpy(zero_copy_only=False)
    found = what.home.fetch(places.drop_null().to_numpy(), [path for _, path in what.columns], size)
    for (name, _), array in zip(what.columns, found, strict=True):
        at = rows.schema.get_field_index(name)
        if places.null_count:
            where = pa.array(np.cumsum(valid) - 1, mask=~valid)
            array = pc.if_else(pa.array(valid), array.take(where), rows.column(name))
        rows = rows.set_column(at, name, array)
    return rows


Step = Select | Where | Fetch


@dataclass(frozen=True, slots=True)
class ResultTime:
    """The event time that an operator gives its results: of which columns, and how it follows from them."""

    clock: tuple[str, ...]
    timing: Timing

    @classmethod
    def of(cls, node: OperatorNode) -> ResultTime:
        """Of the results of `node`."""
        return cls(node.clock, node.timing)

    def beside(self, rows: pa.Table) -> pa.Table:
        """Results with their event time; it is null if they have lost it."""
        if not self.clock:
            return rows.append_column(TIME, pa.nulls(rows.num_rows, pa.int64()))
        times = [as_times(rows.column(name)) for name in self.clock]
        if self.timing == "before end":
            return rows.append_column(TIME, pc.subtract(times[0], 1))
        if self.timing == "column":
            return rows.append_column(TIME, times[0])
        pick = pc.max_element_wise if self.timing == "latest" else pc.min_element_wise
        return rows.append_column(TIME, pick(*times))


def step(node: StepNode) -> Step:
    """The step that leads to a stream."""
    if isinstance(node, FetchNode):
        return Fetch(node.fetched, tuple(node.columns.names))
    return Select(node.expressions) if isinstance(node, SelectNode) else Where(node.condition)


Way = tuple[SourceNode | OperatorNode, tuple[Step, ...]]
"""Where rows come from, and the steps from there."""


def ways_to(node: Node) -> list[Way]:
    """The ways on which rows get to a stream: one, or one per member of a union."""
    if isinstance(node, SourceNode | OperatorNode):
        return [(node, ())]
    if isinstance(node, StepNode):
        return [(root, (*steps, step(node))) for root, steps in ways_to(node.input)]
    if isinstance(node, UnionNode):
        columns = Select(tuple(map(quoted, node.columns.names)))
        return [(root, (*steps, columns)) for member in node.members for root, steps in ways_to(member)]
    raise TypeError(node)


def quoted(name: str) -> str:
    """A name as expressions write one that may hold anything.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def through(steps: tuple[Step, ...], rows: pa.Table, declared: pa.Schema | None = None) -> pa.Table:
    """Rows after some steps; those of a file, whose columns are `declared`, may have texts that are encoded."""
    view = View.of(rows, declared)
    for each in steps:
        view = each.of(view)
    return view.table()


def in_pieces(
    steps: tuple[Step, ...], rows: pa.Table, size: int, declared: pa.Schema | None = None
) -> Iterator[pa.Table]:
    """The same, in pieces of about `size` bytes where rows get wider on the way."""
    before = next((number for number, each in enumerate(steps) if isinstance(each, Fetch)), len(steps))
    made = through(steps[:before], rows, declared)
    if before == len(steps):
        yield made
        return
    fetch = steps[before]
    if not isinstance(fetch, Fetch):
        raise TypeError(fetch)
    for piece in fetch.pieces(made, size):
        yield from in_pieces(steps[before + 1 :], piece, size)
