"""Expressions that Arrow and NumPy compute like Spark.

These are comparisons of integers and strings with literals, and of two columns, null checks, AND, sums, products and
remainders of integers, integers times a decimal and comparisons of these, counts of a letter in a string, and whole
numbers under a condition.

Everything else goes through DuckDB, which costs a copy of the columns that it names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from penstock.core.errors import ConfigError
from penstock.expressions.kinds import INTEGERS, MOST_DIGITS
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

    Where it raises an error of Arrow's, there is no value: DuckDB tells why.

    >>> from sqlglot import parse_one
    >>> rows = pa.table({"n": [7, -7, None]})
    >>> made = (value(parse_one(text), rows.schema, lambda parts: (parts[0], ())) for text in
    ...     ("n % 4", "CASE WHEN n > 0 THEN n END"))
    >>> [each(View.of(rows)).to_pylist() for each in made]
    [[3, -3, None], [7, None, None]]
    """
    made = (_arithmetic, _product, _letters, _where_it_holds, condition)
    return next((found for each in made if (found := each(tree, columns, find)) is not None), None)


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


_CHECKED: Mapping[type[exp.Expression], str] = {
    exp.Add: "add_checked",
    exp.Sub: "subtract_checked",
    exp.Mul: "multiply_checked",
}
_MICROSECONDS = pa.timestamp("us", "UTC")


def _arithmetic(tree: exp.Expression, columns: pa.Schema, find: Find) -> Computation | None:
    """Whole numbers computed of others; None unless Spark gives a BIGINT, and of a column as it is."""
    return None if isinstance(tree, exp.Column) else _numbers(tree, columns, find)


def _numbers(tree: exp.Expression, columns: pa.Schema, find: Find) -> Computation | None:
    """The same, and columns."""
    if isinstance(tree, exp.Paren):
        return _numbers(tree.this, columns, find)
    if isinstance(tree, exp.Column):
        place = _place(tree, find)
        if place is None or _kind(place, columns) != pa.int64():
            return None
        return lambda rows: rows.column(*place).plain()
    if isinstance(tree, exp.UnixMicros):
        time = _place(tree.this, find) if isinstance(tree.this, exp.Column) else None
        if time is None or _kind(time, columns) != _MICROSECONDS:
            return None
        return lambda rows: rows.column(*time).plain().cast(pa.int64())
    if isinstance(tree, exp.Mod):
        return _remainder(tree, columns, find)
    name = _CHECKED.get(type(tree))
    return None if name is None else _calculated(tree, name, columns, find)


def _calculated(tree: exp.Expression, name: str, columns: pa.Schema, find: Find) -> Computation | None:
    """Two whole numbers, one of which may be a literal, taken together."""
    sides = [_numbers(side, columns, find) for side in (tree.this, tree.expression)]
    literals = [_literal(side, pa.int64(), texts=False) for side in (tree.this, tree.expression)]
    if sides == [None, None] or any(a is None and b is None for a, b in zip(sides, literals, strict=True)):
        return None

    def side(rows: View, place: int) -> pa.ChunkedArray | pa.Scalar:
        numbers = sides[place]
        return literals[place] if numbers is None else numbers(rows)

    return lambda rows: getattr(pc, name)(side(rows, 0), side(rows, 1))


def _remainder(tree: exp.Expression, columns: pa.Schema, find: Find) -> Computation | None:
    """The remainder of whole numbers by a literal."""
    numbers = _numbers(tree.this, columns, find) if isinstance(tree, exp.Mod) else None
    if numbers is None:
        return None
    divisor = _literal(tree.expression, pa.int64(), texts=False)
    # An integer that fits an INT is one to Spark; those that do not, and those below 1, are left to DuckDB.
    if divisor is None or not 0 < divisor.as_py() < 1 << 31:
        return None
    by = divisor.as_py()
    return lambda rows: pa.chunked_array([_remainders(numbers(rows).combine_chunks(), by)])


def _remainders(numbers: pa.Array, by: int) -> pa.Array:
    """With the sign of the number, as Spark has it."""
    known = numbers.fill_null(0) if numbers.null_count else numbers
    values = known.to_numpy(zero_copy_only=False)
    # NumPy divides by one number faster than it finds remainders.
    left = values - values // by * by
    if values.size and values.min() < 0:
        left = np.where((values < 0) & (left > 0), left - by, left)
    return pa.array(left, mask=numbers.is_null().to_numpy(zero_copy_only=False) if numbers.null_count else None)


_DECIMAL = re.compile(r"\d*\.\d+")
"""How a literal is written that Spark takes for a decimal."""

_DIGITS = {pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT"}


class _Times(NamedTuple):
    """Whole numbers times a decimal that is not negative."""

    place: tuple[str, tuple[str, ...]]
    kind: pa.DataType
    unscaled: int
    scale: int

    @property
    def digits(self) -> int:
        """Of the decimal, as Spark counts them: those after its point at least."""
        return max(len(str(self.unscaled)), self.scale)

    @property
    def whole(self) -> int:
        """The digits that Spark gives the numbers as decimals."""
        return INTEGERS[_DIGITS[self.kind]]

    @property
    def product(self) -> int:
        """The digits of the product."""
        return self.digits + self.whole + 1


def _times(tree: exp.Expression, columns: pa.Schema, find: Find) -> _Times | None:
    """A column of whole numbers times a literal; None if it is none of that, or Spark would round the product."""
    if not isinstance(tree, exp.Mul):
        return None
    sides = (tree.this, tree.expression)
    literal, column = sides if isinstance(tree.expression, exp.Column) else reversed(sides)
    if not isinstance(literal, exp.Literal) or literal.is_string or not _DECIMAL.fullmatch(literal.this):
        return None
    place = _place(column, find) if isinstance(column, exp.Column) else None
    if place is None or _kind(place, columns) not in _DIGITS:
        return None
    before, _, after = literal.this.partition(".")
    found = _Times(place, _kind(place, columns), int(before + after), len(after))
    return found if found.product <= MOST_DIGITS else None


def _product(tree: exp.Expression, columns: pa.Schema, find: Find) -> Computation | None:
    """A column of whole numbers times a decimal literal."""
    times = _times(tree, columns, find)
    if times is None:
        return None
    by = pa.scalar(Decimal(times.unscaled).scaleb(-times.scale), pa.decimal128(times.digits, times.scale))
    whole = pa.decimal128(times.whole, 0)
    return lambda rows: pc.multiply(by, rows.column(*times.place).plain().cast(whole))


def _compared_product(tree: exp.Expression, name: str, columns: pa.Schema, find: Find) -> Condition | None:
    """Such a product, compared with a whole number: which numbers it holds for is known beforehand."""
    times = _times(tree.this, columns, find)
    if times is None or not times.unscaled:
        return None
    value = _literal(tree.expression, pa.int64(), texts=False)
    if value is None:
        return None
    # Beyond that, Spark compares fewer digits after the point.
    if max(times.product - times.scale, len(str(abs(value.as_py())))) + times.scale > MOST_DIGITS:
        return None
    quotient, left = divmod(value.as_py() * 10**times.scale, times.unscaled)
    if name in ("equal", "not_equal"):
        if left:
            return None
    elif left and name in ("greater_equal", "less"):
        quotient += 1
    if not -(2 ** (times.kind.bit_width - 1)) <= quotient < 2 ** (times.kind.bit_width - 1):
        return None
    bound = pa.scalar(quotient, times.kind)
    return lambda rows: getattr(pc, name)(rows.column(*times.place).plain(), bound)


def _letters(tree: exp.Expression, columns: pa.Schema, find: Find) -> Computation | None:
    """How often an ASCII letter is in a text, as the length of it less that of the text without the letter."""
    if not isinstance(tree, exp.Sub) or not isinstance(tree.this, exp.Length):
        return None
    whole, less = tree.this.this, tree.expression
    if not isinstance(whole, exp.Column) or not isinstance(less, exp.Length) or not isinstance(less.this, exp.Replace):
        return None
    place, gone, put = _place(whole, find), less.this.expression, less.this.args.get("replacement")
    literals = isinstance(gone, exp.Literal) and isinstance(put, exp.Literal) and gone.is_string and put.is_string
    if place is None or _kind(place, columns) != pa.string() or less.this.this != whole or not literals:
        return None
    if put.this or len(gone.this) != 1 or not gone.this.isascii():
        return None
    letter = ord(gone.this)
    return lambda rows: pa.chunked_array([_counted(rows.column(*place).plain().combine_chunks(), letter)])


def _counted(texts: pa.StringArray, letter: int) -> pa.Array:
    """How often a byte is in each text."""
    _, ends, data = texts.buffers()
    found = np.zeros(len(texts), np.int32)
    if data is not None:
        bounds = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
        some = np.flatnonzero(np.diff(bounds))
        if some.size:
            held = np.frombuffer(data, np.uint8)[: bounds[-1]] == letter
            found[some] = np.add.reduceat(held, bounds[some], dtype=np.int32)
    return pa.array(found, mask=texts.is_null().to_numpy(zero_copy_only=False) if texts.null_count else None)


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
    if isinstance(tree.this, exp.Mul):
        return _compared_product(tree, name, columns, find)
    place = _place(tree.this, find) if isinstance(tree.this, exp.Column) else None
    if place is None:
        return None
    if isinstance(tree.expression, exp.Column):
        return _compared_columns(tree, name, place, columns, find)
    value = _literal(tree.expression, _kind(place, columns), texts=isinstance(tree, _OF_TEXTS))
    return None if value is None else lambda rows: getattr(pc, name)(rows.column(*place).plain(), value)


def _compared_columns(
    tree: exp.Expression, name: str, place: tuple[str, tuple[str, ...]], columns: pa.Schema, find: Find
) -> Condition | None:
    """Two columns of the same type, of those that Arrow orders as Spark does."""
    kind, other = _kind(place, columns), _place(tree.expression, find)
    ordered = pa.types.is_signed_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind)
    if other is None or _kind(other, columns) != kind:
        return None
    if not ordered and not (kind == pa.string() and isinstance(tree, _OF_TEXTS)):
        return None
    return lambda rows: getattr(pc, name)(rows.column(*place).plain(), rows.column(*other).plain())


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
