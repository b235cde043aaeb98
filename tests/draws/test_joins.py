"""Random window joins, driven as the Spark host drives them, equal DuckDB's: 100 in CI, thousands by --draw-cases."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from typing import Any

import pytest

import penstock as pk
from penstock.core.errors import PenstockError
from tests.draws.joins import JoinRun, as_source, difference, draw_run
from tests.draws.shard_host import ShardHost
from tests.streams import pairs_of

pytestmark = pytest.mark.slow


def ran(run: JoinRun, folder: str, rng: random.Random) -> tuple[Counter[Any], Counter[int]]:
    """What comes out of a run, and which rows were late."""
    case = run.case
    flow = pk.LocalFlow()
    left, right = (
        flow.source(as_source([], case, side), time="t", progress=case.policies[side], name=f"s{side}")
        for side in (0, 1)
    )
    on = {f"k_{ours}": f"k_{theirs}" for ours, theirs in case.keys}
    node = left.join(right, on=on, within=case.within, how=case.how)._node
    out, late, number = [], [], 0
    for place, count in enumerate(run.epochs):
        host = ShardHost(node, case.policies, folder, run.memory)
        for _ in range(count):
            sides = [as_source(case.epochs[number][side], case, side) for side in (0, 1)]
            host.epoch(sides, run.shards[place], case.methods[place], rng)
            number += 1
        if number == len(case.epochs):
            host.end(run.shards[place], case.methods[place], rng)
        out += host.out
        late += host.late
    return pairs_of(out), Counter(late)


def wrong(seed: str, folder: str) -> str:
    """What is wrong with the run of a seed; nothing if it is right."""
    run = draw_run(seed)
    try:
        said = difference(run, *ran(run, folder, random.Random(seed)))
    except PenstockError as error:
        said = f"{type(error).__name__}: {error}"
    return said and f"--draw={seed}: {said}\n{run}"


def test_random_joins_equal_those_of_duckdb(tmp_path, monkeypatch, draws):
    monkeypatch.setattr(os, "fsync", lambda file: None)
    failures = []
    for seed in draws(100):
        failures.append(wrong(seed, str(tmp_path / "checkpoint")))
        shutil.rmtree(tmp_path / "checkpoint")
    failures = [failure for failure in failures if failure]
    assert not failures, f"{len(failures)} cases are wrong:\n" + "\n".join(failures)
