"""Linear plans of flow.join: all streams in one operator, by one key (F25, F30)."""

from __future__ import annotations

from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.errors import ConfigError
from penstock.operators.multi_way import MultiJoin
from penstock.operators.multi_way.baselines.bistream import BiStream

ON = ["a.k = b.k", "b.k = c.k"]


def tables(seed: int = 0) -> dict[str, pa.Table]:
    rng = np.random.default_rng(seed)
    return {
        name: pa.table(
            {
                "k": pa.array(rng.integers(0, 8, 30), kind),
                "l": rng.integers(0, 2, 30),
                "t": rng.integers(0, 40, 30),
                "id": np.arange(30),
            }
        )
        for name, kind in (("a", pa.int64()), ("b", pa.int32()), ("c", pa.int16()))
    }


def sources(flow: pk.LocalFlow, rows: dict[str, pa.Table]) -> dict:
    epochs = {name: [table.slice(0, 12), table.slice(12)] for name, table in rows.items()}
    return {name: flow.source(epochs[name], time="t", name=name) for name in rows}


def joined(rows: dict[str, pa.Table], **given) -> tuple[Counter, str]:
    """The ids of the rows of each result, and the plan in words."""
    flow = pk.LocalFlow()
    out = flow.join(**sources(flow, rows), **{"on": ON, **given}).to_memory()
    query = flow.run()
    found = out.table()
    return Counter(zip(*(found.column(f"{name}_id").to_pylist() for name in rows), strict=True)), str(query.explain())


def by_sql(rows: dict[str, pa.Table], where: str) -> Counter:
    with duckdb.connect() as db:
        for name, table in rows.items():
            db.register(name, table)
        shown = ", ".join(f"{name}.id" for name in rows)
        return Counter(db.execute(f"SELECT {shown} FROM {', '.join(rows)} WHERE {where}").fetchall())


@pytest.mark.parametrize("method", ["auto", "msj", "MJoin", "amjoin"])
def test_f25_f30_a_linear_plan_gives_what_sql_gives(method):
    rows = tables()
    found, plan = joined(rows, plan="a b c", method=method)
    assert found == by_sql(rows, " AND ".join(ON))
    name = "msj" if method == "auto" else method.lower()
    assert f"method {name} (" in plan
    assert "per arrival" in plan


def test_explain_says_why():
    _, plan = joined(tables(), plan="a b c")
    assert "linear join of a, b, c on a.k = b.k = c.k within always(), time of results: latest" in plan
    assert "because it orders its probes by the matches that it measures" in plan
    _, plan = joined(tables(), plan="a b c", method="amjoin")
    assert "because method='amjoin' was asked for" in plan
    assert "arrivals failed after 0.00 probes each" in plan


def test_a_method_alone_asks_for_a_linear_plan():
    rows = tables()
    assert joined(rows, method="mjoin")[0] == joined(rows, plan="c a b")[0] == joined(rows, plan="(a b) c")[0]


@pytest.mark.parametrize("within", [pk.band(before=3, after=8), pk.tumbling(10)])
@pytest.mark.parametrize("time", ["latest", "earliest", "b"])
def test_a_linear_plan_within_a_window_is_the_tree_s(within, time):
    rows = tables(1)
    linear, _ = joined(rows, plan="a b c", within=within, time=time)
    assert linear == joined(rows, within=within, time=time)[0]
    assert linear


def test_two_streams_may_be_joined_by_bistream():
    rows = {name: table for name, table in tables().items() if name != "c"}
    found, plan = joined(rows, on="a.k = b.k", method=BiStream(units=2))
    assert found == by_sql(rows, "a.k = b.k")
    assert "messages: 3.00 per arrival" in plan


def test_a_stream_may_be_joined_with_itself_twice():
    table = tables()["a"]
    flow = pk.LocalFlow()
    a = flow.source(table, time="t", name="a")
    out = flow.join(x=a, y=a, z=a, on=["x.k = y.k", "y.k = z.k"], plan="x y z").to_memory()
    flow.run()
    sizes = Counter(table.column("k").to_pylist())
    assert out.table().num_rows == sum(size**3 for size in sizes.values())


def test_results_have_their_time_for_the_next_operator():
    rows = tables()
    flow = pk.LocalFlow()
    stream = flow.join(**sources(flow, rows), on=ON, plan="a b c", within=pk.band(9, 9), time="latest")
    out = stream.window(range=10, slide=10).agg(n=pk.count()).to_memory()
    flow.run()
    near = " AND ".join(f"abs({x}.t - {y}.t) <= 9" for x, y in ("ab", "bc", "ac"))
    assert sum(out.table().column("n").to_pylist()) == by_sql(rows, f"{' AND '.join(ON)} AND {near}").total()


def node_of(on, **given):
    flow = pk.LocalFlow()
    return flow.join(**sources(flow, tables()), on=on, **{"plan": "a b c", **given})._node.input


@pytest.mark.parametrize(
    ("on", "keys"),
    [
        (ON, (("k",), ("k",), ("k",))),
        (["a.k = b.l", "c.k = a.k"], (("k",), ("l",), ("k",))),
        ([*ON, "a.l = c.l", "b.l = c.l"], (("k", "l"), ("k", "l"), ("k", "l"))),
        (["a.k = b.k", "a.l = b.k", "c.k = b.k"], (("k", "l"), ("k", "k"), ("k", "k"))),
    ],
)
def test_the_key_is_what_is_equal_in_all_streams(on, keys):
    node = node_of(on)
    assert isinstance(node.config, MultiJoin)
    assert node.config.on == keys
    places = range(len(keys[0]))
    assert all(len({t.columns.field(t.keys[place]).type for t in node.types}) == 1 for place in places)


@pytest.mark.parametrize("on", [["a.k = b.k", "a.l = b.k", "c.k = b.k"], [*ON, "a.l = c.l", "b.l = c.l"]])
def test_keys_of_several_columns_give_what_sql_gives(on):
    rows = tables(2)
    found, _ = joined(rows, on=on, plan="a b c")
    assert found == by_sql(rows, " AND ".join(on))
    assert found


def test_keys_that_some_stream_does_not_have_need_a_tree():
    with pytest.raises(ConfigError) as refused:
        node_of(["a.k = b.k", "b.l = c.l"])
    assert str(refused.value) == (
        "plan='a b c' joins all streams in one operator, which needs every key in every stream. a.k is a key of this "
        "join, but on= sets no column of c equal to it. Write plan='(a b) c', or add such a column to on=."
    )


def test_a_tree_has_no_method():
    with pytest.raises(ConfigError, match=r"plan='\(a b\) c' is a tree of joins. Write plan='a b c', or leave method="):
        node_of(ON, plan="(a b) c", method="mjoin")


def test_an_unknown_method_is_named_with_those_there_are():
    with pytest.raises(ConfigError, match="method='xjoin' is not one of auto, msj, mjoin, amjoin, bistream"):
        node_of(ON, method="xjoin")


def test_keys_that_cannot_be_compared_are_refused_by_their_names():
    flow = pk.LocalFlow()
    kinds = {"a": pa.int64(), "b": pa.int32(), "c": pa.float64()}
    streams = {n: flow.source(pa.table({"k": pa.array([1], kind), "t": [0]}), time="t") for n, kind in kinds.items()}
    with pytest.raises(ConfigError, match=r"on='a.k': the left key is int64, the right key 'c.k' is double"):
        flow.join(**streams, on=ON, plan="a b c")
