"""Stateless steps between streams, told apart from the graph: a task can take them along."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.expressions import evaluate
from penstock.flow.graph import Node, SelectNode, WhereNode


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


def step(node: SelectNode | WhereNode) -> Step:
    """The step that leads to a stream."""
    return Select(node.expressions) if isinstance(node, SelectNode) else Where(node.condition)


def root_and_steps(node: Node) -> tuple[Node, tuple[Step, ...]]:
    """Where a stream comes from, and the steps from there."""
    steps: list[Step] = []
    while isinstance(node, SelectNode | WhereNode):
        steps.insert(0, step(node))
        node = node.input
    return node, tuple(steps)


def through(steps: tuple[Step, ...], rows: pa.Table) -> pa.Table:
    """Rows after some steps."""
    for each in steps:
        rows = each.of(rows)
    return rows
