"""TPC-H tables for multi-way joins: sizes, types, keys that refer to each other, prefixes, and inflated rows."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from lab.workloads.tpch import JOINS, KB, KEYS, PAYLOAD, Tpch, widths
from penstock.core.errors import ConfigError

DATA = Tpch(scale=0.01)
TABLES = {name: DATA.table(name) for name in KEYS}


def ask(sql: str, **tables: pa.Table):
    with duckdb.connect() as db:
        for name, table in (TABLES | tables).items():
            db.register(name, table)
        return db.sql(sql).fetchall()


def test_f23_as_many_rows_and_columns_as_the_benchmark():
    assert {name: table.num_rows for name, table in TABLES.items() if name != "li"} == {
        "o": 15_000,
        "s": 100,
        "c": 1500,
    }
    assert TABLES["li"].num_rows == pytest.approx(60_012, rel=0.02)
    assert {name: table.num_columns for name, table in TABLES.items()} == {"li": 16, "o": 9, "s": 7, "c": 8}


@pytest.mark.parametrize("name", KEYS)
def test_f23_primary_keys_are_unique_and_in_order(name):
    keys = ", ".join(KEYS[name])
    assert ask(f"SELECT count(*) - count(DISTINCT ({keys})) FROM {name}") == [(0,)]
    columns = [TABLES[name].column(key).to_numpy() for key in reversed(KEYS[name])]
    assert (np.lexsort(columns) == np.arange(TABLES[name].num_rows)).all()


def test_f23_every_foreign_key_has_its_row():
    for child, parent, key in (("li", "o", "orderkey"), ("li", "s", "suppkey"), ("o", "c", "custkey")):
        assert ask(f"SELECT count(*) FROM {child} WHERE {key} NOT IN (SELECT {key} FROM {parent})") == [(0,)]


def test_f23_rules_of_the_benchmark_that_a_join_can_tell():
    assert ask("SELECT min(n), max(n) FROM (SELECT count(*) n FROM li GROUP BY orderkey)") == [(1, 7)]
    assert ask("SELECT count(*) FROM o WHERE custkey % 3 = 0") == [(0,)]
    assert ask("SELECT count(DISTINCT suppkey) FROM li") == [(100,)]
    assert ask("SELECT min(orderkey), max(orderkey) FROM o") == [(1, 15_000 // 8 * 32 - 32 + 8)]
    wrong = """SELECT count(*) FROM o JOIN (
        SELECT orderkey, sum(extendedprice * (1 - discount) * (1 + tax)) total, count(*) n,
            count(*) FILTER (linestatus = 'O') opened FROM li GROUP BY orderkey) USING (orderkey)
        WHERE abs(total - totalprice) > 0.08
        OR orderstatus != CASE opened WHEN 0 THEN 'F' WHEN n THEN 'O' ELSE 'P' END"""
    assert ask(wrong) == [(0,)]
    assert ask("SELECT count(*) FROM li WHERE NOT shipdate < receiptdate") == [(0,)]
    assert ask("SELECT min(orderdate)::VARCHAR, max(orderdate)::VARCHAR FROM o")[0][0].startswith("1992-01-0")


@pytest.mark.parametrize("rows", [1, 500, 5_000, 30_000])
def test_f23_a_prefix_is_what_sql_would_take(rows):
    prefix = {f"{name}_n": DATA.prefix(name, rows) for name in KEYS}
    for name in ("li", "o"):
        order = ", ".join(KEYS[name])
        taken = ask(f"SELECT {order} FROM {name} ORDER BY {order} LIMIT {rows}")
        assert [*zip(*(prefix[f"{name}_n"].column(key).to_pylist() for key in KEYS[name]), strict=True)] == taken
    # Orders cover the lines of a prefix as long as there are as many of them: each line is one result.
    joined = "SELECT count(*) FROM li_n JOIN o_n USING (orderkey) JOIN s_n USING (suppkey) JOIN c_n USING (custkey)"
    assert ask(joined, **prefix) == [(min(rows, TABLES["li"].num_rows),)]


@pytest.mark.parametrize("name", KEYS)
def test_f22_payload_makes_the_rows_of_one_relation_wider_by_3072_bytes(name):
    wide = Tpch(scale=0.001, payload=((name, 3 * KB),))
    plain = Tpch(scale=0.001)
    for each in KEYS:
        more = widths(wide.table(each)) - widths(plain.table(each))
        assert more.tolist() == [3072 * (each == name)] * plain.table(each).num_rows


def test_f22_the_payload_cannot_be_compressed():
    text = Tpch(scale=0.0001, payload=(("li", 3 * KB),)).table("li").column(PAYLOAD).combine_chunks()
    content = b"".join(value.as_py().encode() for value in text)
    assert len(pa.compress(content, codec="lz4", asbytes=True)) > 0.99 * len(content)


def test_f22_widths_are_those_of_the_values():
    row = Tpch(scale=0.0001).table("s")
    texts = sum(len(row.column(name)[0].as_py()) for name in ("name", "address", "phone", "comment"))
    assert widths(row)[0] == texts + 8 + 4 + 16
    assert widths(row, JOINS["s"])[0] == 8


def test_f23_the_same_seed_gives_the_same_rows_and_another_others():
    assert Tpch(scale=0.0001).table("li") == Tpch(scale=0.0001).table("li")
    assert Tpch(scale=0.0001, seed=1).table("li") != Tpch(scale=0.0001).table("li")


def test_payload_widths_by_relation():
    """Suppliers are not the lightest by bytes, as the thesis has it by columns (§6-6)."""
    payload = {
        name: widths(table, tuple({*table.column_names} - {*JOINS[name]})).mean() for name, table in TABLES.items()
    }
    assert min(payload, key=payload.__getitem__) == "o"


@pytest.mark.parametrize("wrong", [{"scale": 0}, {"payload": (("p", 10),)}, {"payload": (("li", -1),)}])
def test_nonsense_is_refused(wrong):
    with pytest.raises(ConfigError):
        Tpch(**wrong)
