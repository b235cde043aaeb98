"""Values in DuckDB: how they are written, their types, and which of Spark's families these are of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from penstock.core.errors import ConfigError

Family = Literal[
    "null", "boolean", "integer", "float", "decimal", "string", "binary", "date", "timestamp", "instant", "other"
]
"""Integers of any width; a timestamp has no zone (TIMESTAMP_NTZ), an instant has (TIMESTAMP)."""

INTEGERS = {"TINYINT": 3, "SMALLINT": 5, "INTEGER": 10, "BIGINT": 20}
"""Types of integers by width, and the digits that Spark gives them as decimals."""

INSTANT = "TIMESTAMP WITH TIME ZONE"

_FAMILIES: dict[str, Family] = {
    '"NULL"': "null",
    "BOOLEAN": "boolean",
    **dict.fromkeys(INTEGERS, "integer"),
    "FLOAT": "float",
    "DOUBLE": "float",
    "VARCHAR": "string",
    "BLOB": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    INSTANT: "instant",
}
_SPARK_TYPES = {
    '"NULL"': "VOID",
    "INTEGER": "INT",
    "VARCHAR": "STRING",
    "BLOB": "BINARY",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    INSTANT: "TIMESTAMP",
}
"""Types that Spark calls otherwise."""

_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
MOST_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Value:
    """A value: how DuckDB computes it, and its type there.

    >>> Value("x", "DECIMAL(4,1)").digits
    (4, 1)
    """

    sql: str
    kind: str
    number: str = ""
    """The digits of a number that is written as such."""
    sure: bool = False
    """Whether computing it cannot be an error."""
    by_zone: bool = False
    """Whether it goes by the time zone of the session; known of a whole expression."""
    by_ansi: bool = False
    """Whether it may be another value where Spark's ANSI mode is off; known of a whole expression."""
    of: Value | None = None
    """The integer that a FLOAT was cast from: as a DOUBLE, Spark has all of its digits."""

    @property
    def family(self) -> Family:
        """Its type without widths."""
        return "decimal" if _DECIMAL.fullmatch(self.kind) else _FAMILIES.get(self.kind, "other")

    @property
    def digits(self) -> tuple[int, int]:
        """The digits of a decimal, or of an integer as one, and how many of them are behind the point."""
        if self.family == "integer":
            return len(self.number.lstrip("-")) or INTEGERS[self.kind], 0
        found = _DECIMAL.fullmatch(self.kind)
        if found is None:
            raise TypeError(self)
        return int(found[1]), int(found[2])

    def before(self, other: Value, result: str) -> str:
        """The SQL of a result of this value and another: Spark computes the other only where this one is not NULL."""
        if other.sure or self.number:
            return result
        return f"CASE WHEN {self.sql} IS NOT NULL THEN {result} END"

    @property
    def spark_type(self) -> str:
        """What Spark calls its type.

        >>> Value("x", "INTEGER[]").spark_type, Value("x", "TIMESTAMP").spark_type
        ('INTEGER[]', 'TIMESTAMP_NTZ')
        """
        return _SPARK_TYPES.get(self.kind, self.kind)


def check_condition(value: Value, written: str) -> None:
    """Refuse a value that is neither true nor false where one is needed."""
    if value.family not in ("boolean", "null"):
        raise ConfigError(
            f"{written} is {value.spark_type}, not a boolean. Compare it with something, as in '{written} > 0'."
        )


def decimal(digits: int, scale: int) -> str | None:
    """The type of a decimal; None if it has more digits than there can be.

    >>> decimal(12, 2), decimal(40, 2)
    ('DECIMAL(12,2)', None)
    """
    return f"DECIMAL({digits},{scale})" if digits <= MOST_DIGITS else None


def quoted(name: str) -> str:
    """A column's name in DuckDB's SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text in DuckDB's SQL.

    >>> print(literal("it's"))
    'it''s'
    """
    return "'" + text.replace("'", "''") + "'"
