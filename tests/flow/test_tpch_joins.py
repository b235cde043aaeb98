"""The joins of three and of four TPC-H relations equal batch SQL: early, late and in part, on any number of shards."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from lab.workloads.tpch import Tpch
from penstock.core.pages import read_page
from penstock.core.rows import HASH, TIME
from penstock.local.query import LocalQuery
from penstock.local.shards import LocalWorkers
from penstock.storage import payload

pytestmark = pytest.mark.slow

THREE = ("li.orderkey = o.orderkey", "li.suppkey = s.suppkey")
FOUR = (*THREE, "o.custkey = c.custkey")
PLANS = {"(li o) s": THREE, "(li s) o": THREE, "(li s) (o c)": FOUR, "((li o) c) s": FOUR}
WAYS: list[Any] = ["early", "late", {"li": "late"}, {"o": "late", "s": "late"}]
LINES = 150


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    data = Tpch(scale=0.001)
    return {name: data.prefix(name, LINES) for name in ("li", "o", "s", "c")}


def aliases(on: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(part.split(".")[0] for text in on for part in text.split(" = ")))


def by_sql(tables: dict[str, pa.Table], on: tuple[str, ...], *also: str) -> Counter[tuple[Any, ...]]:
    names = aliases(on)
    with duckdb.connect() as engine:
        for name in names:
            engine.register(name, tables[name])
        shown = ", ".join(f"{name}.comment" for name in names)
        where = " AND ".join((*on, *also))
        return Counter(engine.sql(f"SELECT {shown}, li.linenumber FROM {', '.join(names)} WHERE {where}").fetchall())


def by_penstock(
    folder: Path, tables: dict[str, pa.Table], on: tuple[str, ...], plan: str, when: Any, shards: int, seed: int
) -> Counter[tuple[Any, ...]]:
    """The same over files whose rows are in a random order, two epochs of them."""
    flow, random, streams = pk.LocalFlow(shards=shards), Random(seed), {}
    for name in aliases(on):
        rows = tables[name]
        order = random.sample(range(rows.num_rows), rows.num_rows)
        rows = rows.take(pa.array(order, pa.int64())).append_column("t", pa.array(range(rows.num_rows), pa.int64()))
        (folder / name).mkdir(parents=True)
        half = rows.num_rows // 2
        for number, part in enumerate((rows.slice(0, half), rows.slice(half))):
            pq.write_table(part, folder / name / f"{number}.parquet", row_group_size=40)
        streams[name] = flow.parquet(folder / name, time="t", name=name, max_files=1)
    joined = flow.join(**streams, on=list(on), plan=plan, materialize=when)
    out = joined.select(*(f"{name}_comment" for name in aliases(on)), "linenumber").to_memory()
    flow.run()
    return Counter(zip(*(column.to_pylist() for column in out.table().columns), strict=True))


@pytest.mark.parametrize(
    ("when", "seeds"), [("early", 50), ("late", 12), pytest.param("late", 50, marks=pytest.mark.deep)]
)
def test_f02_f03_the_3_way_join_equals_batch_sql_in_any_order_of_arrival(tmp_path, tables, when, seeds):
    some = {name: tables[name].slice(0, rows) for name, rows in {"li": 40, "o": 12, "s": 10}.items()}
    expected = by_sql(some, THREE)
    assert expected
    for seed in range(seeds):
        found = by_penstock(tmp_path / str(seed), some, THREE, "(li o) s", when, shards=1 + seed % 3, seed=seed)
        assert found == expected, seed


@pytest.fixture
def edges(monkeypatch) -> dict[tuple[str, int], set[str]]:
    """By operator and port, the columns of which some row that entered by it had a value."""
    seen: dict[tuple[str, int], set[str]] = defaultdict(set)
    work = LocalWorkers.work

    def watched(self, node, plan, ports, arrivals) -> Iterator[Any]:
        for port, batches in enumerate(arrivals):
            for rows in batches:
                filled = [
                    name
                    for name, column in zip(rows.schema.names, rows.columns, strict=True)
                    if column.null_count < len(column)
                ]
                seen[node.name, port].update(filled)
        return work(self, node, plan, ports, arrivals)

    monkeypatch.setattr(LocalWorkers, "work", watched)
    return seen


@pytest.mark.parametrize("plan", ["(li o) s", "(li s) (o c)"])
def test_f03_f04_no_payload_column_is_on_any_edge_of_the_join_phase(tmp_path, tables, edges, plan):
    by_penstock(tmp_path / "late", tables, PLANS[plan], plan, "late", shards=2, seed=3)
    assert len(edges) == 2 * (len(aliases(PLANS[plan])) - 1)
    for edge, columns in edges.items():
        inside = {name for name in columns - {HASH, TIME} if not name.startswith("__at_")}
        assert {name.partition("_")[2] for name in inside} <= {"orderkey", "suppkey", "custkey", "t"}, edge
    edges.clear()
    by_penstock(tmp_path / "early", tables, PLANS[plan], plan, "early", shards=2, seed=3)
    assert all(any(name.endswith("comment") for name in columns) for columns in edges.values())


@pytest.mark.parametrize("when", ["early", "late"])
def test_f05_after_every_epoch_stores_hold_the_join_of_what_has_come(tmp_path, tables, monkeypatch, when):
    """The relation stores li, o and s, and the intermediate store of li and o; late, that holds no payload."""
    epoch, prefixes, seen = LocalQuery.epoch, defaultdict(list), []

    def watched(self, rows, end=False) -> None:
        epoch(self, rows, end)
        for node, table in rows.items():
            prefixes[node.name].append(table)
        if not end:
            check(self)

    def check(query: LocalQuery) -> None:
        with duckdb.connect() as engine:
            for name, parts in prefixes.items():
                engine.register(name, pa.concat_tables(parts))
            for operator, port, name, columns, asked in STORES:
                held = stored(query, operator, port)
                assert Counter(zip(*(held[column] for column in columns), strict=True)) == Counter(
                    engine.sql(asked).fetchall()
                ), name
                assert name != "li o" or not {"r0_orderkey", "r1_orderkey"} & {*held}, "F28: its equality is evaluated"
                wide = [column for column, values in held.items() if "comment" in column and any(values)]
                assert bool(wide) == (when == "early" and bool(held[columns[0]])), name
        seen.append(sum(map(len, prefixes.values())))

    monkeypatch.setattr(LocalQuery, "epoch", watched)
    by_penstock(tmp_path, tables, THREE, "(li o) s", when, shards=2, seed=5)
    assert len(seen) >= 2


STORES = [
    ("join0", 0, "li", ["r0_orderkey", "r0_suppkey"], "SELECT orderkey, suppkey FROM li"),
    ("join0", 1, "o", ["r1_orderkey"], "SELECT orderkey FROM o"),
    ("join1", 1, "s", ["r2_suppkey"], "SELECT suppkey FROM s"),
    (
        *("join1", 0, "li o", ["r0_suppkey", "r0_t", "r1_t"]),
        "SELECT suppkey, li.t, o.t FROM li, o WHERE li.orderkey = o.orderkey",
    ),
]
"""By operator and port: what a store holds, some of its columns, and the same in SQL."""


def stored(query: LocalQuery, operator: str, port: int) -> dict[str, list[Any]]:
    """The rows in the pages of one port of an operator, column by column."""
    found: dict[str, list[Any]] = defaultdict(list)
    for shard, state in enumerate(query._course.ledger.states[operator]):
        for page in (page for page in state.pages if page.kind == port):
            rows = read_page(query._places[operator][shard].store, page)
            for name, column in zip(rows.schema.names, rows.columns, strict=True):
                found[name] += column.to_pylist()
    return found


@pytest.mark.parametrize("plan", PLANS)
def test_f02_f04_any_plan_early_late_or_in_part_equals_batch_sql(tmp_path, tables, plan):
    expected = by_sql(tables, PLANS[plan])
    assert expected
    for seed, when in enumerate(WAYS):
        found = by_penstock(tmp_path / str(seed), tables, PLANS[plan], plan, when, shards=2, seed=seed)
        assert found == expected, when


@pytest.mark.parametrize("shards", [1, 2, 6])
def test_f17_any_number_of_partitions_gives_the_same_rows(tmp_path, tables, shards):
    found = by_penstock(tmp_path, tables, FOUR, "(li s) (o c)", "late", shards, seed=9)
    assert found == by_sql(tables, FOUR)


def test_f29_within_a_window_late_equals_sql_and_rows_that_left_are_never_asked_for(tmp_path, tables):
    """Windows move on with every epoch: what a result refers to is there as long as it can become one."""
    flow, random, streams, epochs, near = pk.LocalFlow(shards=2), Random(4), {}, 6, 20
    some = {name: tables[name] for name in ("li", "o", "s")}
    for name, rows in some.items():
        times = sorted(random.choices(range(60), k=rows.num_rows))
        some[name] = rows.append_column("t", pa.array(times, pa.int64()))
        (tmp_path / name).mkdir()
        for epoch in range(epochs):
            part = some[name].filter(pa.array([10 * epoch <= t < 10 * epoch + 10 for t in times]))
            pq.write_table(part, tmp_path / name / f"{epoch}.parquet")
        told = {"max_files": 1, "progress": pk.ordered()}
        streams[name] = flow.parquet(tmp_path / name, time="t", name=name, **told)
    within = pk.band(before=near, after=near)
    joined = flow.join(**streams, on=list(THREE), plan="(li o) s", within=within, materialize="late")
    out = joined.select("li_comment", "o_comment", "s_comment", "linenumber").to_memory()
    reports = flow.run().progress().epochs
    apart = [f"abs({a}.t - {b}.t) <= {near}" for a, b in (("li", "o"), ("li", "s"), ("o", "s"))]
    expected = by_sql(some, THREE, *apart)
    assert Counter(zip(*(column.to_pylist() for column in out.table().columns), strict=True)) == expected
    assert expected
    held = [report.operators["join0"].state_rows for report in reports]
    assert max(held) < some["li"].num_rows + some["o"].num_rows, "rows leave state"


def test_f37_what_never_becomes_a_result_moves_no_payload(tmp_path, tables, monkeypatch):
    """No order is there: nothing is fetched, and no file of the other streams is decoded."""
    monkeypatch.setattr(payload._Decoded, "_decode", lambda *_: pytest.fail("payload was read"))
    none = {**tables, "o": tables["o"].slice(0, 0)}
    assert not by_penstock(tmp_path, none, THREE, "(li s) o", "late", shards=2, seed=1)
