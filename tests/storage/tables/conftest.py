"""A database of each kind, to make tables in."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.storage.tables import SqlTable


@dataclass
class Scratch:
    """A database that a test may do with what it likes."""

    url: str

    @property
    def kind(self) -> str:
        return self.url.partition(":")[0]

    def run(self, *statements: str, parameters: Any = None) -> None:
        """Run statements, commit, and close the connection: DuckDB lets no one else in before."""
        path = self.url.partition(":///")[2]
        if self.kind == "sqlite":
            connection = sqlite3.connect(path, isolation_level=None)
        elif self.kind == "duckdb":
            connection = pytest.importorskip("duckdb").connect(path)
        else:
            connection = pytest.importorskip("adbc_driver_postgresql.dbapi").connect(self.url, autocommit=True)
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement, *([] if parameters is None else [parameters]))
        cursor.close()
        connection.close()

    def table(self, name: str, keys: tuple[str, ...], **others: Any) -> SqlTable:
        return SqlTable(self.url, name, keys, **others)


@pytest.fixture
def postgres(postgres_server: str) -> Scratch:
    scratch = Scratch(postgres_server)
    scratch.run("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return scratch


@pytest.fixture
def sqlite(tmp_path: Path) -> Scratch:
    scratch = Scratch(f"sqlite:///{tmp_path}/scratch.db")
    scratch.run("PRAGMA user_version = 1")
    return scratch


@pytest.fixture
def duckdb(tmp_path: Path) -> Scratch:
    return Scratch(f"duckdb:///{tmp_path}/scratch.duckdb")


@pytest.fixture(params=["sqlite", *(pytest.param(name, marks=pytest.mark.slow) for name in ("postgres", "duckdb"))])
def database(request: pytest.FixtureRequest) -> Scratch:
    return request.getfixturevalue(request.param)
