"""The memory promise of lookups: tables several times the flow's memory, measured from outside, results exact."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.storage.tables.pages import PageTable
from tests.spark.conftest import Feed
from tests.worker_memory import private_memory, watched

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("in_tasks", "compiled")]

MEMORY = 32_000_000
SHARE = MEMORY // 2
WIDE = 1000
EPOCHS = 2
STREAM = pa.schema({"k": pa.int64(), "t": pa.int64()})
TABLE = pa.schema({"k": pa.int64(), "v": pa.int64(), "payload": pa.string()})
FILLER = "x" * (WIDE - 10)


def texts(numbers: pa.Array) -> pa.Array:
    """Texts of a kilobyte, no two alike, as no encoding makes them small; a number is the beginning of each."""
    return pc.binary_join_element_wise(pc.utf8_lpad(numbers.cast(pa.string()), 10, "0"), FILLER, "")


def master(first: int, count: int) -> pa.Table:
    """Rows of a kilobyte."""
    keys = pa.array(np.arange(first, first + count))
    return pa.table([keys, pc.multiply(keys, 7), texts(keys)], schema=TABLE)


def parts(rows: int) -> list[pa.Table]:
    return [master(first, min(8192, rows - first)) for first in range(0, rows, 8192)]


def pages(folder: Path, rows: int) -> PageTable:
    return pk.write_page_table(parts(rows), str(folder / "pages"), keys="k", memory="64 MB")


def pages_by_text(folder: Path, rows: int) -> PageTable:
    """The same, where the key is the text, too."""
    made = [part.set_column(0, "k", part.column("payload")) for part in parts(rows)]
    return pk.write_page_table(made, str(folder / "pages"), keys="k", memory="64 MB")


def parquet(folder: Path, rows: int) -> str:
    path = folder / "parquet"
    path.mkdir(parents=True)
    with pq.ParquetWriter(path / "rows.parquet", TABLE) as writer:
        for part in parts(rows):
            writer.write_table(part, row_group_size=8192)
    return str(path)


def sqlite(folder: Path, rows: int) -> pk.SqlTable:
    path = folder / "shop.db"
    with sqlite3.connect(path) as shop:
        shop.execute("CREATE TABLE items (k INTEGER PRIMARY KEY, v INTEGER, payload TEXT)")
        for part in parts(rows):
            shop.executemany("INSERT INTO items VALUES (?, ?, ?)", zip(*part.to_pydict().values(), strict=True))
    return pk.SqlTable(f"sqlite:///{path}", "items", keys=("k",))


STORES: dict[str, Callable[[Path, int], Any]] = {
    "pages": pages,
    "pages by text": pages_by_text,
    "parquet": parquet,
    "sqlite": sqlite,
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Tables of so many rows, made when first asked for."""
    made: dict[tuple[str, int], Any] = {}

    def table(kind: str, rows: int) -> Any:
        if (kind, rows) not in made:
            folder = tmp_path_factory.mktemp(f"{kind}-{rows}")
            made[kind, rows] = STORES[kind](folder, rows)
        return made[kind, rows]

    return table


def stream(folder: Path, rows: int, keys: int, *, named: bool = False) -> tuple[Feed, np.ndarray]:
    """Rows of which some come again and again, and one in ten finds nothing; their keys, which may be `named`."""
    feed = Feed(folder / "orders", STREAM.set(0, pa.field("k", pa.string())) if named else STREAM)
    random = np.random.default_rng(4)
    every = []
    for epoch in range(EPOCHS):
        count = rows // EPOCHS
        chosen = np.where(random.random(count) < 0.3, random.zipf(1.3, count) % keys, random.integers(0, keys, count))
        chosen = np.where(random.random(count) < 0.1, keys + chosen, chosen)
        column = texts(pa.array(chosen)) if named else chosen
        feed.add(pa.table([column, np.full(count, epoch)], schema=feed.schema))
        every.append(chosen)
    return feed, np.concatenate(every)


def looked_up(spark, folder: Path, feed: Feed, table: Any, method: str) -> tuple[np.ndarray, int]:
    """What came out, summed up: how many rows, their keys, what they found; and the most that was charged."""
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory=MEMORY)
    source = flow.source(feed.stream(spark), time="t", progress=pk.ordered(), name="orders")
    found = source.lookup(table, on="k", how="left", method=method, freshness="latest")
    keys, names = "sum(cast(left(k, 10) AS int))", "sum(cast(left(payload, 10) AS int))"
    sums = ["count(*)", keys, "count(v)", "sum(v)", "sum(length(payload))", names]
    totals = []
    found.foreach_epoch(lambda rows, epoch: totals.append(rows.selectExpr(*sums).first()))
    query = flow.run()
    peak = max(epoch.operators["lookup0"].peak_memory for epoch in query.progress().epochs)
    return np.array([[total or 0 for total in some] for some in totals]).sum(axis=0), peak


def expected(keys: np.ndarray, rows: int) -> list[int]:
    there = keys[keys < rows]
    return [keys.size, keys.sum(), there.size, 7 * there.sum(), WIDE * there.size, there.sum()]


OFTEN = [
    ("pages", "cinlj"),
    ("pages by text", "hybridjoin"),
    ("pages", "cmeshjoin"),
    ("parquet", "cinlj"),
    ("sqlite", "inlj"),
]
SELDOM = [
    ("pages", "inlj"),
    ("pages", "hybridjoin"),
    ("pages", "partitioned"),
    ("pages by text", "cinlj"),
    ("pages by text", "partitioned"),
    ("parquet", "inlj"),
    ("sqlite", "cinlj"),
]
CASES = [
    *((3, *case) for case in OFTEN),
    *(pytest.param(3, *case, marks=pytest.mark.deep) for case in SELDOM),
    *(pytest.param(16, *case, marks=pytest.mark.deep) for case in OFTEN + SELDOM),
]


@pytest.mark.parametrize(("times", "kind", "method"), CASES)
def test_private_memory_stays_within_the_share_however_large_the_table(
    spark, tmp_path, tables, times, kind, method, record_property
):
    rows = times * MEMORY // WIDE
    table, small = tables(kind, rows), tables(kind, 100)
    named = kind == "pages by text"
    looked_up(spark, tmp_path / "warm", stream(tmp_path / "warm", 300, 100, named=named)[0], small, method)
    baseline = max(private_memory().values())
    feed, keys = stream(tmp_path / "big", times * 5_000, rows, named=named)
    with watched() as most:
        found, peak = looked_up(spark, tmp_path / "big", feed, table, method)
    assert found.tolist() == expected(keys, rows)
    assert peak <= SHARE
    above = most[0] - baseline
    record_property("private_memory_above_baseline", above)
    assert above <= 1.25 * SHARE, f"{above / SHARE:.2f} × the share in a table of {times} × the memory"
