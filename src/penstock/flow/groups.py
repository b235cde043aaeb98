"""Sources with a bound per group: how these bounds reach the windows that can use them."""

from __future__ import annotations

from typing import TypeGuard

import pyarrow as pa

from penstock.core.errors import ConfigError
from penstock.core.progress import Punctuated
from penstock.core.rows import RowType
from penstock.flow.graph import (
    Node,
    OperatorNode,
    SelectNode,
    SourceNode,
    StatementNode,
    WhereNode,
    passes,
    sources_of,
)
from penstock.operators.progress.guard import Guard


def guarded(source: SourceNode, by: tuple[str, ...], name: str) -> OperatorNode:
    """A source behind the guard that rejects rows below the bound of their own group."""
    statements = _statements(source, by)
    return OperatorNode(
        columns=source.columns,
        time=source.time,
        unit=source.unit,
        clock=(str(source.time),),
        name=name,
        inputs=(source, statements),
        config=Guard(),
        types=(RowType(source.columns, by, source.time), RowType(statements.columns, by)),
    )


def statements_for(node: Node, by: tuple[str, ...]) -> StatementNode | None:
    """The statements that complete groups of `by` in a stream, if they are groups of its source, unchanged.

    Rows must reach the stream within their epoch, so that all rows before a statement are there when it applies: only
    through conditions, projections that keep the columns of a group, and lookups in which no row waits.
    """
    steps: list[Node] = []
    while isinstance(node, SelectNode | WhereNode) or (_answers_at_once(node) and not node.config.finds_late):
        steps.append(node)
        node = node.inputs[0]
    if not _answers_at_once(node) or not set(node.types[0].keys) <= set(by):
        return None
    kept = all(_keeps(step, node.columns.field(name)) for step in steps for name in node.types[0].keys)
    return node.statements if kept else None


def _answers_at_once(node: Node) -> TypeGuard[OperatorNode]:
    return isinstance(node, OperatorNode) and node.config.passes_updates


def check_progress(node: OperatorNode) -> None:
    """Raise an error if an operator waits for a bound that a source with bounds per group moves only at its end."""
    if not node.config.waits_for_bounds:
        return
    for source in sources_of(node):
        policy = source.progress
        if isinstance(policy, Punctuated) and policy.only_of_groups:
            raise ConfigError(_stuck(node, source, policy))


def _stuck(node: OperatorNode, source: SourceNode, policy: Punctuated) -> str:
    groups = ", ".join(policy.by)
    said = ", ".join(f"'{name}'" for name in policy.by)
    instead = (
        f"Add overall='…', a column of {source.name!r} that speaks of all groups, to punctuated(…), or idle='…' to let "
        f"the source follow others while it is silent"
    )
    if node.config.window_start is not None:
        return (
            f"{node.name} would give no result until source {source.name!r} ends: "
            f"progress=punctuated({policy.column!r}, by=…) speaks of one {groups} at a time, and these windows cannot "
            f"close so. Sliding windows and sessions can, right behind the source and its .where(…) and .select(…) "
            f"with {groups} unchanged: write .by({said}), and leave emit= and method= out. {instead}."
        )
    return (
        f"{node.name} needs a bound on all rows of source {source.name!r}, but progress=punctuated({policy.column!r}, "
        f"by=…) speaks of one {groups} at a time: its state would grow, and results would wait, until the source ends. "
        f"{instead}."
    )


def _statements(source: SourceNode, by: tuple[str, ...]) -> StatementNode:
    if not isinstance(source.progress, Punctuated):
        raise TypeError(source)
    return StatementNode(
        columns=pa.schema([source.columns.field(name) for name in by]),
        time=None,
        unit=source.unit,
        input=source,
        said=source.progress.column,
    )


def _keeps(step: Node, column: pa.Field) -> bool:
    """Whether a step hands a column on untouched, under its name, and as the type it is."""
    if step.columns.names.count(column.name) != 1 or step.columns.field(column.name).type != column.type:
        return False
    return not isinstance(step, SelectNode) or passes(column.name, step.expressions)
