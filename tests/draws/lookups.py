"""Lookups at random: table store × method × key type × freshness, and what they give by DuckDB."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from adbc_driver_postgresql import dbapi as postgresql
from deltalake import write_deltalake

from penstock.core.errors import ConfigError
from penstock.operators.lookup import METHODS
from penstock.storage.tables import PageTable, ParquetTable, SqlTable, build_page_table
from tests.draws import keys

Rows = tuple[tuple[int | None, int], ...]
"""Rows as the number of the key, and a value that tells them apart."""

SQL_TYPES = {
    "sqlite": {"int64": "BIGINT", "text": "TEXT"},
    "duckdb": {
        "int8": "TINYINT",
        "int16": "SMALLINT",
        "int32": "INTEGER",
        "int64": "BIGINT",
        "text": "VARCHAR",
        "flag": "BOOLEAN",
        "day": "DATE",
        "money": "DECIMAL(10, 2)",
    },
    "postgresql": {
        "int16": "smallint",
        "int32": "integer",
        "int64": "bigint",
        "double": "double precision",
        "text": "text",
        "bytes": "bytea",
        "flag": "boolean",
        "day": "date",
        "moment": "timestamptz",
    },
}
STORES = ("arrow", "pages", "parquet", "delta", "sqlite", "duckdb", "postgresql")
KINDS = {store: list(SQL_TYPES.get(store, keys.KINDS)) for store in (*STORES, "frame")}
"""The key types that a store has; "frame" is a DataFrame, which only Spark has."""

ONE_VERSION = ("arrow", "frame")
"""Stores of which there are only snapshots."""


@dataclass(frozen=True)
class Setting:
    """What the lookups of one flow have in common: how many epochs, in how much memory, on how many shards."""

    epochs: int
    memory: int
    shards: int

    @classmethod
    def draw(cls, rng: random.Random, most: int) -> Setting:
        """Of so many epochs at most."""
        return cls(rng.randint(1, most), rng.choice([200_000, 2_000_000]), rng.randint(1, 3))


@dataclass(frozen=True)
class LookupCase:
    """A lookup, the rows of each epoch, and the table as it is in each epoch."""

    store: str
    kind: str
    method: str
    how: str
    freshness: str
    max_age: int | None
    epochs: tuple[Rows, ...]
    tables: tuple[Rows, ...]
    setting: Setting
    partition_rows: int

    @property
    def waits(self) -> bool:
        """Whether its method lets rows wait over epochs; which one is chosen by itself is not known."""
        return self.method == "auto" or METHODS.parameters(self.method).defers


def draw_lookup(seed: str, setting: Setting | None = None, stores: Sequence[str] = STORES) -> LookupCase:
    """The case of a seed: equal seeds give equal cases."""
    rng = random.Random(seed)
    setting = setting or Setting.draw(rng, most=5)
    store = rng.choice(stores)
    freshness = "snapshot" if store in ONE_VERSION else rng.choice(["snapshot", "latest"])
    many, hot, values = rng.choice([3, 12, 60]), rng.random(), iter(range(10**6))

    def key() -> int | None:
        return None if rng.random() < 0.05 else 0 if rng.random() < hot else rng.randrange(many)

    unique = rng.random() < 0.5
    known = [number for number in range(many) if rng.random() < 0.8]
    table = [(k, next(values)) for k in known for _ in range(1 if unique else rng.randint(1, 3))]
    rng.shuffle(table)
    tables = [tuple(table)]
    for _ in range(setting.epochs - 1):
        if store not in ONE_VERSION and rng.random() < 0.6:
            # Files of a folder are only added to; elsewhere, keys are taken away and others come.
            kept = table if store == "parquet" else [row for row in table if rng.random() < 0.7]
            new = {rng.randrange(many) for _ in range(rng.randint(0, 5))}
            table = [
                *(row for row in kept if store == "parquet" or row[0] not in new),
                *((k, next(values)) for k in new),
            ]
        tables.append(tuple(table))
    return LookupCase(
        store,
        rng.choice(KINDS[store]),
        rng.choice(["auto", *METHODS]),
        rng.choice(["inner", "left"]),
        freshness,
        rng.choice([None, None, 1, 3]),
        tuple(tuple((key(), next(values)) for _ in range(rng.choice([0, 3, 40]))) for _ in range(setting.epochs)),
        tuple(tables),
        setting,
        rng.choice([1, 3, 100]),
    )


def as_table(rows: Sequence[tuple[int | None, int]], kind: str, value: str) -> pa.Table:
    """Rows with a key column of a type, and their values."""
    key = keys.column(kind)
    columns = [pa.array([keys.value(kind, k) for k, _ in rows], key.type), pa.array([v for _, v in rows], pa.int64())]
    return pa.table(columns, pa.schema([key, pa.field(value, pa.int64())]))


def difference(case: LookupCase, found: Sequence[tuple[int, int | None]]) -> str:
    """What is wrong with the pairs of values that came out; nothing if all is right.

    A row is answered by the table of its epoch; if its method lets it wait, by that of the epoch it is answered in.
    """
    answers = [_answers(case, table) for table in case.tables]
    got: defaultdict[int, list[int | None]] = defaultdict(list)
    for row, value in found:
        got[row].append(value)
    said = []
    for epoch, rows in enumerate(case.epochs):
        last = len(case.epochs) if case.waits else epoch + 1
        allowed = answers[epoch:last] if case.freshness == "latest" else answers[:1]
        for _, row in rows:
            mine = Counter(got.pop(row, []))
            if all(mine != Counter(version.get(row, [])) for version in allowed):
                said.append(f"row {row} got {dict(mine)}, not one of {[version.get(row, []) for version in allowed]}")
    if got:
        said.append(f"rows {sorted(got)} came out twice or never came in")
    return "; ".join(said)


def _answers(case: LookupCase, table: Rows) -> dict[int, list[int | None]]:
    """What each row of all epochs finds in a table, by DuckDB."""
    db, answers = _duckdb(), defaultdict(list)
    db.register("l", as_table([row for rows in case.epochs for row in rows], case.kind, "v"))
    db.register("r", as_table(table, case.kind, "w"))
    for row, value in db.execute(f"SELECT v, w FROM l {case.how} JOIN r USING (k_{case.kind})").fetchall():
        answers[row].append(value)
    return answers


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """One for all cases: to open another takes longer than a case."""
    return duckdb.connect(config={"threads": 1})


class Store:
    """A case's table in its store, which becomes what it is in the next epoch.

    `postgres` is the address of a server, where the table gets the name of the folder.
    """

    def __init__(self, case: LookupCase, folder: Path, postgres: str | None = None) -> None:
        folder.mkdir(parents=True)
        self._case, self._folder, self._now, self._postgres = case, folder, 0, postgres
        self._key, self._name = f"k_{case.kind}", f"t_{folder.name}"
        first, rows = as_table(case.tables[0], case.kind, "w"), case.partition_rows
        self.table: Any = first
        if case.store == "pages":
            self.table = build_page_table(str(folder / "pages"), [first], keys=[self._key], partition_rows=rows)
        elif case.store in ("parquet", "delta"):
            self._add_files(first, epoch=0)
            self.table = ParquetTable(self._files, (self._key,), first.schema, partition_rows=rows)
        elif case.store in SQL_TYPES:
            self._fill(case.tables[0])
            self.table = SqlTable(self._url, self._name, (self._key,), partition_rows=rows)

    @property
    def method(self) -> str:
        """The method of the case, or one that takes any table if that one does not take this table."""
        try:
            # With more files a key may be in several of them.
            if self._case.store in ("parquet", "delta"):
                return self._case.method if not self._case.waits else "cinlj"
            if self._case.store in (*SQL_TYPES, "pages"):
                METHODS.parameters(self._case.method).check(self.table.open())
        except ConfigError:
            return "meshjoin"
        return self._case.method

    def rows(self, epoch: int) -> pa.Table:
        """The rows of an epoch."""
        rows = self._case.epochs[epoch]
        return as_table(rows, self._case.kind, "v").append_column("t", pa.array([epoch] * len(rows), pa.int64()))

    def epochs(self) -> Iterator[pa.Table]:
        """The rows of each epoch; the table changes before they come."""
        for epoch in range(len(self._case.epochs)):
            self.become(epoch)
            yield self.rows(epoch)

    def become(self, epoch: int) -> None:
        """Change the table to what it is in an epoch."""
        old, new = self._case.tables[self._now], self._case.tables[epoch]
        self._now = epoch
        if old == new:
            return
        table = as_table(new, self._case.kind, "w")
        if self._case.store == "pages":
            pages: PageTable = self.table
            pages.delete(as_table(old, self._case.kind, "w").select([self._key]))
            pages.append(table)
        elif self._case.store == "parquet":
            self._add_files(as_table([row for row in new if row not in old], self._case.kind, "w"), epoch)
        elif self._case.store == "delta":
            self._add_files(table, epoch)
        else:
            self._fill(new)

    @property
    def _files(self) -> str:
        return f"{self._folder}/files"

    def _add_files(self, rows: pa.Table, epoch: int) -> None:
        """One more file, or the next version of a Delta table."""
        if self._case.store == "delta":
            write_deltalake(self._files, rows, mode="overwrite")
            return
        Path(self._files).mkdir(exist_ok=True)
        pq.write_table(rows, f"{self._files}/{epoch}.parquet", row_group_size=self._case.partition_rows)

    @property
    def _url(self) -> str:
        if self._case.store != "postgresql":
            return f"{self._case.store}:///{self._folder}/scratch.db"
        if self._postgres is None:
            raise ValueError("no PostgreSQL")
        return self._postgres

    def _fill(self, rows: Rows) -> None:
        """Fill the table of a database anew."""
        path, kind = f"{self._folder}/scratch.db", SQL_TYPES[self._case.store][self._case.kind]
        create = f"CREATE TABLE IF NOT EXISTS {self._name} ({self._key} {kind}, w BIGINT)"
        table = as_table(rows, self._case.kind, "w")
        if self._case.store == "sqlite":
            lite = sqlite3.connect(path)
            with lite:
                lite.execute(create)
                lite.execute(f"DELETE FROM {self._name}")
                values = [(keys.value(self._case.kind, key), value) for key, value in rows]
                lite.executemany(f"INSERT INTO {self._name} VALUES (?, ?)", values)
            lite.close()
        elif self._case.store == "duckdb":
            with duckdb.connect(path) as duck:
                duck.execute(create)
                duck.execute("BEGIN")
                duck.execute(f"DELETE FROM {self._name}")
                duck.register("given", table)
                duck.execute(f"INSERT INTO {self._name} SELECT * FROM given")
                duck.execute("COMMIT")
        else:
            with postgresql.connect(self._url) as server, server.cursor() as cursor:
                cursor.execute(create)
                cursor.execute(f"DELETE FROM {self._name}")
                cursor.adbc_ingest(self._name, table, mode="append")
                server.commit()
