"""Which columns partial results of a multi-way join keep: those that a later join, its time or a sink still asks for.

A join column is of no use once its equality has been evaluated, unless results show it or another join is on it
(§2.3). What nothing above a join asks for is neither sent on nor stored, whether payload travels or not. Rows that
come from a source keep all their columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.core.errors import ConfigError
from penstock.expressions import evaluate
from penstock.flow.graph import Node, OperatorNode, SelectNode, UnionNode, WhereNode, walk
from penstock.flow.sinks import Sink
from penstock.runtime.steps import quoted

Kept = dict[str, list[str]]
"""By join, the columns of its results that go on to the next join of its plan."""


class NotKeptError(Exception):
    """A flow asks for columns that partial results in state do not have."""

    def __init__(self, join: str, columns: Sequence[str]) -> None:
        self.join = join
        self.columns = tuple(columns)
        super().__init__(f"partial results of {join} were kept without {', '.join(columns)}")


def narrowed(sinks: Sequence[Sink], kept: Mapping[str, Sequence[str]] | None = None) -> tuple[list[Sink], Kept]:
    """The sinks of the same flow, whose joins pass on no more than is needed, and what that is.

    `kept` is what state was written with; it stays so, and may be more than is needed.

    >>> import penstock as pk
    >>> flow = pk.LocalFlow()
    >>> a, b, c = (flow.source(pa.table({"k": [1], n: [2], "t": [3]}), time="t") for n in "xyz")
    >>> joined = flow.join(a=a, b=b, c=c, on=["a.k = b.k", "b.y = c.z"], plan="(a b) c")
    >>> _ = joined.select("x").to_memory()
    >>> narrowed(flow._sinks)[1]
    {'join0': ['r0_x', 'r0_t', 'r1_y', 'r1_t']}
    """
    taken = _taken(sinks)
    making = _Making(taken, kept or {})
    made = [replace(sink, node=making.of(sink.node)) for sink in sinks]
    return (made if making.kept else list(sinks)), making.kept


def _taken(sinks: Sequence[Sink]) -> Mapping[Node, set[str]]:
    """The columns of each stream that something above it asks for."""
    taken: defaultdict[Node, set[str]] = defaultdict(set)
    for sink in sinks:
        if sink.emits == "results":
            taken[sink.node] |= {*sink.node.columns.names}
    for node in reversed(list(walk(*(sink.node for sink in sinks)))):
        for port, part in enumerate(node.inputs):
            taken[part] |= _of_input(node, port, part, taken[node])
    return taken


def _of_input(node: Node, port: int, part: Node, taken: set[str]) -> set[str]:
    """The columns that a stream asks of one of its inputs, if `taken` is what is asked of it."""
    if isinstance(node, OperatorNode):
        return {*node.types[port].columns.names} - (_only_passed(node, port, taken) if _passes_less(node) else set())
    if isinstance(node, WhereNode):
        return taken | _named(node.condition, part.columns)
    if isinstance(node, SelectNode):
        named = (_asked(expression, part.columns, taken) for expression in node.expressions)
        return {name for names in named for name in names}
    return {*part.columns.names}


def _only_passed(node: OperatorNode, port: int, taken: set[str]) -> set[str]:
    """The columns of a port that an operator does not look at, and of whose results nobody asks for them."""
    wanted = {*taken, *node.clock, node.time}
    carried = node.config.carries(node.types).items()
    return {origin.column for name, origin in carried if origin.port == port and name not in wanted}


def _passes_less(node: OperatorNode) -> bool:
    """Whether an operator works as well on rows without the columns that it only passes on."""
    return _is_step(node) or node.config.takes_less


def _is_step(node: OperatorNode) -> bool:
    """Whether it joins two sides of the tree of a multi-way join."""
    return node.part is not None and len(node.part.ports) == 2 and bool(node.config.carries(node.types))


def _asked(expression: object, columns: pa.Schema, taken: set[str]) -> set[str]:
    """The columns that an expression needs; one that passes columns on only needs those that are `taken`."""
    passed = _passing(expression, columns)
    return _named(expression, columns) if passed is None else {path[0] for name, path in passed if name in taken}


def _named(expression: object, columns: pa.Schema) -> set[str]:
    """The columns that an expression names; all if it is Spark's alone to say."""
    if not isinstance(expression, str):
        return {*columns.names}
    try:
        return {path[0] for path in evaluate.paths(expression, columns)}
    except ConfigError:
        return {*columns.names}


def _passing(expression: object, columns: pa.Schema) -> list[tuple[str, tuple[str, ...]]] | None:
    try:
        return evaluate.passing(expression, columns) if isinstance(expression, str) else None
    except ConfigError:
        return None


class _Making:
    """Rewrites the flow, from its sources up."""

    def __init__(self, taken: Mapping[Node, set[str]], before: Mapping[str, Sequence[str]]) -> None:
        self.kept: Kept = {}
        self._taken = taken
        self._before = before
        self._made: dict[Node, Node] = {}

    def of(self, node: Node) -> Node:
        """A stream; it may lack columns that nobody asks for."""
        if node not in self._made:
            self._made[node] = self._write(node)
        return self._made[node]

    def _write(self, node: Node) -> Node:
        made = [self.of(part) for part in node.inputs]
        if isinstance(node, OperatorNode):
            return self._operator(node, made)
        if all(new is old for new, old in zip(made, node.inputs, strict=True)):
            return node
        if isinstance(node, WhereNode):
            return replace(node, input=made[0], columns=made[0].columns, time=_still(node.time, made[0].columns))
        if isinstance(node, SelectNode):
            return _less_selected(node, made[0])
        if isinstance(node, UnionNode):
            return replace(node, members=tuple(made))
        raise TypeError(node)

    def _operator(self, node: OperatorNode, made: Sequence[Node]) -> Node:
        if _is_step(node):
            made = [self._passed_on(node, port, part) for port, part in enumerate(made)]
        if all(new is old for new, old in zip(made, node.inputs, strict=True)):
            return node
        if not _passes_less(node):
            return replace(node, inputs=tuple(made))
        types = tuple(
            replace(rows, columns=_of_names(rows.columns, part.columns.names))
            for rows, part in zip(node.types, made, strict=True)
        )
        return replace(node, inputs=tuple(made), types=types, columns=node.config.output(types))

    def _passed_on(self, node: OperatorNode, port: int, made: Node) -> Node:
        """What one side of a join gets: of partial results, the columns that are needed."""
        part, side = node.part, node.inputs[port]
        if part is None or not part.ports[port].children or not isinstance(made, OperatorNode):
            return made
        needed = self._taken[side]
        names = [name for name in made.columns.names if name in self._before.get(made.name, needed)]
        missing = sorted(needed - {*names})
        if missing:
            raise NotKeptError(made.name, missing)
        self.kept[made.name] = names
        if len(names) == len(made.columns):
            return made
        columns = _of_names(made.columns, names)
        return SelectNode(
            columns=columns,
            time=_still(made.time, columns),
            unit=made.unit,
            timed=made.timed,
            input=made,
            expressions=tuple(map(quoted, names)),
        )


def _less_selected(node: SelectNode, made: Node) -> SelectNode:
    """The same select, without the columns that its stream does not have any more."""
    there, gone = {*made.columns.names}, set[str]()
    expressions: list[object] = []
    for expression in node.expressions:
        passed = _passing(expression, node.input.columns)
        lost = [] if passed is None else [name for name, path in passed if path[0] not in there]
        if passed is None or not lost:
            expressions.append(expression)
            continue
        gone |= {*lost}
        expressions += [f"{quoted(path[0])} AS {quoted(name)}" for name, path in passed if path[0] in there]
    columns = _of_names(node.columns, [name for name in node.columns.names if name not in gone])
    return replace(node, input=made, columns=columns, time=_still(node.time, columns), expressions=tuple(expressions))


def _still(time: str | None, columns: pa.Schema) -> str | None:
    """The time column of a stream, if it is still there; event time travels without."""
    return time if time in columns.names else None


def _of_names(columns: pa.Schema, names: Sequence[str]) -> pa.Schema:
    some = {*names}
    return pa.schema([field for field in columns if field.name in some])
