"""Joins by distance on Spark (H1): over DataFrames and files, across restarts on other numbers of shards."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from tests.oracle.near import are_near
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark

SCHEMA = pa.schema({"v": pa.list_(pa.float64()), "t": pa.int64(), "id": pa.int64()})
EPOCHS, ROWS, DISTANCE = 3, 60, 0.25


def tables() -> list[list[pa.Table]]:
    """Two streams of three epochs; some vectors are equal, or exactly the distance apart, and some are nowhere."""
    rng = np.random.default_rng(11)
    ours = np.round(rng.random((EPOCHS * ROWS, 3)) * 8) / 8
    theirs = rng.permutation(ours)
    theirs[::3, 0] += DISTANCE
    sides = []
    for vectors in (ours, theirs):
        written = vectors.tolist()
        written[5], written[70] = None, [0.5, None, 0.5]
        ids = np.arange(len(written))
        whole = pa.table([pa.array(written, SCHEMA.field("v").type), ids, ids], schema=SCHEMA)
        sides.append([whole.slice(n * ROWS, ROWS) for n in range(EPOCHS)])
    return sides


def expected() -> Counter[tuple[int, int]]:
    ours, theirs = (pa.concat_tables(parts).column("v").to_pylist() for parts in tables())
    return Counter(
        (i, j) for i, a in enumerate(ours) for j, b in enumerate(theirs) if are_near(a, b, DISTANCE, "euclidean")
    )


@pytest.mark.parametrize("files", [False, True])
@pytest.mark.parametrize("method", ["rrpj", "oa"])
def test_all_pairs_come_once_over_restarts_on_other_numbers_of_shards(spark, tmp_path, files, method):
    found: Counter[tuple[int, int]] = Counter()
    for number, shards in enumerate((2, 3, 1, 2)):
        sources = []
        flow = pk.Flow(spark, str(tmp_path / "checkpoint"), memory="32 MB", shards=shards)
        for name, parts in zip(("ours", "theirs"), tables(), strict=True):
            feed = Feed(tmp_path / name, SCHEMA, count=number)
            if number < EPOCHS:
                feed.add(parts[number])
            told = {"time": "t", "name": name}
            sources.append(flow.parquet(str(feed.folder), **told) if files else flow.source(feed.stream(spark), **told))
        near = pk.near("v", distance=DISTANCE)
        rows = sources[0].join(sources[1], on=near, method=method).to_memory()
        flow.run(end=number == EPOCHS)
        table = rows.table()
        found.update(zip(table["id"].to_pylist(), table["id_right"].to_pylist(), strict=True))
    assert len(expected()) > 100
    assert found == expected()
