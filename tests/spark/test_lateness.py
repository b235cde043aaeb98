"""Late rows of a DataFrame, which are counted only where there are some, and by ends where there are none."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk

pytestmark = pytest.mark.spark

FAR = 2**62
"""No time that can be used."""

EPOCHS = [
    [10, 20],
    [18, None, 30],
    [5, 29, 40],  # the first late row
    [7, 38, 41],  # another
    [50, 60],
    [60, 61],
    [None, None],
    [FAR, 70],
    [-FAR, 71],
    [1, 2],  # late rows only
    [80],
]


def run(flow: pk.Flow | pk.LocalFlow, source: pk.Stream) -> list[tuple[object, ...]]:
    """What each epoch counted, and the rows in time and late."""
    rows, late = source.where("t % 2 = 0 OR t > 0").to_memory(), source.late.to_memory()
    query = flow.run(end=False)
    told = [(e.rows_in["rows"], e.late["rows"], e.no_time["rows"], e.bounds["rows"]) for e in query.progress().epochs]
    shown = late.table().select(["t", "late_reason"]).sort_by([("t", "ascending")])
    return [*told, rows.table().column("t").sort().to_pylist(), shown.to_pylist()]


def test_late_rows_are_counted_as_in_process(spark, feed, tmp_path):
    tables = [pa.table({"t": pa.array(times, pa.int64())}) for times in EPOCHS]
    options = {"time": "t", "progress": pk.bounded_delay(2), "name": "rows"}
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="32 MB")
    found = run(flow, flow.source(feed("rows", tables).stream(spark), **options))
    local = pk.LocalFlow()
    assert found == run(local, local.source(tables, **options))
    assert [count for _, count, *_ in found[:-2]] == [0, 0, 1, 1, 0, 0, 0, 0, 0, 2, 0]
