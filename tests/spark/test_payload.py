"""Payload that stays in the files of a source, on real Spark: same results, small state, across restarts and places."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.errors import PenstockError
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark

ROWS = 400
SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64(), "v": pa.int64(), "note": pa.string()})


def events(epoch: int, name: str) -> pa.Table:
    numbers = range(epoch * ROWS, (epoch + 1) * ROWS)
    return pa.table(
        {
            "k": [n * (7 if name == "a" else 11) % 97 for n in numbers],
            "t": [n // 4 for n in numbers],
            "v": list(numbers),
            "note": [f"{name}{n}-" + "x" * 200 for n in numbers],
        },
        SCHEMA,
    )


@pytest.fixture
def feeds(tmp_path) -> dict[str, Feed]:
    return {name: Feed(tmp_path / name, SCHEMA, group=150) for name in "ab"}


def joined(spark, folder: Path, feeds: dict[str, Feed], shards: int = 2, **payload: str) -> tuple[pk.Flow, Any]:
    """A join of both feeds within 5 steps of time, and what it gives."""
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory="32 MB", shards=shards)
    a, b = (
        flow.parquet(
            feed.folder,
            time="t",
            schema=SCHEMA,
            name=name,
            max_files=1,
            progress=pk.bounded_delay(3),
            payload=payload.get(name, "source"),
        )
        for name, feed in feeds.items()
    )
    rows = a.join(b, on="k", within=pk.band(before=5, after=5))
    return flow, (rows, rows.late)


def expected(epochs: int) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as engine:
        for name in "ab":
            engine.register(name, pa.concat_tables([events(epoch, name) for epoch in range(epochs)]))
        pairs = "a JOIN b ON a.k = b.k AND abs(a.t - b.t) <= 5"
        return Counter(engine.sql(f"SELECT a.k, a.t, a.v, a.note, b.t, b.v, b.note FROM {pairs}").fetchall())


def counted(*tables: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(row for table in tables for row in zip(*(c.to_pylist() for c in table.columns), strict=True))


def test_f29_state_is_narrow_and_results_are_whole(spark, tmp_path, feeds):
    for epoch in range(3):
        for name, feed in feeds.items():
            feed.add(events(epoch, name))
    flow, (rows, _) = joined(spark, tmp_path, feeds)
    out = rows.to_memory()
    rows.select("v", "note_right AS other").to_parquet(str(tmp_path / "out"))
    query = flow.run(end=False)
    assert counted(out.table()) == expected(3)
    written = duckdb.sql(f"SELECT v, other FROM read_parquet('{tmp_path}/out/*/*.parquet')").fetchall()
    assert Counter(written) == Counter((v, other) for _, _, v, _, _, _, other in expected(3).elements())
    report = query.progress().epochs[-1]
    state = report.operators["join0"]
    assert state.state_rows > 0
    assert state.state_bytes / state.state_rows <= 100
    assert "payload of a (note, v; about" in str(query.explain())
    assert "stays in the files, as payload='source' says" in str(query.explain())


def test_f18_payload_may_travel_and_stay_in_turns_across_restarts(spark, tmp_path, feeds):
    tables, left = [], []
    for epoch, payload in enumerate(["source", "row", "source", "auto"]):
        for name, feed in feeds.items():
            feed.add(events(epoch, name))
        flow, (rows, _) = joined(spark, tmp_path, feeds, shards=1 + epoch % 3, a=payload, b="source")
        out = rows.to_memory()
        query = flow.run(end=epoch == 3)
        tables.append(out.table())
        left.append(sorted(query.progress().epochs[0].left_behind))
    assert counted(*tables) == expected(4)
    assert all("a" not in names for names in left[1:2])


def test_late_rows_have_their_payload(spark, tmp_path, feeds):
    for name, feed in feeds.items():
        feed.add(events(1, name))
        feed.add(events(0, name))
    flow, (rows, late) = joined(spark, tmp_path, feeds)
    rows.to_memory()
    out = late.to_memory()
    flow.run()
    missed = out.table().select(["v", "note", "late_source"]).to_pylist()
    assert len(missed) == 2 * ROWS
    assert all(row["note"].startswith(f"{row['late_source']}{row['v']}-") for row in missed)


@pytest.mark.parametrize("change", [os.unlink, lambda path: os.utime(path, (5, 5))], ids=["gone", "changed"])
def test_a_file_that_rows_in_state_need_is_asked_for_by_its_name(spark, tmp_path, feeds, change):
    for name, feed in feeds.items():
        feed.add(events(0, name))
    flow, (rows, _) = joined(spark, tmp_path, feeds)
    rows.where("v < 0").to_memory()
    flow.run(end=False)
    change(tmp_path / "a" / "00000.parquet")
    feeds["b"].add(events(1, "b").set_column(0, "k", pa.array([7 * n % 97 for n in range(ROWS)])))
    flow, (rows, _) = joined(spark, tmp_path, feeds)
    rows.to_memory()
    with pytest.raises(PenstockError, match=r"a/00000\.parquet is gone|00000\.parquet.*was changed since"):
        flow.run()


def test_a_checkpoint_from_before_payload_could_stay_goes_on_as_it_was(spark, tmp_path, feeds):
    for name, feed in feeds.items():
        feed.add(events(0, name))
    flow, (rows, _) = joined(spark, tmp_path, feeds, a="row", b="row")
    first = rows.to_memory()
    flow.run(end=False)
    os.unlink(tmp_path / "checkpoint" / "payload.json")
    for name, feed in feeds.items():
        feed.add(events(1, name))
    flow, (rows, _) = joined(spark, tmp_path, feeds)
    second = rows.to_memory()
    query = flow.run()
    assert counted(first.table(), second.table()) == expected(2)
    assert not any(epoch.left_behind for epoch in query.progress().epochs)
