"""Conditions over columns of several streams, each written ``alias.column``: taken apart, and put in other words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import sqlglot
from sqlglot import exp

from penstock.core.errors import PlanError
from penstock.sql.dialect import Spark4
from penstock.sql.names import quoted
from penstock.sql.text import rewritten

Node = Any
"""A node of sqlglot's tree."""

Parts = list[str]
"""What stands between the dots of a column: a stream, a column of it, perhaps fields of that."""


def parsed(text: str) -> Node:
    """An expression as a tree."""
    return sqlglot.parse_one(text, read=Spark4)


def conditions_of(text: str) -> Iterator[Node]:
    """All that a text asks for, one by one.

    >>> [node.sql() for node in conditions_of("(a.k = b.k) AND a.x < 3")]
    ['a.k = b.k', 'a.x < 3']
    """
    try:
        whole = sqlglot.parse_one(text, read=Spark4)
    except Exception as error:  # sqlglot raises whatever it meets
        raise PlanError.not_a_condition(text) from error
    waiting = [whole]
    while waiting:
        node = waiting.pop(0).unnest()
        if isinstance(node, exp.And):
            waiting[:0] = [node.this, node.expression]
        else:
            yield node


def columns_of(node: Node) -> list[Parts]:
    """The columns that a condition names."""
    return [_parts(column) for column in node.find_all(exp.Column)]


def equal_columns(node: Node) -> tuple[Parts, Parts] | None:
    """The two columns that a condition says are equal, if that is all that it says.

    >>> equal_columns(next(conditions_of("`a`.k = b.k")))
    (['a', 'k'], ['b', 'k'])
    """
    if not isinstance(node, exp.EQ):
        return None
    both = node.this.unnest(), node.expression.unnest()
    if not all(isinstance(side, exp.Column) and len(side.parts) == 2 for side in both):
        return None
    return _parts(both[0]), _parts(both[1])


def over(node: Node, aliases: Collection[str], name: Callable[[str, str], str]) -> str:
    """A condition with other names for columns of streams; fields of structs stay behind them.

    >>> over(next(conditions_of("a.st.b.y > b.y")), ["a", "b"], lambda alias, column: f"{alias}_{column}")
    'a_st.b.y > b_y'
    """

    def renamed(column: Node) -> str:
        first, *rest = parts = _parts(column)
        if not rest or first not in aliases:
            return ".".join(map(quoted, parts))
        return ".".join([quoted(name(first, rest[0])), *map(quoted, rest[1:])])

    return rewritten(node, renamed)


def _parts(column: Node) -> Parts:
    return [part.name for part in column.parts]
