"""Every method on Spark: equal to Spark's own join on ordered streams, to DuckDB's on disordered ones (000-42)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

import penstock as pk
from penstock.operators.window_join import AhEwj, Ewj, Rpwj
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark

SCHEMA = pa.schema({"k": pa.int64(), "ts": pa.timestamp("us", "UTC"), "id": pa.int64()})
EPOCHS, ROWS, SECOND = 5, 1_500, 1_000_000
METHODS = {
    "auto": "auto",
    "oa": "oa",
    "ewj": Ewj(memory=1_500, page=32, row=1, refresh=2, gain=5),
    "ah_ewj": AhEwj(memory=1_500, page=16, row=1, partitions=6, refresh=2),
    "rpwj": Rpwj(memory=1_500, page=16, row=1, partitions=6, slide="10 s"),
}


def streams(folder: Path, disorder: int) -> list[Feed]:
    """Two streams of five epochs, a minute each; rows come up to `disorder` seconds late."""
    rng = np.random.default_rng(3)
    feeds = [Feed(folder / name, SCHEMA) for name in ("left", "right")]
    for port, feed in enumerate(feeds):
        times = np.sort(rng.integers(0, EPOCHS * 60 * SECOND, EPOCHS * ROWS))
        times = times[np.argsort(times + rng.integers(0, disorder * SECOND + 1, times.size), kind="stable")]
        keys = rng.integers(0, 300, times.size)
        ids = np.arange(times.size) + port * 10**6
        whole = pa.table([pa.array(keys), pa.array(times).cast(SCHEMA.field("ts").type), pa.array(ids)], schema=SCHEMA)
        for epoch in range(EPOCHS):
            feed.add(whole.slice(epoch * ROWS, ROWS))
    return feeds


def joined(spark, folder: Path, feeds: list[Feed], delay: str, method) -> Counter[tuple[int, int]]:
    """Left and right ids that penstock joins, over a restart before the streams end."""
    pairs: Counter[tuple[int, int]] = Counter()
    for end in (False, True):
        flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory="64 MB")
        left, right = (
            flow.source(feed.stream(spark), time="ts", progress=pk.bounded_delay(delay), name=feed.folder.name)
            for feed in feeds
        )
        out = left.join(right, on="k", within=pk.band("40 s", "40 s"), method=method).to_memory()
        flow.run(end=end)
        table = out.table()
        pairs.update(zip(table["id"].to_pylist(), table["id_right"].to_pylist(), strict=True))
    return pairs


@pytest.fixture(scope="module")
def ordered(spark, tmp_path_factory):
    """Ordered streams, and their join by Spark itself."""
    folder = tmp_path_factory.mktemp("ordered")
    feeds = streams(folder, disorder=0)
    left, right = (
        feed.stream(spark).withWatermark("ts", "1 second").alias(name) for feed, name in zip(feeds, "lr", strict=True)
    )
    near = sf.expr("r.ts BETWEEN l.ts - INTERVAL 40 SECONDS AND l.ts + INTERVAL 40 SECONDS")
    pairs = (
        left.alias("l")
        .join(right.alias("r"), (sf.col("l.k") == sf.col("r.k")) & near)
        .select("l.id", sf.col("r.id").alias("id_right"))
    )
    writer = pairs.writeStream.format("parquet").option("path", str(folder / "out"))
    writer.option("checkpointLocation", str(folder / "native")).trigger(availableNow=True).start().awaitTermination()
    return feeds, Counter(duckdb.sql(f"SELECT id, id_right FROM '{folder}/out/*.parquet'").fetchall())


@pytest.fixture(scope="module")
def disordered(tmp_path_factory):
    """Streams up to 20 s out of order, and their join by DuckDB."""
    folder = tmp_path_factory.mktemp("disordered")
    feeds = streams(folder, disorder=20)
    pairs = duckdb.sql(
        f"""SELECT l.id, r.id FROM '{folder}/left/*.parquet' l JOIN '{folder}/right/*.parquet' r
        ON l.k = r.k AND r.ts BETWEEN l.ts - INTERVAL 40 SECONDS AND l.ts + INTERVAL 40 SECONDS"""
    )
    return feeds, Counter(pairs.fetchall())


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_on_ordered_streams_every_method_gives_what_sparks_own_join_gives(spark, ordered, tmp_path, method):
    feeds, native = ordered
    assert joined(spark, tmp_path, feeds, "1 s", method) == native
    assert sum(native.values()) > 10_000


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_on_disordered_streams_every_method_gives_the_join(spark, disordered, tmp_path, method):
    feeds, expected = disordered
    assert joined(spark, tmp_path, feeds, "20 s", method) == expected
