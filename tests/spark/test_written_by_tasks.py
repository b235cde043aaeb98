"""Parquet files that tasks write themselves, and results that tasks send on to the next operator."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.spark import frames, sinks
from penstock.spark.place import Placement
from tests.spark.conftest import multiset

pytestmark = pytest.mark.spark

LEFT = pa.table({"k": [n % 5 for n in range(200)], "t": list(range(200)), "a": [f"a{n}" for n in range(200)]})
RIGHT = pa.table({"k": [n % 7 for n in range(200)], "t": list(range(200)), "b": [n / 2 for n in range(200)]})


@pytest.fixture(params=["tasks", "spark"])
def place(request, monkeypatch):
    monkeypatch.setattr(Placement, "choose", lambda self, size: (self.at_most(request.param), "said"))
    return request.param


def streams(spark, tmp_path: Path, place: str):
    """A flow, and two streams of it: of files where tasks read them, of DataFrames where Spark does."""
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="32 MB")
    made = []
    for name, rows in (("left", LEFT), ("right", RIGHT)):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        pq.write_table(rows, folder / "0.parquet")
        if place == "tasks":
            made.append(flow.parquet(folder, time="t", progress=pk.ordered(), name=name))
        else:
            frame = spark.readStream.schema("k long, t long, " + ("a string" if name == "left" else "b double"))
            made.append(flow.source(frame.parquet(str(folder)), time="t", progress=pk.ordered(), name=name))
    return flow, *made


def pairs() -> list[tuple[dict, dict]]:
    left, right = LEFT.to_pylist(), RIGHT.to_pylist()
    return [
        (one, other) for one in left for other in right if one["k"] == other["k"] and abs(one["t"] - other["t"]) < 4
    ]


def test_tasks_write_the_rows_of_a_join_after_its_steps(spark, tmp_path, place):
    flow, left, right = streams(spark, tmp_path, place)
    joined = left.join(right, on="k", within=pk.band(before=3, after=3), where="l.t <> r.t")
    joined.where("k < 4").select("k", "upper(a) AS a", "b + 1 AS b", "t").to_parquet(f"{tmp_path}/out")
    query = flow.run()
    rows = ds.dataset(f"{tmp_path}/out", format="parquet", partitioning=None).to_table()
    expected = Counter(
        (one["k"], one["a"].upper(), other["b"] + 1, one["t"])
        for one, other in pairs()
        if one["t"] != other["t"] and one["k"] < 4
    )
    assert multiset(rows) == expected
    assert query.progress().rows_out == rows.num_rows == expected.total()
    assert not list((tmp_path / "out" / "_staging").iterdir())


@pytest.mark.parametrize("place", ["tasks"], indirect=True)
def test_tasks_write_windows_over_files_themselves(spark, tmp_path, place, monkeypatch):
    written = []

    def watched(sink, write, columns, epoch):
        written.append(rows := sinks.deliver_written(sink, write, columns, epoch))
        return rows

    monkeypatch.setattr(frames, "deliver_written", watched)
    (tmp_path / "left").mkdir()
    pq.write_table(LEFT, tmp_path / "left" / "0.parquet")
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="32 MB")
    left = flow.parquet(tmp_path / "left", time="t", progress=pk.ordered(), name="left")
    left.window(range=50).by("k").agg(n=pk.count()).to_parquet(f"{tmp_path}/out")
    flow.run()
    rows = ds.dataset(f"{tmp_path}/out", format="parquet", partitioning=None).to_table()
    ends = (50, 100, 150, 200)
    assert multiset(rows.select(["k", "window_end", "n"])) == Counter((k, end, 10) for k in range(5) for end in ends)
    assert sum(written) == 20


def test_files_that_no_task_tells_of_are_no_results(spark, tmp_path, place, monkeypatch):
    """Attempts that failed, and duplicates that Spark started, leave files behind."""
    told = []

    def leaving_more(sink, write, columns, epoch):
        def written(folder):
            told.extend(files := write(folder))
            for file, _ in files:
                shutil.copy(file, f"{file}.attempt-1.parquet")
            return files

        return sinks.deliver_written(sink, written, columns, epoch)

    monkeypatch.setattr(frames, "deliver_written", leaving_more)
    flow, left, right = streams(spark, tmp_path, place)
    left.join(right, on="k", within=pk.band(before=3, after=3)).select("t", "t_right").to_parquet(f"{tmp_path}/out")
    flow.run()
    rows = ds.dataset(f"{tmp_path}/out", format="parquet", partitioning=None).to_table()
    assert multiset(rows) == Counter((one["t"], other["t"]) for one, other in pairs())
    assert sum(count for _, count in told) == rows.num_rows > 0


def test_an_epoch_that_is_run_again_replaces_what_its_first_attempt_wrote(spark, tmp_path, place, monkeypatch):
    with monkeypatch.context() as once:
        once.setattr(sinks, "sync_tree", lambda path: (_ for _ in ()).throw(OSError("the disk went away")))
        flow, left, right = streams(spark, tmp_path, place)
        left.join(right, on="k", within=pk.band(before=3, after=3)).to_parquet(f"{tmp_path}/out")
        with pytest.raises(pk.PenstockError, match="the disk went away"):
            flow.run()
    flow, left, right = streams(spark, tmp_path, place)
    left.join(right, on="k", within=pk.band(before=3, after=3)).to_parquet(f"{tmp_path}/out")
    flow.run()
    rows = ds.dataset(f"{tmp_path}/out", format="parquet", partitioning=None).to_table()
    assert multiset(rows.select(["t", "t_right"])) == Counter((one["t"], other["t"]) for one, other in pairs())


def test_what_a_dead_driver_left_beside_the_results_goes_at_the_next_start(spark, tmp_path, place):
    flow, left, right = streams(spark, tmp_path, place)
    left.join(right, on="k", within=pk.band(before=3, after=3)).to_parquet(f"{tmp_path}/out")
    flow.run(end=False)
    staging = tmp_path / "out" / "_staging"
    for name in ("tasks=0", "tasks=1", "epoch=1", "mine"):
        (staging / name).mkdir(parents=True)
        (staging / name / "0123.parquet").touch()
    flow, left, right = streams(spark, tmp_path, place)
    left.join(right, on="k", within=pk.band(before=3, after=3)).to_parquet(f"{tmp_path}/out")
    flow.run()
    assert [path.name for path in staging.iterdir()] == ["mine"]


def test_the_first_epoch_leaves_the_schema_if_it_has_no_rows(spark, tmp_path, place):
    flow, left, right = streams(spark, tmp_path, place)
    left.join(right, on="k", within=pk.band(before=3, after=3), where="l.t > 9999").to_parquet(f"{tmp_path}/out")
    flow.run()
    rows = ds.dataset(f"{tmp_path}/out", format="parquet", partitioning=None).to_table()
    assert (rows.num_rows, rows.column_names) == (0, ["k", "t", "a", "t_right", "b"])


def test_results_reach_the_next_operators_as_they_would_in_process(spark, tmp_path, place):
    def build(left, right):
        joined = left.join(right, on="k", within=pk.band(before=3, after=3), time="left").where("b > 2")
        counts = joined.window(range=20).by("k").agg(n=pk.count(), most=pk.max("b"))
        return counts.join(right.select("k", "t", "b AS c"), on="k", within=pk.band(before=9, after=9)).to_memory()

    flow, left, right = streams(spark, tmp_path, place)
    out = build(left, right)
    flow.run()
    local = pk.LocalFlow()
    expected = build(
        *(local.source([t], time="t", progress=pk.ordered(), name=n) for n, t in (("left", LEFT), ("right", RIGHT)))
    )
    local.run()
    assert out.table().num_rows
    assert multiset(out.table()) == multiset(expected.table())


@pytest.mark.parametrize("name", ["k.e", "q`q", "${x}", "k e"])
def test_columns_of_any_name_reach_the_next_operator_though_a_sink_takes_them_too(spark, tmp_path, place, name):
    source = tmp_path / "odd"
    source.mkdir()
    pq.write_table(pa.table({name: [str(n) for n in range(50)], "t": range(50)}), source / "0.parquet")
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/odd-checkpoint", memory="16 MB")
    rows = (
        flow.parquet(source, time="t", name="odd")
        if place == "tasks"
        else flow.source(spark.read.parquet(str(source)), time="t", name="odd")
    )
    joined = rows.join(rows, on=name, within=pk.band(before=1, after=1))
    joined.to_parquet(f"{tmp_path}/odd-out")
    counts = joined.window(range=5).by(name).agg(n=pk.count()).to_memory()
    flow.run()
    assert counts.table().column("n").to_pylist() == [1] * 50
    assert ds.dataset(f"{tmp_path}/odd-out", format="parquet", partitioning=None).to_table().num_rows == 50


def test_times_have_one_type_in_files_wherever_their_epoch_ran(spark, tmp_path, monkeypatch):
    places = iter(["driver", "spark", "tasks", "driver", "spark", "spark"])
    monkeypatch.setattr(Placement, "choose", lambda self, size: (self.at_most(next(places)), "said"))
    folder = tmp_path / "in"
    folder.mkdir()
    moment = dt.datetime(2500, 1, 1, tzinfo=dt.UTC)
    for number in range(3):
        rows = pa.table({"t": [number, -number], "x": pa.array([moment] * 2, pa.timestamp("us", "UTC"))})
        pq.write_table(rows, folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (1_600_000_000 + number,) * 2)
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/times", memory="16 MB")
    files = spark.readStream.schema("t BIGINT, x TIMESTAMP").option("maxFilesPerTrigger", 1)
    rows = flow.source(files.parquet(str(folder)), time="t", progress=pk.ordered(), name="rows")
    rows.to_parquet(f"{tmp_path}/rows")
    rows.late.to_parquet(f"{tmp_path}/late")
    rows.window(range=10).agg(n=pk.count()).to_memory()
    query = flow.run()
    assert len({epoch.place.partition(":")[0] for epoch in query.progress().epochs[:3]}) == 2
    for name, count in (("rows", 4), ("late", 2)):
        found = [pq.read_table(path) for path in sorted((tmp_path / name).glob("epoch=*/*.parquet"))]
        assert {table.schema.field("x").type for table in found} == {pa.timestamp("us", "UTC")}
        assert pa.concat_tables(found, promote_options="default").column("x").to_pylist() == [moment] * count


def test_tasks_count_the_rows_that_a_sink_drops(spark, tmp_path, place):
    flow, left, right = streams(spark, tmp_path, place)
    joined = left.join(right, on="k", within=pk.band(before=3, after=3), where="l.t <> r.t")
    joined.where("k < 4").to_format("noop")
    expected = sum(one["t"] != other["t"] and one["k"] < 4 for one, other in pairs())
    assert flow.run().progress().rows_out == expected


def test_a_step_that_fails_before_rows_are_dropped_is_told(spark, tmp_path, place):
    flow, left, right = streams(spark, tmp_path, place)
    joined = left.join(right, on="k", within=pk.band(before=3, after=3))
    joined.select("k", "CAST(a AS INT) AS number").to_format("noop")
    # Whichever task fails first says which of its rows it was.
    with pytest.raises(pk.PenstockError, match=r"number.*'a\d+'|'a\d+'.*INT"):
        flow.run()
