"""Lookup joins over Parquet files and live databases equal their definition, as those over Arrow tables do."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.operators.lookup import LookupJoin
from penstock.storage.tables import ParquetTable
from tests.operators.lookup.cases import Case, Run, cases, run
from tests.streams import examples


def over(case: Case, table) -> Case:
    """The same case with its rows in another table."""
    return replace(case, config=replace(case.config, table=table))


def check(case: Case, table) -> None:
    at_work = run(over(case, table))
    assert at_work.results == case.expected()
    assert at_work.peak <= case.memory


@examples(0.2)
@given(case=cases(), group=st.integers(1, 6), files=st.integers(1, 3))
def test_over_parquet_files(tmp_path_factory, case, group, files):
    folder = tmp_path_factory.mktemp("table")
    rows = case.config.table.rows
    for n in range(files):
        part = rows.slice(n * rows.num_rows // files, (n + 1) * rows.num_rows // files - n * rows.num_rows // files)
        pq.write_table(part, folder / f"{n}.parquet", row_group_size=group)
    table = ParquetTable(str(folder), ("k",), rows.schema, partition_rows=4)
    try:
        case.config.stages.check(table.open())
    except ConfigError:
        assert not table.open().clustered
        return
    check(case, table)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(case=cases(), partition_rows=st.sampled_from([1, 3, 100]))
@pytest.mark.slow
def test_over_a_database(database, case, partition_rows):
    rows = case.config.table.rows
    fill = ", ".join(
        f"({k}, '{v}')" for k, v in zip(*(rows.column(name).to_pylist() for name in ("k", "v")), strict=True)
    )
    database.run(
        "DROP TABLE IF EXISTS t",
        "CREATE TABLE t (k BIGINT, v VARCHAR(9))",
        *([f"INSERT INTO t VALUES {fill}"] if fill else []),
    )
    check(case, database.table("t", ("k",), partition_rows=partition_rows))


def test_what_is_cached_of_a_database_is_forgotten_where_it_changed(database):
    database.run(
        "CREATE TABLE t (k BIGINT PRIMARY KEY, v VARCHAR(9), n INTEGER)",
        "INSERT INTO t VALUES (1, 'old', 1), (2, 'old', 2)",
    )
    for others in ({}, {"updated_column": "n"}):
        table = database.table("t", ("k",), select=("v",), **others)
        at_work = Run(LookupJoin(table, (("k", "k"),), method="cinlj"), memory=10**6)
        at_work.epoch([(1, 0), (2, 0), (1, 0), (2, 0)], 1)
        at_work.logics.clear()
        database.run("UPDATE t SET v = 'new', n = n + 10 WHERE k = 1")
        at_work.epoch([(1, 9), (2, 9)], 1)
        at_work.logics.clear()
        assert {(row[0], row[3]) for row in at_work.results if row[1] == 9} == {(1, "new"), (2, "old")}
        database.run("UPDATE t SET v = 'old', n = n + 10 WHERE k = 1")
