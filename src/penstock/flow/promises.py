"""What sources promise about later rows, and which of their bounds consumers can use: for `explain()`."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.progress import Blocks, BoundedDelay, BoundedTuples, NoPromise, Ordered, Policy, Punctuated, Timer
from penstock.flow.graph import (
    Node,
    OperatorNode,
    SelectNode,
    SourceNode,
    UnionNode,
    WhereNode,
    operators_of,
    sources_of,
)
from penstock.operators.progress.describe import Describe


def describe_sources(*nodes: Node) -> list[str]:
    """A line for each source of `nodes`: its promise, and which of its bounds each consumer can use."""
    operators = operators_of(*nodes)
    return [
        f"source {source.name} promises {promise(source.progress)}; {_uses(source, operators)}"
        for source in sources_of(*nodes)
    ]


def promise(policy: Policy) -> str:
    """What a progress policy promises, in words.

    >>> from penstock.core.progress import bounded_delay
    >>> promise(bounded_delay("30 s", idle="10 s"))
    'that no row comes more than 30 s after a later one, and holds nothing back once silent for 10 s'
    """
    said = _promise(policy)
    return said if policy.idle is None else f"{said}, and holds nothing back once silent for {policy.idle}"


def describe(node: OperatorNode) -> Describe | None:
    """The bounds that an operator can use, if it cannot use every one."""
    slides = node.config.slides_at
    return None if slides is None else Describe((slides[0],), slides[1], node.unit)


def _promise(policy: Policy) -> str:
    if isinstance(policy, NoPromise):
        return "nothing before it ends"
    if isinstance(policy, Ordered):
        return "rows in order of time"
    if isinstance(policy, BoundedDelay):
        return f"that no row comes more than {policy.delay} after a later one"
    if isinstance(policy, BoundedTuples):
        return f"that no row comes more than {policy.count:,} rows after a later one"
    if isinstance(policy, Blocks):
        return f"blocks of {policy.length}, one after the other, in any order within one"
    if isinstance(policy, Timer):
        return f"rows in order of time, and while silent none more than {policy.slack} behind the clock"
    if isinstance(policy, Punctuated):
        said = f"the bounds in its column {policy.column}" + (f", for each {', '.join(policy.by)}" if policy.by else "")
        return said if policy.overall is None else f"{said}, and for all of them in column {policy.overall}"
    return f"what {policy} says"


def _uses(source: SourceNode, operators: Sequence[OperatorNode]) -> str:
    waiting = [node for node in operators if not node.config.passes_updates]
    consumers = [node for node in waiting if any(_leads(source, part) for part in node.inputs)]
    if not consumers:
        return "no operator waits for its bounds"
    coarse = {node: describe(node) for node in consumers}
    told = [f"{said or 'all'} by {node.name}" for node, said in coarse.items()]
    return f"bounds used: {', '.join(told)}"


def _leads(source: SourceNode, node: Node) -> bool:
    """Whether a stream has the bounds of a source: nothing in between has its own bounds."""
    transparent = isinstance(node, OperatorNode) and node.config.passes_updates
    if isinstance(node, SelectNode | WhereNode | UnionNode) or transparent:
        return any(_leads(source, part) for part in node.inputs)
    return node is source
