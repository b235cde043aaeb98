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
from penstock.spark.place import Placement
from penstock.storage.versioned import Checkpoint
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


def joined(
    spark, folder: Path, feeds: dict[str, Feed], shards: int = 2, frames: str = "", **payload: str
) -> tuple[pk.Flow, Any]:
    """A join of both feeds within 5 steps of time, and what it gives; some are read as DataFrames."""
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory="32 MB", shards=shards)
    a, b = (
        flow.source(
            feed.stream(spark),
            time="t",
            name=name,
            progress=pk.bounded_delay(3),
            payload=payload.get(name, "segments"),
        )
        if name in frames
        else flow.parquet(
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
    with pytest.raises(PenstockError, match=r"a/00000\.parquet is gone|00000\.parquet.*has changed since"):
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


def test_a_missing_record_of_what_was_left_behind_is_told_by_its_name(spark, tmp_path, feeds):
    for name, feed in feeds.items():
        feed.add(events(0, name))
    flow, (rows, _) = joined(spark, tmp_path, feeds)
    rows.to_memory()
    flow.run(end=False)
    os.unlink(tmp_path / "checkpoint" / "payload.json")
    flow, (rows, _) = joined(spark, tmp_path, feeds)
    rows.to_memory()
    with pytest.raises(PenstockError, match=r"State file .*payload\.json is missing"):
        flow.run()


class TestSegments:
    """Payload of sources that cannot be read again is written once, to the checkpoint."""

    @pytest.mark.parametrize(
        ("frames", "place"),
        [("ab", "driver"), ("ab", "tasks"), ("a", "driver"), ("a", "tasks"), ("", "driver"), ("", "tasks")],
    )
    def test_results_are_whole_and_state_is_narrow(self, spark, tmp_path, feeds, frames, place, monkeypatch):
        monkeypatch.setattr(Placement, "choose", lambda self, size: (self.at_most(place), "said"))
        tables = []
        for start in range(2):
            for epoch in (2 * start, 2 * start + 1):
                for name, feed in feeds.items():
                    feed.add(events(epoch, name))
            flow, (rows, _) = joined(spark, tmp_path, feeds, 1 + start, frames, a="segments", b="segments")
            out = rows.to_memory()
            query = flow.run(end=False)
            tables.append(out.table())
        assert counted(*tables) == expected(4)
        last = query.progress().epochs[-1]
        state = last.operators["join0"]
        assert 0 < state.state_bytes / state.state_rows <= 100
        assert set(last.payload_bytes) == {"a", "b"}
        assert "is put into segments once, as payload='segments' says" in str(query.explain())

    def test_a_plain_dataframe_beside_one_in_segments(self, spark, tmp_path, feeds, monkeypatch):
        for place in ("driver", "spark"):
            monkeypatch.setattr(Placement, "choose", lambda self, size, place=place: (self.at_most(place), "said"))
            for epoch in range(2):
                for name, feed in feeds.items():
                    feed.add(events(epoch, name))
            flow, (rows, _) = joined(spark, tmp_path / place, feeds, frames="ab", a="segments", b="row")
            out = rows.to_memory()
            query = flow.run()
            assert counted(out.table()) == expected(2)
            assert {epoch.left_behind for epoch in query.progress().epochs} == {("a",), ()}
            for feed in feeds.values():
                for file in feed.folder.glob("*.parquet"):
                    file.unlink()
            feeds = {name: Feed(tmp_path / f"{name}2", SCHEMA, group=150) for name in "ab"}

    def test_payload_may_travel_and_be_put_into_segments_in_turns(self, spark, tmp_path, feeds):
        """Rows of a DataFrame, and of files that payload also stays in."""
        tables, left = [], []
        asked = [("segments", "segments"), ("row", "source"), ("segments", "row"), ("auto", "segments")]
        for epoch, (a, b) in enumerate(asked):
            for name, feed in feeds.items():
                feed.add(events(epoch, name))
            flow, (rows, _) = joined(spark, tmp_path, feeds, 1 + epoch % 3, "a", a=a, b=b)
            out = rows.to_memory()
            query = flow.run(end=epoch == 3)
            tables.append(out.table())
            left.append(set(query.progress().epochs[0].left_behind))
        assert counted(*tables) == expected(4)
        # Left open, payload of a DataFrame over Parquet files stays there.
        assert left == [{"a", "b"}, {"b"}, {"a"}, {"a", "b"}]

    @pytest.mark.parametrize("place", ["driver", "tasks", "spark"])
    def test_late_rows_have_their_payload(self, spark, tmp_path, feeds, place, monkeypatch):
        monkeypatch.setattr(Placement, "choose", lambda self, size: (self.at_most(place), "said"))
        for name, feed in feeds.items():
            feed.add(events(1, name))
            feed.add(events(0, name))
        flow, (rows, late) = joined(spark, tmp_path, feeds, frames="a", b="source")
        rows.to_memory()
        out = late.to_memory()
        query = flow.run()
        assert query.progress().epochs[0].left_behind == ("a", "b")
        missed = out.table().select(["v", "note", "late_source"]).to_pylist()
        assert len(missed) == 2 * ROWS
        assert all(row["note"].startswith(f"{row['late_source']}{row['v']}-") for row in missed)

    def test_segments_go_once_no_row_in_state_can_be_in_them(self, spark, tmp_path, feeds):
        kept = []
        for epoch in range(5):
            for name, feed in feeds.items():
                feed.add(events(epoch, name))
            flow, (rows, _) = joined(spark, tmp_path, feeds, frames="a", b="source")
            rows.to_memory()
            query = flow.run(end=False)
            kept.append(query.progress().epochs[-1].payload_bytes["a"])
        folders = sorted((tmp_path / "checkpoint" / "payload" / "a").glob("*-*"))
        # The window and the delay are shorter than an epoch: two versions need the last two each, at most.
        assert 1 <= len(folders) <= 3
        assert int(folders[-1].name[:12]) >= 4
        assert max(kept[2:]) <= 2 * kept[0]
        assert len(list((tmp_path / "checkpoint" / "payload" / "b").glob("*.json"))) <= 3

    def test_without_a_window_all_segments_stay(self, spark, tmp_path, feeds):
        tables = []
        for epoch in range(3):
            for name, feed in feeds.items():
                feed.add(events(epoch, name))
            flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="32 MB")
            told = {"time": "t", "payload": "segments"}
            a, b = (flow.source(feed.stream(spark), name=name, **told) for name, feed in feeds.items())
            joined = flow.join(a=a, b=b, on=["a.k = b.k"], materialize="late")
            out = joined.select("a_v", "a_note", "b_v", "b_note").to_memory()
            flow.run(end=False)
            tables.append(out.table())
        pairs = {name: pa.concat_tables([events(epoch, name) for epoch in range(3)]) for name in "ab"}
        with duckdb.connect() as engine:
            for name, rows in pairs.items():
                engine.register(name, rows)
            whole = engine.sql("SELECT a.v, a.note, b.v, b.note FROM a JOIN b ON a.k = b.k").fetchall()
        assert counted(*tables) == Counter(whole)
        assert len(list((tmp_path / "checkpoint" / "payload" / "a").glob("*-*"))) == 3

    @pytest.mark.parametrize("change", [os.unlink, lambda path: os.truncate(path, 500)], ids=["gone", "torn"])
    def test_a_segment_that_rows_in_state_need_is_asked_for_by_its_name(self, spark, tmp_path, feeds, change):
        for name, feed in feeds.items():
            feed.add(events(0, name))
        flow, (rows, _) = joined(spark, tmp_path, feeds, frames="ab")
        rows.where("v < 0").to_memory()
        flow.run(end=False)
        for segment in (tmp_path / "checkpoint" / "payload" / "a").rglob("*.arrow"):
            change(segment)
        feeds["b"].add(events(1, "b").set_column(0, "k", pa.array([7 * n % 97 for n in range(ROWS)])))
        flow, (rows, _) = joined(spark, tmp_path, feeds, frames="ab")
        rows.to_memory()
        with pytest.raises(PenstockError, match=r"payload/a/\S+\.arrow is (missing|not what was written).*backup"):
            flow.run()

    def test_an_epoch_that_is_repeated_takes_the_segments_that_were_written(self, spark, tmp_path, feeds, monkeypatch):
        for name, feed in feeds.items():
            feed.add(events(0, name))

        def broken(self, *given):
            raise OSError("no more")

        flow, (rows, _) = joined(spark, tmp_path, feeds, frames="ab")
        rows.to_memory()
        with monkeypatch.context() as patched:
            patched.setattr(Checkpoint, "commit", broken)
            with pytest.raises(PenstockError, match="no more"):
                flow.run()
        before = sorted((tmp_path / "checkpoint" / "payload").rglob("*.arrow"))
        flow, (rows, _) = joined(spark, tmp_path, feeds, frames="ab")
        out = rows.to_memory()
        flow.run(end=False)
        assert counted(out.table()) == expected(1)
        assert sorted((tmp_path / "checkpoint" / "payload").rglob("*.arrow")) == before != []

    def test_a_repeated_epoch_whose_rows_travelled_may_come_through_segments(self, spark, tmp_path, feeds, monkeypatch):
        def broken(self, *given):
            raise OSError("no more")

        tables = []
        for epoch, payload in enumerate(["segments", "row", "segments", "row"]):
            for name, feed in feeds.items():
                feed.add(events(epoch, name))
            flow, (rows, _) = joined(spark, tmp_path, feeds, frames="a", a=payload, b=payload)
            if epoch:
                rows.to_memory()
                with monkeypatch.context() as patched:
                    patched.setattr(Checkpoint, "commit", broken)
                    with pytest.raises(PenstockError, match="no more"):
                        flow.run(end=False)
                other = "row" if payload == "segments" else "segments"
                flow, (rows, _) = joined(spark, tmp_path, feeds, frames="a", a=other, b=other)
            out = rows.to_memory()
            flow.run(end=epoch == 3)
            tables.append(out.table())
        assert counted(*tables) == expected(4)


def test_a_column_that_state_lacks_may_not_become_another_one(spark, tmp_path, feeds):
    def run(select: str) -> None:
        for name, feed in feeds.items():
            feed.add(events(0, name))
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="32 MB")
        a, b = (
            flow.parquet(feed.folder, time="t", schema=SCHEMA, name=name, payload="source")
            for name, feed in feeds.items()
        )
        a.select("k", "t", select).join(b, on="k", within=pk.band(5, 5)).to_memory()
        flow.run(end=False)

    run("note AS x")
    for other in ("concat(note, '') AS x", "CAST(v AS STRING) AS x"):
        with pytest.raises(PenstockError, match="left 'x' in its source, and it is computed differently"):
            run(other)
    run("note AS x")
