"""A query's text: points at what is wrong in it, and gives parts of it in other words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlglot import ErrorLevel, exp
from sqlglot.errors import UnsupportedError

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

    def wrong_group(self, word: str, message: str) -> SqlError:
        """An error that points at a word of GROUP BY, whose place the tree does not have."""
        found = re.search(rf"\bGROUP\s+BY\b.*?\b({word})\b", self.sql, re.IGNORECASE | re.DOTALL)
        start, stop = found.span(1) if found else (0, len(self.sql))
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

    return spelled(node.copy().transform(renamed))


def spelled(node: Node) -> str:
    """A node in Spark's SQL; an error if a part of it has no words there, which would be left out.

    >>> import sqlglot
    >>> spelled(sqlglot.parse_one("CAST(x AS BIGINT)", dialect="duckdb"))
    'CAST(x AS BIGINT)'
    """
    try:
        return str(node.sql(dialect="spark", unsupported_level=ErrorLevel.RAISE))
    except UnsupportedError as error:
        raise SqlError(
            f"{node.sql(dialect='')} has an argument that Spark's function does not have. Leave it out."
        ) from error


def unaliased(node: Node) -> Node:
    """What stands before AS."""
    return node.this if isinstance(node, exp.Alias) else node
