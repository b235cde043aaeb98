"""Spatial joins on Spark (S1): over DataFrames and files, with restarts on other numbers of shards and a failure."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import penstock as pk
from tests.flow.test_spatial import BOX, Wkb, as_structs, as_wkb, drawn, shapes
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


def geo_parquet(folder: Path, shapes: list, kind: pa.DataType) -> Feed:
    """Files of GeoParquet 1.1, with a box of each geometry beside it, in float32 as is usual."""
    corners = [side.astype(np.float32) for side in shapely.bounds(shapes).T]
    names = ("xmin", "ymin", "xmax", "ymax")
    boxes = pa.StructArray.from_arrays(list(map(pa.array, corners)), names)
    covering = {"bbox": {name: ["bbox", name] for name in names}}
    column = {"encoding": "WKB", "geometry_types": [], "covering": covering}
    about = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}
    wkb, ids = as_wkb(shapes)["g"].combine_chunks(), pa.array(range(len(shapes)), pa.int64())
    schema = pa.schema(
        [
            pa.field(
                "geometry", kind, metadata={} if isinstance(kind, Wkb) else {"ARROW:extension:name": "geoarrow.wkb"}
            ),
            pa.field("bbox", boxes.type),
            pa.field("t", pa.int64()),
            pa.field("id", pa.int64()),
        ],
        metadata={"geo": json.dumps(about)},
    )
    made = pa.ExtensionArray.from_storage(kind, wkb) if isinstance(kind, Wkb) else wkb
    feed, table = Feed(folder, schema), pa.table([made, boxes, ids, ids], schema=schema)
    for start in range(0, len(shapes), 20):
        feed.add(table.slice(start, 20))
    told = pq.read_schema(folder / "00000.parquet")
    assert json.loads(told.metadata[b"geo"]) == about
    return feed


@pytest.fixture
def registered():
    """A library for GeoParquet is loaded in the driver, and not in tasks."""
    pa.register_extension_type(Wkb(pa.binary()))
    yield
    pa.unregister_extension_type("geoarrow.wkb")


@pytest.mark.parametrize("kind", [pa.binary(), Wkb(pa.binary())], ids=str)
@pytest.mark.parametrize("on", ["geometry", "bbox"])
def test_geoparquet_files_as_they_come(spark, tmp_path, on, kind, request):
    """Of files that Arrow reads, and of a DataFrame; with and without a type of its own for WKB."""
    if isinstance(kind, Wkb):
        request.getfixturevalue("registered")
    ours, theirs = shapes(11, 60), shapes(12, 60)
    feeds = [geo_parquet(tmp_path / name, made, kind) for name, made in (("ours", ours), ("theirs", theirs))]
    flow = pk.Flow(spark, str(tmp_path / "checkpoint"), memory="32 MB", shards=2)
    left = flow.parquet(str(feeds[0].folder), time="t", name="ours", max_files=1)
    frame = spark.readStream.schema(spark.read.parquet(str(feeds[1].folder)).schema).parquet(str(feeds[1].folder))
    right = flow.source(frame, time="t", name="theirs")
    rows = left.join(right, on=pk.intersects(on, cell=1.0)).to_memory()
    flow.run()
    matches = (
        (lambda a, b: a.intersects(b))
        if on == "geometry"
        else (lambda a, b: shapely.box(*a.bounds).intersects(shapely.box(*b.bounds)))
    )
    table = rows.table()
    assert Counter(zip(table["id"].to_pylist(), table["id_right"].to_pylist(), strict=True)) == join(
        ours, theirs, matches, "inner"
    )
