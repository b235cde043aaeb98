"""Spark's SQL as of version 4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.tokens import TokenType


def _to_date(parts: list[Any]) -> Any:
    """A call of to_date(), by its name where it has a format."""
    return exp.TsOrDsToDate(this=parts[0]) if len(parts) == 1 else exp.Anonymous(this="to_date", expressions=parts)


WRITTEN = "written"
"""What marks parentheses that somebody wrote: the parser adds others, where Spark refuses to read on."""

SUFFIX = "suffix"
"""What is kept of a number like ``100S``, which Spark does not take for a cast: the letter."""


def _double_colon(parser: Any, this: Any, to: Any) -> Any:
    """A cast, or a number with a suffix, of which the tokenizer makes one."""
    cast = parser.build_cast(strict=parser.STRICT_CAST, this=this, to=to)
    if parser._prev.text.upper() in ("Y", "S", "L", "F", "D", "BD"):
        cast.meta[SUFFIX] = parser._prev.text
    return cast


_AS_WRITTEN = ("TO_CHAR", "TO_VARCHAR", "DATE_SUB", "STRPOS")
"""Functions that the dialect would make others of; days to go back, for one, may overflow where they are negated."""


def _truncation(name: str, unit: int) -> Callable[[list[Any]], Any]:
    """A call that truncates, by its name where its unit is one letter: the dialect would spell it out."""

    def build(parts: list[Any]) -> Any:
        letter = len(parts) == 2 and isinstance(parts[unit], exp.Literal) and len(parts[unit].name) == 1
        return exp.Anonymous(this=name, expressions=parts) if letter else Spark.Parser.FUNCTIONS[name.upper()](parts)

    return build


class Spark4(Spark):  # type: ignore[misc]
    """Spark's SQL in which a quote within quotes is written twice.

    >>> import sqlglot
    >>> sqlglot.parse_one("'it''s'", read=Spark4).name
    "it's"
    """

    class Tokenizer(Spark.Tokenizer):  # type: ignore[misc]
        """Reads two quotes as one."""

        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']

    class Parser(Spark.Parser):  # type: ignore[misc]
        """Keeps what Spark's dialect would leave out when it writes an expression again: formats, and a plus sign."""

        FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {
            **{name: build for name, build in Spark.Parser.FUNCTIONS.items() if name not in _AS_WRITTEN},
            "TO_DATE": _to_date,
            "TRUNC": _truncation("trunc", unit=1),
            "DATE_TRUNC": _truncation("date_trunc", unit=0),
        }
        UNARY_PARSERS: ClassVar[dict[Any, Callable[..., Any]]] = {
            **Spark.Parser.UNARY_PARSERS,
            TokenType.PLUS: lambda self: exp.Anonymous(this="positive", expressions=[self._parse_unary()]),
        }
        COLUMN_OPERATORS: ClassVar[dict[Any, Callable[..., Any] | None]] = {
            **Spark.Parser.COLUMN_OPERATORS,
            TokenType.DCOLON: _double_colon,
        }

        def _parse_paren(self) -> Any:
            found = super()._parse_paren()
            if isinstance(found, exp.Paren):
                found.meta[WRITTEN] = True
            return found
