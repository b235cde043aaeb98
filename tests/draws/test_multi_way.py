"""Random joins of several streams in process equal DuckDB's: 60 in CI, thousands by --draw-cases.

Linear plans are driven as the Spark host drives them, too.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.core.errors import PenstockError
from penstock.core.within import Band
from penstock.flow.graph import OperatorNode, SourceNode, operators_of
from penstock.flow.stream import Stream
from penstock.operators.multi_way import MultiJoin, Predicate
from penstock.planner.multi_way import Statistics
from tests.draws.multi_way import SCHEMA, Homes, MultiWayCase, draw_homes, draw_multi_way, ids_of, mixed_up, results
from tests.draws.shard_host import ShardHost

pytestmark = pytest.mark.slow


def ran(case: MultiWayCase, homes: Homes | None = None, folder: Path | None = None) -> pa.Table:
    """What comes out in process; with a folder, its streams are files there."""
    flow = pk.LocalFlow()
    out = joined(case, flow, homes, folder).to_memory()
    query = flow.run()
    (seen,) = map(Statistics.from_dict, query._course.ledger.joins.values())
    assert seen.nodes[frozenset(case.aliases)] == out.table().num_rows, "F14: results are counted exactly"
    assert all(count <= case.rows(alias).num_rows for alias, count in seen.rows.items())
    assert "plan " in str(query.explain())
    return out.table()


def joined(case: MultiWayCase, flow: pk.LocalFlow, homes: Homes | None = None, folder: Path | None = None) -> Stream:
    streams = {}
    for alias in case.aliases:
        told = {"time": "t", "progress": case.policy, "name": alias}
        told |= {} if homes is None else {"payload": homes["payload"][alias]}
        if folder is None:
            streams[alias] = flow.source([epoch[alias] for epoch in case.epochs], **told)
        else:
            streams[alias] = flow.parquet(folder / alias, schema=SCHEMA, max_files=1, **told)
    asked = {"on": case.on, "within": case.within, "plan": case.plan, "method": case.method, "time": case.time}
    asked |= {} if homes is None else {"materialize": homes["materialize"]}
    return flow.join(**streams, **asked, key=case.key)


def written(case: MultiWayCase, folder: Path, rng: random.Random) -> Path:
    """A folder of files for each stream, one of them an epoch."""
    for alias in case.aliases:
        (folder / alias).mkdir(parents=True)
        for number, epoch in enumerate(case.epochs):
            path = folder / alias / f"{number}.parquet"
            pq.write_table(epoch[alias], path, row_group_size=rng.randint(1, 12))
            os.utime(path, (number, number))
    return folder


def wrong(seed: str, homes: Homes | None = None, folder: Path | None = None) -> str:
    """What is wrong with the case of a seed; nothing if it is right."""
    case = draw_multi_way(seed)
    expected, told = results(case), f"--draw={seed}, payload {homes}"
    try:
        rows = ran(case, homes, folder)
    except PenstockError as error:
        return f"{told}: {type(error).__name__}: {error}\n{case}"
    found, mixed = ids_of(case, rows), mixed_up(case, rows)
    if found == expected and not mixed:
        return ""
    return f"{told}: missing {expected - found}, too many {found - expected}, mixed up {mixed}\n{case}"


def test_random_joins_of_several_streams_equal_those_of_duckdb(draws):
    failures = [said for seed in draws(60) if (said := wrong(seed))]
    assert not failures, f"{len(failures)} cases are wrong:\n" + "\n".join(failures)


def test_the_same_joins_have_the_same_results_wherever_their_payload_is(draws, tmp_path, monkeypatch):
    """In segments, in the files that rows were read from, in the rows: drawn for each stream."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    failures = []
    for number, seed in enumerate(draws(40)):
        rng, case = random.Random(f"homes {seed}"), draw_multi_way(seed)
        folder = written(case, tmp_path / str(number), rng) if rng.random() < 0.6 else None
        homes = draw_homes(rng, case, files=folder is not None, apart=rng.random() < 0.15)
        said = wrong(seed, homes, folder)
        failures += [said] if said else []
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
