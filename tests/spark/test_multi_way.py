"""Joins of several streams on real Spark equal DuckDB's, across restarts on other shards: more by --draw-cases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as pk
from tests.draws.multi_way import SCHEMA, MultiWayCase, draw_multi_way, ids_of, results
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark

JOINS = 3
"""Joins of one flow, each with streams of its own."""

EPOCHS = 2


def ran(spark, cases: Sequence[MultiWayCase], folder: Path, frames: bool) -> list[pa.Table]:
    """What comes out of each join of one flow, which starts anew for each epoch on another number of shards."""
    feeds = [{alias: Feed(folder / f"{alias}{n}", SCHEMA) for alias in case.aliases} for n, case in enumerate(cases)]
    out: list[list[pa.Table]] = [[] for _ in cases]
    for epoch in range(EPOCHS):
        for case, feed in zip(cases, feeds, strict=True):
            for alias in case.aliases:
                feed[alias].add(case.epochs[epoch][alias])
        flow = pk.Flow(spark, checkpoint=f"{folder}/checkpoint", memory="32 MB", shards=1 + epoch)
        found = []
        for n, (case, feed) in enumerate(zip(cases, feeds, strict=True)):
            streams = {}
            for alias in case.aliases:
                told = {"time": "t", "progress": case.policy, "name": f"{alias}{n}"}
                rows = feed[alias]
                streams[alias] = (
                    flow.source(rows.stream(spark), **told)
                    if frames
                    else flow.parquet(rows.folder, schema=SCHEMA, max_files=1, **told)
                )
            asked = {"on": case.on, "within": case.within, "plan": case.plan, "method": case.method, "time": case.time}
            if not frames:
                asked["materialize"] = ["late", "early", {case.aliases[0]: "late"}, "auto"][n % 4]
            joined = flow.join(**streams, **asked, key=case.key, name=f"j{n}")
            found.append(joined.to_memory())
        flow.run(end=epoch == EPOCHS - 1)
        for some, rows in zip(out, found, strict=True):
            some.append(rows.table())
    return [pa.concat_tables(some) for some in out]


def test_random_joins_of_several_streams_on_spark_equal_those_of_duckdb(spark, tmp_path, draws):
    failures, count = [], 0
    for flow, seed in enumerate(draws(3)):
        cases = [draw_multi_way(f"{seed}/{n}", EPOCHS) for n in range(JOINS)]
        found = ran(spark, cases, tmp_path / str(flow), frames=flow % 3 == 0)
        for number, (case, rows) in enumerate(zip(cases, found, strict=True)):
            expected, there = results(case), ids_of(case, rows)
            count += expected.total()
            if there != expected:
                missing, more = expected - there, there - expected
                failures.append(f"--draw={seed}, join {number}: missing {missing}, too many {more}\n{case}")
    assert not failures, f"{len(failures)} cases are wrong:\n" + "\n".join(failures)
    assert count > 50, "joins without results say little"
