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


def test_payload_may_be_anywhere_in_turns_across_restarts(spark, tmp_path, feeds):
    tables, left = [], []
    asked = [("source", "source"), ("row", "segments"), ("segments", "source"), ("source", "row"), ("auto", "source")]
    for epoch, (a, b) in enumerate(asked):
        for name, feed in feeds.items():
            feed.add(events(epoch, name))
        flow, rows = joined(spark, tmp_path, feeds, 1 + epoch % 3, a=a, b=b)
        out = rows.to_memory()
        query = flow.run(end=epoch == len(asked) - 1)
        tables.append(out.table())
        left.append(set(query.progress().epochs[0].left_behind))
    assert counted(*tables) == expected(len(asked))
    assert left == [{"a", "b"}, {"b"}, {"a", "b"}, {"a"}, {"a", "b"}]


@pytest.mark.parametrize("place", ["driver", "spark"])
def test_late_rows_have_their_payload(spark, tmp_path, feeds, place, monkeypatch):
    monkeypatch.setattr(Placement, "choose", lambda self, size: (self.at_most(place), "said"))
    for name, feed in feeds.items():
        feed.add(events(1, name))
        feed.add(events(0, name))
    flow, rows = joined(spark, tmp_path, feeds)
    rows.to_memory()
    out = rows.late.to_memory()
    flow.run()
    missed = Counter((row["late_source"], row["id"], row["twice"], row["text"]) for row in out.table().to_pylist())
    given = events(0, "a").to_pylist()
    assert {row: n for row, n in missed.items() if row[0] == "a"} == {
        ("a", row["v"], 2 * row["v"], row["note"]): 1 for row in given if row["v"] % 10 != 3
    }
    assert sum(n for row, n in missed.items() if row[0] == "b") == ROWS


@pytest.mark.parametrize("change", [os.unlink, lambda path: os.utime(path, (5, 5))], ids=["gone", "changed"])
def test_a_file_that_rows_in_state_need_is_asked_for_by_its_name(spark, tmp_path, feeds, change):
    for name, feed in feeds.items():
        feed.add(events(0, name))
    flow, rows = joined(spark, tmp_path, feeds)
    rows.where("id < 0").to_memory()
    flow.run(end=False)
    change(feeds["a"].folder / "00000.parquet")
    feeds["b"].add(events(1, "b").set_column(0, "k", pa.array([7 * n % 97 for n in range(ROWS)])))
    flow, rows = joined(spark, tmp_path, feeds)
    rows.to_memory()
    with pytest.raises(PenstockError, match=r"00000\.parquet is gone or has changed since it was read"):
        flow.run()


def test_an_epoch_that_is_repeated_finds_the_same_rows_wherever_payload_is_then(spark, tmp_path, feeds, monkeypatch):
    def broken(self, *given):
        raise OSError("no more")

    tables = []
    turns = [("source", "source"), ("source", "row"), ("row", "source"), ("source", "segments"), ("segments", "source")]
    for epoch, (before, after) in enumerate(turns):
        for name, feed in feeds.items():
            feed.add(events(epoch, name))
        flow, rows = joined(spark, tmp_path, feeds, a=before, b=before)
        rows.to_memory()
        with monkeypatch.context() as patched:
            patched.setattr(Checkpoint, "commit", broken)
            with pytest.raises(PenstockError, match="no more"):
                flow.run(end=False)
        flow, rows = joined(spark, tmp_path, feeds, a=after, b=after)
        out = rows.to_memory()
        query = flow.run(end=epoch == len(turns) - 1)
        tables.append(out.table())
        if (before, after) in (("row", "source"), ("source", "segments"), ("segments", "source")):
            assert "until the flow starts again: its next epoch was planned so" in str(query.explain())
    assert counted(*tables) == expected(len(turns))


def test_two_sources_may_scan_the_same_stream(spark, tmp_path, feeds):
    for epoch in range(2):
        for name, feed in feeds.items():
            feed.add(events(epoch, name))
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="32 MB")
    stream = feeds["a"].stream(spark)
    one, two = (
        flow.source(some, time="t", name=name, payload="source")
        for name, some in {"x": stream, "y": stream.where("v % 2 = 0").select("k", "t", "note")}.items()
    )
    other = flow.parquet(feeds["b"].folder, time="t", name="b", schema=SCHEMA, max_files=1, payload="source")
    third = flow.source(feeds["b"].stream(spark), time="t", name="c", payload="source")
    out = one.join(two, on="k", within=pk.band(5, 5)).to_memory()
    more = other.join(third, on="k", within=pk.band(0, 0)).select("v", "note", "v_right", "note_right").to_memory()
    flow.run()
    with duckdb.connect() as engine:
        for name in "ab":
            engine.register(name, pa.concat_tables([events(epoch, name) for epoch in range(2)]))
        near = "x.k = y.k AND abs(x.t - y.t) <= 5 AND y.v % 2 = 0"
        pairs = engine.sql(f"SELECT x.k, x.t, x.v, x.note, y.t, y.note FROM a x JOIN a y ON {near}").fetchall()
        same = engine.sql("SELECT x.v, x.note, y.v, y.note FROM b x JOIN b y USING (k, t)").fetchall()
    assert counted(out.table()) == Counter(pairs)
    assert counted(more.table()) == Counter(same)


def test_f08_joins_of_several_streams_are_late_from_the_files(spark, tmp_path, feeds):
    for epoch in range(2):
        for name, feed in feeds.items():
            feed.add(events(epoch, name))
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="32 MB")
    a, b = (flow.source(feed.stream(spark), time="t", name=name) for name, feed in feeds.items())
    rows = flow.join(a=a, b=b, on=["a.k = b.k"], within=pk.band(5, 5), materialize="late")
    out = rows.select("a_v", "a_note", "b_v", "b_note").to_memory()
    query = flow.run()
    with duckdb.connect() as engine:
        for name in "ab":
            engine.register(name, pa.concat_tables([events(epoch, name) for epoch in range(2)]))
        pairs = engine.sql("SELECT a.v, a.note, b.v, b.note FROM a JOIN b ON a.k = b.k AND abs(a.t - b.t) <= 5")
        assert counted(out.table()) == Counter(pairs.fetchall())
    assert "a is late: payload of a stays in the files" in str(query.explain())
    assert not list((tmp_path / "checkpoint" / "payload").rglob("*.arrow"))


def test_a_column_that_rows_left_behind_may_not_become_another_one(spark, tmp_path):
    wider = SCHEMA.append(pa.field("other", pa.string()))
    feeds = {name: Feed(tmp_path / name, wider) for name in "ab"}

    def run(text: str) -> None:
        for name, feed in feeds.items():
            feed.add(events(0, name).append_column("other", [["o"] * ROWS]))
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="32 MB")
        a = flow.source(feeds["a"].stream(spark).selectExpr("k", "t", text), time="t", name="a", payload="source")
        b = flow.source(feeds["b"].stream(spark), time="t", name="b", payload="source")
        a.join(b, on="k", within=pk.band(5, 5)).to_memory()
        flow.run(end=False)

    run("note AS x")
    with pytest.raises(CheckpointError, match=r"left 'x' of source 'a' in its files, as column 'note', and it is"):
        run("other AS x")
    with pytest.raises(CheckpointError, match=r"which is a DataFrame now that does not pass them on"):
        run("concat(note, '') AS x")
    run("note AS x")


class TestAuto:
    """payload="auto" of a DataFrame: chosen once, at the start."""

    def test_wide_rows_stay_and_narrow_ones_travel(self, spark, tmp_path, feeds):
        narrow = Feed(tmp_path / "narrow", pa.schema({"k": pa.int64(), "t": pa.int64(), "n": pa.int64()}))
        narrow.add(pa.table({"k": [1, 2], "t": [0, 0], "n": [5, 6]}))
        feeds["a"].add(events(0, "a"))
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="32 MB")
        a = flow.source(feeds["a"].stream(spark), time="t", name="a")
        b = flow.source(narrow.stream(spark), time="t", name="b")
        a.join(b, on="k", within=pk.band(500, 500)).to_memory()
        query = flow.run()
        said = str(query.explain())
        assert "payload of a (note, v; about 2" in said
        assert "stays in the files while the query runs, as chosen at its start: for a million rows" in said
        assert "payload of b" not in said
        assert query.progress().epochs[0].left_behind == ("a",)

    def test_what_cannot_be_read_again_travels_and_explain_says_why(self, spark, tmp_path, feeds):
        for name, feed in feeds.items():
            feed.add(events(0, name))
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="32 MB")
        wide = "".join(f", repeat('x', {n}) AS x{n}" for n in range(5)).split(", ")[1:]
        texts = [", ".join(pair) for pair in zip(wide[::2], wide[1::2], strict=True)]
        a = flow.source(feeds["a"].stream(spark).selectExpr("*", *texts).dropDuplicates(["v"]), time="t", name="a")
        b = flow.source(feeds["b"].stream(spark), time="t", name="b")
        a.join(b, on="k", within=pk.band(5, 5)).to_memory()
        said = str(flow.run().explain())
        assert "payload of a (note, v, x0, x1, x2, x3, x4) travels with the rows: they cannot be read again" in said
        assert "because its rows pass dropDuplicates on the way from the files; payload='segments' would" in said


class TestRefused:
    """What payload="source" cannot be, while the flow is built or before an epoch has begun."""

    def test_dataframes_whose_rows_cannot_be_found_again(self, spark, tmp_path, feeds):
        feeds["a"].add(events(0, "a"))
        stream = feeds["a"].stream(spark)
        stream.createOrReplaceTempView("some_rows")
        cleaned = spark.readStream.schema(stream.schema).option("cleanSource", "delete")
        passing = spark.readStream.schema(stream.schema).option("ignoreMissingFiles", "true")
        folder = str(feeds["a"].folder)
        told = {
            "it is a DataFrame that is no stream": spark.read.parquet(folder),
            "it is no stream of Parquet files": stream.union(stream),
            "it reads json, not Parquet files": spark.readStream.schema(stream.schema).json(folder),
            "its rows pass dropDuplicates": stream.dropDuplicates(["v"]),
            "its rows pass explode, or the like,": stream.select("*", sf.explode(sf.array("v"))),
            "its rows pass a view": spark.sql("SELECT * FROM some_rows"),
            "it selects '_metadata'": stream.select("*", sf.col("_metadata.file_name").alias("name")),
            r"Spark deletes or moves its files once they are read \(cleanSource\)": cleaned.parquet(folder),
            r"it passes over files that cannot be read \(ignoreMissingFiles\)": passing.parquet(folder),
        }
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="32 MB")
        for why, rows in told.items():
            with pytest.raises(ConfigError, match=rf"cannot be read again: {why}.*Write payload='segments'"):
                flow.source(rows, time="t", payload="source")

    def test_only_columns_that_are_passed_on_in_types_that_arrow_reads_alike(self, spark, feeds):
        schema = "k long, t timestamp, s string, d date, p struct<a: int, ts: timestamp>, q struct<a: int, b: string>"
        rows = spark.readStream.schema(schema).parquet(str(feeds["a"].folder.parent))
        given = rows.alias("r").select(
            "k", "t", sf.col("r.s").alias("x"), sf.upper("s").alias("y"), "d", "p", "q", sf.col("q.b").alias("b")
        )
        scan = parquet_scan(given.withColumnRenamed("k", "key").where("x > ''"))
        assert dict(scan.names) == {"key": "k", "x": "s", "q": "q"}

    @pytest.mark.parametrize(
        ("rows", "folder", "why"),
        [
            (events(0, "a").rename_columns(["k", "t", "v", "Note"]), "", "is called 'Note' there"),
            (events(0, "a").drop_columns(["note"]), "/note=5", "is in the name of a folder"),
            (events(0, "a").set_column(3, "note", [[b"x"] * ROWS]), "", "is binary there, and the source has it as"),
        ],
        ids=["case", "partition", "type"],
    )
    def test_files_that_spark_reads_otherwise(self, spark, tmp_path, feeds, rows, folder, why):
        feeds["b"].add(events(0, "b"))
        place = Path(f"{feeds['a'].folder}{folder}")
        place.mkdir(parents=True)
        feed = feeds["a"].stream(spark)
        pq.write_table(rows, place / "odd.parquet")
        for payload in ("source", "row"):
            flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="32 MB")
            a = flow.source(feed, time="t", name="a", payload=payload)
            b = flow.source(feeds["b"].stream(spark), time="t", name="b", payload="source")
            out = a.join(b, on="k", within=pk.band(5, 5)).to_memory()
            if payload == "source":
                with pytest.raises(PenstockError, match=rf"Column 'note' of .*odd.parquet {why}.*payload='row'"):
                    flow.run()
            else:
                flow.run()
                assert out.table().num_rows
