"""An epoch that was planned for one place and cannot run there any more: it runs elsewhere, with the same results."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.spark.engine import Engine
from penstock.spark.place import PLACES, Placement
from penstock.storage.versioned import Checkpoint
from tests.spark.conftest import Feed

pytestmark = [pytest.mark.spark, pytest.mark.own_place]

ROWS, EPOCHS = 15_000, 2
ALL, STRANGE = "id >= 0", "hash(id) IS NOT NULL"
"""Two conditions that hold of every row; the second only Spark can compute."""


deep = partial(pytest.param, marks=pytest.mark.deep)


@pytest.fixture
def feeds(tmp_path: Path) -> list[Feed]:
    """Two folders with so many rows that an epoch of both needs more than the smallest memory."""
    rng = np.random.default_rng(8)
    schema = pa.schema({"k": pa.int64(), "t": pa.int64(), "id": pa.int64()})
    made = [Feed(tmp_path / name, schema, group=4000) for name in ("left", "right")]
    for epoch in range(EPOCHS):
        for feed in made:
            ids, times = epoch * ROWS + np.arange(ROWS), epoch * 100 + rng.integers(0, 100, ROWS)
            feed.add(pa.table({"k": rng.integers(0, 5000, ROWS), "t": times, "id": ids}))
    return made


def build(spark: Any, feeds: list[Feed], tmp_path: Path, kinds: str, memory: str, where: str = ALL) -> pk.Flow:
    """A join into Parquet; a source is a DataFrame (d) or files (f)."""
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory=memory)
    promise = {"time": "t", "progress": pk.bounded_delay(100)}
    left, right = (
        flow.parquet(feed.folder, name=feed.folder.name, max_files=1, **promise)
        if kind == "f"
        else flow.source(feed.stream(spark), name=feed.folder.name, **promise)
        for feed, kind in zip(feeds, kinds, strict=True)
    )
    joined = left.where(where).join(right, on="k", within=pk.band(20, 20), how="left")
    joined.select("id", "id_right").to_parquet(f"{tmp_path}/out")
    return flow


@pytest.mark.parametrize(
    ("planned", "before", "after", "memory", "where", "ran"),
    [
        pytest.param("driver", "ff", "dd", "3 MB", ALL, "spark", id="DataFrames and too little memory now"),
        pytest.param("tasks", "ff", "df", "64 MB", ALL, "spark", id="one source is a DataFrame now"),
        deep("driver", "ff", "ff", "3 MB", ALL, "tasks", id="files, too little memory now"),
        deep("driver", "dd", "dd", "3 MB", ALL, "spark", id="DataFrames, too little memory now"),
        deep("driver", "ff", "ff", "64 MB", STRANGE, "spark", id="only Spark knows an expression now"),
        deep("tasks", "ff", "ff", "64 MB", STRANGE, "spark", id="tasks do not know an expression now"),
        deep("spark", "df", "ff", "64 MB", ALL, "spark", id="both sources are files now"),
        deep("driver", "dd", "df", "64 MB", ALL, "driver", id="one source is files now"),
    ],
)
def test_an_epoch_that_cannot_run_where_it_was_planned_runs_elsewhere(
    spark, feeds, tmp_path, monkeypatch, planned, before, after, memory, where, ran
):
    class DiedError(Exception):
        pass

    def die(self: Checkpoint, plan: Any) -> None:
        write(self, plan)
        if plan.epoch == 1:
            raise DiedError

    write = Checkpoint.plan
    monkeypatch.setattr(Placement, "choose", lambda self, size: (self.at_most(planned), "said"))
    with monkeypatch.context() as once:
        once.setattr(Checkpoint, "plan", die)
        once.setattr(Engine, "_count_slots", lambda self: 1)
        with pytest.raises(pk.FlowError, match="DiedError"):
            build(spark, feeds, tmp_path, before, "64 MB").run()
    plan = Checkpoint(f"{tmp_path}/checkpoint").planned(1)
    assert plan is not None
    assert (plan.place, plan.shards) == (planned, 1)
    monkeypatch.setattr(Engine, "_count_slots", lambda self: 3)
    query = build(spark, feeds, tmp_path, after, memory, where).run()
    first, *_ = query.progress().epochs
    assert (first.epoch, first.place.partition(":")[0]) == (1, PLACES[ran])
    assert expected(feeds) == written(tmp_path)


def expected(feeds: list[Feed]) -> list[tuple[int, int | None]]:
    left, right = (f"'{feed.folder}/*.parquet'" for feed in feeds)
    near = "l.k = r.k AND r.t BETWEEN l.t - 20 AND l.t + 20"
    return _sorted(f"SELECT l.id, r.id AS id_right FROM {left} l LEFT JOIN {right} r ON {near}")


def written(tmp_path: Path) -> list[tuple[int, int | None]]:
    return _sorted(f"SELECT id, id_right FROM '{tmp_path}/out/epoch=*/*.parquet'")


def _sorted(query: str) -> list[tuple[int, int | None]]:
    return duckdb.sql(f"SELECT id, id_right FROM ({query}) ORDER BY ALL").fetchall()
