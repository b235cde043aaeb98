"""The driver of joins of boxes, or of vectors, is killed while epochs run: no result is lost, none comes out twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tests.flow.test_spatial import BOX, as_structs, drawn
from tests.oracle.near import are_near
from tests.oracle.spatial import Matches, intersect, join
from tests.spark.conftest import Feed
from tests.spark.drivers.killing import run_killed
from tests.spark.drivers.predicate_job import DISTANCE

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PLAIN = {"t": pa.int64(), "id": pa.int64()}
BOXES = pa.schema({"b": BOX, **PLAIN})
VECTORS = pa.schema({**dict.fromkeys("xyz", pa.float64()), "v": pa.list_(pa.float64()), **PLAIN})
ROWS = 30

Kills = pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.deep)])


def check_kills(folder: Path, on: str, kills: int, sides: list[tuple[list, pa.Table]], matches: Matches) -> None:
    """Run the job over the rows of both sides, in epochs, and compare what comes out with the definition."""
    for name, (_, table) in zip(("left", "right"), sides, strict=True):
        feed = Feed(folder / name, table.schema)
        for start in range(0, table.num_rows, ROWS):
            feed.add(table.slice(start, ROWS))
    run_killed(
        folder,
        "predicate_job",
        kills,
        every=2,
        arguments=lambda kill: ["--on", on, "--shards", str(1 + (kill + 1) % 3), "--places", str(kill)],
    )
    for sink, how in (("cells", "inner"), ("spread", "left")):
        found = Counter(duckdb.sql(f"SELECT id, id_right FROM '{folder}/{sink}/epoch=*/*.parquet'").fetchall())
        wanted = join(sides[0][0], sides[1][0], matches, how)
        assert sum(wanted.values()) > ROWS
        assert found == wanted


@Kills
def test_a_kill_loses_and_doubles_no_pair_of_boxes(kills, tmp_path):
    sides = []
    for seed in (8, 9):
        boxes = drawn(seed, ROWS * (4 + 2 * kills))
        ids = pa.array(range(len(boxes)), pa.int64())
        sides.append((boxes, pa.table([as_structs(boxes)["b"], ids, ids], schema=BOXES)))
    check_kills(tmp_path, "boxes", kills, sides, intersect)


@Kills
def test_a_kill_loses_and_doubles_no_pair_of_vectors(kills, tmp_path):
    """Vectors lie on a lattice of half the distance, across the border of a cell: many are exactly so far apart."""
    sides = []
    for seed in (8, 9):
        rows = ROWS * (4 + 2 * kills)
        points = np.random.default_rng(seed).integers(-6, 6, (rows, 3)) * DISTANCE / 2
        written = [None if row % 17 == 5 else point for row, point in enumerate(points.tolist())]
        axes = [pa.array([point and point[axis] for point in written], pa.float64()) for axis in range(3)]
        ids = pa.array(range(rows), pa.int64())
        sides.append((written, pa.table([*axes, pa.array(written, VECTORS.field("v").type), ids, ids], schema=VECTORS)))
    check_kills(tmp_path, "vectors", kills, sides, lambda a, b: are_near(a, b, DISTANCE))
