"""Joins without a window on Spark (K1, K2): one shard gives what it gives in process, epoch by epoch; any number of
them, changed by restarts and after a failure, what Spark's own batch join gives."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.operators.window_join.progressive.baselines.parameters import XJoin
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark

SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64(), "id": pa.int64()})
EPOCHS, ROWS = 3, 400


def tables() -> list[list[pa.Table]]:
    """Two streams of three epochs; keys are skewed."""
    rng = np.random.default_rng(5)
    sides = []
    for port in (0, 1):
        keys = np.minimum(rng.zipf(1.4, EPOCHS * ROWS), 200)
        ids = np.arange(EPOCHS * ROWS)
        whole = pa.table([keys, ids, ids + port * 10**6], schema=SCHEMA)
        sides.append([whole.slice(n * ROWS, ROWS) for n in range(EPOCHS)])
    return sides


@pytest.fixture(scope="module")
def feeds(tmp_path_factory) -> list[Feed]:
    folder = tmp_path_factory.mktemp("progressive")
    both = [Feed(folder / name, SCHEMA) for name in ("left", "right")]
    for feed, parts in zip(both, tables(), strict=True):
        for part in parts:
            feed.add(part)
    return both


def test_k1_one_shard_gives_what_it_gives_in_process_epoch_by_epoch(spark, tmp_path, feeds):
    """K1. With one partition, and all of it leaving together, nothing depends on how either host hashes keys."""
    method = XJoin(memory=300, row=1, partitions=1, flush=1.0)

    def run(flow: pk.LocalFlow | pk.Flow, sources) -> list[int]:
        left, right = (flow.source(rows, time="t", name=name) for rows, name in zip(sources, "lr", strict=True))
        left.join(right, on="k", method=method).to_memory()
        return [epoch.rows_out for epoch in flow.run().progress().epochs]

    here = run(pk.LocalFlow(memory="32 MB"), tables())
    there = run(pk.Flow(spark, str(tmp_path / "c"), memory="32 MB", shards=1), [feed.stream(spark) for feed in feeds])
    assert here == there
    assert sum(here[:-1]) > 0
    assert here[-1] > 0, "some pairs were put off"


@pytest.mark.parametrize("how", ["inner", "full"])
def test_k1_k2_shards_come_and_go_and_the_result_is_that_of_a_batch_join(spark, tmp_path, feeds, how):
    """K1, K2: a run of its own for each epoch, on another number of shards, by another method."""
    left, right = (spark.read.parquet(str(feed.folder)).drop("t") for feed in feeds)
    expected = left.join(right.withColumnRenamed("id", "id_right"), "k", how).select("id", "id_right").toPandas()
    found: Counter[tuple] = Counter()
    methods = [pk.Rrpj(memory=200, row=1, partitions=5), "oa", pk.Rrpj(memory=90, row=1, by="row"), "rrpj"]
    for number, shards in enumerate((2, 3, 1, 2)):
        seen = [Feed(tmp_path / feed.folder.name, SCHEMA, count=number) for feed in feeds]
        if number < EPOCHS:
            for feed, parts in zip(seen, tables(), strict=True):
                feed.add(parts[number])
        flow = pk.Flow(spark, str(tmp_path / "checkpoint"), memory="32 MB", shards=shards)
        sources = [flow.source(feed.stream(spark), time="t", name=feed.folder.name) for feed in seen]
        rows = sources[0].join(sources[1], on="k", how=how, method=methods[number]).to_memory()
        flow.run(end=number == EPOCHS)
        table = rows.table()
        found.update(zip(table["id"].to_pylist(), table["id_right"].to_pylist(), strict=True))
    whole = pa.Table.from_pandas(expected, preserve_index=False)
    columns = [whole.column(name).cast(pa.int64()).to_pylist() for name in ("id", "id_right")]
    assert found == Counter(zip(*columns, strict=True))


def test_k2_an_epoch_that_failed_is_run_again_and_no_pair_comes_twice(spark, tmp_path, feeds):
    """K2: one sink fails after the second epoch's rows are written by another; the flow starts anew and goes on."""
    broken = [True]

    def fail(rows, epoch):
        if broken and epoch == 1:
            broken.clear()
            raise RuntimeError("on purpose")

    def flow() -> pk.Flow:
        flow = pk.Flow(spark, str(tmp_path / "checkpoint"), memory="32 MB", shards=2)
        left, right = (flow.source(feed.stream(spark), time="t", name=feed.folder.name) for feed in feeds)
        joined = left.join(right, on="k", method=pk.Rrpj(memory=100, row=1, partitions=4))
        joined.to_parquet(str(tmp_path / "out"))
        joined.foreach_epoch(fail)
        return flow

    with pytest.raises(pk.FlowError, match="on purpose"):
        flow().run()
    flow().run()
    rows = spark.read.parquet(str(tmp_path / "out")).toPandas()
    left, right = (spark.read.parquet(str(feed.folder)).drop("t") for feed in feeds)
    expected = left.join(right.withColumnRenamed("id", "id_right"), "k").select("id", "id_right").toPandas()
    assert Counter(zip(rows["id"], rows["id_right"], strict=True)) == Counter(
        zip(expected["id"], expected["id_right"], strict=True)
    )


def test_what_was_put_off_comes_out_in_silent_epochs_between_triggers(spark, tmp_path, feeds):
    """Nothing more arrives and the streams have not ended: a running query gives every pair, and says so."""
    flow = pk.Flow(spark, str(tmp_path / "checkpoint"), memory="32 MB", shards=2)
    left, right = (flow.source(feed.stream(spark), time="t", name=feed.folder.name) for feed in feeds)
    left.join(right, on="k", method=pk.Rrpj(memory=100, row=1, partitions=4), name="ever").to_format("noop")
    both = [pa.concat_tables(parts)["k"].value_counts().to_pylist() for parts in tables()]
    counts = [{key["values"]: key["counts"] for key in side} for side in both]
    pairs = sum(count * counts[1].get(key, 0) for key, count in counts[0].items())
    query = flow.start(trigger="300 ms")
    shares: list[float] = []
    until = time.monotonic() + 60
    while time.monotonic() < until and not (query.progress().totals.epochs > EPOCHS and shares[-1:] == [1.0]):
        shares += [query.progress().shares_out[name] for name in query.progress().shares_out]
        time.sleep(0.1)
    query.stop()
    report = query.progress()
    silent = [epoch for epoch in report.epochs if not sum(epoch.rows_in.values())]
    assert sum(epoch.rows_out for epoch in report.epochs) == pairs
    assert sum(epoch.rows_out for epoch in silent) > 0
    assert 0 < min(shares) < 1
    assert report.shares_out == {"ever": 1.0}
