"""The aggregates of SQL, and what penstock calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from penstock.sql.description import Call
from penstock.sql.text import Names, Node, Text, rewritten

FUNCTIONS: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "count": ("count", ()),
    "sum": ("sum", ()),
    "min": ("min", ()),
    "max": ("max", ()),
    "avg": ("mean", ()),
    "mean": ("mean", ()),
    "variance": ("variance", ()),
    "var_samp": ("variance", ()),
    "var_pop": ("variance", ("population",)),
    "stddev": ("stddev", ()),
    "stddev_samp": ("stddev", ()),
    "stddev_pop": ("stddev", ("population",)),
    "first": ("first", ()),
    "last": ("last", ()),
    "median": ("quantile", (0.5,)),
    "quantile": ("quantile", ()),
    "percentile": ("quantile", ()),
    "mode": ("mode", ()),
    "heavy_hitters": ("heavy_hitters", ()),
    "collect_set": ("collect_set", ()),
    "collect_list": ("collect_list", ()),
}
"""By what they are called in SQL: what penstock calls them, and what they are given besides."""


def is_call(text: Text, node: Node) -> bool:
    """Whether a node is an aggregate; one that there is not is refused."""
    known = text.function(node) in FUNCTIONS
    if isinstance(node, exp.AggFunc) and not known:
        raise text.wrong(node, f"This is not among the aggregates: {', '.join(FUNCTIONS)}.")
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
        raise text.wrong(node, f"{written} is of a column. Write {written}(column).")
    name = alias or (function if column is None else f"{function}_{_plain(column)}")
    return Call(function, column, name, (*given, *(_literal(text, part) for part in rest)))


def _arguments(node: Node) -> list[Node]:
    """What stands in the parentheses, however sqlglot keeps it for this function."""
    parts = [part for value in node.args.values() for part in (value if isinstance(value, list) else [value])]
    return [part for part in parts if isinstance(part, exp.Expression)]


def _literal(text: Text, node: Node) -> Any:
    if not isinstance(node, exp.Literal):
        raise text.wrong(node, "What an aggregate is given besides its column must be a number or a text. Write one.")
    return node.this if node.is_string else float(node.this)


def _plain(column: str) -> str:
    """An expression as a name."""
    return "".join(letter if letter.isalnum() else "_" for letter in column).strip("_")
