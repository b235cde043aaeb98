"""Random joins of several streams in process equal DuckDB's: 60 in CI, thousands by --draw-cases.

Linear plans are driven as the Spark host drives them, too.
"""

from __future__ import annotations

import os
import random
import re
import shutil

import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.errors import PenstockError
from penstock.core.within import Band
from penstock.flow.graph import OperatorNode, SourceNode, operators_of
from penstock.flow.stream import Stream
from penstock.operators.multi_way import MultiJoin, Predicate
from penstock.planner.multi_way import Statistics
from tests.draws.multi_way import SCHEMA, MultiWayCase, draw_multi_way, ids_of, results
from tests.draws.shard_host import ShardHost

pytestmark = pytest.mark.slow


def ran(case: MultiWayCase) -> pa.Table:
    flow = pk.LocalFlow()
    out = joined(case, flow).to_memory()
    query = flow.run()
    (seen,) = map(Statistics.from_dict, query._course.ledger.joins.values())
    assert seen.nodes[frozenset(case.aliases)] == out.table().num_rows, "F14: results are counted exactly"
    assert all(count <= case.rows(alias).num_rows for alias, count in seen.rows.items())
    assert "plan " in str(query.explain())
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


def chained(case: MultiWayCase, flow: pk.LocalFlow) -> tuple[dict[str, Stream], Stream] | None:
    """The streams of a case, and a chain of joins of two over them; None if a join would need a column twice."""
    streams = {
        alias: flow.source(
            [epoch[alias].rename_columns([f"{alias}_{name}" for name in SCHEMA.names]) for epoch in case.epochs],
            time=f"{alias}_t",
            name=alias,
        )
        for alias in case.aliases
    }
    first, *others = case.aliases
    rows, seen = streams[first], {first}
    predicates = [Predicate.parse(text) for text in case.on]
    while others:
        alias = next(
            each for each in others if any(p.connects(frozenset(seen), frozenset((each,))) for p in predicates)
        )
        mine = {p for p in predicates if p.connects(frozenset(seen), frozenset((alias,)))}
        ends = [(next(iter(p.rels - {alias})), p) for p in mine]
        pairs = {(f"{rel}_{p.column(rel)}", f"{alias}_{p.column(alias)}") for rel, p in ends}
        if len(dict(pairs)) < len(pairs):
            return None
        rows = rows.join(streams[alias], on=dict(pairs), within=case.within or pk.always())
        seen.add(alias)
        others.remove(alias)
    return streams, rows


def test_what_chains_are_told_to_write_instead_has_the_same_results(draws):
    """Without windows, and in tumbling ones, the order of joins does not matter."""
    offered = 0
    for seed in draws(60):
        case = draw_multi_way(seed)
        if len(case.aliases) < 3 or isinstance(case.within, Band):
            continue
        flow = pk.LocalFlow()
        chain = chained(case, flow)
        if chain is None:
            continue
        found = chain[1].to_memory()
        said = str(flow.run().explain())
        assert ids_of(case, found.table()) == results(case), f"--draw={seed}"
        told = re.search(r"are predicted for (flow\.join\(.*\))", said)
        if told is None:
            continue
        offered += 1
        again = pk.LocalFlow()
        streams, _ = chained(case, again) or ({}, None)
        text = re.sub(r"(\w+)=…(?=[,)])", r"\1=streams['\1']", told[1].replace("within=…", "within=within"))
        out = eval(text, {"flow": again, "streams": streams, "within": case.within}).to_memory()
        again.run()
        assert ids_of(case, out.table()) == results(case), f"--draw={seed}: {text}"
    assert offered > 5, "few were offered anything"
