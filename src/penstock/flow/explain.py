"""`explain()`: the plan in words – what each operator does, by which method and why, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.core.budget import show_bytes
from penstock.core.progress import Punctuated
from penstock.flow.display import Explanation
from penstock.flow.graph import (
    AggregateNode,
    GuardNode,
    JoinNode,
    LookupNode,
    Node,
    OperatorNode,
    ProgressNode,
    SelectNode,
    SourceNode,
    StatementNode,
    UnionNode,
    WhereNode,
    sources_of,
)
from penstock.flow.pilots import AnyPilot
from penstock.flow.promises import describe_sources
from penstock.flow.report import Report
from penstock.flow.sinks import Sink
from penstock.operators.lookup import Waits
from penstock.operators.window_join import Baseline, MethodName, method_name
from penstock.planner import (
    AggregateChoice,
    AggregatePilot,
    Choice,
    LookupPilot,
    Pilot,
    describe,
    explain_choice,
    explain_lookup,
)
from penstock.planner.window_aggregate import explain_aggregate

Pilots = Mapping[str, AnyPilot]
"""Who chooses for the operators whose method was left open, by their names."""


def explain(sinks: Sequence[Sink], report: Report, pilots: Pilots, memory: int, slots: int, host: str) -> Explanation:
    """The plan of a flow as text, sinks first, each indented under what it feeds."""
    share = memory // slots
    lines = [f"{host}: {show_bytes(memory)} for all operators, {slots} tasks at a time, {show_bytes(share)} each"]
    for sink in sinks:
        if sink.emits == "late":
            names = ", ".join(node.name for node in sources_of(sink.node))
            lines.append(f"{sink}: {sink.delivery}, late rows of {names}")
        else:
            lines.append(f"{sink}: {sink.delivery}")
            lines += _tree(sink.node, report, pilots, indent=1)
    lines += describe_sources(*(sink.node for sink in sinks))
    return Explanation("\n".join(lines))


def _tree(node: Node, report: Report, pilots: Pilots, indent: int) -> list[str]:
    lines = ["  " * indent + line for line in _describe(node, report, pilots)]
    for part in () if isinstance(node, StatementNode) else node.inputs:
        lines += _tree(part, report, pilots, indent + 1)
    return lines


def _describe(node: Node, report: Report, pilots: Pilots) -> list[str]:
    pilot = pilots.get(node.name) if isinstance(node, OperatorNode) else None
    if isinstance(node, JoinNode):
        choice = pilot.choice if isinstance(pilot, Pilot) else None
        return [*_describe_join(node, choice), *_measured(node, report)]
    if isinstance(node, AggregateNode):
        chosen = pilot.choice if isinstance(pilot, AggregatePilot) else None
        return [*_describe_aggregate(node, chosen), *_measured(node, report)]
    if isinstance(node, LookupNode):
        lines = _describe_lookup(node, pilot if isinstance(pilot, LookupPilot) else None)
        return [*lines, *_measured(node, report), *_counted(node, report)]
    if isinstance(node, ProgressNode):
        return [f"{node.name}: {node.config.says()}", *_measured(node, report)]
    if isinstance(node, SourceNode):
        return [_describe_source(node, report)]
    if isinstance(node, GuardNode):
        by = ", ".join(node.types[0].keys)
        return [f"{node.name}: rows below the bound of their own {by} are late", *_measured(node, report)]
    if isinstance(node, StatementNode):
        by = ", ".join(node.columns.names)
        return [f"bounds of each {by}, from column {node.said} of source {node.input.name}"]
    if isinstance(node, SelectNode):
        return [f"select {', '.join(map(str, node.expressions))} (native)"]
    if isinstance(node, WhereNode):
        return [f"where {node.condition} (native)"]
    if isinstance(node, UnionNode):
        return [f"union of {len(node.members)}: progress is that of the slowest"]
    raise TypeError(node)


def _describe_join(node: JoinNode, choice: Choice | None) -> list[str]:
    config = node.config
    on = _shown(config.on)
    lines = [f"{node.name}: {config.how} join on {on} within {config.within}, time of results: {config.time}"]
    lines += [f"  {line}" for line in _chosen(choice, method_name(config.method))]
    return [*lines, f"  pairs only where {node.where} (native)"] if node.where else lines


def _shown(on: Sequence[tuple[str, str]]) -> str:
    """The keys of a join."""
    return ", ".join(ours if ours == theirs else f"{ours} = {theirs}" for ours, theirs in on)


def _describe_lookup(node: LookupNode, pilot: LookupPilot | None) -> list[str]:
    config = node.config
    on = _shown(config.on)
    name = node.method(config)
    asked = (f"method {name}", f"because method={name!r} was asked for")
    lines = asked if pilot is None else explain_lookup(pilot.outlook(), pilot.keys)
    head = f"{node.name}: {config.how} lookup on {on} in {config.table}, {node.freshness}"
    return [head, *(f"  {line}" for line in lines)]


def _counted(node: LookupNode, report: Report) -> list[str]:
    """Hits and misses over all epochs that are known, and who waits now."""
    reports = [epoch.operators[node.name] for epoch in report.epochs if node.name in epoch.operators]
    if not reports:
        return []
    epochs, waits = [operator.counts for operator in reports], reports[-1].waits or Waits()
    hits, misses, reads = (sum(counts.get(name, 0) for counts in epochs) for name in ("hits", "misses", "reads"))
    read = f"the table was read {reads:,} times; {waits}"
    if not hits + misses:
        return [f"  no cache was asked; {read}"]
    share = f"{100 * hits / (hits + misses):.1f} % of the rows"
    return [f"  cache: {epochs[-1].get('cached', 0):,} rows of the table answered for {share}; {read}"]


def _describe_aggregate(node: AggregateNode, choice: AggregateChoice | None) -> list[str]:
    config = node.config
    by = f" by {', '.join(config.by)}" if config.by else ""
    asked = ", ".join(f"{name} = {function}" for name, function in config.aggregates)
    lines = explain_aggregate(config, choice)
    if config.punctuated:
        groups = ", ".join(config.punctuated)
        lines = [
            *(f"{line}, because windows close group by group" for line in lines[:1]),
            f"windows close for each {groups} once its own bound has passed them, whatever the others do",
        ]
    return [f"{node.name}: {config.window}{by}: {asked}", *(f"  {line}" for line in lines)]


def _chosen(choice: Choice | None, method: MethodName | Baseline) -> tuple[str, ...]:
    """The planner's choice, or the user's."""
    if choice is not None:
        return explain_choice(choice)
    if method == "auto":
        return explain_choice(Choice("oa", "nothing has run yet: the method is chosen anew before each epoch"))
    return (f"method {method} ({describe(method)})", f"because method={method!r} was asked for")


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
    said = f"progress {type(node.progress).__name__}"
    if isinstance(node.progress, Punctuated) and node.progress.by:
        said += f" for each {', '.join(node.progress.by)}"
        said += f", for all of them by {node.progress.overall}" if node.progress.overall is not None else ""
    return f"source {node.name} by {node.time}, {said}: {rows:,} rows ({late:,} late), bound {bound}"
