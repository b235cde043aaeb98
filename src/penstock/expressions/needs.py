"""Which columns of its sources a flow needs: those that its expressions, operators and sinks name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from penstock.core.files import Path
from penstock.core.progress import Punctuated
from penstock.expressions.evaluate import paths
from penstock.flow.graph import (
    FetchNode,
    Node,
    OperatorNode,
    SelectNode,
    SourceNode,
    StatementNode,
    UnionNode,
    WhereNode,
    walk,
)
from penstock.flow.sinks import Sink


def needed(sinks: Sequence[Sink], operators: Sequence[OperatorNode]) -> dict[SourceNode, set[Path]]:
    """The columns, and fields of structs, of each source; its time is always among them.

    >>> import penstock as pk, pyarrow as pa
    >>> flow = pk.LocalFlow()
    >>> events = flow.source(pa.table({"t": [1], "bid": [{"price": 2, "url": "…"}], "n": [3]}), time="t")
    >>> _ = events.where("n > 0").select("t", "bid.price AS price").to_memory()
    >>> sorted(needed(flow._sinks, [])[events._node])
    [('bid', 'price'), ('n',), ('t',)]
    """
    taken: defaultdict[Node, set[Path]] = defaultdict(set)
    sources: dict[SourceNode, set[Path]] = {}
    for sink in sinks:
        roots = [sink.node] if sink.emits == "results" else [n for n in walk(sink.node) if isinstance(n, SourceNode)]
        for root in roots:
            taken[root] |= _whole(root)
    nodes = list(walk(*(sink.node for sink in sinks), *operators))
    for node in reversed(nodes):
        if isinstance(node, SourceNode):
            sources[node] = taken[node] | {(str(node.time),)} | set(_marks(node))
            continue
        for port, part in enumerate(node.inputs):
            taken[part] |= _of_input(node, port, part, taken[node])
    return sources


def _of_input(node: Node, port: int, part: Node, taken: set[Path]) -> set[Path]:
    """What a stream takes of one of its inputs, if `taken` is what is taken of the stream."""
    if isinstance(node, OperatorNode):
        return {(name,) for name in node.types[port].columns.names}
    if isinstance(node, SelectNode):
        return {path for expression in node.expressions for path in paths(expression, part.columns)}
    if isinstance(node, WhereNode):
        return taken | paths(node.condition, part.columns)
    if isinstance(node, UnionNode):
        return _whole(node)
    if isinstance(node, FetchNode):
        return _whole(part)
    if isinstance(node, StatementNode):
        return {(node.said,), *_whole(node)}
    raise TypeError(node)


def _whole(node: Node) -> set[Path]:
    return {(name,) for name in node.columns.names}


def _marks(node: SourceNode) -> Iterator[Path]:
    if isinstance(node.progress, Punctuated) and node.progress.linear is not None:
        yield (node.progress.linear,)
