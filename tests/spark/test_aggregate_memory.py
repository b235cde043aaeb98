"""The memory promise of window aggregation: every group in sixty open windows, measured from outside, results exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

import penstock as pk
from penstock.spark import experience
from tests.spark.conftest import Feed
from tests.worker_memory import drivers_memory, private_memory, watched

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("in_tasks", "compiled")]

OPEN = 60
"""Windows that every row is in: they are so many steps long and slide by one."""

EPOCHS = 4
SCHEMA = pa.schema({"k": pa.int64(), "v": pa.int64(), "t": pa.int64()})
DIGEST = "pow(pmod(k * 7919 + n * 104729 + total * 31, 1000003), 2)"
"""Of a result: such squares sum to something else if a group has another's count or total."""


class Closed(NamedTuple):
    """What a window holds: how many groups and rows, the sum of their values, and of a digest of each group's."""

    groups: int
    rows: int
    total: int
    digest: int


@dataclass(frozen=True)
class Rows:
    """Epochs of so many steps: every group once in each, at a step of its own."""

    groups: int
    steps: int

    def epoch(self, number: int) -> dict[str, np.ndarray]:
        k = np.arange(self.groups)
        mixed = (k * 2_654_435_761 + number * 40_503) % 2**32
        return {"k": k, "v": mixed % 1000, "t": number * self.steps + (mixed >> 10) % self.steps}


def expected(rows: Rows) -> Iterator[tuple[int, Closed]]:
    """By definition: the running count and sum of each group, a step's rows in and those of sixty steps before out."""
    epochs = [rows.epoch(number) for number in range(EPOCHS)]
    n, total = np.zeros(rows.groups, np.int64), np.zeros(rows.groups, np.int64)
    for end in range(1, EPOCHS * rows.steps + OPEN):
        for step, sign in ((end - 1, 1), (end - 1 - OPEN, -1)):
            if 0 <= step < EPOCHS * rows.steps:
                some = epochs[step // rows.steps]
                here = some["t"] == step
                n[here] += sign
                total[here] += sign * some["v"][here]
        there = np.flatnonzero(n)
        digests = ((there * 7919 + n[there] * 104729 + total[there] * 31) % 1_000_003) ** 2
        yield end, Closed(there.size, int(n.sum()), int(total.sum()), int(digests.sum()))


def closed(spark, folder: Path, rows: Rows, memory: int) -> dict[int, Closed]:
    """The windows of a flow, summed up as they come out."""
    feed = Feed(folder / "rows", SCHEMA)
    for number in range(EPOCHS):
        feed.add(pa.table(rows.epoch(number)))
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory=memory)
    stream = flow.source(feed.stream(spark), time="t", progress=pk.ordered())
    results = stream.window(range=OPEN, slide=1).by("k").agg(n=pk.count(), total=pk.sum("v"))
    windows: dict[int, Closed] = {}

    def sum_up(rows, epoch) -> None:
        sums = ["count(*)", "sum(n)", "sum(total)", f"cast(sum(cast({DIGEST} as bigint)) as bigint)"]
        for end, *found in rows.groupBy("window_end").agg(*map(sf.expr, sums)).collect():
            assert end not in windows, "a window comes out once"
            windows[end] = Closed(*found)

    results.foreach_epoch(sum_up)
    flow.run()
    return windows


@pytest.mark.parametrize(
    ("rows", "memory"),
    [(Rows(60_000, 3), 12_000_000), pytest.param(Rows(1_000_000, 15), 128_000_000, marks=pytest.mark.deep)],
)
def test_every_group_in_sixty_open_windows_is_exact_within_the_share(
    spark, tmp_path, rows, memory, record_property, monkeypatch
):
    monkeypatch.setattr(experience, "_FEW", 0)
    closed(spark, tmp_path / "warm", Rows(100, rows.steps), memory)
    baseline = max(private_memory().values())
    with watched() as most:
        windows = closed(spark, tmp_path / "big", rows, memory)
    assert windows == dict(expected(rows))
    above, share = most[0] - baseline, memory // 2
    record_property("private_memory_above_baseline", above)
    assert above <= 1.25 * share, f"{above / share:.2f} × the share with {rows.groups:,} groups"


def wide(count: int, t: int, letter: str = "x") -> pa.Table:
    """So many groups with names of a kilobyte, in one step."""
    return pa.table({"k": [f"{n:05d}{letter * 1000}" for n in range(count)], "t": np.full(count, t)})


def narrow(count: int, t: int) -> pa.Table:
    return pa.table({"k": [str(n) for n in range(count)], "t": np.full(count, t)})


BURSTS = {
    "few rows, then many wide ones": [narrow(10, 0), narrow(10, 1), wide(20_000, 2), narrow(10, 3)],
    "few rows that close many windows": [narrow(20_000, 0), narrow(10, 1), narrow(10, 2), narrow(10, 1_000)],
    "always as wide": [wide(20_000, t) for t in range(3)],
}


@pytest.mark.parametrize("epochs", BURSTS.values(), ids=BURSTS)
def test_the_driver_keeps_within_the_flows_memory(spark, tmp_path, epochs, record_property):
    def flow(name: str, epochs: list[pa.Table]) -> tuple[pk.Flow, Counter[int]]:
        feed = Feed(tmp_path / name / "rows", epochs[0].schema)
        for rows in epochs:
            feed.add(rows)
        flow = pk.Flow(spark, checkpoint=str(tmp_path / name / "checkpoint"), memory=16_000_000)
        stream = flow.source(feed.stream(spark), time="t", progress=pk.ordered())
        found: Counter[int] = Counter()
        stream.window(range=OPEN, slide=1).by("k").agg(n=pk.count()).foreach_epoch(
            lambda rows, _: found.update(dict(rows.groupBy("window_end").agg(sf.sum("n")).collect()))
        )
        return flow, found

    burst, found = flow("burst", epochs)
    flow("warm", [narrow(10, t) for t in range(4)])[0].run(end=False)
    baseline = max(drivers_memory().values())
    with watched(drivers_memory) as most:
        burst.run(end=False)
    last = epochs[-1].column("t")[0].as_py()
    assert found == Counter(
        {
            end: rows
            for end in range(1, last + 1)
            if (rows := sum(e.num_rows for e in epochs if end - OPEN <= e.column("t")[0].as_py() < end))
        }
    )
    above = most[0] - baseline
    record_property("private_memory_above_baseline", above)
    assert above <= 16_000_000, f"{above / 16e6:.2f} × the memory"
