"""The driver of two joins of boxes is killed while epochs run: no result is lost, and none comes out twice."""

from __future__ import annotations

from collections import Counter

import duckdb
import pyarrow as pa
import pytest

from tests.flow.test_spatial import BOX, as_structs, drawn
from tests.oracle.spatial import intersect, join
from tests.spark.conftest import Feed
from tests.spark.drivers.killing import Job

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = pa.schema({"b": BOX, "t": pa.int64(), "id": pa.int64()})
ROWS = 30


@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.deep)])
def test_a_kill_loses_and_doubles_no_pair_of_boxes(kills, tmp_path):
    epochs = 4 + 2 * kills
    sides = [drawn(seed, ROWS * epochs) for seed in (8, 9)]
    for name, boxes in zip(("left", "right"), sides, strict=True):
        feed, ids = Feed(tmp_path / name, SCHEMA), pa.array(range(len(boxes)), pa.int64())
        table = pa.table([as_structs(boxes)["b"], ids, ids], schema=SCHEMA)
        for epoch in range(epochs):
            feed.add(table.slice(epoch * ROWS, ROWS))
    for kill in range(kills + 1):
        job = Job(tmp_path, "--shards", str(1 + (kill + 1) % 3), "--places", str(kill), program="spatial_job")
        last = kill == kills
        # An epoch is told of once it is committed: the next one is under way.
        assert job.wait_for("done" if last else f"epoch {2 * kill + 1}"), (tmp_path / "job.log").read_text()[-3000:]
        if last:
            job.process.wait(60)
        else:
            assert job.process.poll() is None, "the job ended before it was killed"
            job.kill()
    for folder, how in (("cells", "inner"), ("spread", "left")):
        found = Counter(duckdb.sql(f"SELECT id, id_right FROM '{tmp_path}/{folder}/epoch=*/*.parquet'").fetchall())
        assert found == join(*sides, intersect, how)
