"""`explain()`: the plan in words – what each operator does, by which method and why, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.core.budget import show_bytes
from penstock.core.progress import Punctuated
from penstock.core.waits import Waits
from penstock.flow.display import Explanation
from penstock.flow.graph import (
    FetchNode,
    Node,
    OperatorNode,
    SelectNode,
    SourceNode,
    StatementNode,
    UnionNode,
    WhereNode,
    sources_of,
)
from penstock.flow.promises import describe_sources
from penstock.flow.report import Report
from penstock.flow.sinks import Sink
from penstock.planner.families import Steering, explain_method

Pilots = Mapping[str, Steering]
"""The pilots of the operators whose method was left open, by operator name."""

Joins = Mapping[str, Sequence[str]]
"""Lines about multi-way joins, by the names of the operators that emit their results."""


def explain(
    sinks: Sequence[Sink],
    report: Report,
    pilots: Pilots,
    memory: int,
    slots: int,
    host: str,
    homes: Sequence[str] = (),
    joins: Joins | None = None,
) -> Explanation:
    """The plan of a flow as text, sinks first, inputs indented below; `homes` are lines on where payload is.

    `joins` are lines about multi-way joins.
    """
    share = memory // slots
    tasks = "one task" if slots == 1 else f"{slots} tasks"
    lines = [f"{host}: {show_bytes(memory)} for all operators, {tasks} at a time, {show_bytes(share)} each"]
    ran = [epoch for epoch in report.epochs if epoch.place]
    if ran:
        last = next((epoch for epoch in reversed(ran) if sum(epoch.rows_in.values())), ran[-1])
        lines.append(f"epoch {last.epoch}, the last with rows, ran {last.place}")
    for sink in sinks:
        if sink.emits == "late":
            names = ", ".join(node.name for node in sources_of(sink.node))
            lines.append(f"{sink}: {sink.delivery}, late rows of {names}")
        else:
            lines.append(f"{sink}: {sink.delivery}")
            lines += _tree(sink.node, report, pilots, joins or {}, indent=1)
    lines += describe_sources(*(sink.node for sink in sinks))
    lines += homes
    return Explanation("\n".join(lines))


def _tree(node: Node, report: Report, pilots: Pilots, joins: Joins, indent: int) -> list[str]:
    lines = ["  " * indent + line for line in _describe(node, report, pilots, joins)]
    for part in () if isinstance(node, StatementNode) else node.inputs:
        lines += _tree(part, report, pilots, joins, indent + 1)
    return lines


def _describe(node: Node, report: Report, pilots: Pilots, joins: Joins) -> list[str]:
    if isinstance(node, OperatorNode):
        told = [f"  {line}" for line in joins.get(node.name, ())]
        return [*_describe_operator(node, report, pilots.get(node.name)), *told]
    if isinstance(node, SourceNode):
        return [_describe_source(node, report)]
    if isinstance(node, StatementNode):
        by = ", ".join(node.columns.names)
        return [f"bounds of each {by}, from column {node.said} of source {node.input.name}"]
    if isinstance(node, SelectNode):
        return [f"select {', '.join(map(str, node.expressions))} (native)"]
    if isinstance(node, WhereNode):
        return [f"where {node.condition} (native)"]
    if isinstance(node, FetchNode):
        return [f"fetch {', '.join(name for each in node.fetched for name, _ in each.columns)} from the sources"]
    if isinstance(node, UnionNode):
        return [f"union of {len(node.members)}: as far as the slowest"]
    raise TypeError(node)


def _describe_operator(node: OperatorNode, report: Report, pilot: Steering | None) -> list[str]:
    lines = [f"{node.name}: {node.config.says(node.types)}"]
    lines += [f"  {line}" for line in explain_method(node.config, pilot)]
    if node.pairs is not None:
        lines.append(f"  pairs only where {node.pairs.condition} (native)")
    return [*lines, *_measured(node, report), *_counted(node, report)]


def _counted(node: OperatorNode, report: Report) -> list[str]:
    """What an operator reports of its own counts, over all known epochs."""
    reports = [epoch.operators[node.name] for epoch in report.epochs if node.name in epoch.operators]
    if not reports:
        return []
    counts = [operator.counts for operator in reports]
    return [f"  {line}" for line in node.config.tells(counts, str(reports[-1].waits or Waits()))]


def _measured(node: OperatorNode, report: Report) -> list[str]:
    epochs = [(epoch, epoch.operators[node.name]) for epoch in report.epochs if node.name in epoch.operators]
    if not epochs:
        return ["  measured: nothing yet"]
    last = epochs[-1][1]
    rows, out = sum(op.rows_in for _, op in epochs), sum(op.rows_out for _, op in epochs)
    peak = max(op.peak_memory for _, op in epochs)
    lines = [
        f"  measured: {rows:,} rows in, {out:,} out over {len(epochs)} epochs, "
        f"{out / max(1, rows):.2f} results per row, {sum(op.seconds for _, op in epochs):.2f} s in its tasks",
        f"  state: {last.state_rows:,} rows, {show_bytes(last.state_bytes)} in {last.pages} pages; "
        f"most memory charged by one task: {show_bytes(peak)}",
    ]
    read, written = (sum(getattr(op, name) for _, op in epochs) for name in ("bytes_read", "bytes_written"))
    later = sum(op.deferred for _, op in epochs)
    if read or written:
        lines.append(
            f"  pages: {show_bytes(read // max(1, rows))} read, {show_bytes(written // max(1, rows))} written per row; "
            f"{100 * (1 - later / max(1, out)):.1f} % of the results in the epoch of their later row"
        )
    return lines


def _describe_source(node: SourceNode, report: Report) -> str:
    rows = sum(epoch.rows_in.get(node.name, 0) for epoch in report.epochs)
    late = sum(epoch.late.get(node.name, 0) + epoch.no_time.get(node.name, 0) for epoch in report.epochs)
    bound = report.epochs[-1].bounds.get(node.name, "none yet") if report.epochs else "none yet"
    said = ""
    if isinstance(node.progress, Punctuated) and node.progress.by:
        said = f", punctuated for each {', '.join(node.progress.by)}"
        said += f", for all of them by {node.progress.overall}" if node.progress.overall is not None else ""
    counted = "1 row" if rows == 1 else f"{rows:,} rows"
    return f"source {node.name} by {node.time}{said}: {counted} ({late:,} late), bound {bound}"
