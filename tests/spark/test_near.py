"""Joins by distance on Spark (H1): over DataFrames and files, restarts on other numbers of shards, and failures."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from tests.oracle.near import are_near
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark

Spelling = Literal["list", "columns"]
"""Vectors in a column of lists, of which one side is spread over the shards, or in three, which are cut into cells."""

AXES = ["x", "y", "z"]
PLAIN = {"t": pa.int64(), "id": pa.int64()}
SCHEMAS: dict[Spelling, pa.Schema] = {
    "list": pa.schema({"v": pa.list_(pa.float64()), **PLAIN}),
    "columns": pa.schema({**dict.fromkeys(AXES, pa.float64()), **PLAIN}),
}
EPOCHS, ROWS, DISTANCE = 3, 60, 0.25


def vectors() -> list[list[list[float | None] | None]]:
    """Those of two streams; some are equal, or exactly the distance apart, and some are nowhere."""
    rng = np.random.default_rng(11)
    ours = np.round(rng.random((EPOCHS * ROWS, 3)) * 8) / 8
    ours[::2] += 2 - DISTANCE / 2  # across the border of a cell
    theirs = rng.permutation(ours)
    theirs[::3, 0] += DISTANCE
    sides = []
    for side in (ours, theirs):
        written = side.tolist()
        written[5], written[70] = None, [0.5, None, 0.5]
        sides.append(written)
    return sides


def tables(spelling: Spelling) -> list[list[pa.Table]]:
    """Two streams of three epochs."""
    sides = []
    for written in vectors():
        ids = np.arange(len(written))
        columns = [written] if spelling == "list" else [[v and v[axis] for v in written] for axis in range(len(AXES))]
        arrays = [
            pa.array(values, kind) for values, kind in zip([*columns, ids, ids], SCHEMAS[spelling].types, strict=True)
        ]
        whole = pa.table(arrays, schema=SCHEMAS[spelling])
        sides.append([whole.slice(n * ROWS, ROWS) for n in range(EPOCHS)])
    return sides


def expected(how: str) -> Counter[tuple[int, int | None]]:
    ours, theirs = vectors()
    near = [[j for j, b in enumerate(theirs) if are_near(a, b, DISTANCE, "euclidean")] for a in ours]
    pairs = Counter((i, j) for i, those in enumerate(near) for j in those)
    return pairs if how == "inner" else pairs + Counter((i, None) for i, those in enumerate(near) if not those)


@pytest.mark.parametrize(
    ("spelling", "files", "method", "how"),
    [
        ("list", False, "rrpj", "inner"),
        ("list", True, "oa", "left"),
        ("columns", True, "rrpj", "left"),
        ("columns", False, "oa", "inner"),
        ("columns", True, "rrpj", "inner"),
    ],
)
def test_h1_all_pairs_come_once_over_restarts_on_other_numbers_of_shards(spark, tmp_path, spelling, files, method, how):
    """One epoch fails after its rows were computed, and runs again on the next start, with other shards."""
    seen: dict[int, Counter[tuple[int, int | None]]] = {}
    failed = []

    def take(rows, epoch):
        table = rows.toArrow() if hasattr(rows, "toArrow") else rows
        seen[epoch] = Counter(zip(table["id"].to_pylist(), table["id_right"].to_pylist(), strict=True))
        if epoch == 1 and not failed:
            failed.append(epoch)
            raise RuntimeError("once")

    for number, shards in ((0, 2), (1, 3), (1, 2), (2, 1), (3, 4)):
        sources = []
        flow = pk.Flow(spark, str(tmp_path / "checkpoint"), memory="32 MB", shards=shards)
        for name, parts in zip(("ours", "theirs"), tables(spelling), strict=True):
            feed = Feed(tmp_path / name, SCHEMAS[spelling], count=number)
            if number < EPOCHS and not (failed and number == 1):
                feed.add(parts[number])
            told = {"time": "t", "name": name}
            sources.append(flow.parquet(str(feed.folder), **told) if files else flow.source(feed.stream(spark), **told))
        near = pk.near("v" if spelling == "list" else AXES, distance=DISTANCE)
        sources[0].join(sources[1], on=near, method=method, how=how).foreach_epoch(take)
        with contextlib.suppress(pk.SinkError):
            flow.run(end=number == EPOCHS)
    assert failed == [1]
    assert len(expected(how)) > 100
    assert sum(seen.values(), Counter()) == expected(how)
