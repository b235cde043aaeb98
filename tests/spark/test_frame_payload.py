"""Payload of streaming DataFrames that stays in their Parquet files, on real Spark: same rows, whatever happens."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

import penstock as pk
from penstock.core.errors import CheckpointError, ConfigError, PenstockError
from penstock.spark.parquet_frames import parquet_scan
from penstock.spark.place import Placement
from penstock.storage.versioned import Checkpoint
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark

ROWS = 300
SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64(), "v": pa.int64(), "note": pa.string()})


def events(epoch: int, name: str) -> pa.Table:
    numbers = range(epoch * ROWS, (epoch + 1) * ROWS)
    return pa.table(
        {
            "k": [n * (7 if name == "a" else 11) % 97 for n in numbers],
            "t": [n // 4 for n in numbers],
            "v": list(numbers),
            "note": [None if n % 50 == 0 else f"{name}{n}-" + "x" * 200 for n in numbers],
        },
        SCHEMA,
    )


@pytest.fixture
def feeds(tmp_path) -> dict[str, Feed]:
    # Names that URIs escape.
    return {name: Feed(tmp_path / f"{name} %20ü+#", SCHEMA, group=70) for name in "ab"}


def made(rows: DataFrame) -> DataFrame:
    """What a user makes of a stream: some rows, a column renamed, one computed, and the order of columns changed."""
    return rows.where("v % 10 <> 3").select(
        "t", sf.col("note").alias("text"), "k", (sf.col("v") * 2).alias("twice"), sf.col("v").alias("id")
    )


def joined(spark, folder: Path, feeds: dict[str, Feed], shards: int = 2, **payload: str) -> tuple[pk.Flow, Any]:
    """A join of both feeds within 5 steps of time, the first behind a select and a where."""
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory="32 MB", shards=shards)
    a, b = (
        flow.source(
            made(feed.stream(spark)) if name == "a" else feed.stream(spark),
            time="t",
            name=name,
            progress=pk.bounded_delay(3),
            payload=payload.get(name, "source"),
        )
        for name, feed in feeds.items()
    )
    return flow, a.join(b, on="k", within=pk.band(before=5, after=5))


def expected(epochs: int) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as engine:
        for name in "ab":
            engine.register(name, pa.concat_tables([events(epoch, name) for epoch in range(epochs)]))
        pairs = "a JOIN b ON a.k = b.k AND abs(a.t - b.t) <= 5 WHERE a.v % 10 <> 3"
        return Counter(engine.sql(f"SELECT a.t, a.note, a.k, 2 * a.v, a.v, b.t, b.v, b.note FROM {pairs}").fetchall())


def counted(*tables: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(row for table in tables for row in zip(*(c.to_pylist() for c in table.columns), strict=True))


@pytest.mark.parametrize("place", ["driver", "spark"])
def test_state_is_narrow_and_results_are_whole_also_behind_select_and_where(spark, tmp_path, feeds, place, monkeypatch):
    monkeypatch.setattr(Placement, "choose", lambda self, size: (self.at_most(place), "said"))
    for epoch in range(3):
        for name, feed in feeds.items():
            feed.add(events(epoch, name))
    flow, rows = joined(spark, tmp_path, feeds)
    out = rows.to_memory()
    query = flow.run(end=False)
    assert counted(out.table()) == expected(3)
    last = query.progress().epochs[-1]
    state = last.operators["join0"]
    assert 0 < state.state_bytes / state.state_rows <= 100
    assert last.left_behind == ("a", "b")
    said = str(query.explain())
    assert "payload of a (id, text; about" in said
    assert "stays in the files, as payload='source' says" in said
