"""Random window joins on real Spark equal DuckDB's: eight flows in CI, as many as one likes by --draw-cases.

tests/draws/test_joins.py runs hundreds of the same cases through the same task code without Spark.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import penstock as pk
from tests.draws.joins import JoinRun, as_source, difference, draw_run
from tests.spark.conftest import Feed
from tests.streams import pairs_of

pytestmark = pytest.mark.spark


def ran(spark, run: JoinRun, folder: Path) -> tuple[Counter, Counter]:
    """What comes out of a run, and which rows were late."""
    case = run.case
    feeds = [Feed(folder / f"side{side}", as_source([], case, side).schema) for side in (0, 1)]
    out, late = [], []
    for place, count in enumerate(run.epochs):
        for epoch in case.epochs[feeds[0].count : feeds[0].count + count]:
            for side, feed in enumerate(feeds):
                feed.add(as_source(epoch[side], case, side))
        memory = max(2_000_000, 2 * run.memory)
        flow = pk.Flow(spark, checkpoint=f"{folder}/checkpoint", memory=memory, shards=run.shards[place])
        left, right = (
            flow.source(feed.stream(spark), time="t", progress=policy, name=name)
            for feed, policy, name in zip(feeds, case.policies, ("left", "right"), strict=True)
        )
        on = {f"k_{ours}": f"k_{theirs}" for ours, theirs in case.keys}
        joined = left.join(right, on=on, within=case.within, how=case.how, method=case.methods[place])
        rows, late_rows = joined.to_memory(), joined.late.to_memory()
        flow.run(end=feeds[0].count == len(case.epochs))
        out += rows.table().to_batches()
        late += late_rows.table().column("id").to_pylist()
    return pairs_of(out), Counter(late)


def test_random_joins_on_spark_equal_those_of_duckdb(spark, tmp_path, draws):
    failures = []
    for number, seed in enumerate(draws(8)):
        run = draw_run(seed)
        said = difference(run, *ran(spark, run, tmp_path / str(number)))
        if said:
            failures.append(f"--draw={seed}: {said}\n{run}")
    assert not failures, f"{len(failures)} cases are wrong:\n" + "\n".join(failures)
