"""Spark's meaning of expressions where DuckDB has another for the same words: casts, days of the week, substrings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from sqlglot import exp

TypeOf = Callable[["exp.Expression"], str]
"""The DuckDB type of an expression; empty if it has none."""


def as_spark_means(tree: exp.Expression, type_of: TypeOf) -> exp.Expression:
    """The expression for DuckDB that gives what `tree` gives in Spark."""
    from sqlglot import exp

    top = exp.Paren(this=tree)
    for node in reversed(list(tree.walk())):
        meant = _meant(node, type_of)
        if meant is not None:
            node.replace(meant)
    return top.this


def check_one_row(tree: exp.Expression, written: str) -> None:
    """Refuse what is computed from several rows: its value would depend on how the stream was cut into epochs."""
    from sqlglot import exp

    if tree.find(exp.Window, exp.AggFunc) is not None:
        raise ConfigError(
            f"{written!r} is computed from several rows, but an expression computes a value from one row. "
            f"Aggregate over windows instead: .window(range=…).agg(total=pk.sum('amount'))."
        )


def _meant(node: exp.Expression, type_of: TypeOf) -> exp.Expression | None:
    from sqlglot import exp

    if isinstance(node, exp.Cast):
        return _cast(node, type_of)
    if isinstance(node, exp.DayOfWeek):
        return exp.Paren(this=exp.Add(this=node.copy(), expression=exp.Literal.number(1)))
    if isinstance(node, exp.Anonymous) and node.name.lower() == "weekday":
        days = exp.Anonymous(this="isodow", expressions=[exp.cast(node.expressions[0].copy(), "date")])
        return exp.Paren(this=exp.Sub(this=days, expression=exp.Literal.number(1)))
    if isinstance(node, exp.Substring) and node.args.get("start") is not None:
        return _substring(node)
    if isinstance(node, exp.TsOrDsAdd):
        return exp.cast(node.copy(), "date", copy=False)
    return None


def _cast(node: exp.Cast, type_of: TypeOf) -> exp.Expression | None:
    """Spark cuts digits off where DuckDB rounds, and a timestamp as a number is in seconds."""
    from sqlglot import exp

    whole = node.to.this in exp.DataType.INTEGER_TYPES
    if not whole and node.to.this not in exp.DataType.REAL_TYPES:
        return None
    given = type_of(node.this)
    if given.startswith("TIMESTAMP"):
        seconds = exp.Anonymous(this="epoch", expressions=[node.this.copy()])
        number: exp.Expression = exp.Floor(this=seconds) if whole else seconds
    elif whole and given.startswith(("DOUBLE", "FLOAT", "DECIMAL")):
        number = exp.Anonymous(this="trunc", expressions=[node.this.copy()])
    else:
        return None
    cast = node.copy()
    cast.set("this", number)
    return cast


def _substring(node: exp.Substring) -> exp.Expression | None:
    """Spark reads from place 0 as from place 1."""
    from sqlglot import exp

    start = node.args["start"]
    if isinstance(start, exp.Literal) and start.this != "0":
        return None
    zero = exp.EQ(this=exp.Paren(this=start.copy()), expression=exp.Literal.number(0))
    first = exp.Case(ifs=[exp.If(this=zero, true=exp.Literal.number(1))], default=start.copy())
    changed = node.copy()
    changed.set("start", first)
    return changed
