"""Finds the window clauses of a query, and takes them out, so that what is left is plain SQL of the same length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import sqlglot

from penstock.core.errors import SqlError
from penstock.sql.clause import PARTS, Clause, read_clause
from penstock.sql.dialect import Spark4

Place = tuple[Literal["SELECT", "FROM"], int]
"""What a clause follows: the n-th item of the SELECT list, or of FROM."""

REFUSED = {
    "ORDER": "A stream has no last row to be sorted before. Sort what you read from the sink.",
    "LIMIT": "A stream has no order, so it has no first rows. Leave LIMIT out.",
    "OFFSET": "A stream has no order, so it has no first rows. Leave OFFSET out.",
    "DISTINCT": "Distinct rows are groups. Write GROUP BY and an aggregate.",
    "WITH": "Write one query, or make each part a stream of its own with flow.sql(…).",
    "OVER": "Windows go in brackets after the aggregate. Write [RANGE 10 minutes SLIDE 1 minute WATTR ts].",
    "WINDOW": "Windows go in brackets after the aggregate. Write [RANGE 10 minutes SLIDE 1 minute WATTR ts].",
    "QUALIFY": "Write conditions on results in HAVING.",
    "UNION": "Streams are combined in FROM. Write FROM (SELECT * FROM a UNION ALL SELECT * FROM b) AS ab.",
    "EXCEPT": "Streams can only be combined with UNION ALL.",
    "INTERSECT": "Streams can only be combined with UNION ALL. To keep rows of one that are in another, write LEFT "
    "SEMI JOIN.",
    "LATERAL": "Rows are not expanded. Use .select(…) on the stream.",
    "USING": "Write ON and the whole condition, as in ON a.k = b.k.",
    "NATURAL": "Write ON and the whole condition, as in ON a.k = b.k.",
}
"""Words that stand for what a query over streams does not do, and what to write instead."""

REFUSED_IN = {
    ("SELECT", "EXCEPT"): "Name the columns to keep.",
    ("GROUP", "WITH"): "It would group rows in several ways at once. Write a query for each way.",
}
"""Words that stand for something else in one section of a query."""

_SECTIONS = ("SELECT", "FROM", "WHERE", "GROUP", "HAVING")
_OPENS, _CLOSES = ("(",), (")",)


class Scanned(NamedTuple):
    """A query without its window clauses, which are beside it by what they follow."""

    plain: str
    clauses: dict[Place, Clause]


def scan(sql: str) -> Scanned:
    """Take the window clauses out.

    >>> scanned = scan("SELECT count(*) [RANGE 5 rows] FROM s")
    >>> scanned.plain, list(scanned.clauses)
    ('SELECT count(*)                FROM s', [('SELECT', 0)])
    """
    where, plain = _Where(), sql
    clauses: dict[Place, Clause] = {}
    tokens = _tokens(sql)
    for token in tokens:
        if token.text == "[" and not _quoted(token):
            stop = _end_of_clause(sql, token, tokens)
            place = where.place(sql, token.start, stop)
            if place in clauses:
                raise SqlError.at(sql, token.start, stop, "This is a second window clause. Write only one.")
            clauses[place] = read_clause(sql, token.start, stop)
            plain = plain[: token.start] + " " * (stop - token.start) + plain[stop:]
        else:
            where.step(sql, token)
    return Scanned(plain, clauses)


@dataclass(slots=True)
class _Where:
    """Where in the query the scan is: the section, the item of it, and how many brackets deep."""

    section: str = ""
    item: int = 0
    depth: int = 0
    after_dot: bool = False

    def step(self, sql: str, token: Any) -> None:
        """Go past one token."""
        # What follows a dot is a column, whatever it is called.
        word = "" if _quoted(token) or self.after_dot else token.text.upper()
        self.after_dot = word == "."
        self.depth += (word in _OPENS) - (word in _CLOSES)
        if self.depth:
            return
        first = word.split(" ")[0]
        refused = REFUSED_IN.get((self.section, first), REFUSED.get(first))
        if refused is not None:
            raise SqlError.at(sql, token.start, token.end + 1, f"{first} is not supported. {refused}")
        if first in _SECTIONS:
            self.section, self.item = first, 0
        elif word == "," or (word == "JOIN" and self.section == "FROM"):
            self.item += 1

    def place(self, sql: str, start: int, stop: int) -> Place:
        """What a clause that stands here follows."""
        if self.depth or self.section not in ("SELECT", "FROM"):
            raise SqlError.at(
                sql,
                start,
                stop,
                "A window clause belongs after an aggregate in SELECT, or after a stream in FROM. Move it there.",
            )
        return ("SELECT" if self.section == "SELECT" else "FROM", self.item)


def start_of(sql: str, section: str) -> int:
    """Where a section of a query begins; at its beginning if it has none.

    >>> start_of("SELECT extract(year FROM ts) FROM s", "FROM")
    29
    """
    depth = 0
    for token in _tokens(sql):
        word = "" if _quoted(token) else token.text.upper()
        depth += (word in _OPENS) - (word in _CLOSES)
        if not depth and word.split(" ")[0] == section:
            return int(token.start)
    return 0


def _tokens(sql: str) -> Iterator[Any]:
    try:
        return iter(sqlglot.tokenize(sql, read=Spark4))
    except sqlglot.errors.TokenError as error:
        start = max(sql.rfind("'"), sql.rfind('"'), sql.rfind("`"), 0)
        raise SqlError.at(sql, start, start + 1, "A quote is opened here and never closed. Close it.") from error


def _end_of_clause(sql: str, opening: Any, rest: Iterator[Any]) -> int:
    """Go to the end of the clause that `opening` begins."""
    first = next(rest, None)
    if first is None or first.text.upper() not in PARTS:
        stop = opening.end + 1 if first is None else first.end + 1
        start = opening.start if first is None else first.start
        raise SqlError.at(
            sql,
            start,
            stop,
            f"A window clause starts with one of {', '.join(PARTS)}. Write [RANGE 10 minutes SLIDE 1 minute WATTR ts]; "
            f"for elements of arrays and maps, element_at(column, key).",
        )
    for token in rest:
        if token.text == "]" and not _quoted(token):
            return int(token.end) + 1
    raise SqlError.at(sql, opening.start, opening.end + 1, "This window clause is never closed. Write ] at its end.")


def _quoted(token: Any) -> bool:
    """Whether a token is text or a name in quotes, and so none of our words."""
    return token.token_type in (sqlglot.TokenType.STRING, sqlglot.TokenType.IDENTIFIER)
