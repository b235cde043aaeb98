"""Progress operators on Spark: by their definitions, across a failed epoch and a restart on other shards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from tests.oracle import progress as oracle
from tests.spark.conftest import Feed
from tests.worker_memory import private_memory, watched

pytestmark = pytest.mark.spark

DELAY = 20
COLUMNS = pa.schema({"k": pa.string(), "t": pa.int64(), "v": pa.float64()})


def epochs(seed: int, count: int, size: int) -> list[pa.Table]:
    """A stream whose rows come up to DELAY after later ones; some keys are null, some rows come twice."""
    chance = np.random.default_rng(seed)
    tables = []
    for epoch in range(count):
        times = 30 * epoch + chance.integers(-DELAY // 2, DELAY // 2, size)
        keys = [["a", "b", "ccc", None][n] for n in chance.integers(0, 4, size)]
        values = chance.integers(0, 3, size).astype(float)
        rows = pa.table([pa.array(keys), pa.array(times), pa.array(values)], schema=COLUMNS)
        tables.append(pa.concat_tables([rows, rows.slice(0, size // 4)]).combine_chunks())
    return tables


class Kept:
    """What each sink got in each epoch, as tuples; one epoch fails once, after other sinks had their rows."""

    def __init__(self, failing: int) -> None:
        self.rows: dict[str, dict[int, list[tuple[Any, ...]]]] = {}
        self._failing = {failing}

    def by(self, name: str, fails: bool = False) -> Any:
        def function(rows: Any, epoch: int) -> None:
            if fails and epoch in self._failing:
                self._failing.clear()
                raise OSError("the sink is down")
            self.rows.setdefault(name, {})[epoch] = [tuple(row) for row in rows.collect()]

        return function

    def all(self, name: str) -> list[tuple[Any, ...]]:
        return [row for epoch in sorted(self.rows[name]) for row in self.rows[name][epoch]]


def test_distinct_top_sort_and_merge_keep_their_promises_across_a_failure_and_a_restart_on_other_shards(
    spark, tmp_path
):
    parts = {"a": epochs(1, 4, 40), "b": epochs(2, 4, 40)}
    feeds = {name: Feed(tmp_path / name, COLUMNS) for name in parts}
    kept = Kept(failing=2)

    def run(shards: int, end: bool) -> None:
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="8 MB", shards=shards)
        a, b = (
            flow.source(feed.stream(spark), time="t", progress=pk.bounded_delay(DELAY), name=name)
            for name, feed in feeds.items()
        )
        once = a.distinct(on="k", within=25, name="once")
        once.foreach_epoch(kept.by("once"))
        once.window(range=10).agg(n=pk.count()).sort(name="in-order").foreach_epoch(kept.by("windows"))
        b.distinct(name="whole").foreach_epoch(kept.by("whole"))
        b.window(range=10).by("k").top(2, "v", name="best").foreach_epoch(kept.by("best"))
        a.sort(name="sorted").where("v > 0").to_parquet(str(tmp_path / "sorted"))
        a.merge(b, name="merged").foreach_epoch(kept.by("merged", fails=True))
        flow.run(end=end)

    for name, feed in feeds.items():
        for rows in parts[name][:3]:
            feed.add(rows)
    with pytest.raises(Exception, match="the sink is down"):
        run(3, end=False)
    run(3, end=False)
    for name, feed in feeds.items():
        feed.add(parts[name][3])
    run(2, end=True)

    a, b = (tuples(pa.concat_tables(tables)) for tables in parts.values())
    once = oracle.distinct([(k, t) for k, t, _ in a], 25)
    assert Counter((k, t) for k, t, _ in kept.all("once")) == Counter(once)
    starts = Counter(t // 10 * 10 for _, t in once)
    assert kept.all("windows") == [(start, start + 10, starts[start]) for start in sorted(starts)]
    assert Counter(kept.all("whole")) == Counter(set(b))
    best = oracle.top([{"k": k, "t": t, "v": v} for k, t, v in b], ("k",), 2, "v", 10)
    assert Counter(kept.all("best")) == Counter(tuple(row.values()) for row in best)
    assert [t for _, t, _ in kept.all("merged")] == sorted(t for _, t, _ in a + b)
    assert Counter(kept.all("merged")) == Counter(a + b)
    assert sorted_files(tmp_path / "sorted") == sorted(t for _, t, v in a if v > 0)
    # What waits is bounded by the delay: the first epoch is out before the last one comes.
    assert any(kept.rows["merged"][epoch] for epoch in range(3))


def tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def sorted_files(folder: Path) -> list[int]:
    """The times in the files of all epochs, one after the other; an epoch has one file of rows at most."""
    epochs = sorted(folder.glob("epoch=*"), key=lambda path: int(path.name.removeprefix("epoch=")))
    files = [[path for path in epoch.glob("*.parquet") if pq.read_metadata(path).num_rows] for epoch in epochs]
    assert max(map(len, files)) == 1
    return [t for paths in files for path in paths for t in pq.ParquetFile(path).read().column("t").to_pylist()]


WIDE = pa.schema({"k": pa.int64(), "t": pa.int64(), "text": pa.string()})


def wide(count: int, epoch: int) -> pa.Table:
    """Rows of about 100 bytes, in no order."""
    chance = np.random.default_rng(epoch)
    texts = pa.array([f"{n:0>80}" for n in range(1000)]).take(pa.array(chance.integers(0, 1000, count)))
    return pa.table(
        [pa.array(chance.integers(0, 10 * count, count)), pa.array(chance.integers(0, 10**6, count)), texts],
        schema=WIDE,
    )


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.parametrize("operator", ["distinct", "sort"])
def test_rows_that_wait_may_be_many_times_the_share_of_a_task(spark, tmp_path, operator, record_property):
    """Nothing leaves before the end, so all that came is state then."""
    memory, count, parts = 16_000_000, 150_000, 4

    def run(folder: Path, size: int) -> tuple[list[int], int]:
        feed = Feed(folder / "rows", WIDE)
        for epoch in range(parts):
            feed.add(wide(size, epoch))
        flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory=memory)
        stream = flow.source(feed.stream(spark), time="t", progress=pk.bounded_delay(10**6))
        made = stream.sort() if operator == "sort" else stream.distinct(on="k", within=1000)
        times: list[int] = []
        made.select("k", "t").foreach_epoch(lambda rows, epoch: times.extend(rows.toArrow().column("t").to_pylist()))
        query = flow.run()
        return times, max(op.state_bytes for epoch in query.progress().epochs for op in epoch.operators.values())

    run(tmp_path / "warm", 100)
    baseline = max(private_memory().values())
    with watched() as most:
        times, state = run(tmp_path / "big", count)
    came = pa.concat_tables([wide(count, epoch) for epoch in range(parts)]).select(["k", "t"])
    if operator == "sort":
        assert times == sorted(came.column("t").to_pylist())
    else:
        assert Counter(times) == Counter(t for _, t in oracle.distinct(tuples(came), 1000))
    above, share = most[0] - baseline, memory // 2
    record_property("private_memory_above_baseline", above)
    print(f"{operator}: state {state / share:.1f} × share, memory {above / share:.2f} × share")
    assert state >= 2 * share
    assert above <= 1.25 * share, f"{above / share:.2f} × the share with {state / share:.1f} × the share in state"
