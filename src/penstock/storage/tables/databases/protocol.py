"""What a database must be able to do for a lookup join."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.core.errors import TableError

TableName = tuple[str, ...]
"""The parts of a table's name, such as schema and table."""

Parameter = int | float | str | None

PART = 1 << 18
"""Rows come from a database in parts of so many bytes, as far as that is known beforehand."""

Parts = Generator[pa.Table, None, None]
"""The rows of an answer. Close it to let the database go on to the next one."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the SQL that reads it, the type it is then sent in, and the type it has in the end."""

    name: str
    read: str
    sent: pa.DataType
    type: pa.DataType
    key: str | None
    """The database's type of values to look it up by; None if it cannot be looked up by."""
    folded: str | None = None
    """The SQL that keys are compared with in the column's place, if reading makes one value of several."""

    @property
    def compared(self) -> str:
        """The SQL that keys are compared with: the column itself, whose index serves then, wherever that will do."""
        return self.folded or quoted(self.name)


class Database(Protocol):
    """A connection to a database of one kind."""

    lasting: bool
    """Whether it stays open when no table is: others may write to the database meanwhile."""

    def columns(self, table: TableName) -> list[Column]:
        """The columns of a table; none if there is no such table."""
        ...

    def unique(self, table: TableName) -> list[frozenset[str]]:
        """Sets of columns whose values no two rows share as they are read, by the declarations of the table."""
        ...

    def count(self, table: TableName) -> int:
        """How many rows a table has, roughly if that is cheaper."""
        ...

    def query(self, sql: str, parameters: Sequence[Parameter], columns: Sequence[Column]) -> Parts:
        """The rows of a query that reads these columns, in parts of about `PART` bytes as they come."""
        ...

    def value(self, sql: str) -> str | None:
        """The only value of a query, as text that the database reads back as the same value."""
        ...

    def compare(self, column: Column, sign: str) -> str:
        """The condition that compares a column with the parameter of a query, which is such a text."""
        ...

    def marker(self, place: int) -> str:
        """Stands for a parameter in a query; they are numbered from 1."""
        ...

    def look_up(
        self, table: TableName, columns: Sequence[Column], keys: Sequence[Column], values: Sequence[pa.Array]
    ) -> Parts:
        """The rows that have one of some keys, in few requests, however many keys there are; in parts as well."""
        ...

    def confine(self, memory: int) -> int:
        """Take no more than so many bytes of this process for itself, or what it needs at least; what to charge."""
        ...

    def alive(self) -> bool:
        """Whether the connection still answers."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


def quoted(*names: str) -> str:
    """A name, or the parts of one, as SQL.

    >>> print(quoted("sales", 'the "new" ones'))
    "sales"."the ""new"" ones"
    """
    for name in names:
        if not name or "\0" in name:
            raise TableError(f"{name!r} cannot be the name of a table or column.")
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def selected(columns: Sequence[Column]) -> str:
    """What to write after SELECT to read some columns."""
    return ", ".join(f"{column.read} AS {quoted(column.name)}" for column in columns)


def apart(sets: Sequence[frozenset[str]], folding: Iterable[str]) -> list[frozenset[str]]:
    """Of sets of columns that no two rows share, those without a column of which reading makes one value of several.

    >>> apart([frozenset({"id"}), frozenset({"since"})], ["since"])
    [frozenset({'id'})]
    """
    return [names for names in sets if names.isdisjoint(folding)]


def typed(rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Rows as they were sent, in the types that their columns have."""
    arrays = []
    for place, column in enumerate(columns):
        try:
            arrays.append(rows.column(place).cast(column.type))
        except pa.ArrowInvalid as error:
            raise unreadable(column, error) from error
    return pa.Table.from_arrays(arrays, schema=pa.schema([(column.name, column.type) for column in columns]))


def unreadable(column: Column, error: Exception) -> TableError:
    """A value that is not of its column's type."""
    return TableError(
        f"Column {column.name!r} holds a value that is not of type {column.type}: {error}. "
        f"Leave it out of select=, or look up in a view that converts it."
    )


def bound(values: pa.Array, column: Column, kind: pa.DataType) -> pa.Array:
    """Keys of a stream, in the type that they are sent in."""
    try:
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(
            f"Keys of type {values.type} cannot be looked up in column {column.name!r}, which is {column.type}: "
            f"{error}. Cast the stream's column to {column.type} first."
        ) from error
