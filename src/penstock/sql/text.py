"""A query's text: points at what is wrong in it, and gives parts of it in other words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp

from penstock.core.errors import SqlError

Node = Any
"""A node of sqlglot's tree."""

Names = Callable[[Node], str]
"""What to call a column, in Spark's SQL."""


@dataclass(frozen=True, slots=True)
class Text:
    """The query as written."""

    sql: str

    def wrong(self, node: Node, message: str) -> SqlError:
        """An error that points at a node: from the first to the last of its words whose place is known."""
        places = [part.meta for part in node.walk() if "start" in part.meta]
        start = min((place["start"] for place in places), default=0)
        stop = max((place["end"] + 1 for place in places), default=len(self.sql))
        while stop < len(self.sql) and self.sql.count("(", start, stop) > self.sql.count(")", start, stop):
            stop += 1
        return SqlError.at(self.sql, start, stop, message)

    def function(self, node: Node) -> str:
        """The name of the function that a node calls, as written where that is known; empty if it calls none."""
        if not isinstance(node, exp.Func):
            return ""
        if "start" not in node.meta:
            return str(node.sql_name()).lower()
        return self.sql[node.meta["start"] : node.meta["end"] + 1].lower()


def rewritten(node: Node, names: Names) -> str:
    """A node in Spark's SQL, its columns by other names.

    >>> import sqlglot
    >>> rewritten(sqlglot.parse_one("a.x > 3"), lambda column: f"l.{column.name}")
    'l.x > 3'
    """

    def renamed(part: Node) -> Node:
        return exp.var(names(part)) if isinstance(part, exp.Column) else part

    return str(node.copy().transform(renamed).sql(dialect="spark"))


@lru_cache(maxsize=1024)
def quoted(name: str) -> str:
    """A column's name in Spark's SQL, in backticks if it would be read as something else without them.

    >>> quoted("price"), quoted("a-b"), quoted("true")
    ('price', '`a-b`', '`true`')
    """
    try:
        read = sqlglot.parse_one(name, read="spark")
    except Exception:  # sqlglot raises whatever it meets
        read = None
    plain = isinstance(read, exp.Column) and read.sql(dialect="spark") == name and name == read.name
    return name if plain else f"`{name.replace('`', '``')}`"


def unquoted(expression: str) -> str:
    """The name of a column that stands alone; any other expression as it is.

    >>> unquoted("`a-b`"), unquoted("price"), unquoted("`a` + `b`")
    ('a-b', 'price', '`a` + `b`')
    """
    inner = expression[1:-1].replace("``", "")
    alone = len(expression) > 2 and expression[0] == expression[-1] == "`" and "`" not in inner
    return expression[1:-1].replace("``", "`") if alone else expression


def unaliased(node: Node) -> Node:
    """What stands before AS."""
    return node.this if isinstance(node, exp.Alias) else node
