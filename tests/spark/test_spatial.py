"""Spatial joins on Spark (S1): over DataFrames and files, with restarts on other numbers of shards and a failure."""

from __future__ import annotations

import contextlib
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import shapely

import penstock as pk
from tests.flow.test_spatial import BOX, as_structs, as_wkb, drawn, shapes
from tests.oracle.spatial import intersect, join
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark

ROWS, EPOCHS = 90, 3
SCHEMA = pa.schema({"b": BOX, "g": pa.binary(), "t": pa.int64(), "id": pa.int64()})


def side(seed: int) -> pa.Table:
    """Boxes and geometries, some of them null or empty."""
    boxes, geometries = [*drawn(seed, ROWS - 2), None, (1.0, 0.0, 0.0, 0.0)], as_wkb(shapes(seed, ROWS))["g"]
    ids = pa.array(range(ROWS), pa.int64())
    return pa.table([as_structs(boxes)["b"], geometries, ids, ids], schema=SCHEMA)


SIDES = (side(5), side(6))


def boxes_of(table: pa.Table) -> list[tuple[float, ...] | None]:
    return [None if box is None else tuple(box.values()) for box in table["b"].to_pylist()]


def epochs(table: pa.Table, seed: int) -> list[pa.Table]:
    """Cut at random."""
    cuts = [0, *sorted(np.random.default_rng(seed).integers(0, ROWS, EPOCHS - 1).tolist()), ROWS]
    return [table.slice(start, end - start) for start, end in pairwise(cuts)]


@pytest.mark.parametrize(
    ("how", "cell", "method", "files"),
    [
        ("inner", 0.5, "rrpj", False),
        ("inner", 2.0, "oa", True),
        ("inner", None, "rrpj", True),
        ("left", None, "rrpj", False),
        ("right", 1.0, "oa", False),
        ("full", 1.0, "rrpj", True),
        ("anti", None, "oa", True),
    ],
)
def test_s1_every_row_comes_out_as_it_should_over_restarts_shards_and_a_failure(
    spark, tmp_path, how, cell, method, files
):
    seen: dict[int, Counter] = {}
    failed: list[int] = []

    def take(rows, epoch):
        table = rows.toArrow() if hasattr(rows, "toArrow") else rows
        right = table["id_right"].to_pylist() if "id_right" in table.column_names else [None] * table.num_rows
        seen[epoch] = Counter(zip(table["id"].to_pylist(), right, strict=True))
        if epoch == 1 and not failed:
            failed.append(epoch)
            raise RuntimeError("once")

    for number, shards in ((0, 2), (1, 3), (1, 1), (2, 4), (3, 2)):
        flow = pk.Flow(spark, str(tmp_path / "checkpoint"), memory="32 MB", shards=shards)
        sources = []
        for name, table in zip(("ours", "theirs"), SIDES, strict=True):
            feed = Feed(tmp_path / name, SCHEMA, count=number)
            if number < EPOCHS:
                feed.add(epochs(table, len(name))[number])
            told = {"time": "t", "name": name}
            sources.append(flow.parquet(str(feed.folder), **told) if files else flow.source(feed.stream(spark), **told))
        joined = sources[0].join(sources[1], on=pk.intersects("b", cell=cell), how=how, method=method)
        joined.foreach_epoch(take)
        with contextlib.suppress(pk.SinkError):
            flow.run(end=number == EPOCHS)
    assert failed == [1]
    assert sum(seen.values(), Counter()) == join(*map(boxes_of, SIDES), intersect, how)


def test_geometries_of_files_as_they_come_within_a_window(spark, tmp_path):
    """As GeoParquet has them: WKB in a column of bytes."""
    flow = pk.Flow(spark, str(tmp_path / "checkpoint"), memory="32 MB", shards=2)
    sources = []
    for name, table in zip(("ours", "theirs"), SIDES, strict=True):
        feed = Feed(tmp_path / name, SCHEMA)
        for part in epochs(table, len(name)):
            feed.add(part)
        sources.append(flow.parquet(str(feed.folder), time="t", name=name))
    on = pk.dwithin("g", distance=0.2, cell=1.0)
    rows = sources[0].join(sources[1], on=on, within=pk.band(before=30, after=30)).to_memory()
    flow.run()
    ours, theirs = (shapely.from_wkb(table["g"].to_pylist()) for table in SIDES)
    wanted = join(ours, theirs, lambda a, b: a.distance(b) <= 0.2, "inner", lambda i, j: abs(i - j) <= 30)
    table = rows.table()
    assert wanted
    assert Counter(zip(table["id"].to_pylist(), table["id_right"].to_pylist(), strict=True)) == wanted
