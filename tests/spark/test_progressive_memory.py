"""The memory promise of joins without a window: workers' private memory while state outgrows the budget."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from tests.spark.conftest import Feed
from tests.spark.test_memory import two_streams
from tests.worker_memory import private_memory, watched

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("in_tasks", "compiled")]

MEMORY = 16_000_000
VECTOR_MEMORY = 8_000_000
WIDE = 1000
DIMENSIONS = 128
VECTORS = pa.schema({"v": pa.list_(pa.float64()), "t": pa.int64(), "id": pa.int64()})
TIMES = [8, pytest.param(32, marks=pytest.mark.deep)]


def totals(spark, folder: Path, feeds: list[Feed], method: str, on, memory: int, *, end: bool) -> tuple[int, int, int]:
    """Join two streams for ever: the number of pairs, the sum of their ids, the most bytes of state."""
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory=memory)
    left, right = (flow.source(side.stream(spark), time="t", name=side.folder.name, payload="row") for side in feeds)
    found = []
    left.join(right, on=on, method=method).select("id", "id_right").foreach_epoch(
        lambda rows, epoch: found.append(rows.selectExpr("count(*)", "coalesce(sum(id + id_right), 0)").first())
    )
    query = flow.run(end=end)
    state = max((epoch.operators["join0"].state_bytes for epoch in query.progress().epochs), default=0)
    return sum(count for count, _ in found), sum(total for _, total in found), state


def above_baseline(
    spark, tmp_path: Path, feeds: list[Feed], warm: list[Feed], method: str, on, expected, memory: int = MEMORY
) -> float:
    """The most private memory of a worker above that of one that has joined few rows, in shares."""
    totals(spark, tmp_path / "warm", warm, method, on, memory, end=True)
    baseline = max(private_memory().values())
    with watched() as most:
        pairs, total, state = totals(spark, tmp_path / "big", feeds, method, on, memory, end=False)
        late_pairs, late_total, _ = totals(spark, tmp_path / "big", feeds, method, on, memory, end=True)
    assert (pairs + late_pairs, total + late_total) == expected[:2]
    assert state >= 0.9 * expected[2]
    return (most[0] - baseline) / (memory // 2)


@pytest.mark.parametrize("times", TIMES)
def test_equal_keys_by_rrpj(spark, tmp_path, times, record_property):
    rows = int(times * MEMORY / 2 / (WIDE + 40))
    feeds, warm = two_streams(tmp_path / "big", rows), two_streams(tmp_path / "warm", 100)
    matched = range(0, rows, 10)
    expected = len(matched), 2 * sum(matched), times * MEMORY
    above = above_baseline(spark, tmp_path, feeds, warm, "rrpj", "k", expected)
    record_property("private_memory_above_baseline", above)
    assert above <= 1.25


def vectors(folder: Path, rows: int, epochs: int = 4) -> list[Feed]:
    """Two streams of vectors of 1 KB; one in ten has one partner, at a distance of about 0.1, all others are far."""
    feeds = [Feed(folder / name, VECTORS) for name in ("left", "right")]
    for epoch in range(epochs):
        ids = np.arange(epoch * rows // epochs, (epoch + 1) * rows // epochs)
        shared = np.random.default_rng(epoch).normal(size=(ids.size, DIMENSIONS))
        for port, feed in enumerate(feeds):
            rng = np.random.default_rng([epoch, port])
            own = rng.normal(size=shared.shape)
            values = np.where((ids % 10 == 0)[:, None], shared + 0.1 * DIMENSIONS**-0.5 * own / 2, own)
            column = pa.ListArray.from_arrays(
                np.arange(0, values.size + 1, DIMENSIONS, dtype=np.int32), pa.array(values.ravel())
            )
            feed.add(pa.table([column, ids, ids], schema=VECTORS))
    return feeds


@pytest.mark.deep
@pytest.mark.parametrize("times", [8, 32])
@pytest.mark.parametrize("method", ["rrpj", "oa"])
def test_vectors_of_128_dimensions(spark, tmp_path, times, method, record_property):
    rows = int(times * VECTOR_MEMORY / 2 / (8 * DIMENSIONS + 36))
    feeds, warm = vectors(tmp_path / "big", rows), vectors(tmp_path / "warm", 1000)
    matched = range(0, rows, 10)
    expected = len(matched), 2 * sum(matched), times * VECTOR_MEMORY
    near = pk.near("v", distance=0.5)
    above = above_baseline(spark, tmp_path, feeds, warm, method, near, expected, VECTOR_MEMORY)
    record_property("private_memory_above_baseline", above)
    assert above <= 1.25
