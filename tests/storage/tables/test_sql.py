"""Tables of live databases: the same look-ups in PostgreSQL, SQLite and DuckDB."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import pickle
import sqlite3
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.core.budget import Budget
from penstock.core.errors import BudgetError, ConfigError, TableError
from penstock.kernels.hashing import hash_keys
from penstock.storage.tables import SqlTable
from penstock.storage.tables.databases import pool
from tests.storage.tables.rows import get, scanned

PEOPLE = (
    "CREATE TABLE people (id BIGINT PRIMARY KEY, name VARCHAR(40))",
    "INSERT INTO people VALUES (1, 'Ada'), (2, 'O''Neil \"x\"'), (3, 'Zoë 🐟'), (-4, NULL)",
)


def test_rows_are_found_by_key_and_missing_keys_are_left_out(database):
    database.run(*PEOPLE)
    table = database.table("people", ("id",)).open()
    assert get(table, [3, 1, 77]) == [{"id": 1, "name": "Ada"}, {"id": 3, "name": "Zoë 🐟"}]
    assert get(table, [77]) == []
    assert get(table, []) == []


def test_text_keys_may_have_quotes_and_any_letters(database):
    database.run(*PEOPLE)
    table = database.table("people", ("name",)).open()
    assert [row["id"] for row in get(table, ["Zoë 🐟", 'O\'Neil "x"', "'; DROP TABLE people; --"])] == [2, 3]
    assert len(get(table, ["Ada"])) == 1


def test_null_keys_find_nothing_and_are_never_returned(database):
    database.run(*PEOPLE)
    table = database.table("people", ("name",)).open()
    assert get(table, [None, "Ada"]) == [{"id": 1, "name": "Ada"}]


def test_a_key_of_several_columns_is_looked_up_as_a_whole(database):
    database.run(
        "CREATE TABLE prices (shop INTEGER, item VARCHAR(9), price DOUBLE PRECISION, PRIMARY KEY (shop, item))",
        "INSERT INTO prices VALUES (1, 'a', 0.5), (1, 'b', 1.5), (2, 'a', 2.5)",
    )
    table = database.table("prices", ("item", "shop")).open()
    assert get(table, ["a", "b"], [2, 2]) == [{"shop": 2, "item": "a", "price": 2.5}]
    assert table.unique
    assert not database.table("prices", ("item",)).open().unique


def test_all_rows_of_a_repeated_key_come(database):
    database.run("CREATE TABLE t (k INTEGER, v INTEGER)", "INSERT INTO t VALUES (1, 1), (1, 2), (2, 3), (NULL, 4)")
    table = database.table("t", ("k",)).open()
    assert [row["v"] for row in get(table, [1])] == [1, 2]
    assert not table.unique
    assert [row["v"] for row in scanned(table)] == [1, 2, 3]


def test_keys_that_the_column_cannot_hold_find_nothing(database):
    database.run("CREATE TABLE t (k INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    assert get(database.table("t", ("k",)).open(), pa.array([2**40, 1, -(2**63)])) == [{"k": 1}]


def test_a_hundred_thousand_keys_are_one_batch(database):
    numbers = "range(150000) AS r(n)" if database.kind == "duckdb" else "generate_series(0, 149999) AS r(n)"
    if database.kind == "sqlite":
        numbers = "(WITH RECURSIVE r(n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM r WHERE n < 149999) SELECT n FROM r)"
    database.run(
        "CREATE TABLE t (a BIGINT, b VARCHAR(9), PRIMARY KEY (a, b))",
        f"INSERT INTO t SELECT n, CAST(n % 7 AS VARCHAR(9)) FROM {numbers}",
    )
    table = database.table("t", ("a", "b")).open()
    wanted = pa.array(range(50_000, 150_000))
    keys = [wanted, pa.array([str(n % 7) for n in range(50_000, 150_000)])]
    found = table.get(hash_keys(keys), keys)
    assert sorted(found.column("a").to_pylist()) == wanted.to_pylist()


def test_an_answer_is_charged_while_it_comes_and_refused_once_it_is_too_large(database):
    numbers = "range(2000) AS r(n)" if database.kind == "duckdb" else "generate_series(0, 1999) AS r(n)"
    if database.kind == "sqlite":
        numbers = "(WITH RECURSIVE r(n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM r WHERE n < 1999) SELECT n FROM r)"
    payload = "printf('%01000d', n)" if database.kind == "sqlite" else "repeat('x', 1000)"
    database.run(
        "CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT)",
        f"INSERT INTO t SELECT n, {payload} FROM {numbers}",
    )
    budget = Budget(4_000_000)
    table = database.table("t", ("k",), partition_rows=500).open().within(budget)
    own = budget.held
    assert own == (1_000_000 if database.kind == "duckdb" else 0), "DuckDB works in this process"
    assert len(get(table, list(range(500)))) == 500
    assert len(scanned(table)) == 2000
    assert 3 * 500_000 <= budget.peak - own <= 3 * 600_000
    with pytest.raises(BudgetError, match=r"an answer of SQL table t needs .* Give the flow more memory="):
        get(table, list(range(2000)))
    assert budget.held == own
    assert budget.peak <= 4_000_000


def test_updates_are_seen_when_they_are_committed(database):
    database.run(*PEOPLE)
    source = database.table("people", ("id",))
    before = source.open()
    assert get(before, [1]) == [{"id": 1, "name": "Ada"}]
    version = before.version
    del before
    database.run("UPDATE people SET name = 'Bea' WHERE id = 1", "DELETE FROM people WHERE id = 2")
    after = source.open()
    assert get(after, [1, 2]) == [{"id": 1, "name": "Bea"}]
    assert after.version != version
    assert after.changes(version).keys is None


def test_an_updated_column_tells_which_keys_changed(database):
    database.run(
        "CREATE TABLE t (k INTEGER PRIMARY KEY, seen TIMESTAMP)", "INSERT INTO t VALUES (1, '2024-01-01 00:00:00')"
    )
    source = database.table("t", ("k",), updated_column="seen")
    first = source.open().version
    assert source.open().version == first
    database.run("INSERT INTO t VALUES (2, '2024-01-02 00:00:00.5')", "INSERT INTO t VALUES (3, '2023-01-01 00:00:00')")
    second = source.open()
    assert second.version != first
    assert sorted(second.changes(first).keys.column("k").to_pylist()) == [1, 2]
    assert second.changes(second.version).keys.column("k").to_pylist() == [2]
    assert second.changes("open:1").keys is None
    del second
    database.run("DELETE FROM t WHERE k = 2")
    assert source.open().changes("at:2024-01-02 00:00:00.5").keys is None


def test_queries_may_tell_version_and_changes(database):
    database.run(
        "CREATE TABLE t (k INTEGER PRIMARY KEY)",
        "CREATE TABLE log (n INTEGER, k INTEGER)",
        "INSERT INTO log VALUES (1, 10), (2, 20)",
    )
    source = database.table(
        "t",
        ("k",),
        version_query="SELECT max(n) FROM log",
        changed_query="SELECT k FROM log WHERE n > CAST(:since AS INTEGER)",
    )
    first = source.open().version
    database.run("INSERT INTO log VALUES (3, 30), (4, 40)")
    second = source.open()
    assert (first, second.version) == ("at:2", "at:4")
    assert sorted(second.changes(first).keys.column("k").to_pylist()) == [30, 40]


def test_an_empty_table_has_a_version_too_but_no_changes_to_tell(database):
    database.run("CREATE TABLE t (k INTEGER PRIMARY KEY, seen TIMESTAMP)")
    table = database.table("t", ("k",), updated_column="seen").open()
    assert table.changes(table.version).keys is None
    assert (table.size.rows, table.partitions, scanned(table)) == (0, 1, [])


def test_a_table_is_scanned_in_ranges_of_an_integer_key(database):
    rows = ", ".join(f"({n * n}, 'v{n}')" for n in range(100))
    database.run("CREATE TABLE t (k BIGINT, v VARCHAR(9))", f"INSERT INTO t VALUES {rows}, (NULL, 'no'), (0, 'twice')")
    table = database.table("t", ("k",), partition_rows=30).cut().open()
    assert (table.partitions, table.clustered) == (4, True)
    assert scanned(table) == sorted(
        [{"k": n * n, "v": f"v{n}"} for n in range(100)] + [{"k": 0, "v": "twice"}], key=str
    )
    for partition in range(4):
        keys = [table.scan(partition).column("k")]
        assert set(table.partition_of(hash_keys(keys), keys).tolist()) == {partition}


def test_rows_inserted_later_are_in_one_of_the_ranges(database):
    database.run("CREATE TABLE t (k BIGINT)", "INSERT INTO t VALUES (1), (2), (3), (4)")
    source = database.table("t", ("k",), partition_rows=2).cut()
    assert source.cuts == (3,)
    database.run("INSERT INTO t VALUES (-100), (100)")
    assert sorted(row["k"] for row in scanned(source.open())) == [-100, 1, 2, 3, 4, 100]


def test_a_table_with_a_text_for_its_first_key_is_scanned_in_the_databases_order(database):
    names = ["ada", "Ada", "ben", "Zoe", "Örs", "", "x' OR 1=1", "ada", "fay"]
    database.run("CREATE TABLE t (name VARCHAR(20), n BIGINT)")
    for n, name in enumerate(names):
        database.run(f"INSERT INTO t VALUES ('{name.replace(chr(39), 2 * chr(39))}', {n})")
    source = database.table("t", ("name",), partition_rows=2).cut()
    database.run("INSERT INTO t VALUES ('aaa', 9), ('zzz', 10), (NULL, 11)")
    table = source.open()
    assert 3 <= table.partitions <= 5
    assert sorted(row["n"] for row in scanned(table)) == list(range(11))
    assert not table.clustered, "which range has a name, only the database can tell"


def test_a_table_with_another_first_key_is_scanned_as_a_whole(database):
    database.run("CREATE TABLE t (yes BOOLEAN, n BIGINT)", "INSERT INTO t VALUES (TRUE, 1), (FALSE, 2)")
    table = database.table("t", ("yes",), partition_rows=1).open()
    assert table.partitions == 1
    assert sorted(row["n"] for row in scanned(table)) == [1, 2]


def test_names_are_quoted(database):
    database.run('CREATE TABLE "from ""here""" ("sel\'ect;" INTEGER PRIMARY KEY, "Ö" INTEGER)')
    database.run('INSERT INTO "from ""here""" VALUES (1, 2)')
    table = database.table('from "here"', ("sel'ect;",)).open()
    assert get(table, [1]) == [{"sel'ect;": 1, "Ö": 2}]
    assert table.unique


def test_only_the_columns_that_were_selected_are_read(database):
    database.run("CREATE TABLE t (k INTEGER PRIMARY KEY, a INTEGER, b INTEGER)", "INSERT INTO t VALUES (1, 2, 3)")
    assert get(database.table("t", ("k",), select=("b",)).open(), [1]) == [{"k": 1, "b": 3}]


def test_a_table_knows_its_size(database):
    database.run(*PEOPLE)
    size = database.table("people", ("id",)).open().size
    assert size.rows == 4
    assert size.nbytes > 40


def test_a_view_is_a_table(database):
    database.run(*PEOPLE, "CREATE VIEW shown AS SELECT id, upper(name) AS name FROM people")
    table = database.table("shown", ("id",)).open()
    assert get(table, [1])[0]["id"] == 1
    assert not table.unique
    assert table.size.rows == 4


def test_a_source_can_be_pickled_and_opened_elsewhere(database):
    database.run(*PEOPLE)
    source = database.table("people", ("id",))
    source.open()
    again = pickle.loads(pickle.dumps(source))
    assert again == source
    assert get(again.open(), [1]) == [{"id": 1, "name": "Ada"}]


def test_a_table_that_is_not_there_is_named(database):
    database.run("CREATE TABLE t (k INTEGER)")
    with pytest.raises(TableError, match="The database has no table or view nosuch"):
        database.table("nosuch", ("k",)).open()


def test_unknown_columns_are_named(database):
    database.run("CREATE TABLE t (key INTEGER)")
    with pytest.raises(ConfigError, match=r"keys='kay' is not a column of this table.*Did you mean 'key'"):
        database.table("t", ("kay",)).open()
    with pytest.raises(ConfigError, match="select='value' is not"):
        database.table("t", ("key",), select=("value",)).open()
    with pytest.raises(ConfigError, match="updated_column='seen' is not a column of this table"):
        database.table("t", ("key",), updated_column="seen").open()


def test_what_the_database_says_is_passed_on(database):
    database.run("CREATE TABLE t (k INTEGER)")
    with pytest.raises(TableError, match=r"raised an error: .*nonsense"):
        database.table("t", ("k",), version_query="SELECT nonsense FROM t").open()


def test_keys_of_another_kind_are_refused_with_the_remedy(database):
    database.run("CREATE TABLE t (k INTEGER)", "INSERT INTO t VALUES (1)")
    table = database.table("t", ("k",)).open()
    if database.kind == "duckdb":
        assert get(table, pa.array(["no number"])) == []
    else:
        with pytest.raises(TableError, match="Cast the stream's column to int"):
            get(table, pa.array(["no number"]))


def test_arguments_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match="keys="):
        SqlTable("sqlite:///x.db", "t", ())
    with pytest.raises(ConfigError, match=":since"):
        SqlTable("sqlite:///x.db", "t", ("k",), changed_query="SELECT k FROM log")
    with pytest.raises(ConfigError, match="version_query="):
        SqlTable("sqlite:///x.db", "t", ("k",), changed_query="SELECT k FROM log WHERE n > :since")


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite://x.db", "shop.db", "duckdb:///"])
def test_an_address_that_is_none_is_refused_with_examples(url):
    with pytest.raises(TableError, match="Write postgresql://user@host/database, sqlite:///"):
        SqlTable(url, "t", ("k",)).open()


def test_a_database_that_cannot_be_reached_is_named_without_its_password():
    pytest.importorskip("adbc_driver_postgresql")
    url = "postgresql://me:secret@/db?host=/nowhere&password=secret"
    with pytest.raises(TableError, match="Cannot connect to postgresql://me:\\*\\*\\*@/db") as refused:
        SqlTable(url, "t", ("k",)).open()
    assert "secret" not in str(refused.value)
    assert "secret" not in repr(SqlTable(url, "t", ("k",)))


@pytest.mark.parametrize(("url", "extra"), [("postgresql://x", "postgres"), ("duckdb:///x", "duckdb")])
def test_a_driver_that_is_missing_is_named(monkeypatch, url, extra):
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(TableError, match=rf"pip install 'penstock\[{extra}\]'"):
        SqlTable(url, "t", ("k",)).open()


def test_a_function_may_connect(sqlite):
    sqlite.run(*PEOPLE)
    path = sqlite.url.partition(":///")[2]
    assert get(SqlTable(lambda: sqlite3.connect(path), "people", ("id",)).open(), [1]) == [{"id": 1, "name": "Ada"}]
    with pytest.raises(TableError, match="A connection of builtins cannot be used"):
        SqlTable(lambda: 5, "people", ("id",)).open()


def test_a_connection_is_shared_by_the_tables_of_a_process(sqlite):
    sqlite.run(*PEOPLE)
    source = sqlite.table("people", ("id",))
    source.open()
    held = pool.connected(sqlite.url)
    pickle.loads(pickle.dumps(source)).open()
    assert pool.connected(sqlite.url) is held


def test_a_broken_connection_is_made_again_once(sqlite):
    sqlite.run(*PEOPLE)
    table = sqlite.table("people", ("id",)).open()
    pool.connected(sqlite.url).close()
    assert get(table, [1]) == [{"id": 1, "name": "Ada"}]


def test_a_database_that_does_not_come_back_is_named(sqlite):
    sqlite.run(*PEOPLE)
    table = sqlite.table("people", ("id",)).open()
    pool.connected(sqlite.url).close()
    os.remove(sqlite.url.partition(":///")[2])
    with pytest.raises(TableError, match="Cannot connect to sqlite:///"):
        get(table, [1])


def test_a_duckdb_file_is_left_to_writers_between_epochs(duckdb):
    duckdb.run(*PEOPLE)
    source = duckdb.table("people", ("id",))
    for n in range(3):
        table = source.open()
        assert len(get(table, [1, 2, 100, 101, 102])) == 2 + n
        del table
        duckdb.run(f"INSERT INTO people VALUES ({100 + n}, 'new')")


def test_an_answer_that_is_refused_half_way_can_be_asked_for_again_at_once(database):
    """DuckDB answers one question at a time, and an error keeps what its frames hold."""
    database.run("CREATE TABLE wide (id BIGINT, note VARCHAR(2000))")
    rows = ", ".join(f"({n}, '{n:01000d}')" for n in range(6_000))
    database.run(f"INSERT INTO wide VALUES {rows}")
    table = database.table("wide", ("id",)).open()
    budget = Budget(40_000_000)
    small = table.within(budget)
    with budget.hold(budget.room - 1_000_000, "something else"):
        try:
            small.scan(0)
        except BudgetError:
            assert len(get(small, [1])) == 1
        else:
            pytest.fail("the answer should not have fit")
    assert small.scan(0).num_rows == 6_000


@pytest.mark.parametrize("where", ["this process", "another"])
def test_a_duckdb_file_that_is_being_written_says_that_it_has_one_writer_or_many_readers(duckdb, where):
    duckdb.run(*PEOPLE)
    path = duckdb.url.partition(":///")[2]
    writing = f"import duckdb; writer = duckdb.connect({path!r}); print('open', flush=True); input()"
    if where == "this process":
        writer = contextlib.closing(pytest.importorskip("duckdb").connect(path))
    else:
        writer = subprocess.Popen([sys.executable, "-c", writing], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert writer.stdout.readline() == b"open\n"
    with writer:
        with pytest.raises(TableError, match=r"open elsewhere for writing, .* one writer or many readers\. Close the"):
            duckdb.table("people", ("id",)).open()
        if where == "another":
            writer.communicate(b"\n")
    assert len(get(duckdb.table("people", ("id",)).open(), [1, 2])) == 2


def test_postgres_ends_a_backend_and_the_next_get_works(postgres):
    postgres.run(*PEOPLE)
    table = postgres.table("people", ("id",)).open()
    assert len(get(table, [1, 2])) == 2
    postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    assert len(get(table, [1, 2])) == 2


def test_postgres_is_asked_once_for_many_keys(postgres, monkeypatch):
    postgres.run(*PEOPLE)
    table = postgres.table("people", ("id",)).open()
    asked = []
    connection = pool.connected(postgres.url)
    run = connection._parts
    monkeypatch.setattr(connection, "_parts", lambda sql, *given: asked.append(sql) or run(sql, *given))
    get(table, list(range(10_000)))
    assert len(asked) == 1


def test_postgres_knows_roughly_how_many_rows_there_are(postgres):
    postgres.run(*PEOPLE, "ANALYZE people")
    assert postgres.table("people", ("id",)).open().size.rows == 4


def test_postgres_may_only_be_read(postgres):
    postgres.run(*PEOPLE)
    postgres.run("CREATE SEQUENCE s")
    with pytest.raises(TableError, match="read-only"):
        postgres.table("people", ("id",), version_query="SELECT nextval('s')").open()


def test_postgres_tables_of_other_schemas(postgres):
    postgres.run(
        "CREATE SCHEMA IF NOT EXISTS sales",
        "DROP TABLE IF EXISTS sales.t",
        "CREATE TABLE sales.t (k int PRIMARY KEY)",
        "INSERT INTO sales.t VALUES (1)",
    )
    assert get(postgres.table("sales.t", ("k",)).open(), [1]) == [{"k": 1}]


def test_postgres_types_are_those_that_spark_reads(postgres):
    postgres.run(
        "CREATE DOMAIN cents AS numeric(8, 2)",
        "CREATE TYPE mood AS ENUM ('glad', 'sad')",
        """CREATE TABLE t (i2 int2, i4 int4, i8 int8, f4 real, f8 float8, n numeric(12, 3), free numeric, c cents,
        b bool, s text, ch char(5), u uuid, by bytea, d date, ts timestamp, tz timestamptz, j jsonb, m mood, tm time,
        a int[])""",
        """INSERT INTO t VALUES (1, 2, 3, 0.5, 0.25, 1.5, 1e-10, 9.99, true, 'x', 'ab',
        'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '\\x00ff', '2024-02-29', '2024-02-29 12:00:00.000001',
        '2024-02-29 12:00:00+02', '{"a": 1}', 'sad', '12:30', '{1,2}')""",
    )
    table = postgres.table("t", ("i8",)).open()
    types = {field.name: field.type for field in table.columns}
    assert (types["i2"], types["i4"]) == (pa.int16(), pa.int32())
    assert (types["n"], types["free"], types["c"]) == (pa.decimal128(12, 3), pa.decimal128(38, 18), pa.decimal128(8, 2))
    assert (types["ts"], types["tz"]) == (pa.timestamp("us"), pa.timestamp("us", "UTC"))
    (row,) = get(table, [3])
    assert row == {
        "i2": 1,
        "i4": 2,
        "i8": 3,
        "f4": 0.5,
        "f8": 0.25,
        "n": Decimal("1.500"),
        "free": Decimal("1e-10").quantize(Decimal("1e-18")),
        "c": Decimal("9.99"),
        "b": True,
        "s": "x",
        "ch": "ab",
        "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "by": b"\x00\xff",
        "d": dt.date(2024, 2, 29),
        "ts": dt.datetime(2024, 2, 29, 12, 0, 0, 1),
        "tz": dt.datetime(2024, 2, 29, 10, tzinfo=dt.UTC),
        "j": '{"a": 1}',
        "m": "sad",
        "tm": "12:30:00",
        "a": "{1,2}",
    }


@pytest.mark.parametrize("key", ["i2", "i4", "i8", "f4", "f8", "n", "b", "s", "ch", "u", "by", "d", "ts", "tz"])
def test_postgres_rows_are_found_by_keys_of_any_type(postgres, key):
    test_postgres_types_are_those_that_spark_reads(postgres)
    table = postgres.table("t", (key,)).open()
    whole = postgres.table("t", ("i8",)).open()
    (row,) = get(whole, [3])
    assert get(table, [row[key]]) == [row]


def test_postgres_keys_that_are_no_uuids_find_nothing(postgres):
    one = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    postgres.run("CREATE TABLE t (k uuid, l uuid)", f"INSERT INTO t VALUES ('{one}', '{one}')")
    assert get(postgres.table("t", ("k", "l")).open(), [one, one, "no"], [one, "no", one]) == [{"k": one, "l": one}]


def test_postgres_infinite_times_are_the_last_that_spark_shows(postgres):
    postgres.run("CREATE TABLE t (k int, d date, tz timestamptz)", "INSERT INTO t VALUES (1, 'infinity', '-infinity')")
    assert get(postgres.table("t", ("k",)).open(), [1]) == [
        {"k": 1, "d": dt.date(9999, 12, 31), "tz": dt.datetime(1, 1, 1, tzinfo=dt.UTC)}
    ]


def test_postgres_numbers_that_are_none_are_null(postgres):
    postgres.run("CREATE TABLE t (k int, n numeric(5, 2))", "INSERT INTO t VALUES (1, 'NaN')")
    assert get(postgres.table("t", ("k",)).open(), [1]) == [{"k": 1, "n": None}]


def test_rows_cannot_be_looked_up_by_a_type_without_a_meaning_in_arrow(postgres):
    postgres.run("CREATE TABLE t (k jsonb)")
    with pytest.raises(ConfigError, match="Rows cannot be looked up by 'k' of t"):
        postgres.table("t", ("k",)).open()


def test_duckdb_types_are_those_that_spark_reads(duckdb):
    duckdb.run(
        """CREATE TABLE t (k UINTEGER, h HUGEINT, ub UBIGINT, n DECIMAL(9, 2), u UUID, e ENUM('x', 'y'), tm TIME,
        ns TIMESTAMP_NS, tz TIMESTAMPTZ, l INTEGER[], s STRUCT(a INTEGER))""",
        """INSERT INTO t VALUES (1, 2, 3, 1.5, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'y', '12:30',
        '2024-02-29 12:00:00', '2024-02-29 12:00:00+02', [1, 2], {'a': 1})""",
    )
    table = duckdb.table("t", ("k",)).open()
    (row,) = get(table, [1])
    assert table.columns.field("k").type == pa.int64()
    assert table.columns.field("tz").type == pa.timestamp("us", "UTC")
    assert row == {
        "k": 1,
        "h": 2,
        "ub": 3,
        "n": Decimal("1.50"),
        "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "e": "y",
        "tm": "12:30:00",
        "ns": dt.datetime(2024, 2, 29, 12),
        "tz": dt.datetime(2024, 2, 29, 10, tzinfo=dt.UTC),
        "l": [1, 2],
        "s": {"a": 1},
    }
    for key in ("h", "ub", "n", "u", "e", "ns", "tz"):
        assert get(duckdb.table("t", (key,)).open(), [row[key]]) == [row]
    with pytest.raises(ConfigError, match="looked up by 'l'"):
        duckdb.table("t", ("l",)).open()


def test_sqlite_types_are_the_declared_ones(sqlite):
    sqlite.run(
        """CREATE TABLE t (k INTEGER PRIMARY KEY, f REAL, n DECIMAL(9, 2), b BOOLEAN, d DATE, ts TIMESTAMP, by BLOB,
        c VARCHAR(3), anything)""",
        "INSERT INTO t VALUES (1, 2, 1.5, 1, '2024-02-29', '2024-02-29 12:00:00.5', x'00ff', 'abc', 7)",
    )
    table = sqlite.table("t", ("k",)).open()
    assert get(table, [1]) == [
        {
            "k": 1,
            "f": 2.0,
            "n": Decimal("1.50"),
            "b": True,
            "d": dt.date(2024, 2, 29),
            "ts": dt.datetime(2024, 2, 29, 12, 0, 0, 500_000),
            "by": b"\x00\xff",
            "c": "abc",
            "anything": "7",
        }
    ]
    sqlite.run("INSERT INTO t (k, d) VALUES (2, 'tomorrow')")
    with pytest.raises(TableError, match="Column 'd' holds a value that is not of type date32"):
        get(table, [2])


def test_sqlite_values_of_another_type_than_declared_are_named(sqlite):
    sqlite.run("CREATE TABLE t (k INTEGER, v INTEGER)", "INSERT INTO t VALUES (1, 'many')")
    with pytest.raises(
        TableError, match=r"Column 'v' holds a value that is not of type int64.*Leave it out of select="
    ):
        get(sqlite.table("t", ("k",)).open(), [1])


def test_postgres_texts_that_it_cannot_hold_find_nothing(postgres):
    postgres.run("CREATE TABLE t (k text, c char(3))", "INSERT INTO t VALUES ('a', 'b')")
    row = {"k": "a", "c": "b"}
    assert get(postgres.table("t", ("k",)).open(), ["a", "a\0b", "\0", None]) == [row]
    assert get(postgres.table("t", ("c",)).open(), ["b", "b\0"]) == [row]


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
def test_postgres_times_of_years_that_it_spells_otherwise_find_nothing(postgres, kind):
    postgres.run(f"CREATE TABLE t (k {kind})", "INSERT INTO t VALUES ('2024-02-29 12:00:00')")
    table = postgres.table("t", ("k",)).open()
    noon = 1_709_208_000_000_000
    keys = pa.array(
        [-(2**63), -62_198_755_200_000_000, -62_135_596_800_000_001, noon, 253_402_300_800_000_000, 2**63 - 1]
    )
    assert len(get(table, keys.cast(table.columns.field("k").type))) == 1


def test_postgres_dates_of_years_that_it_spells_otherwise_find_nothing(postgres):
    postgres.run("CREATE TABLE t (k date)", "INSERT INTO t VALUES ('2024-02-29')")
    days = pa.array([-(2**31), -719_529, -719_163, 19_782, 2_932_897, 2**31 - 1], pa.int32())
    assert get(postgres.table("t", ("k",)).open(), days.cast(pa.date32())) == [{"k": dt.date(2024, 2, 29)}]


def test_postgres_instants_are_found_by_the_clock_of_any_place(postgres):
    postgres.run("CREATE TABLE t (k timestamptz)", "INSERT INTO t VALUES ('9999-12-31 23:30:00+00')")
    instant = pa.array([253_402_299_000_000_000]).cast(pa.timestamp("us", "Europe/Berlin"))
    assert len(get(postgres.table("t", ("k",)).open(), instant)) == 1


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_postgres_times_beyond_the_ends_are_found_by_what_they_are_read_as(postgres, kind):
    beyond = ["infinity", "-infinity", "12000-01-01", "0044-03-15 BC", "9999-12-31", "0001-01-01", "2024-02-29"]
    rows = ", ".join(f"({place}, '{at}', '{at}')" for place, at in enumerate(beyond))
    postgres.run(f"CREATE TABLE t (i int, k {kind}, l {kind})", f"INSERT INTO t VALUES {rows}")
    all_rows = scanned(postgres.table("t", ("i",)).open())
    for keys in (("k",), ("i", "k"), ("k", "l")):
        table = postgres.table("t", keys).open()
        for row in all_rows:
            same = [one for one in all_rows if all(one[key] == row[key] for key in keys)]
            assert get(table, *([row[key]] for key in keys)) == same
        assert get(table, *([row[key] for row in all_rows] for key in keys)) == all_rows


def plan_of_looking_up(database, monkeypatch, key):
    """What PostgreSQL does to look up a key of table t."""
    table = database.table("t", ("k",)).open()
    asked = []
    connection = pool.connected(database.url)
    run = connection._parts
    monkeypatch.setattr(connection, "_parts", lambda *given: asked.append(given) or run(*given))
    get(table, [key])
    ((sql, parameters, _),) = asked
    return "\n".join(connection._run(f"EXPLAIN {sql}", parameters).column(0).to_pylist())


@pytest.mark.parametrize("key", [dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), dt.datetime(2024, 1, 1)])
def test_postgres_times_are_found_by_index(postgres, monkeypatch, key):
    postgres.run(
        "CREATE TABLE t (k timestamp)",
        "INSERT INTO t SELECT '2024-01-01'::timestamp + n * '1 s'::interval FROM generate_series(1, 20000) AS r(n)",
        "CREATE INDEX ON t (k)",
        "ANALYZE t",
    )
    plan = plan_of_looking_up(postgres, monkeypatch, key)
    assert "Index" in plan
    assert "Seq Scan" not in plan


@pytest.mark.parametrize(("kind", "index"), [("numeric(38, 18)", "k"), ("numeric", "round(k, 18)")])
def test_postgres_numbers_are_found_by_an_index_on_what_is_read(postgres, monkeypatch, kind, index):
    postgres.run(
        f"CREATE TABLE t (k {kind})",
        "INSERT INTO t SELECT n FROM generate_series(1, 20000) AS r(n)",
        f"CREATE INDEX ON t ({index})",
        "ANALYZE t",
    )
    plan = plan_of_looking_up(postgres, monkeypatch, Decimal(7))
    assert "Index" in plan
    assert "Seq Scan" not in plan


def test_postgres_numbers_of_more_places_are_found_by_what_they_are_read_as(postgres):
    postgres.run(
        "CREATE TABLE t (i int, k numeric, v int)",
        "INSERT INTO t VALUES (1, 1, 1), (1, 1.0000000000000000001, 2), (1, 0.9999999999999999995, 3), (1, 1.1, 4), "
        "(1, 'NaN', 5), (2, 1e30, 6), (2, 'Infinity', 7)",
    )
    for keys in (("k",), ("i", "k")):
        table = postgres.table("t", keys).open()
        assert [row["v"] for row in get(table, *([{"i": 1, "k": Decimal(1)}[key]] for key in keys))] == [1, 2, 3]


def test_sqlite_truth_is_found_by_what_it_is_read_as(sqlite):
    sqlite.run(
        "CREATE TABLE t (i INTEGER, k BOOLEAN, v INTEGER)",
        "INSERT INTO t VALUES (1, 2, 1), (1, 1, 2), (1, -1, 3), (1, 0, 4), (1, NULL, 5)",
    )
    for keys in (("k",), ("i", "k")):
        table = sqlite.table("t", keys).open()
        found = [
            [row["v"] for row in get(table, *([1 if key == "i" else truth] for key in keys))] for truth in (True, False)
        ]
        assert found == [[1, 2, 3], [4]]


def test_postgres_times_that_are_null_stay_null(postgres):
    postgres.run("CREATE TABLE t (k int, d date, ts timestamp, tz timestamptz)", "INSERT INTO t VALUES (1)")
    assert get(postgres.table("t", ("k",)).open(), [1]) == [{"k": 1, "d": None, "ts": None, "tz": None}]


def test_postgres_numbers_may_be_rounded_before_the_point(postgres):
    postgres.run("CREATE TABLE t (k numeric(5, -2), l numeric(2, 4))", "INSERT INTO t VALUES (9999900, 0.0012)")
    table = postgres.table("t", ("k",)).open()
    assert table.columns.types == [pa.decimal128(7, 0), pa.decimal128(4, 4)]
    assert get(table, [Decimal(9999900)]) == [{"k": Decimal(9999900), "l": Decimal("0.0012")}]


def test_sqlite_generated_columns_are_columns(sqlite):
    sqlite.run(
        """CREATE TABLE t (k INTEGER, v INT GENERATED ALWAYS AS (k * 2),
        d DATE GENERATED ALWAYS AS ('2024-02-29') STORED, s TEXT AS ('x'))""",
        "INSERT INTO t (k) VALUES (1)",
    )
    row = {"k": 1, "v": 2, "d": dt.date(2024, 2, 29), "s": "x"}
    assert get(sqlite.table("t", ("k",)).open(), [1]) == [row]
    assert get(sqlite.table("t", ("v",)).open(), [2]) == [row]


def test_duckdb_constraints_of_another_table_of_that_name_say_nothing(duckdb):
    duckdb.run(
        "CREATE SCHEMA other",
        "CREATE TABLE other.t (k BIGINT PRIMARY KEY)",
        "CREATE TABLE t (k BIGINT, l BIGINT UNIQUE)",
        "INSERT INTO t VALUES (1, 1), (1, 2)",
    )
    unique = {
        (name, key): duckdb.table(name, (key,)).open().unique
        for name, key in [("t", "k"), ("t", "l"), ("other.t", "k")]
    }
    assert unique == {("t", "k"): False, ("t", "l"): True, ("other.t", "k"): True}
    assert duckdb.table("scratch.other.t", ("k",)).open().unique


def test_duckdb_unions_come_as_text_wherever_they_are(duckdb):
    duckdb.run(
        "CREATE TABLE t (k BIGINT, v UNION(n INTEGER, s VARCHAR), l UNION(n INTEGER)[], s STRUCT(a UNION(n INTEGER)))",
        "INSERT INTO t VALUES (1, 7, [2], {'a': union_value(n := 3)}), (2, 'x', NULL, NULL), (3, NULL, NULL, NULL)",
    )
    assert get(duckdb.table("t", ("k",)).open(), [1, 2, 3]) == [
        {"k": 1, "v": "7", "l": "[2]", "s": "{'a': 3}"},
        {"k": 2, "v": "x", "l": None, "s": None},
        {"k": 3, "v": None, "l": None, "s": None},
    ]
    with pytest.raises(ConfigError, match="looked up by 'v'"):
        duckdb.table("t", ("v",)).open()


@pytest.mark.parametrize("keys", [("a",), ("a", "b"), ("a", "c")])
def test_sqlite_keys_are_found_by_index(sqlite, keys):
    sqlite.run(
        "CREATE TABLE t (a INTEGER, b TEXT, c BOOLEAN)", "CREATE INDEX i ON t (a, b)", "CREATE INDEX j ON t (a, c)"
    )
    source = sqlite.table("t", keys)
    asked = []
    connection = pool.connected(sqlite.url)._connection
    connection.set_trace_callback(asked.append)
    get(source.open(), *([{"a": 1, "b": "x", "c": True}[key]] * 2 for key in keys))
    connection.set_trace_callback(None)
    (plan, *_) = [line for *_, line in connection.execute(f"EXPLAIN QUERY PLAN {asked[-1]}")]
    assert plan.startswith("SEARCH t USING INDEX")


def test_duckdb_nanoseconds_are_found_by_the_microseconds_that_they_are_read_as(duckdb):
    duckdb.run(
        "CREATE TABLE t (i BIGINT, k TIMESTAMP_NS)",
        "INSERT INTO t VALUES (1, '2024-02-29 12:00:00.000001'), (2, '2024-02-29 12:00:00.000001001'), (3, NULL)",
    )
    read = scanned(duckdb.table("t", ("i",)).open())
    assert get(duckdb.table("t", ("k",)).open(), [dt.datetime(2024, 2, 29, 12, 0, 0, 1)]) == read[:2]
    assert [row["k"] for row in read] == [dt.datetime(2024, 2, 29, 12, 0, 0, 1)] * 2 + [None]


@pytest.mark.parametrize("name", ["wanted", "looked"])
def test_duckdb_names_may_be_those_that_a_look_up_uses(duckdb, name):
    duckdb.run(f"CREATE TABLE {name} (k1 BIGINT, k0 BIGINT, {name} BIGINT)", f"INSERT INTO {name} VALUES (1, 2, 3)")
    row = {"k1": 1, "k0": 2, name: 3}
    assert get(duckdb.table(name, ("k1", "k0", name)).open(), [1], [2], [3]) == [row]


def test_a_key_is_not_unique_if_reading_makes_one_of_two(database):
    kind, one, other = {
        "postgresql": ("timestamp", "'infinity'", "'12000-01-01'"),
        "sqlite": ("BOOLEAN", "1", "2"),
        "duckdb": ("TIMESTAMP_NS", "'2024-02-29 12:00:00'", "'2024-02-29 12:00:00.000000001'"),
    }[database.kind]
    database.run(
        f"CREATE TABLE t (i INTEGER PRIMARY KEY, k {kind} UNIQUE)", f"INSERT INTO t VALUES (1, {one}), (2, {other})"
    )
    first, second = scanned(database.table("t", ("i",)).open())
    assert first["k"] == second["k"]
    assert not database.table("t", ("k",)).open().unique
    assert database.table("t", ("k", "i")).open().unique
