"""SQLite, through Python's own module. A column's type is the one it is declared with."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from penstock.storage.tables.databases.protocol import (
    PART,
    Column,
    Parameter,
    Parts,
    TableName,
    apart,
    bound,
    quoted,
    selected,
    typed,
    unreadable,
)

_MOST_PARAMETERS = 4_000

_FIRST, _MOST_ROWS = 64, 4_096
"""So many rows are fetched at a time, first and at most."""

_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


class Sqlite:
    """A connection to a SQLite file."""

    lasting = True

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def at(cls, path: str) -> Sqlite:
        """Open a file for reading; waits for writers half a minute."""
        uri = f"file:{quote(path)}?mode=ro"
        return cls(sqlite3.connect(uri, uri=True, timeout=30.0, isolation_level=None))

    def columns(self, table: TableName) -> list[Column]:
        """By their declarations, generated ones among them."""
        sql = f"SELECT name, type FROM pragma_table_xinfo({_named(table)}) WHERE hidden IN (0, 2, 3)"
        found = self._run(sql, table[::-1])
        return [_column(name, kind) for name, kind in found]

    def unique(self, table: TableName) -> list[frozenset[str]]:
        """By its primary key and its unique indexes."""
        primary = self._run(f"SELECT name FROM pragma_table_info({_named(table)}) WHERE pk > 0", table[::-1])
        sql = f'SELECT name FROM pragma_index_list({_named(table)}) WHERE "unique" AND NOT partial'
        indexes = [name for (name,) in self._run(sql, table[::-1])]
        sets = [self._run("SELECT name FROM pragma_index_info(?)", [index]) for index in indexes]
        named = [[name for (name,) in some] for some in (primary, *sets)]
        alone = [frozenset(names) for names in named if names and None not in names]
        return apart(alone, [column.name for column in self.columns(table) if column.folded])

    def count(self, table: TableName) -> int:
        """By counting."""
        return int(self._run(f"SELECT count(*) FROM {quoted(*table)}")[0][0])

    def query(self, sql: str, parameters: Sequence[Parameter], columns: Sequence[Column]) -> Parts:
        """The rows of a query that reads these columns, in parts."""
        cursor, count = self._connection.execute(sql, parameters), _FIRST
        while rows := cursor.fetchmany(count):
            part = typed(_table(rows, columns), columns)
            count = max(1, min(_MOST_ROWS, PART * len(rows) // max(1, part.nbytes)))
            del rows
            yield part

    def value(self, sql: str) -> str | None:
        """The only value of a query."""
        found = self._run(f"SELECT ({sql})")[0][0]
        return None if found is None else str(found)

    def compare(self, column: Column, sign: str) -> str:
        """The condition that compares a column with a text, which SQLite makes what the column is."""
        return f"{quoted(column.name)} {sign} ?"

    def look_up(
        self, table: TableName, columns: Sequence[Column], keys: Sequence[Column], values: Sequence[pa.Array]
    ) -> Parts:
        """Some thousand keys at a time: they take some hundred bytes each on their way."""
        sent = [bound(array, key, key.sent) for array, key in zip(values, keys, strict=True)]
        most = min(_MOST_PARAMETERS, self._connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)) // len(keys)
        names, one = ", ".join(key.compared for key in keys), f"({', '.join('?' * len(keys))})"
        for first in range(0, len(sent[0]), most):
            some = [array.slice(first, most).to_pylist() for array in sent]
            given = ", ".join([one] * len(some[0]))
            # Not IN (VALUES …): SQLite uses no index for several columns then.
            wanted = f"SELECT * FROM (VALUES {given})"
            sql = f"SELECT {selected(columns)} FROM {quoted(*table)} WHERE ({names}) IN ({wanted})"
            yield from self.query(sql, list(chain.from_iterable(zip(*some, strict=True))), columns)

    def confine(self, memory: int) -> int:
        """SQLite's own cache is two megabytes: that is let be."""
        return 0

    def marker(self, place: int) -> str:
        """Stands for a parameter in a query."""
        return "?"

    def alive(self) -> bool:
        """Whether the connection still answers."""
        try:
            self._run("SELECT 1")
        except sqlite3.Error:
            return False
        return True

    def close(self) -> None:
        """Let go of it."""
        self._connection.close()

    def _run(self, sql: str, parameters: Sequence[Parameter] = ()) -> list[Any]:
        return self._connection.execute(sql, parameters).fetchall()


def _named(table: TableName) -> str:
    return ", ".join("?" * len(table))


def _column(name: str, declared: str) -> Column:
    """A column by its declared type, read by SQLite's own rules of affinity where the type has no other meaning."""
    kind, plain = declared.upper(), quoted(name)
    if decimal := _DECIMAL.search(kind):
        precision, scale = int(decimal[1]), int(decimal[2] or 0)
        return Column(name, f"CAST({plain} AS TEXT)", pa.string(), pa.decimal128(min(precision, 38), scale), None)
    if kind.startswith("BOOL"):
        return Column(name, plain, pa.int64(), pa.bool_(), "INTEGER", f"{plain} <> 0")
    if kind == "DATE":
        return Column(name, plain, pa.string(), pa.date32(), None)
    if kind.startswith(("DATETIME", "TIMESTAMP")):
        return Column(name, plain, pa.string(), pa.timestamp("us"), None)
    if "INT" in kind:
        return Column(name, plain, pa.int64(), pa.int64(), "INTEGER")
    if any(part in kind for part in ("CHAR", "CLOB", "TEXT")):
        return Column(name, plain, pa.string(), pa.string(), "TEXT")
    if "BLOB" in kind:
        return Column(name, plain, pa.binary(), pa.binary(), "BLOB")
    if any(part in kind for part in ("REAL", "FLOA", "DOUB")):
        return Column(name, plain, pa.float64(), pa.float64(), "REAL")
    return Column(name, f"CAST({plain} AS TEXT)", pa.string(), pa.string(), None)


def _table(rows: list[tuple[Any, ...]], columns: Sequence[Column]) -> pa.Table:
    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    arrays = []
    for column, held in zip(columns, values, strict=True):
        try:
            arrays.append(pa.array(held, column.sent))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise unreadable(column, error) from error
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])
