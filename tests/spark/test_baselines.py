"""Baselines, and windows that slide by rows, on Spark: one flow with all of them, restarted in the middle."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.windows import Window
from tests.aggregates import expected
from tests.oracle import window_join as oracle
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark

SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64(), "id": pa.int64()})
EPOCHS, ROWS, SPAN, DELAY, BEHIND = 2, 120, 100, 8, 40
WINDOWS: dict[str, Window] = {
    "arrivals": pk.slide_by_tuple(20, every=4),
    "numbers": pk.slide_by_tuple(20, every=4, row_num="id"),
    "ranks": pk.slide_by_tuple(20, every=4, by="rank"),
}
SLIDING = pk.sliding(20, 5)
BUFFERING = {"enough": pk.Buffering(DELAY), "none": "buffering"}

Rows = list[dict[str, Any]]


def arrivals(seed: int, behind: int) -> list[Rows]:
    """Rows epoch by epoch, up to DELAY out of order; `behind` is by how much they are older than the epoch's others."""
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, EPOCHS * SPAN, EPOCHS * ROWS))
    times = times[np.argsort(times + random.integers(0, DELAY + 1, times.size), kind="stable")] - behind
    keys = random.integers(0, 6, times.size).tolist()
    rows = [{"k": k, "t": t, "id": n} for n, (k, t) in enumerate(zip(keys, times.tolist(), strict=True))]
    return [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]


def build(flow: pk.Flow, sources: list[Any]) -> dict[str, Any]:
    """Every operator of this module in one flow."""
    left, right = (
        flow.source(data, time="t", progress=pk.bounded_delay(DELAY), name=name)
        for data, name in zip(sources, ("left", "right"), strict=True)
    )
    joins = {
        method: left.join(right, on="k", within=pk.band(before=10, after=5), method=method, name=method)
        .select("id", "id_right")
        .to_memory()
        for method in ("opob", "opib", "global_order")
    }
    slides = {
        name: left.window(window).by("k").agg(n=pk.count(), total=pk.sum("id"), name=name).to_memory()
        for name, window in WINDOWS.items()
    }
    buffered = {
        name: left.window(SLIDING).by("k").agg(n=pk.count(), total=pk.sum("id"), method=method, name=name).to_memory()
        for name, method in BUFFERING.items()
    }
    return {**joins, **slides, **buffered}


@pytest.fixture(scope="module")
def both(spark, tmp_path_factory) -> tuple[list[Rows], dict[str, Counter[tuple]]]:
    """The rows of both streams, and what each operator gave in the two runs together."""
    folder: Path = tmp_path_factory.mktemp("baselines")
    epochs = [arrivals(1, behind=0), arrivals(2, behind=BEHIND)]
    feeds = [Feed(folder / name, SCHEMA) for name in ("left", "right")]
    found: dict[str, Counter[tuple]] = {}
    for half in (slice(0, EPOCHS // 2), slice(EPOCHS // 2, EPOCHS)):
        for feed, rows in zip(feeds, epochs, strict=True):
            for epoch in rows[half]:
                feed.add(pa.Table.from_pylist(epoch, SCHEMA))
        flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory="64 MB")
        outlets = build(flow, [feed.stream(spark) for feed in feeds])
        flow.run(end=half.stop == EPOCHS)
        for name, outlet in outlets.items():
            columns = [column.to_pylist() for column in outlet.table().columns]
            found.setdefault(name, Counter()).update(zip(*columns, strict=True))
    return [[row for epoch in rows for row in epoch] for rows in epochs], found


def pairs(both: tuple[list[Rows], Any]) -> Counter[tuple]:
    return oracle.window_join(*both[0], near=oracle.band(-10, 5), how="inner")


@pytest.mark.parametrize("method", ["opob", "opib"])
def test_a_join_in_order_gives_every_pair_once_though_one_stream_is_behind(both, method):
    assert both[1][method] == pairs(both)
    assert len(pairs(both)) > 100


def test_the_global_order_join_is_wrong_if_one_stream_is_behind(both):
    got, right = both[1]["global_order"], pairs(both)
    assert right - got, "rows that were let go of too early"
    assert got - right, "rows that were kept too long"


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_slide_by_every_fourth_row_of_a_group(both, name):
    lefts = [{**row, "x": row["id"], "i": row["id"]} for row in both[0][0]]
    assert both[1][name] == expected(WINDOWS[name], lefts, ("k",), ("rows.x", "sum.i"))


def test_buffering_with_enough_slack_gives_the_windows(both):
    lefts = [{**row, "x": row["id"], "i": row["id"]} for row in both[0][0]]
    assert both[1]["enough"] == expected(SLIDING, lefts, ("k",), ("rows.x", "sum.i"))


def test_buffering_with_no_slack_loses_rows(both):
    none, enough = (sum(row[3] for row in both[1][name].elements()) for name in ("none", "enough"))
    assert 0 < none < enough
