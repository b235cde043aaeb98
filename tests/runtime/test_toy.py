"""A new operator is one module: hosts, reports and `explain()` need to know nothing of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as pk
from tests.runtime import toy
from tests.runtime.flows import operated
from tests.runtime.toy import Delayed

EPOCHS = [pa.table({"k": [1, 2, 1], "t": [3, 1, 2]}), pa.table({"k": [3], "t": [6]}), pa.table({"k": [4], "t": [9]})]


@pytest.mark.parametrize("shards", [1, 3])
def test_an_operator_of_one_module_runs_in_process(shards):
    flow = pk.LocalFlow(shards=shards)
    source = flow.source(EPOCHS, time="t", progress=pk.ordered())
    delayed = operated(source, Delayed(3), "later")
    rows, counted = delayed.to_memory(), delayed.window(range=4).agg(n=pk.count()).to_memory()
    query = flow.run()
    assert [rows.sink.epochs[epoch]["t"].to_pylist() for epoch in range(4)] == [[], [1, 2], [3], [6, 9]]
    assert sorted(counted.table()["n"].to_pylist()) == [1, 1, 3]
    assert "later: rows are held back for 3" in query.explain()
    assert query.progress().epochs[0].operators["later"].state_rows == 3
    assert query.progress().epochs[0].operators["later"].method == "Delayed"


def test_the_toy_is_a_config_with_the_three_answers_that_have_no_default_and_a_logic_with_the_five_calls():
    """What the recipe in CONTRIBUTING.md names, and no more."""
    kinds = {n.name: n for n in ast.parse(Path(toy.__file__).read_text()).body if isinstance(n, ast.ClassDef)}
    methods = {name: {m.name for m in kind.body if isinstance(m, ast.FunctionDef)} for name, kind in kinds.items()}
    assert methods["Delayed"] == {"says", "bounds", "logic"}
    assert methods["Delaying"] - {"__init__"} == {"rows", "advance", "idle", "bounds", "state"}


def test_contributing_names_the_files_that_a_new_operator_takes():
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    recipe = text.split("## Adding an operator")[1].split("\n## ")[0]
    assert recipe.strip().startswith("Two files")
    assert "operators/<family>/<name>.py" in recipe
    assert "flow/stream.py" in recipe
