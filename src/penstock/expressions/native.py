"""Conditions that Arrow computes as Spark does: comparisons of integers and texts with literals, null or not, AND.

Everything else goes through DuckDB, which costs a copy of the columns that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from penstock.core.errors import ConfigError
from penstock.expressions.view import View

Find = Callable[[Sequence[str]], tuple[str, tuple[str, ...]]]
"""A dotted name to the column that it means, and the fields in that."""

Condition = Callable[[View], pa.ChunkedArray]
"""For each row whether a condition holds, or null."""

_COMPARISONS: Mapping[type[exp.Expression], str] = {
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
    exp.LT: "less",
    exp.LTE: "less_equal",
}
_OF_TEXTS = (exp.EQ, exp.NEQ)
"""How texts are compared here; their order is left to DuckDB."""


def condition(tree: exp.Expression, columns: pa.Schema, find: Find) -> Condition | None:
    """How Arrow computes a condition over some columns; None if that is not known to be the same.

    >>> from sqlglot import parse_one
    >>> rows = pa.table({"n": [1, 2, None]})
    >>> holds = condition(parse_one("n >= 2"), rows.schema, lambda parts: (parts[0], ()))
    >>> holds(View.of(rows)).to_pylist()
    [False, True, None]
    """
    if isinstance(tree, exp.Paren):
        return condition(tree.this, columns, find)
    if isinstance(tree, exp.And):
        both = [condition(part, columns, find) for part in (tree.this, tree.expression)]
        return None if None in both else _and(both)  # type: ignore[arg-type]
    if isinstance(tree, exp.Not) and isinstance(tree.this, exp.Is):
        return _null(tree.this, find, "is_valid")
    if isinstance(tree, exp.Is):
        return _null(tree, find, "is_null")
    name = _COMPARISONS.get(type(tree))
    return None if name is None else _compared(tree, name, columns, find)


def _and(both: Sequence[Condition]) -> Condition:
    return lambda rows: pc.and_kleene(both[0](rows), both[1](rows))


def _null(tree: exp.Is, find: Find, test: str) -> Condition | None:
    if not isinstance(tree.expression, exp.Null) or not isinstance(tree.this, exp.Column):
        return None
    place = _place(tree.this, find)
    return None if place is None else lambda rows: getattr(pc, test)(rows.column(*place).plain())


def _compared(tree: exp.Expression, name: str, columns: pa.Schema, find: Find) -> Condition | None:
    place = _place(tree.this, find) if isinstance(tree.this, exp.Column) else None
    if place is None:
        return None
    kind = columns.field(place[0]).type
    for part in place[1]:
        kind = next(field.type for field in kind if field.name == part)
    value = _literal(tree.expression, kind, texts=isinstance(tree, _OF_TEXTS))
    return None if value is None else lambda rows: getattr(pc, name)(rows.column(*place).plain(), value)


def _place(tree: exp.Column, find: Find) -> tuple[str, tuple[str, ...]] | None:
    """The column, and the fields in it, of a name; None if it is a star or unknown."""
    if isinstance(tree.this, exp.Star):
        return None
    try:
        return find([part.name for part in tree.parts])
    except ConfigError:
        return None


def _literal(tree: exp.Expression, kind: pa.DataType, texts: bool) -> pa.Scalar | None:
    """A literal as a value of a column's type; None if it is none of that, or Spark would compare other types."""
    negative = isinstance(tree, exp.Neg)
    written = tree.this if negative else tree
    if not isinstance(written, exp.Literal):
        return None
    if written.is_string:
        return pa.scalar(written.this, kind) if texts and not negative and kind == pa.string() else None
    if not pa.types.is_signed_integer(kind) or not written.this.isdecimal():
        return None
    number = -int(written.this) if negative else int(written.this)
    return pa.scalar(number, kind) if -(2 ** (kind.bit_width - 1)) <= number < 2 ** (kind.bit_width - 1) else None
