"""Group-wise punctuation on Spark: windows of one group close by its own bound, across restarts on other shards."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import penstock as pk
from tests.spark.conftest import multiset

pytestmark = pytest.mark.spark

COLUMNS = pa.schema({"sensor": pa.string(), "t": pa.int64(), "x": pa.int64(), "done": pa.int64()})


def readings(*rows) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in rows], schema=COLUMNS)


EPOCHS = [
    readings(("a", 1, 1, None), ("b", 2, 2, None), (None, 3, 3, None), ("a", 12, 4, 10), ("c", 4, 5, None)),
    # a's 5 is late, b's 6 is not; a row without a time says that nothing of c is missing below 20.
    readings(("a", 5, 6, None), ("b", 6, 7, None), ("a", 11, 8, None), ("c", None, 0, 20), (None, 4, 9, 8)),
    # After the restart a's bound is still 10, that of no sensor still 8.
    readings(("a", 9, 10, 20), (None, 7, 11, None), (None, 8, 12, 10), ("b", 3, 13, None)),
]


def windows(flow, stream):
    source = flow.source(stream, time="t", progress=pk.punctuated("done", by="sensor"), name="s")
    counted = source.where("x <> 4").window(range=10, slide=10).by("sensor").agg(n=pk.count(), x=pk.sum("x"))
    return counted.to_memory(), counted.late.to_memory()


def test_each_group_closes_by_its_own_bound_across_a_restart_on_other_shards(spark, feed, tmp_path):
    stream = feed("s", EPOCHS[:2])

    def run(shards, end):
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="64 MB", shards=shards)
        results, late = windows(flow, stream.stream(spark))
        return flow.run(end=end), results.sink.epochs, late

    query, results, late = run(2, end=False)
    assert multiset(results[0]) == {("a", 0, 10, 1, 1): 1}, "no other sensor has spoken"
    assert multiset(results[1]) == {("c", 0, 10, 1, 5): 1}, (
        "the statement's own row has no time and counts in no window"
    )
    assert Counter(late.table().column("late_reason").to_pylist()) == {"late": 1, "no-time": 1}
    first, second = query.progress().epochs[:2]
    assert (first.rows_in["s"], first.late["s"]) == (5, 0)
    assert (second.rows_in["s"], second.late["s"], second.no_time["s"]) == (5, 1, 1)

    stream.add(EPOCHS[2])
    query, results, late = run(3, end=True)
    whole = pa.concat_tables(results.values())
    assert multiset(whole) == {
        ("a", 10, 20, 1, 8): 1,
        (None, 0, 10, 3, 24): 1,
        ("b", 0, 10, 3, 22): 1,
    }
    assert multiset(results[min(results)]) == {("a", 10, 20, 1, 8): 1, (None, 0, 10, 3, 24): 1}
    late_rows = late.table().select(["sensor", "t", "late_source", "missed_from", "missed_until"])
    assert multiset(late_rows) == {("a", 9, "s", 0, 10): 1, (None, 7, "s", 0, 10): 1}
    assert "for each sensor" in query.explain()


def test_late_rows_of_groups_are_found_even_if_nothing_else_is_asked_for(spark, feed, tmp_path):
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="64 MB")
    source = flow.source(
        feed("s", EPOCHS).stream(spark), time="t", progress=pk.punctuated("done", by="sensor"), name="s"
    )
    late = source.late.to_memory()
    flow.run()
    assert Counter(late.table().column("t").to_pylist()) == {5: 1, None: 1, 9: 1, 7: 1}
