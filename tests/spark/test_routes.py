"""Rows that are not placed by key, on Spark: every place an epoch can run at, restarts on other shards, failures."""

from __future__ import annotations

import contextlib
from collections import Counter
from itertools import cycle
from typing import get_args

import pytest

import penstock as pk
from penstock.spark.place import Placement
from tests.runtime.intervals import Way, overlapping
from tests.runtime.test_routes import LEFT, RIGHT, SCHEMA, cut, expected, found
from tests.spark.conftest import Feed

pytestmark = [pytest.mark.spark, pytest.mark.own_place]

SHARDS = (2, 3, 1, 4)


@pytest.mark.parametrize(("way", "files"), [(way, files) for way in get_args(Way) for files in (False, True)])
def test_every_pair_comes_once_over_restarts_on_other_numbers_of_shards(spark, tmp_path, monkeypatch, way, files):
    """Epochs run in tasks, in the driver, in tasks again; one fails after its rows were computed."""
    places = cycle(["elsewhere", "driver", "elsewhere"])
    monkeypatch.setattr(
        Placement, "choose", lambda self, _: (self.elsewhere if next(places) == "elsewhere" else "driver", "said")
    )
    seen: dict[int, Counter] = {}
    failed = []

    def take(rows, epoch):
        seen[epoch] = found(rows.toArrow() if hasattr(rows, "toArrow") else rows)
        if epoch == 1 and not failed:
            failed.append(epoch)
            raise RuntimeError("once")

    for number in (0, 1, 1, 2, 3):
        flow = pk.Flow(spark, str(tmp_path / "checkpoint"), memory="32 MB", shards=SHARDS[number])
        sources = []
        for name, table in (("left", LEFT), ("right", RIGHT)):
            feed = Feed(tmp_path / name, SCHEMA, count=number)
            if number < 3:
                feed.add(cut(table)[number])
            told = {"time": "t", "name": name}
            sources.append(flow.parquet(str(feed.folder), **told) if files else flow.source(feed.stream(spark), **told))
        overlapping(*sources, way).foreach_epoch(take)
        with contextlib.suppress(pk.SinkError):
            flow.run(end=number == 3)
    assert failed == [1]
    assert sum(seen.values(), Counter()) == expected()


def test_results_of_an_operator_are_placed_anew(spark, tmp_path, in_tasks):
    """An operator before it, another after it, and a union: rows come from tasks beside others in their stage."""
    flow = pk.Flow(spark, str(tmp_path / "checkpoint"), memory="32 MB", shards=2)
    left, right = (
        flow.source(spark.createDataFrame(table), time="t", progress=pk.ordered(), name=name)
        for name, table in (("left", LEFT), ("right", RIGHT))
    )
    once = left.distinct()
    pairs = overlapping(once, right, "cells")
    rows = pairs.union(overlapping(left, once, "right anywhere", name="others")).to_memory()
    flow.run()
    ours = [row for row in LEFT.to_pylist() if row["lo"] <= row["hi"]]
    also = Counter((a["id"], b["id"]) for a in ours for b in ours if max(a["lo"], b["lo"]) <= min(a["hi"], b["hi"]))
    assert found(rows.table()) == expected() + also
