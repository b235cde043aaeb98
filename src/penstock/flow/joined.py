"""The multi-way joins of a flow: those written as one, and chains of joins of two that could be.

A chain ``a.join(b, …).join(c, …)`` of inner joins has the same results as one join of all its streams if the times of
its pairs do not matter: without windows, or with the same tumbling windows. Then it may run in any order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.core.errors import PlanError
from penstock.core.within import Always, Tumbling
from penstock.flow.graph import Node, OperatorNode, SelectNode, SourceNode, sources_of, walk
from penstock.flow.plans import Part, PlannedJoin
from penstock.operators.multi_way.plan import Leaf, Plan, Predicate, Tree, leaves, predicates_of
from penstock.operators.multi_way.plan import Node as Join
from penstock.operators.window_join import WindowJoin

_PASSED = re.compile(r"(?:`([^`]+)`|(\w+))(?:\s+AS\s+(?:`([^`]+)`|(\w+)))?", re.IGNORECASE)
"""An expression that is a column, by its own or another name."""


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """A multi-way join in a flow: the part of each of its operators, and the sources of each stream."""

    join: PlannedJoin
    parts: Mapping[str, Part]
    sources: Mapping[str, tuple[SourceNode, ...]]

    def later(self, rel: str) -> float:
        """Bytes per row of a stream in the key columns of joins after its first one."""
        plan = self.join.plan
        first = next(part.node for part in self.parts.values() if Leaf(rel) in part.ports)
        columns = [
            {each.column(rel) for each in some if rel in each.rels} for some in (plan.predicates, plan.at(first))
        ]
        return sum(self.join.widths.get((rel, column), 0.0) for column in columns[0] - columns[1])

    @property
    def root(self) -> str:
        """The operator that emits its results."""
        return next(name for name, part in self.parts.items() if part.node == self.join.plan.root)


def joins_of(operators: Sequence[OperatorNode], results: Sequence[Node]) -> list[Joined]:
    """All multi-way joins among the operators of a flow, inputs first; `results` are the inputs of its sinks."""
    written: dict[int, dict[OperatorNode, Part]] = {}
    for node in operators:
        if node.part is not None:
            written.setdefault(id(node.part.join), {})[node] = node.part
    return [*map(_joined, written.values()), *_chains(operators, results)]


def _joined(parts: Mapping[OperatorNode, Part]) -> Joined:
    sources = {
        tree.rel: tuple(sources_of(stream))
        for node, part in parts.items()
        for stream, tree in zip(node.inputs, part.ports, strict=True)
        if isinstance(tree, Leaf)
    }
    return Joined(next(iter(parts.values())).join, {node.name: part for node, part in parts.items()}, sources)


def _chains(operators: Sequence[OperatorNode], results: Sequence[Node]) -> Iterator[Joined]:
    """Chains of three streams or more. A join whose results somebody else takes, too, is the last of a chain."""
    steps = [node for node in walk(*results) if not isinstance(node, SelectNode)]
    taken = Counter(map(_base, [*results, *(part for node in steps for part in node.inputs)]))
    inside: set[OperatorNode] = set()
    for node in reversed(operators):
        if node not in inside and _is_simple(node):
            chain = _Chain(node, taken)
            inside |= {*chain.joins}
            found = chain.joined()
            if found is not None:
                yield found


class _Chain:
    """The joins of two that lead to one, as long as their order does not matter."""

    def __init__(self, last: OperatorNode, taken: Mapping[Node, int]) -> None:
        self._last = last
        self._taken = taken
        self.joins: list[OperatorNode] = []
        self._streams: list[Node] = []
        self._gather(last)
        self._names = _names(self._streams)

    def joined(self) -> Joined | None:
        """The chain as one join; None if it has only two streams, one of them twice, or a key computed in between."""
        if len(self._streams) < 3 or len(self._names) < len(self._streams):
            return None
        on = [each for node in self.joins for each in self._predicates(node)]
        try:
            plan = Plan(self._tree(self._last), predicates_of([each for each in on if each is not None]))
        except PlanError:
            return None
        if None in on:
            return None
        join = PlannedJoin(self._last.name, plan, "as it is written", instead=self._instead(plan))
        parts = {node.name: Part(join, self._tree(node), tuple(map(self._side, node.inputs))) for node in self.joins}
        sources = {name: tuple(sources_of(stream)) for stream, name in self._names.items()}
        return Joined(join, parts, sources)

    def _gather(self, node: OperatorNode) -> None:
        for part in node.inputs:
            base = _base(part)
            if isinstance(base, OperatorNode) and self._taken[base] == 1 and _goes_with(base, self._last):
                self._gather(base)
            else:
                self._streams.append(part)
        self.joins.append(node)

    def _side(self, part: Node) -> Tree:
        return Leaf(self._names[part]) if part in self._names else self._tree(_base(part))

    def _tree(self, node: Node) -> Join:
        left, right = map(self._side, node.inputs)
        return Join(left, right)  # type: ignore[arg-type]

    def _predicates(self, node: OperatorNode) -> Iterator[Predicate | None]:
        """The equalities of a join; None for one whose columns were computed."""
        for ours, theirs in zip(node.types[0].keys, node.types[1].keys, strict=True):
            left, right = self._origin(node.inputs[0], ours), self._origin(node.inputs[1], theirs)
            yield None if left is None or right is None else Predicate(*left, *right)

    def _origin(self, part: Node, column: str) -> tuple[str, str] | None:
        """The stream that a column comes from untouched, and its name there."""
        while part not in self._names:
            if isinstance(part, SelectNode):
                found = _passed(part, column)
                if found is None:
                    return None
                part, column = part.input, found
            elif isinstance(part, OperatorNode):
                port, column = part.config.origins(part.types)[column]
                part = part.inputs[port]
        return self._names[part], column

    def _instead(self, plan: Plan) -> str:
        """How to write the chain as one join."""
        config = self._last.config
        if not isinstance(config, WindowJoin):
            raise TypeError(config)
        streams = ", ".join(f"{name}=…" for name in self._names.values())
        on = ", ".join(repr(str(each)) for each in plan.predicates)
        within = "" if isinstance(config.within, Always) else ", within=…"
        ends = [leaf.rel for leaf in leaves(plan.root)]
        time = {"left": ends[0], "right": ends[-1]}.get(config.time, config.time)
        return f"flow.join({streams}, on=[{on}]{within}, time={time!r}, plan='…plan')"


def _is_simple(node: OperatorNode) -> bool:
    """Whether a join of two does nothing that a join of several would not."""
    config = node.config
    return (
        isinstance(config, WindowJoin)
        and config.how == "inner"
        and isinstance(config.within, Always | Tumbling)
        and config.matching is None
        and node.pairs is None
        and node.part is None
    )


def _goes_with(node: OperatorNode, other: OperatorNode) -> bool:
    """Whether two joins, one of which takes the results of the other, could be one."""
    one, two = node.config, other.config
    if not _is_simple(node) or not isinstance(one, WindowJoin) or not isinstance(two, WindowJoin):
        return False
    if one.within != two.within:
        return False
    return replace(one, on=two.on, suffix=two.suffix, method=two.method, keys=two.keys) == two


def _base(node: Node) -> Node:
    """What a stream was before columns of it were selected."""
    while isinstance(node, SelectNode) and not node.expands:
        node = node.input
    return node


def _passed(node: SelectNode, column: str) -> str | None:
    """What a column was called before a select that passes it on; None if it was computed."""
    for expression in map(str, node.expressions):
        if expression.strip() == "*" and column in node.input.columns.names:
            return column
        found = _PASSED.fullmatch(expression.strip())
        if found is not None:
            was = found[1] or found[2]
            if (found[3] or found[4] or was) == column and was in node.input.columns.names:
                return was
    return None


def _names(streams: Sequence[Node]) -> dict[Node, str]:
    """What to call each stream: as its source, if it has one alone with a name of its own."""
    names: dict[Node, str] = {}
    for place, stream in enumerate(streams):
        sources = sources_of(stream)
        name = sources[0].name if len(sources) == 1 else ""
        names[stream] = name if name.isidentifier() and name not in names.values() else f"s{place}"
    return names
