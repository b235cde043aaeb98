"""Random window joins over files equal those of DuckDB, wherever an epoch runs: more by --draw-cases."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

import penstock as pk
from penstock.spark.engine import Engine
from penstock.spark.place import Placement
from tests.draws.joins import JoinRun, as_source, difference, draw_runs
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark

JOINS = 4
"""Joins of one flow; each has two sources of its own."""


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let each epoch run at a random place that its flow can run at; which it was is noted."""
    places: list[str] = []
    random, choose = Random(7), Placement.choose

    def choose_any(self: Placement, nbytes: int) -> tuple[Any, str]:
        places.append(self.at_most(random.choice(["driver"] * 6 + ["tasks", "spark"])))
        choose(self, nbytes)
        return places[-1], "drawn"

    monkeypatch.setattr(Placement, "choose", choose_any)
    return places


@pytest.fixture
def with_or_without_payload(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """Let rows of a source leave payload behind in some epochs and bring it in others; how often was which."""
    times: Counter[bool] = Counter()
    random, leave_behind = Random(8), Engine._leave_behind

    def leave_some(self: Engine, files: dict[Any, Any]) -> dict[str, tuple[int, int]]:
        some = {source: found for source, found in files.items() if source.row is not None and found}
        drawn = {source: random.random() < 0.6 for source in some}
        times.update(drawn.values())
        return leave_behind(self, {source: found for source, found in some.items() if drawn[source]})

    monkeypatch.setattr(Engine, "_leave_behind", leave_some)
    return times


def ran(spark, runs: list[JoinRun], folder: Path, homes: Random) -> list[tuple[Counter[Any], int]]:
    """What comes out of each join of one flow, and how many rows were late; `homes` draws where payload is."""
    feeds = [
        [Feed(folder / f"{name}{number}", as_source([], run.case, side).schema) for side, name in enumerate("lr")]
        for number, run in enumerate(runs)
    ]
    pairs: list[Counter[Any]] = [Counter() for _ in runs]
    late: Counter[int] = Counter()
    done = 0
    for place, count in enumerate(runs[0].epochs):
        for epoch in range(done, done + count):
            for run, sides in zip(runs, feeds, strict=True):
                for side, feed in enumerate(sides):
                    feed.add(as_source(run.case.epochs[epoch][side], run.case, side))
        done += count
        flow = pk.Flow(
            spark,
            checkpoint=f"{folder}/checkpoint",
            memory=max(2_000_000, 2 * runs[0].memory),
            shards=runs[0].shards[place],
        )
        outs = [_join(flow, feeds[number], number, run, place, homes).to_memory() for number, run in enumerate(runs)]
        query = flow.run(end=done == len(runs[0].case.epochs))
        for number, out in enumerate(outs):
            pairs[number].update(zip(*(column.to_pylist() for column in out.table().columns), strict=True))
        for report in query.progress().epochs:
            for source, rows in (*report.late.items(), *report.no_time.items()):
                late[int(source[1:])] += rows
    return [(pairs[number], late[number]) for number in range(len(runs))]


def _join(flow: pk.Flow, feeds: list[Feed], number: int, run: JoinRun, place: int, homes: Random) -> pk.Stream:
    case, sides = run.case, []
    for side, (feed, name) in enumerate(zip(feeds, "lr", strict=True)):
        told: dict[str, Any] = {"time": "t", "progress": case.policies[side], "name": f"{name}{number}"}
        told["payload"] = homes.choice(["source", "source", "segments", "segments", "row", "auto"])
        if side and number % 2:
            # A DataFrame over the files, which Arrow reads at one start and Spark at another.
            sides.append(flow.source(feed.stream(flow.spark), scan=homes.choice(["arrow", "spark"]), **told))
        else:
            sides.append(flow.parquet(feed.folder, schema=feed.schema, max_files=1, **told))
    left, right = sides
    on = {f"k_{ours}": f"k_{theirs}" for ours, theirs in case.keys}
    joined = left.join(right, on=on, within=case.within, how=case.how, method=case.methods[place])
    other = "id_right" if "id_right" in joined.columns.names else "CAST(NULL AS BIGINT)"
    return joined.select("id", f"{other} AS id_right")


def test_random_joins_of_files_equal_those_of_duckdb_wherever_an_epoch_runs(
    spark, tmp_path, draws, anywhere, with_or_without_payload
):
    failures = []
    for flow, seed in enumerate(draws(16)):
        runs = draw_runs(seed, JOINS)
        came = ran(spark, runs, tmp_path / str(flow), Random(f"homes {seed}"))
        for number, (run, found) in enumerate(zip(runs, came, strict=True)):
            said = difference(run, *found)
            if said:
                failures.append(f"--draw={seed}, join {number}: {said}\n{run}")
    assert not failures, f"{len(failures)} cases are wrong:\n" + "\n".join(failures)
    assert set(anywhere) == {"driver", "tasks", "spark"}
    assert set(with_or_without_payload) == {True, False}
