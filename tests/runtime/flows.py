"""Streams with an operator that no method of `Stream` makes: as a contributor has it before there is one."""

from __future__ import annotations

import penstock as pk
from penstock.core.operator import Operator
from penstock.core.rows import RowType
from penstock.flow.graph import OperatorNode


def operated(stream: pk.Stream, config: Operator, name: str) -> pk.Stream:
    """The rows of a stream through an operator."""
    node = stream._node
    types = (RowType(node.columns, (), node.time),)
    return stream._made(
        OperatorNode(
            columns=config.output(types),
            time=node.time,
            unit=node.unit,
            clock=(str(node.time),),
            name=name,
            config=config,
            inputs=(node,),
            types=types,
        )
    )
