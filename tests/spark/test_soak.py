"""Many short epochs: files of state, plans and ledgers stay few and the JVM's live heap flat. Run with ``-m deep``.

PENSTOCK_SOAK_SECONDS is how long each case runs.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import penstock as pk

pytestmark = [pytest.mark.spark, pytest.mark.deep]

SECONDS = float(os.environ.get("PENSTOCK_SOAK_SECONDS", "600"))
SAMPLES = 12


def flow_of(spark: Any, folder: Path, memory: int, rate: int, window: str) -> Any:
    """Two streams of the clock joined over a window, and counted."""
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory=memory)
    sides = []
    for name in ("left", "right"):
        rows = spark.readStream.format("rate").option("rowsPerSecond", rate).load()
        rows = rows.selectExpr("timestamp", "value * 7919 % 1000003 AS k", f"repeat('x', 64) AS {name}_note")
        sides.append(flow.source(rows, time="timestamp", progress=pk.bounded_delay("2 s"), name=name))
    joined = sides[0].join(sides[1], on="k", within=pk.band(before=window, after="0 s"))
    joined.window(range="10 s", slide="5 s").agg(n=pk.count()).foreach_epoch(lambda rows, epoch: rows.count())
    return flow


def live_heap(spark: Any) -> int:
    """Bytes of the JVM that are in use after a collection."""
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    for _ in range(2):
        spark._jvm.java.lang.System.gc()
        time.sleep(0.2)
    return int(runtime.totalMemory() - runtime.freeMemory())


@pytest.mark.parametrize(
    ("memory", "rate", "window", "least"),
    [(64_000_000, 200, "10 s", 0.0), (2_000_000, 12_000, "600 s", 53.0)],
    ids=["small state", "state of 53 times the memory"],
)
def test_f10_files_stay_few_and_the_heap_flat(spark, tmp_path, memory, rate, window, least):
    query = flow_of(spark, tmp_path, memory, rate, window).start(trigger="200 ms")
    samples = []
    try:
        while not query.progress().epochs:
            query.await_end(1)
        for _ in range(SAMPLES):
            query.await_end(SECONDS / SAMPLES)
            report = query.progress()
            pages = sum(operator.pages for operator in report.epochs[-1].operators.values())
            state = sum(operator.state_bytes for operator in report.epochs[-1].operators.values())
            counts = {
                name: len(list((tmp_path / "checkpoint" / name).rglob("*.*")))
                for name in ("state", "plan", "ledger", "staged", "lease")
            }
            samples.append((report.epochs[-1].epoch, pages, state / memory, live_heap(spark) / 1e6, counts))
            print(*samples[-1], flush=True)
    finally:
        query.stop()
    assert samples[-1][2] >= least * min(1.0, SECONDS / 120)
    for _, pages, _, _, counts in samples:
        assert counts["plan"] <= 3
        assert counts["ledger"] <= 4
        assert counts["lease"] <= 2
        assert counts["state"] <= 4 * pages + 32
    half = SAMPLES // 2
    assert max(heap for *_, heap, _ in samples[half:]) <= max(heap for *_, heap, _ in samples[1:half]) + 40
