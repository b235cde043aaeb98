"""What is computed here as Spark does: comparisons of integers and texts with literals, null or not, AND; remainders;
and whole numbers where such a condition holds.

Everything else goes through DuckDB, which costs a copy of the columns that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from penstock.core.errors import ConfigError
from penstock.expressions.view import View

Find = Callable[[Sequence[str]], tuple[str, tuple[str, ...]]]
"""A dotted name to the column that it means, and the fields in that."""

Computation = Callable[[View], pa.ChunkedArray]
"""A value for each row."""

Condition = Computation
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


def value(tree: exp.Expression, columns: pa.Schema, find: Find) -> Computation | None:
    """How a value is computed of some columns; None if that is left to DuckDB.

    >>> from sqlglot import parse_one
    >>> rows = pa.table({"n": [7, -7, None]})
    >>> made = (value(parse_one(text), rows.schema, lambda parts: (parts[0], ())) for text in
    ...     ("n % 4", "CASE WHEN n > 0 THEN n END"))
    >>> [each(View.of(rows)).to_pylist() for each in made]
    [[3, -3, None], [7, None, None]]
    """
    return _remainder(tree, columns, find) or _where_it_holds(tree, columns, find)


def _where_it_holds(tree: exp.Expression, columns: pa.Schema, find: Find) -> Computation | None:
    """A whole number, or a column of them, in rows for which a condition holds; null in the others."""
    if not isinstance(tree, exp.Case) or tree.this is not None or tree.args.get("default") is not None:
        return None
    if len(tree.args["ifs"]) != 1:
        return None
    (branch,) = tree.args["ifs"]
    holds, then = condition(branch.this, columns, find), branch.args["true"]
    if holds is None:
        return None
    if not isinstance(then, exp.Column):
        number = _literal(then, pa.int32(), texts=False)
        return None if number is None else lambda rows: pc.if_else(holds(rows), number, None)
    place = _place(then, find)
    if place is None or not pa.types.is_signed_integer(_kind(place, columns)):
        return None
    return lambda rows: pc.if_else(holds(rows), rows.column(*place).plain(), None)


def _remainder(tree: exp.Expression, columns: pa.Schema, find: Find) -> Computation | None:
    """The remainder of whole numbers by a literal."""
    if not isinstance(tree, exp.Mod) or not isinstance(tree.this, exp.Column):
        return None
    place = _place(tree.this, find)
    if place is None or _kind(place, columns) != pa.int64():
        return None
    divisor = _literal(tree.expression, pa.int64(), texts=False)
    # An integer that fits an INT is one to Spark; those that do not, and those below 1, are left to DuckDB.
    if divisor is None or not 0 < divisor.as_py() < 1 << 31:
        return None
    by = divisor.as_py()
    return lambda rows: pa.chunked_array([_remainders(rows.column(*place).plain().combine_chunks(), by)])


def _remainders(numbers: pa.Array, by: int) -> pa.Array:
    """With the sign of the number, as Spark has it."""
    known = numbers.fill_null(0) if numbers.null_count else numbers
    values = known.to_numpy(zero_copy_only=False)
    # NumPy divides by one number faster than it finds remainders.
    left = values - values // by * by
    if values.size and values.min() < 0:
        left = np.where((values < 0) & (left > 0), left - by, left)
    return pa.array(left, mask=numbers.is_null().to_numpy(zero_copy_only=False) if numbers.null_count else None)


def _and(both: Sequence[Condition]) -> Condition:
    return lambda rows: pc.and_kleene(both[0](rows), both[1](rows))


def _null(tree: exp.Is, find: Find, test: str) -> Condition | None:
    if not isinstance(tree.expression, exp.Null) or not isinstance(tree.this, exp.Column):
        return None
    place = _place(tree.this, find)
    return None if place is None else lambda rows: getattr(pc, test)(rows.column(*place).plain())


def _compared(tree: exp.Expression, name: str, columns: pa.Schema, find: Find) -> Condition | None:
    left = _remainder(tree.this, columns, find)
    if left is not None:
        value = _literal(tree.expression, pa.int64(), texts=False)
        return None if value is None else lambda rows: getattr(pc, name)(left(rows), value)
    place = _place(tree.this, find) if isinstance(tree.this, exp.Column) else None
    if place is None:
        return None
    value = _literal(tree.expression, _kind(place, columns), texts=isinstance(tree, _OF_TEXTS))
    return None if value is None else lambda rows: getattr(pc, name)(rows.column(*place).plain(), value)


def _kind(place: tuple[str, tuple[str, ...]], columns: pa.Schema) -> pa.DataType:
    """The type of a column, or of a field in it."""
    kind = columns.field(place[0]).type
    for part in place[1]:
        kind = next(field.type for field in kind if field.name == part)
    return kind


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
