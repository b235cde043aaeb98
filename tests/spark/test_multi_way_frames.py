"""Joins of three and four streaming DataFrames over Parquet whose payload stays in the files, in the shape of TPC-H."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

import penstock as pk
from lab.multi_way_spark import as_stream
from lab.workloads.tpch import Tpch
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark

DATA = Tpch(scale=0.0002, payload=(("li", 300), ("c", 100)), suppliers=10)
EPOCHS = 3
SHOWN = {
    "li": ("orderkey", "linenumber", "extendedprice", "shipdate", "comment", "payload"),
    "o": ("totalprice", "orderdate", "comment"),
    "s": ("name", "acctbal"),
    "c": ("name", "payload"),
}
ON = {
    "s": "li.suppkey = s.suppkey",
    "o": "li.orderkey = o.orderkey",
    "c": "o.custkey = c.custkey",
}
SHAPES = {
    "3-way": ("(li o) s", ("li", "o", "s"), ("o", "s")),
    "4-way": ("(li s) (o c)", ("li", "s", "o", "c"), ("s", "o", "c")),
    "4-way left deep": ("((li o) c) s", ("li", "o", "c", "s"), ("o", "c", "s")),
}
"""Plan, streams, and what they are joined on."""


@pytest.fixture(scope="module")
def tables() -> dict[str, list[pa.Table]]:
    """The rows of each epoch, by stream, in an order that has nothing to do with keys."""
    rng, found = np.random.default_rng(0), {}
    for alias in SHOWN:
        rows = as_stream(DATA.table(alias))
        rows = rows.take(pa.array(rng.permutation(rows.num_rows)))
        cuts = [rows.num_rows * n // EPOCHS for n in range(EPOCHS + 1)]
        found[alias] = [rows.slice(start, end - start) for start, end in pairwise(cuts)]
    return found


def made(alias: str, rows: DataFrame) -> DataFrame:
    """What a user makes of a stream: some orders, a column renamed and one computed, or just the rows."""
    if alias == "o":
        named = rows.where("orderkey % 7 <> 3").withColumnRenamed("comment", "said")
        return named.withColumn("year", sf.year("orderdate"))
    return rows


def shown(alias: str) -> Sequence[str]:
    return ("totalprice", "orderdate", "said", "year") if alias == "o" else SHOWN[alias]


def expected(shape: str, tables: dict[str, list[pa.Table]]) -> Counter[tuple]:
    _, aliases, on = SHAPES[shape]
    with duckdb.connect() as engine:
        for alias in aliases:
            engine.register(alias, pa.concat_tables(tables[alias]))
        computed = {"said": "o.comment", "year": "year(o.orderdate)"}
        columns = ", ".join(computed.get(column, f"{alias}.{column}") for alias in aliases for column in shown(alias))
        where = " AND ".join([*(ON[alias] for alias in on), "o.orderkey % 7 <> 3"])
        return Counter(engine.sql(f"SELECT {columns} FROM {', '.join(aliases)} WHERE {where}").fetchall())


def run(spark, folder: Path, feeds: dict[str, Feed], shape: str, shards: int, end: bool, **payload: str):
    """Run what there is: the rows that came out, and which sources left payload behind."""
    plan, aliases, on = SHAPES[shape]
    flow = pk.Flow(spark, checkpoint=f"{folder}/checkpoint", memory="64 MB", shards=shards)
    streams = {
        alias: flow.source(
            made(alias, feeds[alias].stream(spark)), time="t", name=alias, payload=payload.get(alias, "source")
        )
        for alias in aliases
    }
    rows = flow.join(**streams, on=[ON[alias] for alias in on], plan=plan)
    names = set(rows.columns.names)
    columns = [column if column in names else f"{alias}_{column}" for alias in aliases for column in shown(alias)]
    out = rows.select(*columns).to_memory()
    query = flow.run(end=end)
    return out.table(), set(query.progress().epochs[0].left_behind)


@pytest.mark.parametrize("shape", SHAPES)
def test_joins_of_several_dataframes_are_late_from_the_files_across_restarts_on_other_shards(
    spark, tmp_path, tables, shape
):
    """Payload of one stream is elsewhere in the second run, also that of rows in state."""
    feeds = {alias: Feed(tmp_path / alias, tables[alias][0].schema, group=40) for alias in SHAPES[shape][1]}
    found: Counter[tuple] = Counter()
    for epoch, (shards, payload) in enumerate([(1, {}), (3, {"o": "row", "s": "segments"}), (2, {})]):
        for alias, feed in feeds.items():
            feed.add(tables[alias][epoch])
        out, left = run(spark, tmp_path, feeds, shape, shards, epoch == EPOCHS - 1, **payload)
        assert left == {alias for alias in feeds if payload.get(alias) != "row"}
        found.update(zip(*(column.to_pylist() for column in out.columns), strict=True))
    assert found == expected(shape, tables)
    assert found.total() > 500
