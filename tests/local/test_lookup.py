"""Lookups in process: what a flow does with them over many epochs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.errors import ConfigError

CUSTOMERS = pa.table({"k": list(range(500)), "name": [f"customer {n}" for n in range(500)]})


def orders(epochs: int, rows: int = 200) -> list[pa.Table]:
    made = np.random.default_rng(3)
    return [
        pa.table({"k": np.minimum(made.zipf(1.5, rows), 600), "t": np.arange(rows) + n * rows}) for n in range(epochs)
    ]


@pytest.mark.parametrize("method", ["auto", "cinlj", "chybridjoin", "cmeshjoin", "partitioned", "broadcast"])
def test_memory_is_the_same_after_many_epochs(method):
    epochs = orders(30)
    flow = pk.LocalFlow(memory="200 kB", shards=2)
    out = flow.source(epochs, time="t", progress=pk.ordered()).lookup(CUSTOMERS, on="k", method=method).to_memory()
    query = flow.run()
    known = pa.concat_tables(epochs).join(CUSTOMERS, "k", join_type="inner")
    assert out.table().num_rows == known.num_rows
    held = [operator.peak_memory for epoch in query.progress().epochs for operator in epoch.operators.values()]
    assert max(held) <= 100_000
    assert [budget.held for budget in query._budgets] == [store.held for store in query._stores]


def test_explain_says_how_a_lookup_runs_and_why():
    flow = pk.LocalFlow(memory="1 MB")
    flow.source(orders(3), time="t").lookup(CUSTOMERS, on="k", name="who").to_memory()
    text = flow.run().explain()
    assert "who: inner lookup on k in an Arrow table of 500 rows, snapshot" in text
    assert "method broadcast" in text
    assert "0 rows wait" in text


def test_progress_says_how_many_rows_wait_and_how_old_the_oldest_is():
    """One row waits in each of two shards at least; the oldest of all shards counts, behind the bound of the source."""
    rows = [pa.table({"k": list(range(8)), "t": [30, 31, 32, 33, 34, 35, 36, 37]}), pa.table({"k": [0], "t": [50]})]
    flow = pk.LocalFlow(shards=2)
    source = flow.source(rows, time="t", progress=pk.ordered())
    source.lookup(CUSTOMERS, on="k", method="hybridjoin", name="who").to_memory()
    query = flow.run(end=False)
    waits = query.progress().epochs[-1].operators["who"].waits
    assert (waits.rows, waits.oldest, waits.bound, waits.age) == (9, 30, 50, 20)
    assert "who: 9 rows wait, the oldest 20 behind the bound, bounds" in str(query.progress())
    assert query.explain().count("; 9 rows wait, the oldest 20 behind the bound") == 1


def test_when_the_stream_has_ended_nothing_waits():
    flow = pk.LocalFlow()
    source = flow.source(orders(2), time="t", progress=pk.ordered())
    source.lookup(CUSTOMERS, on="k", method="hybridjoin", name="who").to_memory()
    query = flow.run()
    assert [epoch.operators["who"].waits.rows for epoch in query.progress().epochs][-1] == 0
    assert "wait" not in str(query.progress())


def test_the_age_of_rows_is_shown_in_the_unit_of_their_time():
    times = pa.array([0, 5_400_000_000], pa.timestamp("us"))
    flow = pk.LocalFlow()
    source = flow.source(pa.table({"k": [1, 2], "t": times}), time="t", progress=pk.ordered())
    source.lookup(CUSTOMERS, on="k", method="hybridjoin", name="who").to_memory()
    assert "2 rows wait, the oldest 1.5 h behind the bound" in str(flow.run(end=False).progress())


def test_a_table_keyed_by_other_columns_is_refused(tmp_path):
    folder = str(tmp_path / "table")
    pk.write_page_table(CUSTOMERS, folder, keys=["name"])
    flow = pk.LocalFlow()
    with pytest.raises(ConfigError, match="looks up by k, but the table is keyed by name"):
        flow.source(orders(1), time="t").lookup(pk.PageTable(folder), on="k")


def test_a_row_sees_the_version_of_its_epoch_or_of_the_first(tmp_path):
    folder = str(tmp_path / "table")

    def changing():
        for n in (1, 2):
            yield pa.table({"k": [7], "t": [n]})
            pk.PageTable(folder).upsert(pa.table({"k": [7], "name": [f"after {n}"]}))

    seen = {}
    for freshness in ("snapshot", "latest"):
        pk.write_page_table(pa.table({"k": [7], "name": ["before"]}), folder, keys="k")
        flow = pk.LocalFlow()
        source = flow.source(changing(), time="t", progress=pk.ordered())
        out = source.lookup(pk.PageTable(folder), on="k", freshness=freshness).to_memory()
        flow.run()
        seen[freshness] = out.table().sort_by("t").column("name").to_pylist()
    assert seen["snapshot"] == ["before", "before"]
    assert seen["latest"] == ["before", "after 1"]
