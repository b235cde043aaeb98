"""The memory promise of spatial joins: workers' private memory while boxes in state outgrow the budget."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from tests.spark.conftest import Feed
from tests.spark.test_memory import EPOCHS, MEMORY, SHARE, WIDE
from tests.worker_memory import private_memory, watched

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("in_tasks", "compiled")]

CORNERS = ("x1", "y1", "x2", "y2")
SCHEMA = pa.schema(
    [*((name, pa.float64()) for name in CORNERS), ("t", pa.int64()), ("id", pa.int64()), ("payload", pa.string())]
)


def two_streams(folder: Path, rows: int, wide: int = WIDE) -> list[Feed]:
    """Two streams of `rows` boxes each; one in ten meets one of the other stream, at a corner, and some cross cells."""
    feeds = [Feed(folder / name, SCHEMA) for name in ("left", "right")]
    for epoch in range(EPOCHS):
        ids = np.arange(epoch * rows // EPOCHS, (epoch + 1) * rows // EPOCHS)
        for port, side in enumerate(feeds):
            x, y = (ids * 7919 % 1009) * 4.0, (ids // 1009) * 8.0
            # Those that meet nobody are a step above, on either side of a gap.
            x, y = x + np.where(ids % 10 == 0, port, 0), y + np.where(ids % 10 == 0, port, 2.5 + 2 * port)
            payload = pa.array(["x" * wide], pa.string()).take(pa.array(np.zeros(ids.size, np.int64)))
            side.add(pa.table([x, y, x + 1, y + 1, ids, ids, payload], schema=SCHEMA))
    return feeds


def run(spark, folder: Path, feeds: list[Feed], *, end: bool, **asked) -> tuple[int, int, int]:
    """The number of pairs, the sum of their ids, the most bytes of state."""
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory=MEMORY)
    left, right = (
        flow.source(side.stream(spark), time="t", progress=pk.ordered(), name=side.folder.name, payload="row")
        for side in feeds
    )
    cell = asked.pop("cell")
    joined = left.join(right, on=pk.intersects(CORNERS, cell=cell), **asked)
    totals = []
    joined.where("id_right IS NOT NULL").select("id", "id_right").foreach_epoch(
        lambda rows, epoch: totals.append(rows.selectExpr("count(*)", "coalesce(sum(id + id_right), 0)").first())
    )
    query = flow.run(end=end)
    state = max((epoch.operators["join0"].state_bytes for epoch in query.progress().epochs), default=0)
    return sum(count for count, _ in totals), sum(total for _, total in totals), state


CASES = [
    (8, {"cell": 64.0, "method": "rrpj"}),
    *(
        pytest.param(times, asked, marks=pytest.mark.deep)
        for times, asked in (
            (8, {"cell": None, "how": "left", "method": "rrpj"}),
            (8, {"cell": 64.0, "method": "oa"}),
            (32, {"cell": 64.0, "method": "rrpj"}),
            (32, {"cell": None, "how": "left", "method": "oa"}),
        )
    ),
]


@pytest.mark.parametrize(("times", "asked"), CASES, ids=str)
def test_private_memory_stays_within_the_share_whatever_the_boxes_in_state(
    spark, tmp_path, times, asked, record_property
):
    run(spark, tmp_path / "warm", two_streams(tmp_path / "warm", 100), end=False, **asked)
    baseline = max(private_memory().values())
    copies = 2 if asked["cell"] else 3
    rows = int(times * MEMORY / copies / (WIDE + 64))
    feeds = two_streams(tmp_path / "big", rows)
    with watched() as most:
        pairs, total, state = run(spark, tmp_path / "big", feeds, end=False, **asked)
        late_pairs, late_total, _ = run(spark, tmp_path / "big", feeds, end=True, **asked)
    assert pairs + late_pairs == len(range(0, rows, 10))
    assert total + late_total == 2 * sum(range(0, rows, 10))
    assert state >= 0.9 * times * MEMORY
    above = most[0] - baseline
    record_property("private_memory_above_baseline", above)
    print(f"{above / SHARE:.2f} x the share at {times} x the budget, {asked}")
    assert above <= 1.25 * SHARE, f"{above / SHARE:.2f} × the share at {times} × the budget"
