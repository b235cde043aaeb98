"""Random joins by predicates, driven as the Spark host does or in a local flow, equal their definition: 40 in CI."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from typing import Any

import pytest

import penstock as pk
from penstock.core.errors import PenstockError
from tests.draws.predicates import PredicateRun, draw_run
from tests.draws.shard_host import ShardHost
from tests.streams import pairs_of

pytestmark = pytest.mark.slow


def joined(flow: pk.LocalFlow, drawn: PredicateRun, tables: list[Any], method: Any = "auto") -> pk.Stream:
    """The join of a run, over these rows of either side."""
    case = drawn.run.case
    left, right = (
        flow.source(rows, time="t", progress=case.policies[side], name=f"s{side}") for side, rows in enumerate(tables)
    )
    return left.join(right, on=drawn.on, within=case.within, how=case.how, method=method)


def driven(drawn: PredicateRun, folder: str, rng: random.Random) -> tuple[Counter[Any], Counter[int]]:
    """What comes out of a run with restarts on other numbers of shards, and which rows were late."""
    run, case = drawn.run, drawn.run.case
    node = joined(pk.LocalFlow(), drawn, [drawn.as_source([], side) for side in (0, 1)])._node
    out, late, number = [], [], 0
    for place, count in enumerate(run.epochs):
        host = ShardHost(node, case.policies, folder, run.memory, spare=drawn.spare)
        for _ in range(count):
            sides = [drawn.as_source(case.epochs[number][side], side) for side in (0, 1)]
            host.epoch(sides, run.shards[place], case.methods[place], rng)
            number += 1
        if number == len(case.epochs):
            host.end(run.shards[place], case.methods[place], rng)
        out += host.out
        late += host.late
    return pairs_of(out), Counter(late)


def local(drawn: PredicateRun) -> tuple[Counter[Any], int]:
    """What comes out of a local flow, by one method on one number of shards, and how many rows were late."""
    run, case = drawn.run, drawn.run.case
    flow = pk.LocalFlow(memory=run.memory * run.shards[0], shards=run.shards[0])
    tables = [[drawn.as_source(epoch[side], side) for epoch in case.epochs] for side in (0, 1)]
    rows = joined(flow, drawn, tables, case.methods[0]).to_memory()
    query = flow.run()
    late = sum(sum(epoch.late.values()) + sum(epoch.no_time.values()) for epoch in query.progress().epochs)
    return pairs_of(rows.table().combine_chunks().to_batches()), late


def wrong(seed: str, folder: str) -> str:
    """What is wrong with the run of a seed; nothing if it is right."""
    drawn, rng = draw_run(seed), random.Random(seed)
    try:
        said = drawn.difference(*(local(drawn) if rng.random() < 0.25 else driven(drawn, folder, rng)))
    except PenstockError as error:
        said = f"{type(error).__name__}: {error}"
    return said and f"--draw={seed}: {said}\n{drawn}"


def test_random_joins_by_predicates_equal_their_definition(tmp_path, monkeypatch, draws):
    monkeypatch.setattr(os, "fsync", lambda file: None)
    failures = []
    for seed in draws(40):
        failures.append(wrong(seed, str(tmp_path / "checkpoint")))
        shutil.rmtree(tmp_path / "checkpoint", ignore_errors=True)
    failures = [failure for failure in failures if failure]
    assert not failures, f"{len(failures)} cases are wrong:\n" + "\n".join(failures)


def test_draws_have_pairs_and_rows_alone_of_every_kind():
    runs = [draw_run(f"kinds/{number}") for number in range(200)]
    with_pairs = [run for run in runs if run.pairs]
    assert len(with_pairs) > 90
    assert sum(len(run.pairs) for run in runs) > 10_000
    told = {(str(run.on).partition("(")[0], run.run.case.within == pk.always()) for run in with_pairs}
    assert told == {(on, ever) for on in ("intersects", "contains", "dwithin", "near") for ever in (True, False)}
    assert {run.run.case.how for run in with_pairs} == {"inner", "left", "right", "full", "semi", "anti"}
