"""What a flow was at the last start of its checkpoint, besides what `flow.json` holds, and what may change.

Progress policies, expressions and the tables of lookups may change: state and bounds stay as they are, and the change
is logged. The order of sources may not, because Spark identifies what it has read by the position of a source in the
query; nor may two operators, or two inputs of an operator, be swapped, because each would resume from the other's
state.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.core.errors import CheckpointError
from penstock.flow.graph import (
    Node,
    OperatorNode,
    SelectNode,
    SourceNode,
    StatementNode,
    UnionNode,
    WhereNode,
)
from penstock.flow.promises import promise
from penstock.storage.versioned import Checkpoint

log = logging.getLogger("penstock")

_RECORD = "start.json"


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a flow: the promises of its sources, its scans in order, and the inputs of each operator."""

    promises: dict[str, str]
    scans: list[str]
    inputs: dict[str, str]
    ports: dict[str, list[list[str]]] = field(default_factory=dict)
    """For each port of an operator, how its rows come there, and the sources and operators that they come from."""
    partials: bool = False
    """Whether `partials.json` says which columns partial results have."""

    @classmethod
    def of(
        cls,
        sources: Sequence[SourceNode],
        scanned: Sequence[SourceNode],
        operators: Sequence[OperatorNode],
        partials: bool = False,
    ) -> Start:
        """A start with these sources, scanned in this order, and these operators."""
        return cls(
            {node.name: promise(node.progress) for node in sources},
            [node.name for node in scanned],
            {node.name: _inputs(node) for node in operators},
            {node.name: [[_way(part), *sorted(set(_roots(part)))] for part in node.inputs] for node in operators},
            partials,
        )

    @staticmethod
    def had_partials(checkpoint: Checkpoint) -> bool:
        """Whether there was a `partials.json` at the last start."""
        return bool((checkpoint.records.read(_RECORD) or {}).get("partials", False))

    def follow(self, checkpoint: Checkpoint, configs: Mapping[str, Any]) -> None:
        """Refuse or log what is different from the last start of `checkpoint`, and note this one.

        `configs` is what each operator is asked to do, which is what it was asked at the last start.
        """
        record = asdict(self)
        last = checkpoint.records.read(_RECORD)
        if last is not None:
            before = Start(**last)
            self._refuse_other_scans(before, checkpoint.uri)
            self._refuse_changed_places(before, configs, checkpoint.uri)
            self._refuse_changed_sides(before, checkpoint.uri)
            self._tell_changes(before, checkpoint.uri)
        if last != record:
            checkpoint.records.write(_RECORD, record)

    def _refuse_other_scans(self, before: Start, uri: str) -> None:
        if before.scans != self.scans:
            raise CheckpointError(
                f"The flow of checkpoint {uri} scans its sources as {_listed(before.scans)}; this one scans "
                f"{_listed(self.scans)}, and Spark identifies scans by their position only. Nothing was touched. "
                f"Start with a new checkpoint folder, or use the version of penstock that made this one."
            )

    def _refuse_changed_places(self, before: Start, configs: Mapping[str, Any], uri: str) -> None:
        for name, given in self.inputs.items():
            alike = [other for other, was in before.inputs.items() if was == given and configs[other] == configs[name]]
            if alike and name not in alike:
                raise CheckpointError(
                    f"{name} gets {given}, which {alike[0]} got at the last start of checkpoint {uri}: {name} would "
                    f"resume from the state of another operator. Without name=, operators are identified by the order "
                    f"in which they are written. Nothing was touched. Write them in the old order, or with "
                    f"name={alike[0]!r} here, or start with a new checkpoint folder."
                )

    def _refuse_changed_sides(self, before: Start, uri: str) -> None:
        """Refuse an operator whose streams have changed places: rows of one would be taken for rows of another."""
        for name, ports in self.ports.items():
            was = before.ports.get(name, ports)
            if len(was) != len(ports) or was == ports:
                continue
            moved = any(
                root in was[other][1:] and root not in was[port][1:] and root not in ports[other][1:]
                for port, (_, *roots) in enumerate(ports)
                for root in roots
                for other in range(len(ports))
            )
            ways = [way for way, *_ in ports], [way for way, *_ in was]
            if moved or (ways[0] != ways[1] and sorted(ways[0]) == sorted(ways[1])):
                raise CheckpointError(
                    f"{name} takes {', '.join(ways[0])}, in another order than at the last start of checkpoint {uri}: "
                    f"{', '.join(ways[1])}. It would mistake rows of one stream in its state for rows of another. "
                    f"Nothing was touched. Write the streams in the old order, or start with a new checkpoint folder."
                )

    def _tell_changes(self, before: Start, uri: str) -> None:
        for name, was in before.promises.items():
            if self.promises.get(name, was) != was:
                log.warning(
                    "source %r promises %s; at the last start of checkpoint %s it promised %s. "
                    "Its bound stays where it was.",
                    *(name, self.promises[name], uri, was),
                )
        for name, was in before.inputs.items():
            if self.inputs.get(name, was) != was:
                log.warning(
                    "%s gets %s; at the last start of checkpoint %s it got %s. Its state stays as it is.",
                    *(name, self.inputs[name], uri, was),
                )


def _inputs(node: OperatorNode) -> str:
    """What an operator gets, in words: its inputs, a condition on pairs, the table that it looks up in."""
    shown = ", ".join(_way(part) for part in node.inputs)
    if node.pairs is not None:
        shown += f" where {node.pairs.condition}"
    if node.config.master is not None:
        shown += f" and the table {node.config.master.table}"
    return shown


def _roots(node: Node) -> Iterator[str]:
    """The sources and operators that rows come from."""
    if isinstance(node, SourceNode | OperatorNode):
        yield node.name
    else:
        for part in node.inputs:
            yield from _roots(part)


def _way(node: Node) -> str:
    """The way of rows into an operator, from the source or operator where it begins."""
    match node:
        case SelectNode():
            return f"{_way(node.input)}.select({', '.join(map(_expression, node.expressions))})"
        case WhereNode():
            return f"{_way(node.input)}.where({_expression(node.condition)})"
        case UnionNode():
            first, *others = map(_way, node.members)
            return f"{first}.union({', '.join(others)})"
        case StatementNode():
            return f"what {node.input.name} says of its groups"
        case SourceNode() | OperatorNode():
            return node.name
    raise TypeError(f"{type(node).__name__} is no step between operators")


def _expression(written: Any) -> str:
    return repr(str(written))


def _listed(scans: Sequence[str]) -> str:
    return ", ".join(scans) or "nothing"
