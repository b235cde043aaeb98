"""The memory promise, measured from outside: the Python workers' private memory while state outgrows the budget."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from tests.spark.conftest import Feed
from tests.worker_memory import private_memory, watched

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("in_tasks", "compiled")]

MEMORY = 16_000_000
SHARE = MEMORY // 2
WIDE = 1000
EPOCHS = 5
SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64(), "id": pa.int64(), "payload": pa.string()})


def two_streams(folder: Path, rows: int, epochs: int = EPOCHS, wide: int = WIDE) -> list[Feed]:
    """Two streams of `rows` each in a few epochs, with `wide` bytes of payload; one row in ten has a partner."""
    feeds = [Feed(folder / name, SCHEMA) for name in ("left", "right")]
    for epoch in range(epochs):
        ids = np.arange(epoch * rows // epochs, (epoch + 1) * rows // epochs)
        for port, side in enumerate(feeds):
            keys = np.where(ids % 10 == 0, ids, -1 - 2 * ids - port)
            payload = pa.array(["x" * wide], pa.string()).take(pa.array(np.zeros(ids.size, np.int64)))
            side.add(pa.table([keys, ids, ids, payload], schema=SCHEMA))
    return feeds


def run(spark, folder: Path, feeds: list[Feed], method: str, *, end: bool) -> tuple[int, int, int]:
    """Join them in a window that never closes: the number of pairs, the sum of their ids, the most bytes of state."""
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory=MEMORY)
    left, right = (
        flow.source(side.stream(spark), time="t", progress=pk.ordered(), name=side.folder.name, payload="row")
        for side in feeds
    )
    joined = left.join(right, on="k", within=pk.band(10**9, 10**9), how="left", method=method)
    totals = []
    joined.where("id_right IS NOT NULL").select("id", "id_right").foreach_epoch(
        lambda rows, epoch: totals.append(rows.selectExpr("count(*)", "coalesce(sum(id + id_right), 0)").first())
    )
    query = flow.run(end=end)
    state = max((epoch.operators["join0"].state_bytes for epoch in query.progress().epochs), default=0)
    return sum(count for count, _ in totals), sum(total for _, total in totals), state


OFTEN = [(8, "auto"), (2, "rpwj")]
SELDOM = [
    *((times, "auto") for times in (0.5, 2, 32)),
    *((times, method) for times in (2, 8, 32) for method in ("ewj", "ah_ewj")),
    *((times, "rpwj") for times in (4, 8, 32)),
]
CASES = [*OFTEN, *(pytest.param(*case, marks=pytest.mark.deep) for case in SELDOM)]


@pytest.mark.parametrize(("times", "method"), CASES)
def test_private_memory_stays_within_the_share_whatever_the_state(spark, tmp_path, times, method, record_property):
    run(spark, tmp_path / "warm", two_streams(tmp_path / "warm", 100), method, end=False)
    baseline = max(private_memory().values())
    rows = int(times * MEMORY / 2 / (WIDE + 40))
    feeds = two_streams(tmp_path / "big", rows)
    with watched() as most:
        pairs, total, state = run(spark, tmp_path / "big", feeds, method, end=False)
        late_pairs, late_total, _ = run(spark, tmp_path / "big", feeds, method, end=True)
    assert pairs + late_pairs == len(range(0, rows, 10))
    assert total + late_total == 2 * sum(range(0, rows, 10))
    assert state >= 0.9 * times * MEMORY
    above = most[0] - baseline
    record_property("private_memory_above_baseline", above)
    assert above <= 1.25 * SHARE, f"{above / SHARE:.2f} × the share at {times} × the budget"


def test_a_hot_key_with_nine_million_matches_stays_within_the_share(spark, tmp_path):
    rows = 6_000
    schema = pa.schema({"k": pa.int64(), "t": pa.int64()})
    feeds = [Feed(tmp_path / name, schema) for name in ("left", "right")]
    for port, feed in enumerate(feeds):
        ids = np.arange(rows)
        feed.add(pa.table([np.where(ids % 2 == 0, 0, 1 + 2 * ids + port), ids], schema=schema))
    run(spark, tmp_path / "warm", two_streams(tmp_path / "warm", 100), "auto", end=False)
    baseline = max(private_memory().values())
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory=MEMORY)
    left, right = (
        flow.source(feed.stream(spark), time="t", progress=pk.ordered(), name=feed.folder.name, payload="row")
        for feed in feeds
    )
    left.join(right, on="k", within=pk.band(10**9, 10**9)).to_format("noop")
    with watched() as most:
        query = flow.run()
    assert query.progress().rows_out == (rows // 2) ** 2
    assert most[0] - baseline <= 1.25 * SHARE
    assert max(e.operators["join0"].peak_memory for e in query.progress().epochs) <= SHARE
