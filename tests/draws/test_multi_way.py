"""Random joins of several streams in process equal DuckDB's: 60 in CI, thousands by --draw-cases.

Linear plans are driven as the Spark host drives them, too.
"""

from __future__ import annotations

import os
import random
import shutil

import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.errors import PenstockError
from penstock.flow.graph import OperatorNode, SourceNode, operators_of
from penstock.flow.stream import Stream
from penstock.operators.multi_way import MultiJoin
from tests.draws.multi_way import MultiWayCase, draw_multi_way, ids_of, results
from tests.draws.shard_host import ShardHost

pytestmark = pytest.mark.slow


def ran(case: MultiWayCase) -> pa.Table:
    flow = pk.LocalFlow()
    out = joined(case, flow).to_memory()
    flow.run()
    return out.table()


def joined(case: MultiWayCase, flow: pk.LocalFlow) -> Stream:
    streams = {
        alias: flow.source([epoch[alias] for epoch in case.epochs], time="t", progress=case.policy, name=alias)
        for alias in case.aliases
    }
    asked = {"on": case.on, "within": case.within, "plan": case.plan, "method": case.method, "time": case.time}
    return flow.join(**streams, **asked, key=case.key)


def wrong(seed: str) -> str:
    """What is wrong with the case of a seed; nothing if it is right."""
    case = draw_multi_way(seed)
    expected = results(case)
    try:
        found = ids_of(case, ran(case))
    except PenstockError as error:
        return f"--draw={seed}: {type(error).__name__}: {error}\n{case}"
    if found == expected:
        return ""
    return f"--draw={seed}: missing {expected - found}, too many {found - expected}\n{case}"


def test_random_joins_of_several_streams_equal_those_of_duckdb(draws):
    failures = [said for seed in draws(60) if (said := wrong(seed))]
    assert not failures, f"{len(failures)} cases are wrong:\n" + "\n".join(failures)


def linear_node(case: MultiWayCase) -> OperatorNode | None:
    """The one operator of a case, if its plan is linear."""
    (node, *others) = operators_of(joined(case, pk.LocalFlow())._node)
    return None if others or not isinstance(node.config, MultiJoin) else node


def ran_by_tasks(case: MultiWayCase, node: OperatorNode, folder: str, rng: random.Random) -> pa.Table:
    """What comes out where every epoch takes up a checkpoint, with any number of shards and by any method."""
    methods = ["msj", "mjoin", "amjoin", *(["bistream"] if len(case.aliases) == 2 else [])]
    policies = tuple(part.progress for part in node.inputs if isinstance(part, SourceNode))
    out: list[pa.RecordBatch] = []
    for rows in [*case.epochs, None]:
        host = ShardHost(node, policies, folder, rng.choice([200_000, 1 << 20]))
        how = rng.randint(1, 3), rng.choice(methods), rng
        host.end(*how) if rows is None else host.epoch([rows[alias] for alias in case.aliases], *how)
        assert not host.late
        out += host.out
    names = [f"r{place}_id" for place in range(len(case.aliases))]
    shown = [name for name in node.config.output(node.types).names if name in names]
    tables = [pa.table([batch.column(name) for name in shown], [f"{a}_id" for a in case.aliases]) for batch in out]
    return pa.concat_tables(tables) if tables else pa.table({f"{alias}_id": [] for alias in case.aliases})


def test_random_linear_joins_run_by_tasks_equal_those_of_duckdb(draws, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)
    failures = []
    for seed in draws(90):
        case = draw_multi_way(seed)
        node = linear_node(case)
        if node is not None:
            found = ids_of(case, ran_by_tasks(case, node, str(tmp_path / "checkpoint"), random.Random(seed)))
            shutil.rmtree(tmp_path / "checkpoint")
            failures += [f"--draw={seed}\n{case}"] if found != results(case) else []
    assert not failures, f"{len(failures)} cases are wrong:\n" + "\n".join(failures)
