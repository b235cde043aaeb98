"""An operator that is one module outside of the package runs on Spark, across a restart."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk
from tests.runtime.flows import operated
from tests.runtime.toy import Delayed
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark

SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64()})


def test_an_operator_that_the_host_has_never_heard_of_runs_and_goes_on_after_a_restart(spark, tmp_path):
    feed, seen = Feed(tmp_path / "rows", SCHEMA), []
    for number, times in enumerate(([3, 1, 2], [6], [9])):
        feed.add(pa.table({"k": [number] * len(times), "t": times}, SCHEMA))
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB")
        source = flow.source(feed.stream(spark), time="t", progress=pk.ordered())
        rows = operated(source, Delayed(3), "later").to_memory()
        query = flow.run(end=number == 2)
        seen += sorted(rows.table()["t"].to_pylist())
    assert seen == [1, 2, 3, 6, 9]
    assert "later: rows are held back for 3" in query.explain()
