"""A master table in a live database: PostgreSQL, SQLite or DuckDB. One request looks up thousands of keys.

A query sees what is committed when it runs. The database keeps no versions for us, so a row that is answered twice,
because an epoch is repeated, may see something newer the second time.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.budget import Budget, ample
from penstock.core.errors import ConfigError, TableError
from penstock.core.master import Changes, TableSize, master_schema
from penstock.core.rows import Hashes, Indices
from penstock.storage.tables.arrow import sorted_master
from penstock.storage.tables.databases import (
    Column,
    Database,
    Parts,
    Source,
    TableName,
    ask,
    connected,
    quoted,
    selected,
    shown,
)
from penstock.storage.tables.keyindex import not_null

_CHANGED_KEYS = 1 << 20
"""If more keys than this have changed, all count as changed."""

_SAMPLE = 1_000
"""Number of rows whose width is taken as that of all."""

_UNLIKE_ANY = "open:"
"""Prefix of versions about which nothing is known."""

_COPIES = 3
"""Copies of an answer in memory: in parts, as one table, and sorted."""

_OWN = 4
"""The fraction of a task's memory that a database in this process gets."""

_SINCE = re.compile(r"(?<!:):since\b")


@dataclass(frozen=True)
class SqlTable:
    """Table or view `table` of the database at `source`, looked up by `keys`, which should be indexed there.

    `source` is an address (``postgresql://user@host/shop``, ``sqlite:///shop.db``, ``duckdb:///shop.duckdb``) or a
    function that returns a connection (ADBC for PostgreSQL, sqlite3, duckdb). Processes that read connect on their
    first read. `select` names the columns to read, by default all. Column types are those that Spark reads; other types
    of PostgreSQL and DuckDB are read as text. PostgreSQL's `numeric` without a precision is read, and looked up,
    rounded to 18 places: as a key it needs an index on ``round(k, 18)``, or a precision.

    By default the table may have changed in every epoch, so nothing is cached for longer than one. To detect changes,
    name an `updated_column` that grows with every insert and update: rows at or above its last greatest value have
    changed. (Deletes are not seen, nor are rows that are committed later than others with a greater value.) Or write a
    `version_query` that returns one value that changes with the table, and a `changed_query` that returns the key
    columns, by name, of what changed after the version ``:since``, which is text: ``SELECT id FROM log WHERE at >
    CAST(:since AS timestamptz)``.

    Methods that scan the table, and snapshots, read ranges of the first key, `partition_rows` rows each. The first read
    sorts all keys to find them; `cut` does this once for all workers. If that key is neither an integer nor text, all
    rows are one range; unless it is an integer, only the database knows which range a key is in.

    >>> import sqlite3, tempfile
    >>> path = tempfile.mkdtemp() + "/shop.db"
    >>> with sqlite3.connect(path) as shop:
    ...     _ = shop.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
    ...     _ = shop.execute("INSERT INTO customers VALUES (1, 'Ada'), (2, 'Ben')")
    >>> customers = SqlTable(f"sqlite:///{path}", "customers", keys=("id",))
    >>> customers.columns.names, customers.open().unique
    (['id', 'name'], True)
    """

    source: Source = field(repr=False)
    table: str
    keys: tuple[str, ...]
    select: tuple[str, ...] | None = None
    version_query: str | None = None
    changed_query: str | None = None
    updated_column: str | None = None
    partition_rows: int = 1 << 16
    cuts: tuple[int, ...] | tuple[str, ...] | None = None
    """Where partitions begin, except the first; by default they are computed."""

    store: ClassVar[str] = "sql"
    versioned: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", (self.keys,) if isinstance(self.keys, str) else tuple(self.keys))
        if self.select is not None:
            object.__setattr__(self, "select", tuple(self.select))
        if not self.keys:
            raise ConfigError("keys=() names no column to look rows up by. Write keys=('customer_id',).")
        if self.changed_query is not None and not _SINCE.search(self.changed_query):
            raise ConfigError(
                f"changed_query={self.changed_query!r} does not say since when. Write … WHERE changed_at > :since."
            )
        if self.changed_query is not None and self.version_query is None and self.updated_column is None:
            raise ConfigError(
                "changed_query= needs a version to start from. Write version_query='SELECT max(…) FROM …' as well."
            )

    def __str__(self) -> str:
        return f"SQL table {self.table}"

    @property
    def columns(self) -> pa.Schema:
        """The table's columns."""
        return pa.schema([(column.name, column.type) for column in self.shape])

    def open(self, version: str | None = None) -> OpenSqlTable:
        """The table as it is now, under the name of `version`: a database cannot go back."""
        return OpenSqlTable(self, self._current() if version is None else version)

    def cut(self) -> SqlTable:
        """The same table with its partitions fixed: workers need not compute them, and all see the same ones.

        They stay valid: rows that are inserted later fall into one of them.
        """
        return replace(self, cuts=self.ranges)

    @cached_property
    def shape(self) -> tuple[Column, ...]:
        """How its columns are read. Asked once: it travels to workers with the table."""
        found = self._all_columns
        held = {column.name: column for column in found}
        chosen = list(held) if self.select is None else [*dict.fromkeys((*self.keys, *self.select))]
        for argument, names in (("keys", self.keys), ("select", self.select or ())):
            for name in names:
                if name not in held:
                    raise ConfigError.unknown_column(argument, name, held, "this table")
        for name in self.keys:
            if held[name].key is None:
                raise ConfigError(
                    f"Rows cannot be looked up by {name!r} of {self.table}: its type has no index that Arrow values "
                    f"can use. Create a view with a text, number, date or time column in its place."
                )
        return tuple(held[name] for name in chosen)

    @property
    def says_where(self) -> bool:
        """Whether a key's partition is known without the database, which compares text in its own way."""
        return bool(pa.types.is_integer(self.key_columns[0].type))

    @cached_property
    def ranges(self) -> tuple[int, ...] | tuple[str, ...]:
        """Where partitions begin, but for the first, in the database's order."""
        if self.cuts is not None:
            return self.cuts
        first = self.key_columns[0]
        if not self.says_where and not pa.types.is_string(first.type):
            return ()
        name = quoted(first.name)
        numbered = (
            f"SELECT {name}, row_number() OVER (ORDER BY {name}) AS penstock_place "
            f"FROM {quoted(*self.name)} WHERE {name} IS NOT NULL"
        )
        every = f"penstock_place % {int(self.partition_rows)} = {1 % int(self.partition_rows)}"
        sql = f"SELECT {first.read} AS {name} FROM ({numbered}) AS numbered WHERE {every} ORDER BY penstock_place"
        begins = (
            ask(self.source, lambda database: _all(database.query(sql, (), [first]), [first])).column(0).to_pylist()
        )
        return tuple(dict.fromkeys(begins))[1:]

    @cached_property
    def name(self) -> TableName:
        """The parts of the table's name."""
        return tuple(self.table.split("."))

    @property
    def key_columns(self) -> list[Column]:
        """How the key columns are read."""
        held = {column.name: column for column in self.shape}
        return [held[name] for name in self.keys]

    @cached_property
    def unique(self) -> bool:
        """Whether the database sees to it that a key has at most one row."""
        sets = ask(self.source, lambda database: database.unique(self.name))
        return any(names <= set(self.keys) for names in sets)

    @cached_property
    def updated(self) -> Column:
        """The column that tells what changed."""
        held = {column.name: column for column in self._all_columns}
        if self.updated_column not in held:
            raise ConfigError.unknown_column("updated_column", str(self.updated_column), held, "this table")
        return held[self.updated_column]

    @cached_property
    def _all_columns(self) -> list[Column]:
        found = ask(self.source, lambda database: database.columns(self.name))
        if not found:
            raise TableError(
                f"The database has no table or view {self.table}, or you have no access to it. "
                f"Write its name as it is spelled there, with its schema if needed: 'sales.customers'."
            )
        return found

    def _current(self) -> str:
        """What tells this state of the table from others: unknown, and so unlike any other, if nothing says so."""
        query = self.version_query
        if query is None and self.updated_column is not None:
            query = f"SELECT max({quoted(self.updated.name)}) FROM {quoted(*self.name)}"
        if query is None:
            return f"{_UNLIKE_ANY}{uuid.uuid4().hex}"
        sql = query
        found = ask(self.source, lambda database: database.value(sql))
        return "empty" if found is None else f"at:{found}"


class OpenSqlTable:
    """The table, by way of a connection that is made when it is first needed."""

    def __init__(self, source: SqlTable, version: str) -> None:
        self._source = source
        self.version = version
        self.edition = None if version.startswith(_UNLIKE_ANY) else (source, version)
        self.columns = source.columns
        self.keys = source.keys
        self.clustered = source.says_where
        self._connection = connected(source.source)
        self._budget = ample()

    def within(self, budget: Budget) -> OpenSqlTable:
        """The same table, with what its answers take while they come charged to `budget`, and the database's own."""
        charged = copy(self)
        charged._budget = budget
        own = self._connection.confine(budget.limit // _OWN)
        budget.charge(own, f"the buffers of {shown(self._source.source)}")
        return charged

    @property
    def unique(self) -> bool:
        """Whether the database sees to it that a key has at most one row."""
        return self._source.unique

    @cached_property
    def size(self) -> TableSize:
        """The rows by the database's own count, times the width of some."""
        source = self._source
        rows = ask(source.source, lambda database: database.count(source.name))
        sql = f"SELECT {selected(source.shape)} FROM {quoted(*source.name)} LIMIT {_SAMPLE}"
        sample = ask(source.source, lambda database: _all(database.query(sql, (), source.shape), source.shape))
        return TableSize(rows, rows * sample.nbytes // max(1, sample.num_rows))

    @property
    def partitions(self) -> int:
        """How many ranges of the first key there are."""
        return len(self._source.ranges) + 1

    def partition_of(self, hashes: Hashes, keys: Sequence[pa.Array]) -> Indices:
        """The range that the key is in, whether or not the table has it."""
        first: Indices = pc.fill_null(keys[0].cast(pa.int64()), fill_value=0).to_numpy(zero_copy_only=False)
        return np.searchsorted(np.array(self._source.ranges, np.int64), first, "right").astype(np.int64)

    def scan(self, partition: int) -> pa.RecordBatch:
        """The rows of a range."""
        return self._fetched(lambda database: self._range(database, partition))

    def get(self, hashes: Hashes, keys: Sequence[pa.Array]) -> pa.RecordBatch:
        """Ask for the rows of all these keys at once."""
        source = self._source
        if not hashes.size:
            return pa.RecordBatch.from_pylist([], schema=master_schema(self.columns))
        return self._fetched(lambda db: db.look_up(source.name, source.shape, source.key_columns, keys))

    def changes(self, since: str) -> Changes:
        """By the query or the column for changes, if `since` is a version that one of them gave."""
        source = self._source
        if not since.startswith("at:") or (source.changed_query is None and source.updated_column is None):
            return Changes(None)
        found = ask(source.source, lambda database: self._changed(database, since.removeprefix("at:")))
        # The row that had the greatest value then is among them, unless rows were deleted.
        lost = source.changed_query is None and not found.num_rows
        return Changes(None if lost or found.num_rows > _CHANGED_KEYS else not_null(found, self.keys))

    def _fetched(self, question: Callable[[Database], Parts]) -> pa.RecordBatch:
        """The rows of an answer, charged as they come: refused as soon as they are too many to be sorted here."""
        with self._budget.tab(f"an answer of {self._source}") as charge:

            def charged(parts: Parts) -> Parts:
                # An error keeps its frames, and those the answer: what is refused must be closed to be asked for again.
                with closing(parts):
                    for part in parts:
                        charge(_COPIES * part.nbytes)
                        yield part

            rows = ask(self._source.source, lambda database: _all(charged(question(database)), self._source.shape))
            return sorted_master(not_null(rows, self.keys), self.keys)

    def _range(self, database: Database, partition: int) -> Parts:
        source = self._source
        edges = [None, *source.ranges, None]
        first, (low, high) = quoted(self.keys[0]), edges[partition : partition + 2]
        ends = [(sign, end) for sign, end in ((">=", low), ("<", high)) if end is not None]
        conditions = [f"{quoted(key)} IS NOT NULL" for key in self.keys]
        conditions += [f"{first} {sign} {database.marker(place)}" for place, (sign, _) in enumerate(ends, 1)]
        sql = f"SELECT {selected(source.shape)} FROM {quoted(*source.name)} WHERE {' AND '.join(conditions)}"
        return database.query(sql, [end for _, end in ends], source.shape)

    def _changed(self, database: Database, since: str) -> pa.Table:
        source = self._source
        if source.changed_query is not None:
            changed = f"({_SINCE.sub(lambda _: database.marker(1), source.changed_query)}) AS changed"
        else:
            # A row may have been written in the very instant that was the last one then.
            changed = f"{quoted(*source.name)} WHERE {database.compare(source.updated, '>=')}"
        sql = f"SELECT {selected(source.key_columns)} FROM {changed} LIMIT {_CHANGED_KEYS + 1}"
        return _all(database.query(sql, [since], source.key_columns), source.key_columns)


def _all(parts: Iterator[pa.Table], columns: Sequence[Column]) -> pa.Table:
    schema = pa.schema([(column.name, column.type) for column in columns])
    return pa.concat_tables([schema.empty_table(), *parts])
