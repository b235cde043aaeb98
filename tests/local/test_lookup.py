"""Lookups in process: what a flow does with them over many epochs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.core.errors import ConfigError
from penstock.core.kept import kept_by

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


@pytest.mark.parametrize("method", ["cinlj", "broadcast"])
def test_what_stays_of_a_table_between_epochs_is_paid_for(tmp_path, method):
    pq.write_table(CUSTOMERS, tmp_path / "customers.parquet", row_group_size=50)
    epochs = orders(10)
    flow = pk.LocalFlow(memory="200 kB", shards=2)
    source = flow.source(epochs, time="t", progress=pk.ordered())
    out = source.lookup(str(tmp_path), on="k", method=method, freshness="latest").to_memory()
    query = flow.run()
    assert out.table().num_rows == pa.concat_tables(epochs).join(CUSTOMERS, "k", join_type="inner").num_rows
    kept = [kept_by(budget) for budget in query._budgets]
    assert 0 < sum(kept) <= 50_000
    beside = [budget.held - store.held for budget, store in zip(query._budgets, query._stores, strict=True)]
    assert beside == kept


def test_explain_says_how_a_lookup_runs_and_why():
    flow = pk.LocalFlow(memory="1 MB")
    flow.source(orders(3), time="t").lookup(CUSTOMERS, on="k", name="who").to_memory()
    text = flow.run().explain()
    assert "who: inner lookup on k in an Arrow table of 500 rows, snapshot" in text
    assert "method broadcast" in text
    assert "0 rows wait" in text


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
