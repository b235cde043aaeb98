"""Stateless steps between streams, told apart from the graph: a task can take them along."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.operator import Timing
from penstock.core.rows import TIME
from penstock.core.time import as_times
from penstock.expressions import evaluate
from penstock.flow.graph import Node, OperatorNode, SelectNode, SourceNode, UnionNode, WhereNode


@dataclass(frozen=True, slots=True)
class Select:
    """Columns computed from each row."""

    expressions: tuple[str, ...]

    def of(self, rows: pa.Table) -> pa.Table:
        """What becomes of some rows."""
        return evaluate.select(rows, self.expressions)


@dataclass(frozen=True, slots=True)
class Where:
    """The rows for which a condition holds."""

    condition: str

    def of(self, rows: pa.Table) -> pa.Table:
        """What becomes of some rows."""
        return evaluate.where(rows, self.condition)


Step = Select | Where


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


def step(node: SelectNode | WhereNode) -> Step:
    """The step that leads to a stream."""
    return Select(node.expressions) if isinstance(node, SelectNode) else Where(node.condition)


Way = tuple[SourceNode | OperatorNode, tuple[Step, ...]]
"""Where rows come from, and the steps from there."""


def ways_to(node: Node) -> list[Way]:
    """The ways on which rows get to a stream: one, or one per member of a union."""
    if isinstance(node, SourceNode | OperatorNode):
        return [(node, ())]
    if isinstance(node, SelectNode | WhereNode):
        return [(root, (*steps, step(node))) for root, steps in ways_to(node.input)]
    if isinstance(node, UnionNode):
        columns = Select(tuple("`" + name.replace("`", "``") + "`" for name in node.columns.names))
        return [(root, (*steps, columns)) for member in node.members for root, steps in ways_to(member)]
    raise TypeError(node)


def through(steps: tuple[Step, ...], rows: pa.Table) -> pa.Table:
    """Rows after some steps."""
    for each in steps:
        rows = each.of(rows)
    return rows
