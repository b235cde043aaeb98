"""Lookup joins on Spark: what the definition gives, by every method, over epochs and restarts (F33)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from tests.oracle import lookup as oracle
from tests.spark.conftest import multiset

pytestmark = pytest.mark.spark

STREAM = pa.schema({"k": pa.int64(), "n": pa.int64(), "t": pa.int64()})


def streams(epochs: int, rows: int, keys: int, seed: int) -> list[pa.Table]:
    made = np.random.default_rng(seed)
    tables = []
    for epoch in range(epochs):
        key = np.minimum(made.zipf(1.3, rows), keys)
        times = made.integers(epoch * 10, epoch * 10 + 10, rows)
        nulls = pa.array(key, mask=made.random(rows) < 0.05)
        tables.append(pa.table([nulls, pa.array(made.integers(0, 9, rows)), pa.array(times)], schema=STREAM))
    return tables


def master(keys: int, seed: int, each: int = 1) -> pa.Table:
    made = np.random.default_rng(seed)
    there = np.repeat(made.choice(keys, keys * 2 // 3, replace=False), each)
    return pa.table({"k": pa.array(there), "v": [f"v{n}" for n in range(there.size)]})


def expected(epochs: list[pa.Table], table: pa.Table, how: str) -> Counter[tuple]:
    rows = pa.concat_tables(epochs).to_pylist()
    return oracle.lookup(rows, table.to_pylist(), ["k"], ["v"], how)


@pytest.mark.parametrize("method", ["auto", "inlj", "meshjoin", "hybridjoin", "cmeshjoin", "chybridjoin"])
def test_every_method_gives_what_the_definition_says_over_restarts_on_other_shards(spark, feed, tmp_path, method):
    epochs, table = streams(4, 400, 60, seed=1), master(60, seed=2, each=2)
    orders = feed("orders", epochs[:2])
    for shards, more in ((2, ()), (3, epochs[2:])):
        for rows in more:
            orders.add(rows)
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="8 MB", shards=shards)
        source = flow.source(orders.stream(spark), time="t", progress=pk.bounded_delay(10), name="orders")
        found = source.lookup(table, on="k", how="left", method=method)
        found.to_parquet(str(tmp_path / "out"))
        query = flow.run(end=bool(more))
    out = spark.read.parquet(str(tmp_path / "out")).drop("epoch").toArrow()
    assert multiset(out) == expected(epochs, table, "left")
    counts = query.progress().epochs[-1].operators["lookup0"].counts
    assert counts["waiting"] == 0
