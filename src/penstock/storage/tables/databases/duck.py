"""DuckDB: Arrow columns both ways; keys are a table that the database joins.

A DuckDB file has either one process that writes it or many that read it. So it is opened for reading only, and only
as long as a table is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.core.errors import BudgetError, TableError
from penstock.storage.tables.databases.protocol import (
    Column,
    Parameter,
    Parts,
    TableName,
    apart,
    quoted,
    selected,
    typed,
)

_KEYS = "penstock_keys"

_MEMORY = "256MB"
"""What DuckDB may take for itself while no task says otherwise: unasked, most of the machine's."""

_LEAST_MEMORY = 32 << 20
"""With less it cannot look up some ten thousand keys, or read rows of 20 kB."""

_ROWS = 2_048
"""Rows that come at a time: as many as DuckDB works on."""

_TAKEN = ("Could not set lock", "different configuration")
"""What DuckDB says of a file that another process writes, and of one that this process does."""

_CASTS = {
    "TINYINT": "TINYINT",
    "UTINYINT": "SMALLINT",
    "USMALLINT": "INTEGER",
    "UINTEGER": "BIGINT",
    "UBIGINT": "DECIMAL(20, 0)",
    "HUGEINT": "DECIMAL(38, 0)",
    "UHUGEINT": "DECIMAL(38, 0)",
    "TIMESTAMP_S": "TIMESTAMP",
    "TIMESTAMP_MS": "TIMESTAMP",
    "TIMESTAMP_NS": "TIMESTAMP",
}
"""Types that Spark has not, as the ones that hold their values there."""

_ROUNDED = ("TIMESTAMP_NS",)
"""Of these, those that hold more values than what they are read as."""

_TEXT = ("ENUM", "UUID", "TIME", "INTERVAL", "BIT", "JSON", "BIGNUM", "VARINT")

_NESTED = ("STRUCT", "MAP", "UNION")


class DuckDb:
    """A connection to a DuckDB file."""

    lasting = False

    def __init__(self, connection: Any, *, ours: bool = False) -> None:
        self._connection = connection
        self._ours = ours
        self._connection.execute("SET TimeZone = 'UTC'")

    @classmethod
    def at(cls, path: str) -> DuckDb:
        """Open a file for reading."""
        import duckdb

        config = {"memory_limit": _MEMORY, "threads": 1}
        try:
            return cls(duckdb.connect(path, read_only=True, config=config), ours=True)
        except (duckdb.IOException, duckdb.ConnectionException) as error:
            if not any(sign in str(error) for sign in _TAKEN):
                raise
            raise TableError(
                f"{path} is open elsewhere for writing, but a DuckDB file has one writer or many readers. Close the "
                f"writer's connection once it has written: a flow holds the file only while an epoch reads it. "
                f"DuckDB says: {error}"
            ) from error

    def columns(self, table: TableName) -> list[Column]:
        """By their declarations."""
        import duckdb

        try:
            found = self._run(f"SELECT column_name, column_type FROM (DESCRIBE {quoted(*table)})").to_pylist()
        except duckdb.CatalogException:
            return []
        kinds = {row["column_name"]: row["column_type"] for row in found}
        reads = {name: _read(name, kind) for name, kind in kinds.items()}
        schema = self._run(f"SELECT {', '.join(reads.values())} FROM {quoted(*table)} LIMIT 0").schema
        return [
            Column(
                name,
                reads[name],
                arrow,
                arrow,
                key=None if _nested(kind) else kind,
                folded=reads[name] if kind in _ROUNDED else None,
            )
            for (name, kind), arrow in zip(kinds.items(), schema.types, strict=True)
        ]

    def unique(self, table: TableName) -> list[frozenset[str]]:
        """By its constraints."""
        sql = (
            "SELECT constraint_column_names AS names FROM duckdb_constraints() "
            "WHERE table_name = ? AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')"
        )
        schema = "?" if len(table) > 1 else "current_schema()"
        database = "?" if len(table) > 2 else "current_database()"
        where = f" AND schema_name = {schema} AND database_name = {database}"
        sets = [frozenset(row["names"]) for row in self._run(sql + where, table[::-1]).to_pylist()]
        return apart(sets, [column.name for column in self.columns(table) if column.folded])

    def count(self, table: TableName) -> int:
        """By counting, which DuckDB does without reading rows."""
        return int(self._run(f"SELECT count(*) FROM {quoted(*table)}").column(0)[0].as_py())

    def query(self, sql: str, parameters: Sequence[Parameter], columns: Sequence[Column]) -> Parts:
        """The rows of a query that reads these columns, in parts."""
        import duckdb

        try:
            answer = self._connection.sql(sql, params=list(parameters) or None)
            with answer.to_arrow_reader(_ROWS) as batches:
                for batch in batches:
                    yield typed(pa.Table.from_batches([batch]), columns)
        except duckdb.OutOfMemoryException as error:
            raise BudgetError(
                f"DuckDB has too little memory for this answer. Give the flow more memory=. {error}"
            ) from error

    def value(self, sql: str) -> str | None:
        """The only value of a query."""
        found: str | None = self._run(f"SELECT CAST(({sql}) AS VARCHAR)").column(0)[0].as_py()
        return found

    def compare(self, column: Column, sign: str) -> str:
        """The condition that compares a column with the parameter of a query."""
        return f"{quoted(column.name)} {sign} CAST(? AS {column.key or 'VARCHAR'})"

    def look_up(
        self, table: TableName, columns: Sequence[Column], keys: Sequence[Column], values: Sequence[pa.Array]
    ) -> Parts:
        """The keys as a table, without a copy, joined with the one that is looked up in."""
        given = pa.Table.from_arrays(list(values), names=[f"k{place}" for place in range(len(keys))])
        # A key that is no value of the column's type is null then, and found in no row.
        wanted = ", ".join(f"TRY_CAST(k{place} AS {key.key}) AS penstock_k{place}" for place, key in enumerate(keys))
        equal = " AND ".join(f"{key.compared} = wanted.penstock_k{place}" for place, key in enumerate(keys))
        self._connection.register(_KEYS, given)
        try:
            sql = (
                f"SELECT {selected(columns)} FROM {quoted(*table)} AS looked "
                f"SEMI JOIN (SELECT {wanted} FROM {_KEYS}) AS wanted ON {equal}"
            )
            yield from self.query(sql, (), columns)
        finally:
            self._connection.unregister(_KEYS)

    def confine(self, memory: int) -> int:
        """Give DuckDB so much for its own buffers, or what it needs at least, which does not grow with data.

        A connection that was made elsewhere keeps the limit that it was given there.
        """
        if self._ours:
            self._connection.execute(f"SET memory_limit = '{max(_LEAST_MEMORY, memory)}B'")
        return memory

    def marker(self, place: int) -> str:
        """Stands for a parameter in a query."""
        return "?"

    def alive(self) -> bool:
        """Whether the connection still answers."""
        import duckdb

        try:
            self._run("SELECT 1")
        except duckdb.Error:
            return False
        return True

    def close(self) -> None:
        """Let go of it."""
        self._connection.close()

    def _run(self, sql: str, parameters: Sequence[Parameter] = ()) -> pa.Table:
        return self._connection.sql(sql, params=list(parameters) or None).to_arrow_table()


def _read(name: str, kind: str) -> str:
    """The SQL that reads a column as a type that Spark has."""
    plain = quoted(name)
    if kind in _CASTS:
        return f"CAST({plain} AS {_CASTS[kind]})"
    text = not _nested(kind) and kind.startswith(_TEXT) and not kind.startswith("TIMESTAMP")
    if text or "UNION(" in kind:
        return f"CAST({plain} AS VARCHAR)"
    return plain


def _nested(kind: str) -> bool:
    return kind.endswith("]") or kind.startswith(_NESTED)
