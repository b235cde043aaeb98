"""Lookup joins on Spark: what the definition gives, by every method, over epochs and restarts."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

import penstock as pk
from penstock.core.errors import TableError
from penstock.flow.report import EpochReport
from penstock.kernels.hashing import hash_keys
from penstock.operators.lookup import HybridJoin, Stages
from penstock.storage.tables.arrow import ArrowTable, OpenArrowTable
from tests.operators.lookup.test_hashes import KEYS
from tests.oracle import lookup as oracle
from tests.spark.conftest import Feed, multiset
from tests.worker_memory import private_memory, watched

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


def test_a_lookup_that_cannot_run_is_refused_before_anything_is_written(spark, feed, tmp_path):
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="8 MB")
    source = flow.source(feed("orders", streams(1, 10, 10, seed=1)).stream(spark), time="t")
    names = master(10, seed=2)
    with pytest.raises(pk.ConfigError, match=r"^on='kk' is not a column of this table\. Did .* on={'ours': 'theirs'}"):
        source.lookup(spark.createDataFrame(names), on={"k": "kk"})
    out = source.lookup(names, on="k", shed=pk.Shedding("considering", to="/proc/nope")).to_memory()
    with pytest.raises(pk.ConfigError, match=r"trigger='-1 s' is negative"):
        out.start("-1 s")
    with pytest.raises(pk.ConfigError, match=r"^to='/proc/nope' cannot be written to: .* Write a folder that"):
        out.start()
    assert not (tmp_path / "checkpoint" / "flow.json").exists()


def test_a_data_frame_is_written_into_pages_once_and_looked_up_in_from_there(spark, feed, tmp_path):
    epochs, table = streams(2, 500, 80, seed=3), master(80, seed=4, each=3)
    orders = feed("orders", epochs)
    frame = spark.createDataFrame(table)
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="8 MB")
    source = flow.source(orders.stream(spark), time="t", progress=pk.bounded_delay(10), name="orders")
    out = source.lookup(frame, on="k", name="names").to_memory()
    query = flow.run()
    assert multiset(out.table()) == expected(epochs, table, "inner")
    assert pk.PageTable(str(tmp_path / "checkpoint" / "tables" / "names")).open().size.rows == table.num_rows
    assert "inner lookup on k in a DataFrame, in pages, snapshot" in query.explain()


def names_of(spark, folder: Path, table: Any, **more: Any) -> list[str | None]:
    """The names that a flow finds for keys 1 and 2; each start of it brings both again."""
    rows = spark.createDataFrame([(1, 0), (2, 0)], "k long, t long")
    flow = pk.Flow(spark, checkpoint=str(folder), memory="16 MB")
    found = flow.source(rows, time="t").lookup(table, on="k", how="left", **more).to_memory()
    flow.run()
    return [row["name"] for row in sorted(found.table().to_pylist(), key=lambda row: row["k"])]


@pytest.mark.parametrize("freshness", ["snapshot", "latest"])
def test_of_a_delta_table_only_what_its_log_says_is_found(spark, tmp_path, freshness):
    folder = str(tmp_path / "names")
    write_deltalake(folder, pa.table({"k": [1, 2], "name": ["old", "old"]}))
    write_deltalake(folder, pa.table({"k": [1, 2], "name": ["a", "b"]}), mode="overwrite")
    DeltaTable(folder).delete("k = 1")
    assert names_of(spark, tmp_path / "checkpoint", folder, freshness=freshness) == [None, "b"]
    parted = str(tmp_path / "parted")
    write_deltalake(parted, pa.table({"k": [1], "name": ["a"]}), partition_by=["name"])
    with pytest.raises(TableError, match=r"columns in the names of folders \(name\)"):
        names_of(spark, tmp_path / "other", parted, freshness=freshness)


def test_what_is_no_folder_of_parquet_files_is_said_to_be_none(spark, tmp_path):
    with pytest.raises(TableError, match=r"nowhere does not exist\. Write the path of a Parquet file"):
        names_of(spark, tmp_path / "checkpoint", str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match="has no Parquet files yet"):
        names_of(spark, tmp_path / "checkpoint", str(tmp_path / "empty"))


def test_a_snapshot_stays_over_restarts_though_another_table_is_given(spark, tmp_path):
    feed, found = Feed(tmp_path / "rows", STREAM), []
    for name in ("old", "new"):
        feed.add(pa.table([[1], [0], [feed.count]], schema=STREAM))
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="16 MB")
        rows = flow.source(feed.stream(spark), time="t", name="rows")
        kept = rows.lookup(pa.table({"k": [1], "name": [name]}), on="k").to_memory()
        flow.run(end=False)
        found += kept.table().column("name").to_pylist()
    assert found == ["old", "old"]


def test_in_each_epoch_rows_see_the_latest_version_of_a_page_table(spark, feed, tmp_path):
    folder = str(tmp_path / "table")
    table = pk.write_page_table(pa.table({"k": [1, 2], "v": ["old", "old"]}), folder, keys="k")
    orders = feed("orders", [pa.table([[1, 2, 3], [0, 0, 0], [1, 1, 1]], schema=STREAM)])
    seen = []
    for change in (lambda: None, lambda: table.upsert(pa.table({"k": [2, 3], "v": ["new", "new"]}))):
        change()
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="8 MB")
        source = flow.source(orders.stream(spark), time="t", progress=pk.bounded_delay(100), name="orders")
        out = source.lookup(pk.PageTable(folder), on="k", how="left", freshness="latest").to_memory()
        flow.run(end=False)
        seen.append({row["k"]: row["v"] for row in out.table().to_pylist()})
        orders.add(pa.table([[1, 2, 3], [0, 0, 0], [2, 2, 2]], schema=STREAM))
    assert seen == [{1: "old", 2: "old", 3: None}, {1: "old", 2: "new", 3: "new"}]


def test_a_table_that_is_broadcast_is_not_read_again_in_every_epoch(spark, feed, tmp_path):
    epochs, names = streams(6, 200, 100, seed=9), master(100, seed=10)
    table = pk.write_page_table(names, str(tmp_path / "table"), keys="k")
    orders = feed("orders", epochs)
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="8 MB", shards=2)
    source = flow.source(orders.stream(spark), time="t", progress=pk.bounded_delay(10), name="orders")
    out = source.lookup(table, on="k", method="broadcast").to_memory()
    query = flow.run()
    assert multiset(out.table()) == expected(epochs, names, "inner")
    reads = sum(epoch.operators["lookup0"].counts["reads"] for epoch in query.progress().epochs)
    assert 1 <= reads <= 6 * table.open().partitions, "once by each worker, not by each of the twelve tasks"


@dataclass(frozen=True)
class SlowTable:
    """A table whose partitions take their time."""

    table: ArrowTable
    seconds: float
    store = "sql"
    versioned = False

    @property
    def columns(self) -> pa.Schema:
        return self.table.columns

    @property
    def keys(self) -> tuple[str, ...]:
        return self.table.keys

    def open(self, version: str | None = None) -> Any:
        opened = OpenArrowTable(self.table.rows, self.table.keys, self.table.partition_rows)
        scan = opened.scan
        opened.scan = lambda partition: (time.sleep(self.seconds), scan(partition))[1]
        return opened


def test_progress_says_how_many_rows_wait_over_all_shards_and_how_old_the_oldest_is(spark, feed, tmp_path):
    epochs = [pa.table([list(range(20)), [0] * 20, list(range(20, 40))], schema=STREAM)]
    epochs.append(pa.table([list(range(20)), [0] * 20, [60] * 20], schema=STREAM))
    orders = feed("orders", epochs)
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="8 MB", shards=2)
    source = flow.source(orders.stream(spark), time="t", progress=pk.ordered(), name="orders")
    source.lookup(master(60, seed=2), on="k", method="hybridjoin", name="who").to_memory()
    query = flow.run(end=False)
    waits = next(epoch.operators["who"].waits for epoch in query.progress().epochs if epoch.epoch == 1)
    assert (waits.rows, waits.oldest, waits.bound) == (40, 20, 60)
    assert "the oldest 40 behind the bound" in str(waits)


def padded(rows: pa.Table) -> pa.Table:
    """The same rows, of some kilobytes each."""
    return rows.append_column("pad", pa.array([f"{n:08d}" + "x" * PAD for n in range(rows.num_rows)]))


def overloaded(
    spark, feed, folder, epochs: list[pa.Table], names: pa.Table, patience: float = 300
) -> tuple[pa.Table, list[dict[str, int]]]:
    """Let rows come three times as fast as they can be answered, then none until all are; the results, and counts."""
    orders = feed(f"{folder.name}-orders", [padded(rows) for rows in epochs])
    table = SlowTable(ArrowTable(names, ("k",), partition_rows=2), seconds=0.05)
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory=OVERLOADED)
    source = flow.source(orders.stream(spark), time="t", progress=pk.bounded_delay(10), name="orders")
    method = Stages(HybridJoin(slots=60))
    found = source.lookup(table, on="k", method=method, freshness="latest", shed=pk.Shedding("considering"))
    found.to_parquet(str(folder / "out"))
    query = flow.start(trigger="400 ms")
    seen: dict[int, EpochReport] = {}
    arriving, until = sum(rows.num_rows for rows in epochs), time.monotonic() + patience
    while time.monotonic() < until:
        assert query.streaming_query.isActive, "it has failed"
        seen |= {epoch.epoch: epoch for epoch in query.progress().epochs}
        counts = [seen[epoch].operators["lookup0"].counts for epoch in sorted(seen)]
        rows = sum(sum(epoch.rows_in.values()) for epoch in seen.values())
        if rows >= max(1, arriving - 100) and counts[-1]["waiting"] + counts[-1]["queued"] + counts[-1]["shed"] == 0:
            break
        time.sleep(0.2)
    else:
        pytest.fail(f"rows still wait after {patience} s: {counts[-1:]}")
    query.stop()
    return spark.read.parquet(str(folder / "out")).drop("epoch").toArrow(), counts


PAD = 12_000
OVERLOADED = 8_000_000


@pytest.mark.parametrize("seconds", [2, pytest.param(60, marks=pytest.mark.deep)])
def test_under_overload_rows_are_put_aside_and_in_the_silence_after_it_all_come_out_once(
    spark, feed, tmp_path, record_property, seconds
):
    epochs, names = streams(int(seconds / 0.4), 900, 120, seed=6), master(120, seed=7)
    overloaded(spark, feed, tmp_path / "warm", streams(1, 20, 120, seed=8), names)
    baseline = max(private_memory().values())
    with watched() as most:
        out, counts = overloaded(spark, feed, tmp_path / "all", epochs, names, patience=300 + 30 * seconds)
    assert set(pc.utf8_length(out.column("pad")).to_pylist()) == {8 + PAD}
    assert multiset(out.drop_columns(["pad"])) == expected(epochs, names, "inner")
    assert max(count["shed"] for count in counts) > 0
    assert sum(count["put_aside"] for count in counts) == sum(count["replayed"] for count in counts)
    if seconds > 2:  # In few epochs, how much is answered depends on how fast the first ones happened to be.
        known = slice(2, len(epochs))  # Before there is a pace, all is answered.
        arrived = sum(rows.num_rows - rows.column("k").null_count for rows in epochs[known])
        assert arrived >= 3 * sum(count["finished"] for count in counts[known])
    aside = max(count["shed"] + count["queued"] for count in counts) * PAD
    assert aside > OVERLOADED, "more is put aside than all tasks have memory"
    above = most[0] - baseline
    record_property("private_memory_above_baseline", above)
    assert above <= 1.25 * OVERLOADED / 2, f"{2 * above / OVERLOADED:.2f} × the share"


def test_a_stream_that_has_lost_its_time_can_be_looked_up_again(spark, feed, tmp_path):
    epochs, names = streams(2, 100, 60, seed=5), master(60, seed=6)
    regions = pa.table({"k": list(range(0, 60, 2)), "region": [f"region {n}" for n in range(0, 60, 2)]})
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="8 MB", shards=2)
    rows = flow.source(feed("orders", epochs).stream(spark), time="t", progress=pk.bounded_delay(10), name="orders")
    named = rows.select("k").lookup(names, on="k")
    by_reads = named.lookup(regions, on="k", method="inlj").to_memory()
    by_waiting = named.lookup(regions, on="k", method="meshjoin", max_age=5).to_memory()
    flow.run()
    there = {k for k in names["k"].to_pylist() if k % 2 == 0}
    keys = sorted(k for part in epochs for k in part["k"].to_pylist() if k in there)
    for out in (by_reads, by_waiting):
        assert sorted(out.table()["k"].to_pylist()) == keys


def test_a_data_frame_supports_only_snapshots(spark, feed, tmp_path):
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="8 MB")
    source = flow.source(feed("orders", streams(1, 10, 10, seed=1)).stream(spark), time="t")
    with pytest.raises(
        pk.ConfigError, match=r"^A DataFrame supports only freshness='snapshot': .*pk\.SqlTable\(…\)\.$"
    ):
        source.lookup(spark.createDataFrame(master(10, seed=2)), on="k", freshness="latest")


def test_the_hash_that_rows_bring_is_another_than_the_tables_for_every_type_of_key(spark):
    """So lookups hash keys again before they read the table; if the two ever agree for all types, they need not."""
    for number, keys in enumerate(KEYS):
        rows = spark.createDataFrame(pa.table({"k": keys}))
        brought = rows.selectExpr("xxhash64(k) AS hash").toArrow().column("hash").to_numpy().view(np.uint64)
        assert not (np.sort(brought) == np.sort(hash_keys([keys]))).any(), f"{number}: {keys.type}"
