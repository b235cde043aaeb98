"""Streaming DataFrames over Parquet files that Arrow reads in place of Spark: the same rows, and who reads when."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import penstock as pk
from penstock.spark.place import Placement
from penstock.spark.session import settings
from tests.spark.conftest import Feed, multiset

pytestmark = [pytest.mark.spark, pytest.mark.own_scan]

SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64(), "s": pa.string()})
SPARK_SCHEMA = "k long, t long, s string"
ARROW, SPARK = "Arrow reads the files of source", "Spark reads the rows of source"


def events(epoch: int, keys: int = 5) -> pa.Table:
    times = [epoch * 10 + n % 7 for n in range(30)]
    return pa.table({"k": [n % keys for n in range(30)], "t": times, "s": [f"{epoch}-{n}" for n in range(30)]}, SCHEMA)


def stream(spark: SparkSession, folder: Path, schema: str = SPARK_SCHEMA) -> DataFrame:
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


@pytest.fixture
def plain(tmp_path) -> Feed:
    feed = Feed(tmp_path / "in %20ü", SCHEMA)
    for epoch in range(3):
        feed.add(events(epoch))
    return feed


def passed_on(spark, rows: DataFrame, state: Path, **told: Any) -> tuple[pa.Table, str]:
    """The rows of a DataFrame as a flow passes them on, and what `explain()` says."""
    flow = pk.Flow(spark, checkpoint=str(state), memory="32 MB")
    out = flow.source(rows, name="rows", **{"time": "t", **told}).to_memory()
    query = flow.run()
    return out.table(), str(query.explain())


TYPES = (
    "t timestamp, day date, local timestamp_ntz, n int, price decimal(12,2), x double, text string, raw binary, "
    "yes boolean, small tinyint, list array<timestamp>, pair struct<at: timestamp, n: int>, by map<string, date>"
)


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
@pytest.mark.parametrize("place", ["driver", "tasks", "spark"])
def test_values_of_all_types_are_those_that_spark_reads(spark, tmp_path, kind, place, monkeypatch):
    monkeypatch.setattr(Placement, "choose", lambda self, size: (self.at_most(place), "said"))
    at = dt.datetime(2026, 3, 29, 1, 30, 5, 123000)
    rows = [
        (at, at.date(), at, 7, Decimal("12.50"), -0.0, "ü", b"\0", True, -1, [at, None], (at, 1), {"a": at.date()}),
        (dt.datetime(1969, 12, 31, 23, 59, 59), dt.date(1950, 1, 1), None, *[None] * 9, None),
        (dt.datetime(2300, 1, 1), dt.date(9999, 12, 31), at, 0, None, float("nan"), "", b"", False, 0, [], None, {}),
    ]
    with settings(spark, {"spark.sql.parquet.outputTimestampType": kind}):
        spark.createDataFrame(rows, TYPES).coalesce(1).write.parquet(str(tmp_path / "in"))
    given = spark.readStream.schema(TYPES).parquet(str(tmp_path / "in"))
    found, said = passed_on(spark, given, tmp_path / "arrow")
    assert f"{ARROW} rows" in said
    expected, said = passed_on(spark, given, tmp_path / "spark", scan="spark")
    assert ARROW not in said
    assert SPARK not in said
    assert found.schema == expected.schema
    assert multiset(found) == multiset(expected)
    assert found.num_rows == 3


def joined(spark, plain: Feed, state: Path, scans: str, end: bool = False) -> tuple[list[tuple[Any, ...]], str]:
    """A join of two sources over one DataFrame with a third over files; each source read as `scans` says."""
    flow = pk.Flow(spark, checkpoint=str(state), memory="32 MB")
    given = stream(spark, plain.folder)
    told: dict[str, Any] = {"time": "t", "progress": pk.bounded_delay(7)}
    a = flow.source(given, name="a", scan=scans, **told)
    b = flow.source(given.select("t", "k"), name="b", scan=scans, **told)
    c = flow.parquet(str(plain.folder), name="c", max_files=1, **told)
    pairs = a.join(b, on="k", within=pk.band(before=8, after=8)).select("k", "t", "s", "t_right AS other")
    out = pairs.join(c.select("k", "t"), on="k", within=pk.band(before=3, after=0)).to_memory()
    query = flow.run(end=end)
    return list(multiset(out.table()).elements()), str(query.explain())


def expected(epochs: int) -> int:
    rows = [row for epoch in range(epochs) for row in events(epoch).to_pylist()]
    pairs = [(a["k"], a["t"]) for a in rows for b in rows if a["k"] == b["k"] and abs(a["t"] - b["t"]) <= 8]
    return sum(1 for k, t in pairs for c in rows if c["k"] == k and t - 3 <= c["t"] <= t)


@pytest.mark.parametrize("order", [("spark", "auto", "spark"), ("auto", "spark", "auto")])
def test_who_reads_may_change_at_a_restart_also_of_one_dataframe_in_two_sources(spark, tmp_path, plain, order):
    rows, notes = [], []
    for epoch, scans in enumerate(order):
        if epoch:
            plain.add(events(2 + epoch))
        more, said = joined(spark, plain, tmp_path / "state", scans, end=epoch == 2)
        rows += more
        notes.append(said.count(ARROW))
    assert notes == [{"spark": 0, "auto": 2}[scans] for scans in order]
    assert len(rows) == expected(5)
    whole, _ = joined(spark, plain, tmp_path / "whole", "auto", end=True)
    assert sorted(map(str, rows)) == sorted(map(str, whole))


def test_an_epoch_that_failed_is_run_again_by_the_other_reader(spark, tmp_path, plain):
    for first, second in (("auto", "spark"), ("spark", "auto")):
        state, seen = tmp_path / first, []

        def fails(batch: DataFrame, epoch: int) -> None:
            if epoch == 1:
                raise RuntimeError("no room")

        def sees(batch: DataFrame, epoch: int, seen=seen) -> None:
            seen.append((epoch, batch.count()))

        for scan, sink in ((first, fails), (second, sees)):
            flow = pk.Flow(spark, checkpoint=str(state), memory="32 MB")
            rows = flow.source(stream(spark, plain.folder), time="t", progress=pk.ordered(), name="rows", scan=scan)
            rows.window(range=10).by("k").agg(n=pk.count()).foreach_epoch(sink)
            if scan == first:
                with pytest.raises(pk.SinkError, match="no room"):
                    flow.run()
            else:
                flow.run()
        assert seen[0][0] == 1
        assert sum(count for _, count in seen) == 15


def test_payload_stays_in_the_files_of_a_dataframe_that_arrow_reads(spark, tmp_path, plain):
    given = stream(spark, plain.folder)
    for payload in ("source", "segments", "row"):
        flow = pk.Flow(spark, checkpoint=str(tmp_path / payload), memory="32 MB")
        a, b = (flow.source(given, time="t", name=name, progress=pk.bounded_delay(7), payload=payload) for name in "ab")
        out = a.join(b, on="k", within=pk.band(before=2, after=2)).to_memory()
        query = flow.run()
        assert query.progress().epochs[0].left_behind == (() if payload == "row" else ("a", "b"))
        found = out.table()
        rows = [row for epoch in range(3) for row in events(epoch).to_pylist()]
        pairs = [(a, b) for a in rows for b in rows if a["k"] == b["k"] and abs(a["t"] - b["t"]) <= 2]
        assert sorted(zip(found["s"].to_pylist(), found["s_right"].to_pylist(), strict=True)) == sorted(
            (a["s"], b["s"]) for a, b in pairs
        )


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda rows: rows.where("k > 1"), "its rows pass a filter. Write .where(…) after flow.source(…)"),
        (lambda rows: rows.withColumn("u", sf.col("t") + 1), "it computes or renames columns. Write .select(…) after"),
        (lambda rows: rows.withColumnRenamed("s", "text"), "it computes or renames columns. Write .select(…) after"),
        (lambda rows: rows.select("k", "T"), "it has columns under other names than the files"),
        (lambda rows: rows.dropDuplicates(["k"]), "its rows pass dropDuplicates on the way from the files"),
        (lambda rows: rows.union(rows), "it is no stream of Parquet files"),
    ],
)
def test_spark_reads_what_a_dataframe_makes_of_its_files(spark, tmp_path, plain, made, why):
    given = made(stream(spark, plain.folder))
    time = next(name for name in given.columns if name.lower() == "t")
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "state"), memory="32 MB")
    with pytest.raises(pk.ConfigError) as refused:
        flow.source(given, time=time, scan="arrow")
    assert why in str(refused.value)
    assert str(refused.value).startswith("scan='arrow' lets Arrow read the files of a streaming DataFrame, but ")
    _, said = passed_on(spark, given, tmp_path / "state", time=time)
    assert f"{SPARK} rows: {why}" in said


def test_columns_may_be_left_out_repartitioned_and_watermarked(spark, tmp_path, plain):
    given = stream(spark, plain.folder).select("t", "k").repartition(3).alias("x")
    found, said = passed_on(spark, given, tmp_path / "state")
    assert f"{ARROW} rows in place of Spark; scan='spark' would let Spark" in said
    assert found.column_names == ["t", "k"]
    assert found.num_rows == 90


def test_settings_and_options_by_which_spark_reads_other_values_leave_reading_to_spark(spark, tmp_path, plain):
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY")
    _, said = passed_on(session, stream(session, plain.folder), tmp_path / "setting")
    assert f"{SPARK} rows: spark.sql.parquet.datetimeRebaseModeInRead is LEGACY" in said
    reader = spark.readStream.schema(SPARK_SCHEMA).option("int96RebaseMode", "CORRECTED")
    _, said = passed_on(spark, reader.parquet(str(plain.folder)), tmp_path / "option")
    assert f"{SPARK} rows: the stream has option int96rebasemode" in said
    _, said = passed_on(spark, spark.readStream.schema(SPARK_SCHEMA).parquet(f"{plain.folder}*"), tmp_path / "pattern")
    assert f"{SPARK} rows: its path is a pattern" in said
    reader = spark.readStream.schema(SPARK_SCHEMA).option("ignoreCorruptFiles", "true")
    _, said = passed_on(spark, reader.parquet(str(plain.folder)), tmp_path / "corrupt")
    assert f"{SPARK} rows: it passes over files that cannot be read (ignoreCorruptFiles)" in said


def test_partition_columns_are_left_to_spark(spark, tmp_path):
    for day in (1, 2):
        path = tmp_path / "in" / f"day={day}" / "0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(events(day), path)
    given = spark.readStream.schema(f"{SPARK_SCHEMA}, day int").parquet(str(tmp_path / "in"))
    found, said = passed_on(spark, given, tmp_path / "state")
    assert f"{SPARK} rows: day comes from the names of folders" in said
    assert set(found["day"].to_pylist()) == {1, 2}


def test_the_first_file_tells_whether_arrow_reads_the_same(spark, tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(events(0).rename_columns(["K", "t", "s"]), tmp_path / "in" / "0.parquet")
    found, said = passed_on(spark, stream(spark, tmp_path / "in"), tmp_path / "state")
    path = tmp_path / "in" / "0.parquet"
    assert f"{SPARK} rows: Column 'k' of {path} is called 'K' there" in said
    assert set(found["k"].to_pylist()) == set(range(5))


def test_a_later_file_that_arrow_would_read_otherwise_stops_the_flow_until_spark_reads_it(spark, tmp_path, plain):
    odd = plain.folder / "00009.parquet"
    pq.write_table(events(9).rename_columns(["K", "t", "s"]), odd)
    os.utime(odd, (1_700_000_000, 1_700_000_000))
    outs = []
    for scan in ("auto", "spark"):
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "state"), memory="32 MB")
        rows = flow.source(stream(spark, plain.folder), time="t", progress=pk.ordered(), name="rows", scan=scan)
        outs.append(rows.window(range=10).by("k").agg(n=pk.count()).to_memory())
        if scan == "auto":
            with pytest.raises(pk.SourceError) as refused:
                flow.run()
            assert (
                f"Column 'k' of {odd} is called 'K' there: Arrow, which reads this source in place of Spark, would "
                in (str(refused.value))
            )
            assert "Write flow.source(…, scan='spark') and start the flow again." in str(refused.value)
        else:
            flow.run()
    counts = [row for out in outs for row in out.table().to_pylist()]
    assert sum(row["n"] for row in counts) == 120
    assert len(counts) == 20


def test_a_file_of_an_old_calendar_is_left_to_spark(spark, tmp_path):
    (tmp_path / "in").mkdir()
    rows = pa.table({"t": pa.array([dt.date(1500, 1, 1)])})
    noted = rows.replace_schema_metadata({"org.apache.spark.version": "2.4.8", "org.apache.spark.legacyDateTime": ""})
    pq.write_table(noted, tmp_path / "in" / "0.parquet")
    given = spark.readStream.schema("t date").parquet(str(tmp_path / "in"))
    found, said = passed_on(spark, given, tmp_path / "state")
    assert "has dates or times as old versions of Spark write them" in said
    assert found["t"].to_pylist() == [row.t for row in spark.read.parquet(str(tmp_path / "in")).collect()]


@pytest.mark.parametrize("place", ["driver", "tasks"])
def test_a_missing_file_and_a_torn_one_are_named(spark, tmp_path, plain, place, monkeypatch):
    monkeypatch.setattr(Placement, "choose", lambda self, size: (self.at_most(place), "said"))
    given = stream(spark, plain.folder)
    torn = plain.folder / "00001.parquet"
    whole = torn.read_bytes()
    torn.write_bytes(whole[:-9])
    os.utime(torn, (1_600_000_001, 1_600_000_001))
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "state"), memory="32 MB")
    flow.source(given, time="t", name="rows").to_memory()
    with pytest.raises(pk.SourceError, match=r"00001\.parquet cannot be read as parquet"):
        flow.run()
    torn.unlink()
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "state"), memory="32 MB")
    flow.source(given, time="t", name="rows").to_memory()
    with pytest.raises(pk.SourceError, match=r"00001\.parquet"):
        flow.run()
    torn.write_bytes(whole)
    os.utime(torn, (1_600_000_001, 1_600_000_001))  # Spark passes over files that are a week older than the newest.
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "state"), memory="32 MB")
    out = flow.source(given, time="t", name="rows").to_memory()
    flow.run()
    assert out.table().num_rows == 60


@pytest.mark.parametrize("payload", ["row", "source"])
@pytest.mark.parametrize("scan", ["auto", "spark"])
def test_a_folder_may_be_empty_at_first(spark, tmp_path, plain, scan, payload):
    late = Feed(tmp_path / "late", SCHEMA)
    late.folder.mkdir()
    found: list[dict[str, Any]] = []
    for end in (False, True):
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "state"), memory="32 MB")
        told: dict[str, Any] = {"time": "t", "progress": pk.bounded_delay(50), "scan": scan, "payload": payload}
        a, b = (flow.source(stream(spark, feed.folder), name=n, **told) for n, feed in (("a", plain), ("b", late)))
        out = a.join(b, on="k", within=pk.band(before=0, after=0)).to_memory()
        flow.run(end=end)
        found += out.table().to_pylist()
        late.add(events(1))
    rows = events(1).to_pylist()
    assert len(found) == sum(1 for a in rows for b in rows if a["k"] == b["k"] and a["t"] == b["t"])


def test_an_expression_that_only_spark_has_gets_rows_that_spark_reads(spark, tmp_path, plain):
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "state"), memory="32 MB")
    rows = flow.source(stream(spark, plain.folder), time="t", name="rows")
    out = rows.select("k", "t", "crc32(s) AS crc").to_memory()
    flow.run()
    assert out.table().num_rows == 90


def test_scan_takes_three_words(spark, tmp_path, plain):
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "state"), memory="32 MB")
    with pytest.raises(pk.ConfigError, match=r"scan='java' must be one of auto, arrow, spark\."):
        flow.source(stream(spark, plain.folder), time="t", scan="java")  # type: ignore[arg-type]
    with pytest.raises(pk.ConfigError, match="it is a DataFrame that is no stream"):
        flow.source(spark.range(3), time="id", scan="arrow")
