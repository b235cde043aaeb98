"""The aggregates of SQL: those of Python by the same names, and SQL's own names for some of them."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any, ClassVar

from sqlglot import exp

from penstock.operators.aggregate.spellings import AGGREGATES
from penstock.sql.description import Call
from penstock.sql.dialect import Spark4
from penstock.sql.text import Names, Node, Text, rewritten

SYNONYMS: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "avg": ("mean", ()),
    "var_samp": ("variance", ()),
    "var_pop": ("variance", ("population",)),
    "stddev_samp": ("stddev", ()),
    "stddev_pop": ("stddev", ("population",)),
    "median": ("quantile", (0.5,)),
    "percentile": ("quantile", ()),
}
"""Other names that SQL has for an aggregate: its own name, and the arguments that the SQL name implies."""

FUNCTIONS: Mapping[str, tuple[str, tuple[Any, ...]]] = {**{name: (name, ()) for name in AGGREGATES}, **SYNONYMS}
"""Every name of an aggregate in SQL: those of Python, and the synonyms."""

_WITH_PARAMETERS = {
    name.upper() for name, (own, _) in FUNCTIONS.items() if len(signature(AGGREGATES[own]).parameters) > 1
}


class PenstockSql(Spark4):
    """Spark's SQL, except that aggregates take the arguments that they take in Python, not those that sqlglot knows."""

    class Parser(Spark4.Parser):
        """Reads an aggregate with parameters as a function unknown to sqlglot, which may have any arguments."""

        FUNCTIONS: ClassVar[Any] = {
            name: read for name, read in Spark4.Parser.FUNCTIONS.items() if name not in _WITH_PARAMETERS
        }


def is_call(text: Text, node: Node) -> bool:
    """Whether a node is an aggregate; one that there is not is refused."""
    known = text.function(node) in FUNCTIONS
    if isinstance(node, exp.AggFunc) and not known:
        raise text.wrong(node, f"This is not an aggregate that penstock has. Write one of {', '.join(FUNCTIONS)}.")
    return known


def read_call(text: Text, node: Node, alias: str, names: Names) -> Call:
    """The aggregate that a node is."""
    written = text.function(node)
    function, given = FUNCTIONS[written]
    first, *rest = _arguments(node) or [exp.Star()]
    if isinstance(first, exp.Distinct):
        if function != "count" or len(first.expressions) != 1:
            raise text.wrong(node, "DISTINCT is for count(DISTINCT column). Write that.")
        function, first = "count_distinct", first.expressions[0]
    column = None if isinstance(first, exp.Star) else rewritten(first, names)
    if column is None and function != "count":
        raise text.wrong(node, f"{written} needs a column. Write {written}(column).")
    name = alias or (function if column is None else f"{function}_{_plain(column)}")
    return Call(function, column, name, (*given, *(_literal(text, part) for part in rest)))


def _arguments(node: Node) -> list[Node]:
    """What stands in the parentheses, however sqlglot keeps it for this function."""
    parts = [part for value in node.args.values() for part in (value if isinstance(value, list) else [value])]
    return [part for part in parts if isinstance(part, exp.Expression)]


def _literal(text: Text, node: Node) -> Any:
    if not isinstance(node, exp.Literal):
        raise text.wrong(node, "After its column an aggregate takes only numbers and texts, as in quantile(len, 0.99).")
    if node.is_string:
        return node.this
    return int(node.this) if node.is_int else float(node.this)


def _plain(column: str) -> str:
    """An expression as a name."""
    return "".join(letter if letter.isalnum() else "_" for letter in column).strip("_")
