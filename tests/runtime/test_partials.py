"""Partial results of multi-way joins keep only what a later join, its time or a sink asks for (F28)."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.core.pages import read_page
from penstock.local.query import LocalQuery
from penstock.runtime.partials import NotKeptError, narrowed

ON = ["a.k = b.k", "b.m = c.m", "c.n = d.n"]
"""No column is a key of anything: each value is there several times on both sides."""

PLANS = ["((a b) c) d", "(a b) (c d)", "a (b (c d))"]

KEYS = {"a": "k", "b": "km", "c": "mn", "d": "n"}


def tables(seed: int, rows: int = 24) -> dict[str, pa.Table]:
    """Rows with join columns of few values, an integer and a text."""
    random = Random(seed)
    found = {}
    for name, keys in KEYS.items():
        columns: dict[str, Any] = {key: random.choices(range(5), k=rows) for key in keys}
        columns[f"p{name}"] = random.choices(range(100), k=rows)
        columns[f"q{name}"] = [f"{name}{n}" * 3 for n in range(rows)]
        found[name] = pa.table({**columns, "t": pa.array(random.sample(range(1000), rows), pa.int64())})
    return found


def joined(some: dict[str, pa.Table], plan: str, folder: Any = None, **asked: Any) -> tuple[pk.LocalFlow, pk.Stream]:
    """Their join, in a flow that reads files if there is a folder for them."""
    flow = pk.LocalFlow(shards=2)
    streams = {}
    for name, rows in some.items():
        if folder is None:
            streams[name] = flow.source([rows.slice(0, 9), rows.slice(9)], time="t", name=name)
            continue
        (folder / name).mkdir(parents=True)
        for number, part in enumerate((rows.slice(0, 9), rows.slice(9))):
            pq.write_table(part, folder / name / f"{number}.parquet")
        streams[name] = flow.parquet(folder / name, time="t", name=name, max_files=1)
    return flow, flow.join(**streams, on=ON, plan=plan, **asked)


def by_sql(some: dict[str, pa.Table], columns: str, *also: str) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as engine:
        for name, rows in some.items():
            engine.register(name, rows)
        return Counter(engine.sql(f"SELECT {columns} FROM a, b, c, d WHERE {' AND '.join((*ON, *also))}").fetchall())


def rows_of(out: pk.MemoryOutlet) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in out.table().columns), strict=True))


SELECTS = [
    (["pa", "pd"], "pa, pd", ()),
    (["k", "pa + pc AS s"], "a.k, pa + pc", ()),
    (["qb"], "qb", ("pd > 40",)),
    (["n", "m"], "d.n, b.m", ("pa < pc",)),
]
"""What is asked for, the same in SQL, and a condition on results."""


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("when", ["early", "late", {"b": "late", "d": "late"}, pk.late(decoupled=True)])
def test_f28_without_what_nobody_asks_for_an_n_to_m_join_still_equals_sql(tmp_path, plan, when):
    for seed, (asked, in_sql, also) in enumerate(SELECTS):
        some = tables(seed)
        flow, stream = joined(some, plan, tmp_path / str(seed), materialize=when)
        for condition in also:
            stream = stream.where(condition)
        out = stream.select(*asked).to_memory()
        flow.run()
        expected = by_sql(some, in_sql, *also)
        assert expected
        assert rows_of(out) == expected, asked


def kept_by(plan: str, *asked: str, **more: Any) -> dict[str, list[str]]:
    flow, stream = joined(tables(1), plan, **more)
    stream.select(*asked).to_memory()
    return narrowed(flow._sinks)[1]


def test_f28_a_join_column_goes_once_its_equality_is_evaluated_unless_it_is_asked_for():
    for plan in ("((a b) c) d", "(a b) (c d)"):
        assert sorted(kept_by(plan, "pd")["join0"]) == ["r0_t", "r1_m", "r1_t"], "of a and b, c asks for m alone"
        assert sorted(kept_by(plan, "k", "qb")["join0"]) == ["r0_k", "r0_t", "r1_m", "r1_qb", "r1_t"]
    deep = kept_by("((a b) c) d", "pa")
    assert sorted(deep["join1"]) == ["r0_pa", "r0_t", "r1_t", "r2_n", "r2_t"]
    assert [len(columns) for columns in kept_by("((a b) c) d", "*").values()] == [8, 12], "k of b and m of c"


def test_f28_conditions_on_results_and_near_times_keep_what_they_look_at():
    flow, stream = joined(tables(1), "((a b) c) d", within=pk.band(before=500, after=500))
    stream.where("pa > 3").select("pd").to_memory()
    kept = narrowed(flow._sinks)[1]
    assert sorted(kept["join0"]) == ["r0_pa", "r0_t", "r1_m", "r1_t"]


def test_f28_what_any_sink_asks_for_is_kept():
    flow, stream = joined(tables(1), "((a b) c) d")
    stream.select("pd").to_memory()
    stream.select("qa", "pc").to_memory()
    assert sorted(narrowed(flow._sinks)[1]["join1"]) == ["r0_qa", "r0_t", "r1_t", "r2_n", "r2_pc", "r2_t"]


def test_f28_state_and_edges_of_partial_results_have_only_what_is_kept(tmp_path, monkeypatch):
    seen: dict[str, set[str]] = {}
    epoch = LocalQuery.epoch

    def watched(self: LocalQuery, rows: Any, end: bool = False) -> None:
        epoch(self, rows, end)
        for shard, state in enumerate(self._course.ledger.states["join1"]):
            for page in state.pages:
                if page.kind == 0:
                    batch = read_page(self._places["join1"][shard].store, page)
                    seen.setdefault("join1", set()).update(batch.schema.names)

    monkeypatch.setattr(LocalQuery, "epoch", watched)
    flow, stream = joined(tables(3), "((a b) c) d", tmp_path, materialize="late")
    stream.select("qd").to_memory()
    flow.run()
    assert seen["join1"] == {"__hash", "__time", "r0_t", "r1_m", "r1_t"}, "not even a place: nothing of a or b is shown"


def test_more_than_is_needed_may_be_kept_but_not_less():
    flow, stream = joined(tables(1), "((a b) c) d")
    stream.select("pd").to_memory()
    before = {"join0": ["r0_k", "r0_t", "r1_m", "r1_t", "r1_pb"], "join1": ["r0_t", "r1_t", "r2_n", "r2_t"]}
    assert sorted(narrowed(flow._sinks, before)[1]["join0"]) == sorted(before["join0"])
    with pytest.raises(NotKeptError, match="partial results of join1 were kept without r2_n"):
        narrowed(flow._sinks, {**before, "join1": ["r0_t", "r1_t", "r2_t"]})


def test_joins_of_two_and_other_operators_keep_their_columns():
    flow = pk.LocalFlow()
    a, b, c = (flow.source(pa.table({"k": [1], name: [2], "t": [3]}), time="t") for name in "xyz")
    a.join(b, on="k").select("k", "x", "t").join(c, on="k").select("x").to_memory()
    sinks, kept = narrowed(flow._sinks)
    assert kept == {}
    assert [sink.node for sink in sinks] == [sink.node for sink in flow._sinks]
