"""Lookups at random: table store × method × key type × freshness, and what they give by DuckDB."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.operators.lookup.methods import MethodName, read_stages
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
}
KINDS = {store: list(SQL_TYPES.get(store, keys.KINDS)) for store in ("arrow", "pages", "parquet", "sqlite", "duckdb")}


@dataclass(frozen=True)
class LookupCase:
    """A lookup, the rows of each epoch, and the table as it is in each epoch."""

    store: str
    kind: str
    method: MethodName
    how: str
    freshness: str
    epochs: tuple[Rows, ...]
    tables: tuple[Rows, ...]
    memory: int
    shards: int
    partition_rows: int

    @property
    def waits(self) -> bool:
        """Whether its method lets rows wait over epochs; which one is chosen by itself is not known."""
        return self.method == "auto" or read_stages(self.method).defers


def draw_lookup(seed: str) -> LookupCase:
    """The case of a seed: equal seeds give equal cases."""
    rng = random.Random(seed)
    store = rng.choice(list(KINDS))
    freshness = "snapshot" if store == "arrow" else rng.choice(["snapshot", "latest"])
    many, hot, values = rng.choice([3, 12, 60]), rng.random(), iter(range(10**6))

    def key() -> int | None:
        return None if rng.random() < 0.05 else 0 if rng.random() < hot else rng.randrange(many)

    unique = rng.random() < 0.5
    count = rng.randint(1, 5)
    known = [number for number in range(many) if rng.random() < 0.8]
    table = [(k, next(values)) for k in known for _ in range(1 if unique else rng.randint(1, 3))]
    rng.shuffle(table)
    tables = [tuple(table)]
    for _ in range(count - 1):
        if freshness == "latest" and rng.random() < 0.6:
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
        rng.choice(get_args(MethodName)),
        rng.choice(["inner", "left"]),
        freshness,
        tuple(tuple((key(), next(values)) for _ in range(rng.choice([0, 3, 40]))) for _ in range(count)),
        tuple(tables),
        rng.choice([200_000, 2_000_000]),
        rng.randint(1, 3),
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
    """A case's table in its store, which becomes what it is in the next epoch."""

    def __init__(self, case: LookupCase, folder: Path) -> None:
        self._case, self._folder, self._now = case, folder, 0
        self._key = f"k_{case.kind}"
        first = as_table(case.tables[0], case.kind, "w")
        self.table: Any = first
        if case.store == "pages":
            self.table = build_page_table(
                str(folder / "pages"), [first], keys=[self._key], partition_rows=case.partition_rows
            )
        elif case.store == "parquet":
            (folder / "parquet").mkdir()
            pq.write_table(first, folder / "parquet" / "0.parquet", row_group_size=case.partition_rows)
            self.table = ParquetTable(
                str(folder / "parquet"), (self._key,), first.schema, partition_rows=case.partition_rows
            )
        elif case.store in SQL_TYPES:
            self._sql(case.tables[0])
            self.table = SqlTable(self._url, "t", (self._key,), partition_rows=case.partition_rows)

    def epochs(self) -> Iterator[pa.Table]:
        """The rows of each epoch; the table changes before they come."""
        for epoch, rows in enumerate(self._case.epochs):
            self._become(epoch)
            table = as_table(rows, self._case.kind, "v")
            yield table.append_column("t", pa.array([epoch] * len(rows), pa.int64()))

    def _become(self, epoch: int) -> None:
        old, new = self._case.tables[self._now], self._case.tables[epoch]
        self._now = epoch
        if old == new:
            return
        added = [row for row in new if row not in old]
        if isinstance(self.table, PageTable):
            self.table.delete(as_table(old, self._case.kind, "w").select([self._key]))
            self.table.append(as_table(new, self._case.kind, "w"))
        elif isinstance(self.table, ParquetTable):
            path = self._folder / "parquet" / f"{epoch}.parquet"
            pq.write_table(as_table(added, self._case.kind, "w"), path, row_group_size=self._case.partition_rows)
        else:
            self._sql(new)

    @property
    def _url(self) -> str:
        return f"{self._case.store}:///{self._folder}/scratch.db"

    def _sql(self, rows: Rows) -> None:
        """Fill the table of a database anew."""
        path, kind = f"{self._folder}/scratch.db", SQL_TYPES[self._case.store][self._case.kind]
        create = f"CREATE TABLE IF NOT EXISTS t ({self._key} {kind}, w BIGINT)"
        if self._case.store == "sqlite":
            lite = sqlite3.connect(path)
            with lite:
                lite.execute(create)
                lite.execute("DELETE FROM t")
                values = [(keys.value(self._case.kind, key), value) for key, value in rows]
                lite.executemany("INSERT INTO t VALUES (?, ?)", values)
            lite.close()
            return
        with duckdb.connect(path) as duck:
            duck.execute(create)
            duck.execute("BEGIN")
            duck.execute("DELETE FROM t")
            duck.register("given", as_table(rows, self._case.kind, "w"))
            duck.execute("INSERT INTO t SELECT * FROM given")
            duck.execute("COMMIT")
