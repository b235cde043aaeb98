"""The joins of three and of four TPC-H relations equal batch SQL: early, late and in part, on any number of shards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from lab.workloads.tpch import Tpch
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


def by_sql(tables: dict[str, pa.Table], on: tuple[str, ...]) -> Counter[tuple[Any, ...]]:
    names = aliases(on)
    with duckdb.connect() as engine:
        for name in names:
            engine.register(name, tables[name])
        shown = ", ".join(f"{name}.comment" for name in names)
        where = " AND ".join(on)
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


def test_f37_what_never_becomes_a_result_moves_no_payload(tmp_path, tables, monkeypatch):
    """No order is there: nothing is fetched, and no file of the other streams is decoded."""
    monkeypatch.setattr(payload._Decoded, "_decode", lambda *_: pytest.fail("payload was read"))
    none = {**tables, "o": tables["o"].slice(0, 0)}
    assert not by_penstock(tmp_path, none, THREE, "(li s) o", "late", shards=2, seed=1)
