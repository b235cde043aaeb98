"""Delta tables as sources on Spark: results over a table that grows equal those of DuckDB over all of its rows."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import penstock as pk
from penstock.core.errors import CheckpointError, ConfigError, SourceError
from penstock.spark.place import Placement
from tests.spark.conftest import multiset

pytestmark = pytest.mark.spark

PLACES = ("driver", "tasks", "spark")
SHOPS = np.array(["a/b", "ü 100%", "c"])


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], str]], None]:
    """Say where each epoch runs."""

    def say(place: Callable[[], str]) -> None:
        monkeypatch.setattr(Placement, "choose", lambda self, nbytes: (self.at_most(place()), "said"))

    return say


def orders(epoch: int, seed: int, rows: int = 120) -> pa.Table:
    """Rows out of order by less than 100, without a key or a shop now and then."""
    rng = np.random.default_rng(1000 * seed + epoch)
    shops = pa.array(SHOPS[rng.integers(0, 3, rows)], mask=rng.random(rows) < 0.1)
    return pa.table(
        {
            "id": pa.array(rng.integers(0, 40, rows), mask=rng.random(rows) < 0.05),
            "t": epoch * 100 + rng.integers(0, 100, rows),
            "shop": shops,
            "day": pa.array([dt.date(2024, 2, 28 + epoch % 2)] * rows),
        }
    )


def add(folder: Path, rows: pa.Table, **options: Any) -> None:
    write_deltalake(str(folder), rows, mode="append", partition_by=["shop", "day"], **options)


def clean_up(folder: Path) -> None:
    """Make a checkpoint, and delete the log before it, as happens after a month."""
    table = DeltaTable(str(folder))
    table.create_checkpoint()
    for version in range(table.version()):
        (folder / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)


def build(flow: Any, folder: Path, limit: int, delay: int = 200) -> dict[str, Any]:
    left, right = (
        flow.delta(folder / name, time="t", progress=pk.bounded_delay(delay), name=name, max_commits=most)
        for name, most in (("left", limit), ("right", None))
    )
    some = right.where("day > DATE '2024-02-28'").select("id", "t")
    joined = left.join(some, on="id", within=pk.band(before=20, after=20), how="left")
    windows = left.window(range=50, slide=50).by("shop", "day").agg(n=pk.count())
    return {
        "joined": joined.select("id", "t", "shop", "day", "t_right").to_memory(),
        "windows": windows.select("window_start", "shop", "day", "n").to_memory(),
    }


def by_duckdb(folder: Path) -> dict[str, Counter[Any]]:
    """The same by their definitions, over all rows that the tables have had."""
    left, right = (DeltaTable(str(folder / name)).to_pyarrow_table() for name in ("left", "right"))
    with duckdb.connect() as connection:
        connection.register("l", left)
        connection.register("r", right)
        queries = {
            "joined": """SELECT l.id, l.t, shop, day, r.t FROM l LEFT JOIN
                (SELECT id, t FROM r WHERE day > DATE '2024-02-28') r
                ON l.id = r.id AND r.t BETWEEN l.t - 20 AND l.t + 20""",
            "windows": "SELECT t // 50 * 50 AS w, shop, day, count(*) FROM l GROUP BY ALL",
        }
        return {name: Counter(connection.sql(query).fetchall()) for name, query in queries.items()}


@pytest.mark.parametrize("place", PLACES)
def test_a_table_that_grows_gives_what_duckdb_gives_over_all_its_rows_wherever_an_epoch_runs(
    spark, tmp_path, at, place
):
    at(lambda: place)
    found: dict[str, Counter[Any]] = {}
    for start, (first, last) in enumerate([(0, 2), (2, 4)]):
        for epoch in range(first, last):
            for seed, name in enumerate(("left", "right")):
                add(tmp_path / name, orders(epoch, seed))
        if start:
            # What was read is compacted, and its part of the log is cleaned up; the flow sees only the appends.
            for name in ("left", "right"):
                DeltaTable(str(tmp_path / name)).optimize.compact()
                add(tmp_path / name, orders(last, seed=7, rows=20))
        flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB", shards=2 + start)
        outs = build(flow, tmp_path, limit=4)
        query = flow.run(end=start == 1)
        for name, out in outs.items():
            found[name] = found.get(name, Counter()) + multiset(out.table())
        for name in ("left", "right"):
            clean_up(tmp_path / name)
    assert found == by_duckdb(tmp_path)
    assert sum(found["joined"].values()) > 400
    assert {"driver": "in the driver", "tasks": "read its files", "spark": "from Spark"}[place] in str(query.explain())


def test_late_rows_of_commits_are_those_of_a_flow_in_process(spark, tmp_path, at):
    random = Random(3)
    at(lambda: random.choice(PLACES))
    for epoch in range(3):
        late = orders(max(0, epoch - 1), 5 + epoch, rows=15)
        add(tmp_path, pa.concat_tables([orders(epoch, 0), late]))
    found = []
    for flow in (pk.LocalFlow(), pk.Flow(spark, checkpoint=f"{tmp_path}/_checkpoint", memory="16 MB")):
        rows = flow.delta(tmp_path, time="t", progress=pk.bounded_delay(20), max_commits=1)
        windows = rows.window(range=50, slide=50).by("shop", "day").agg(n=pk.count())
        outs = [windows.to_memory(), windows.late.to_memory(), rows.where("day > DATE '2024-02-28'").to_memory()]
        flow.run()
        found.append([multiset(out.table()) for out in outs])
    assert found[0] == found[1]
    assert all(sum(rows.values()) > 5 for rows in found[0])


def reading(spark, tmp_path: Path, **options: Any) -> tuple[pk.Flow, Any]:
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
    return flow, flow.delta(tmp_path / "in", time="t", **options).to_memory()


def plain(folder: Path, *times: int) -> None:
    write_deltalake(str(folder), pa.table({"t": times, "p": [t % 2 for t in times]}), mode="append", partition_by=["p"])


def times_of(out: Any) -> list[int]:
    return sorted(out.table().column("t").to_pylist())


def test_an_epoch_that_failed_is_repeated_with_the_same_rows_whatever_became_of_the_table(spark, tmp_path, at):
    at(lambda: "driver")
    folder = tmp_path / "in"
    plain(folder, 1, 2)
    plain(folder, 3)
    (lost,) = [path for path in folder.glob("p=*/*.parquet") if path.stat().st_mtime_ns == newest(folder)][:1]
    lost.rename(tmp_path / "lost")
    flow, _ = reading(spark, tmp_path)
    with pytest.raises(SourceError, match=rf"{lost.name} is gone.*VACUUM"):
        flow.run()
    (tmp_path / "lost").rename(lost)
    DeltaTable(str(folder)).optimize.compact()
    DeltaTable(str(folder)).create_checkpoint()
    plain(folder, 4)
    flow, out = reading(spark, tmp_path)
    query = flow.run(end=False)
    assert [report.rows_in["source0"] for report in query.progress().epochs] == [3, 1]
    assert times_of(out) == [1, 2, 3, 4]
    assert sorted(out.table().column("p").to_pylist()) == [0, 0, 1, 1]


def newest(folder: Path) -> int:
    return max(path.stat().st_mtime_ns for path in folder.glob("p=*/*.parquet"))


def test_commits_are_taken_by_version_though_their_files_are_of_another_age(spark, tmp_path):
    for n in range(4):
        plain(tmp_path / "in", n)
    for n in range(4):
        os.utime(tmp_path / "in" / "_delta_log" / f"{n:020d}.json", (1_600_000_000 - n,) * 2)
    flow, out = reading(spark, tmp_path, max_commits=3)
    query = flow.run(end=False)
    assert [report.rows_in["source0"] for report in query.progress().epochs] == [4, 0]
    assert times_of(out) == [0, 1, 2, 3]


def test_a_commit_that_changes_rows_stops_the_flow_until_it_is_told_to_skip_them(spark, tmp_path):
    plain(tmp_path / "in", 1, 2)
    flow, _ = reading(spark, tmp_path)
    flow.run(end=False)
    DeltaTable(str(tmp_path / "in")).delete("t = 1")
    plain(tmp_path / "in", 3)
    flow, _ = reading(spark, tmp_path)
    with pytest.raises(SourceError, match=r"Version 1 of Delta table .*/in deletes or rewrites rows"):
        flow.run(end=False)
    flow, out = reading(spark, tmp_path, changes="skip")
    flow.run(end=False)
    assert times_of(out) == [3]


def test_another_table_or_other_columns_at_a_restart_are_refused(spark, tmp_path):
    plain(tmp_path / "in", 1)
    plain(tmp_path / "in", 2)
    schema = pa.schema({"t": pa.int64(), "p": pa.int64()})
    flow, _ = reading(spark, tmp_path)
    flow.run(end=False)
    more = pa.table({"t": [3], "p": [1], "w": ["new"]})
    write_deltalake(str(tmp_path / "in"), more, mode="append", schema_mode="merge")
    with pytest.raises(CheckpointError, match="w"):
        reading(spark, tmp_path)[0].run(end=False)
    flow, out = reading(spark, tmp_path, schema=schema)
    flow.run(end=False)
    assert times_of(out) == [3]
    shutil.rmtree(tmp_path / "in")
    plain(tmp_path / "in", 7)
    with pytest.raises(SourceError, match="is 0, but the flow has read version 2: it is another table"):
        reading(spark, tmp_path, schema=schema)[0].run(end=False)


def test_what_is_no_table_is_refused_while_the_flow_is_built(spark, tmp_path):
    for flow in (pk.LocalFlow(), pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")):
        with pytest.raises(ConfigError, match=r"nowhere' is not a Delta table"):
            flow.delta(tmp_path / "nowhere", time="t")
        with pytest.raises(ConfigError, match=r"schema='t INT' is not a pyarrow.Schema"):
            flow.delta(tmp_path / "nowhere", time="t", schema="t INT")
