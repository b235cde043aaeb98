"""Random joins by predicates on real Spark equal their definition: 2 flows of 6 joins in CI, more by --draw-cases.

tests/draws/test_predicates.py runs hundreds of such cases through the same task code without Spark.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

import penstock as pk
from tests.draws.predicates import PredicateRun, draw_runs
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark

JOINS = 6
"""Joins of one flow; each has two sources of its own."""


def ran(spark, runs: list[PredicateRun], folder: Path, homes: Random) -> list[tuple[Counter[Any], int]]:
    """What comes out of each join of one flow, and how many rows were late; `homes` draws where payload is."""
    first = runs[0].run
    feeds = [
        [Feed(folder / f"{name}{number}", run.as_source([], side).schema) for side, name in enumerate("lr")]
        for number, run in enumerate(runs)
    ]
    pairs: list[Counter[Any]] = [Counter() for _ in runs]
    late: Counter[int] = Counter()
    done = 0
    for place, count in enumerate(first.epochs):
        for epoch in range(done, done + count):
            for run, sides in zip(runs, feeds, strict=True):
                for side, feed in enumerate(sides):
                    feed.add(run.as_source(run.run.case.epochs[epoch][side], side))
        done += count
        memory = max(2_000_000, 2 * first.memory)
        flow = pk.Flow(spark, checkpoint=f"{folder}/checkpoint", memory=memory, shards=first.shards[place])
        outs = [_join(flow, feeds[number], number, run, place, homes).to_memory() for number, run in enumerate(runs)]
        query = flow.run(end=done == len(first.case.epochs))
        for number, out in enumerate(outs):
            pairs[number].update(zip(*(column.to_pylist() for column in out.table().columns), strict=True))
        for report in query.progress().epochs:
            for source, rows in (*report.late.items(), *report.no_time.items()):
                late[int(source[1:])] += rows
    return [(pairs[number], late[number]) for number in range(len(runs))]


def _join(flow: pk.Flow, feeds: list[Feed], number: int, drawn: PredicateRun, place: int, homes: Random) -> pk.Stream:
    """One of the joins: files that Arrow reads, or DataFrames over them."""
    case, sides = drawn.run.case, []
    for side, (feed, name) in enumerate(zip(feeds, "lr", strict=True)):
        told: dict[str, Any] = {"time": "t", "progress": case.policies[side], "name": f"{name}{number}"}
        told["payload"] = homes.choice(["source", "segments", "row", "auto"])
        if (side + number) % 3 == 0:
            sides.append(flow.source(feed.stream(flow.spark), scan=homes.choice(["arrow", "spark"]), **told))
        else:
            sides.append(flow.parquet(feed.folder, schema=feed.schema, max_files=1, **told))
    left, right = sides
    joined = left.join(right, on=drawn.on, within=case.within, how=case.how, method=case.methods[place])
    other = "id_right" if "id_right" in joined.columns.names else "CAST(NULL AS BIGINT)"
    return joined.select("id", f"{other} AS id_right")


def test_random_joins_by_predicates_on_spark_equal_their_definition(spark, tmp_path, draws):
    failures = []
    for flow, seed in enumerate(draws(2)):
        runs = draw_runs(seed, JOINS)
        came = ran(spark, runs, tmp_path / str(flow), Random(f"homes {seed}"))
        for number, (run, found) in enumerate(zip(runs, came, strict=True)):
            said = run.difference(*found)
            if said:
                failures.append(f"--draw={seed}, join {number}: {said}\n{run}")
    assert not failures, f"{len(failures)} cases are wrong:\n" + "\n".join(failures)
