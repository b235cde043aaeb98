"""Twice as many columns are about twice as much work, and only columns that an expression names go through DuckDB."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.expressions import evaluate

ROWS = 3


def wide(columns: int) -> pa.Table:
    return pa.table({"k": range(ROWS), "t": range(ROWS), **{f"c{n}": range(ROWS) for n in range(columns)}})


FLOWS: dict[str, Any] = {
    "select": lambda flow, left, rows: left.select("*", "c0 + 1 AS more"),
    "where": lambda flow, left, rows: left.where("c1 >= 0"),
    "aggregation": lambda flow, left, rows: left.window(range=9).agg(
        **{f"s{n}": pk.sum(name) for n, name in enumerate(rows.column_names)}
    ),
    "join": lambda flow, left, rows: left.join(flow.source(rows, time="t"), on="k", within=pk.band(0, 0)),
    "lookup": lambda flow, left, rows: left.lookup(rows.drop_columns(["t"]), on="k"),
}


def calls(build: Any, columns: int) -> int:
    """How many functions are called to build and run a flow."""
    rows, made = wide(columns), 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    flow = pk.LocalFlow()
    sys.setprofile(count)
    try:
        out = build(flow, flow.source(rows, time="t", name="left"), rows).to_memory()
        flow.run()
    finally:
        sys.setprofile(None)
    assert out.table().num_rows > 0
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FLOWS))
def test_work_grows_with_the_number_of_columns_not_with_its_square(name):
    calls(FLOWS[name], 10)
    few, many = calls(FLOWS[name], 200), calls(FLOWS[name], 800)
    assert many < 6 * few


def test_only_columns_that_are_named_go_through_duckdb(monkeypatch):
    seen = []
    run = evaluate._run

    def watched(rows: pa.Table, columns: Any, computed: Any, written: Any) -> pa.Table:
        seen.extend(computed)
        return run(rows, columns, computed, written)

    monkeypatch.setattr(evaluate, "_run", watched)
    rows = wide(50)
    assert evaluate.where(rows, "c1 > c2 OR k = 1").num_columns == 52
    assert evaluate.select(rows, ["*", "c3 / 2 AS more"]).num_columns == 53
    assert evaluate.select(rows, ["c4", "c5 AS five"]).column_names == ["c4", "five"]
    assert [sorted(item.needs) for item in seen] == [["c1", "c2", "k"], ["c3"]]
