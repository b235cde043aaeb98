"""Joins without a window on Spark (K1, K2): one shard gives what it gives in process, epoch by epoch; any number of
them, changed by restarts and after a failure, what Spark's own batch join gives."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.kernels.xxhash import xxhash64
from penstock.local.shards import LocalWorkers
from penstock.operators.window_join.progressive.baselines.parameters import XJoin
from penstock.runtime import shard
from penstock.runtime.pace import AT_WORK
from penstock.spark import assembly
from penstock.spark.place import Placement
from penstock.spark.task import ShardTask
from penstock.storage.versioned import Checkpoint
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


@pytest.mark.parametrize("place", ["driver", "tasks", "spark"])
def test_k1_one_shard_by_rrpj_gives_the_same_pairs_as_in_process_in_every_epoch(spark, tmp_path, place, monkeypatch):
    """K1. Where both hosts hash alike, so that keys are in the same partitions, the same rows leave memory."""
    monkeypatch.setattr(LocalWorkers, "hashed_by", "xxhash64")
    monkeypatch.setattr(Placement, "choose", lambda self, size: (self.at_most(place), "said"))
    rng, epochs, rows = np.random.default_rng(9), 12, 40
    sides = []
    for name in ("left", "right"):
        keys, ids = np.minimum(rng.zipf(1.4, epochs * rows), 60), np.arange(epochs * rows)
        whole = pa.table([keys, ids, ids], schema=SCHEMA)
        sides.append((name, [whole.slice(n * rows, rows) for n in range(epochs)]))
    # An epoch's rows of a stream are met and stored at once, so that their order in the shuffle says nothing.
    method = pk.Rrpj(memory=16 * rows, row=1, partitions=5)

    def run(flow: pk.LocalFlow | pk.Flow, streams: list[pk.Stream]) -> dict[int, Counter]:
        found = {}

        def take(rows, epoch):
            table = rows.toArrow() if hasattr(rows, "toArrow") else rows
            found[epoch] = Counter(zip(table["id"].to_pylist(), table["id_right"].to_pylist(), strict=True))

        streams[0].join(streams[1], on="k", method=method).foreach_epoch(take)
        flow.run()
        return {epoch: pairs for epoch, pairs in found.items() if pairs}

    local, flow = pk.LocalFlow(memory="32 MB"), pk.Flow(spark, str(tmp_path / "c"), memory="32 MB", shards=1)
    here = run(local, [local.source(parts, time="t", name=name) for name, parts in sides])
    streams = []
    for name, parts in sides:
        feed = Feed(tmp_path / name, SCHEMA)
        for part in parts:
            feed.add(part)
        streams.append(flow.parquet(feed.folder, time="t", name=name, max_files=1))
    there = run(flow, streams)
    assert list(here) == list(range(epochs + 1)), "some pairs were put off until the end"
    assert there == here


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


TRIGGER, LOOK = 0.2, 0.05
"""Seconds from epoch to epoch, and how far the clock of tasks goes whenever they look at it."""


class _Slow(ShardTask):
    """A task by whose clock each look at it takes a while; it notes how much time it was given for what was put off."""

    __slots__ = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self._slow_clock():
            yield from ShardTask.__call__(self, batches)

    def here(self, arrivals: Mapping[int, Sequence[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        with self._slow_clock():
            yield from ShardTask.here(self, arrivals)

    @contextmanager
    def _slow_clock(self) -> Iterator[None]:
        (Path(self.checkpoint).parent / f"given-{self.epoch}-{self.spare}-{uuid.uuid4().hex}").touch()
        now, usual = count(), shard.clock
        shard.clock = SimpleNamespace(perf_counter=lambda: next(now) * LOOK)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            shard.clock = usual  # type: ignore[attr-defined]


@pytest.mark.parametrize("place", ["driver", "tasks", "spark"])
def test_tasks_have_a_part_of_the_trigger_for_what_was_put_off_and_go_on_in_the_next_silent_epoch(
    spark, tmp_path, feeds, place, monkeypatch
):
    """Shards take turns in the driver; two tasks run side by side. By their clock each has time for a few steps."""
    monkeypatch.setattr(assembly, "ShardTask", _Slow)
    monkeypatch.setattr(Placement, "choose", lambda self, size: (self.at_most(place), "said"))
    flow = pk.Flow(spark, str(tmp_path / "checkpoint"), memory="32 MB", shards=2)
    left, right = (flow.parquet(feed.folder, time="t", name=feed.folder.name, max_files=1) for feed in feeds)
    left.join(right, on="k", method=pk.Rrpj(memory=100, row=1, partitions=16), name="ever").to_format("noop")
    both = [Counter(pa.concat_tables(parts)["k"].to_pylist()) for parts in tables()]
    pairs = sum(rows * both[1][key] for key, rows in both[0].items())
    query = flow.start(trigger=f"{TRIGGER * 1000:.0f} ms")
    until = time.monotonic() + 120
    while time.monotonic() < until and query.progress().totals.rows_out < pairs:
        time.sleep(0.05)
    query.stop()
    epochs = query.progress().epochs
    assert [bool(sum(epoch.rows_in.values())) for epoch in epochs] == [n < EPOCHS for n in range(len(epochs))]
    assert sum(epoch.rows_out for epoch in epochs) == pairs
    silent = [epoch.rows_out for epoch in epochs[EPOCHS:]]
    assert sum(map(bool, silent)) > 2
    assert all(epoch.operators["ever"].deferred == epoch.rows_out for epoch in epochs[EPOCHS:])
    given = {tuple(path.name.split("-")[1:3]) for path in tmp_path.glob("given-*")}
    assert {int(epoch) for epoch, _ in given} >= set(range(len(epochs)))
    assert {float(spare) for _, spare in given} == {AT_WORK * TRIGGER / (2 if place == "driver" else 1)}


def test_e6_keys_are_dealt_out_anew_over_restarts_and_every_pair_comes_once(spark, tmp_path):
    """E6: in each epoch two of eight partitions, others from one to the next, have most rows."""
    numbers = np.arange(20_000)
    partitions = (xxhash64([pa.array(numbers)]) % np.uint64(8)).astype(int)
    rng, epochs, rows = np.random.default_rng(4), 4, 400
    feeds = [Feed(tmp_path / name, SCHEMA) for name in ("left", "right")]
    seen: list[Counter[int]] = [Counter(), Counter()]
    cuts = []
    for number, shards in enumerate((2, 2, 3, 3, 2)):
        for port, feed in enumerate(feeds) if number < epochs else ():
            hot = np.flatnonzero((partitions == number) | (partitions == (number + 3) % 8))[:300]
            keys = np.where(rng.random(rows) < 0.9, rng.choice(hot, rows), rng.integers(0, 300, rows))
            ids = np.arange(number * rows, (number + 1) * rows)
            feed.add(pa.table([keys, ids, ids + port * 10**6], schema=SCHEMA))
            seen[port].update(keys.tolist())
        flow = pk.Flow(spark, str(tmp_path / "checkpoint"), memory="32 MB", shards=shards)
        left, right = (flow.parquet(feed.folder, time="t", name=feed.folder.name) for feed in feeds)
        method = pk.Rrpj(memory=200, row=1, partitions=8, cut="adaptive")
        left.join(right, on="k", method=method, name="ever").select("id", "id_right").to_parquet(str(tmp_path / "out"))
        flow.run(end=number == epochs)
        states = Checkpoint(str(tmp_path / "checkpoint")).latest().states["ever"]
        cuts.append([state.meta["cut"]["number"] for state in states if "cut" in state.meta])
    wanted = sum(count * seen[1][key] for key, count in seen[0].items())
    rows = spark.read.parquet(str(tmp_path / "out")).toPandas()
    pairs = Counter(zip(rows["id"], rows["id_right"], strict=True))
    assert len(pairs) == sum(pairs.values()) == wanted
    keys_of = [dict(zip(*(table[n].to_pylist() for n in ("id", "k")), strict=True)) for table in _whole(feeds)]
    assert all(keys_of[0][a] == keys_of[1][b] for a, b in pairs)
    # Shards that are cut otherwise begin anew, with numbers that no page has.
    assert min(cuts[1]) == 1, cuts
    assert max(cuts[3]) > 1, cuts


def _whole(feeds: Sequence[Feed]) -> list[pa.Table]:
    return [pq.read_table(feed.folder) for feed in feeds]
