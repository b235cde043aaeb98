"""The list of methods: a new one is a module and an entry, as CONTRIBUTING.md says, and is known wherever they are."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.errors import ConfigError
from penstock.core.methods import Method
from penstock.operators.window_join import METHODS
from tests.operators.window_join.toy import KeepAll, KeepAllJoin

REPOSITORY = Path(__file__).parents[3]
ENTRY = Method("keep_all", "keep-all join", "keeps all rows until the end", KeepAll(), KeepAllJoin, auto="never picks")


def joined(method) -> tuple[list[dict], str]:
    flow = pk.LocalFlow()
    orders = flow.source(pa.table({"id": [1, 2, 1, None], "t": [0, 5, 7, 8]}), time="t", name="orders")
    paid = flow.source(pa.table({"id": [1, 2, 1], "t": [3, 9, 50]}), time="t", name="paid")
    rows = orders.join(paid, on="id", within=pk.band(before=5, after=5), method=method).to_memory()
    query = flow.run()
    return rows.table().sort_by("t").to_pylist(), str(query.explain())


@pytest.mark.parametrize("method", ["keep_all", "Keep-All", KeepAll(pages=5)])
def test_a_method_that_is_listed_runs_and_is_explained(monkeypatch, method):
    monkeypatch.setitem(METHODS, ENTRY.name, ENTRY)
    rows, plan = joined(method)
    assert rows == joined("oa")[0] == [{"id": 1, "t": 0, "t_right": 3}, {"id": 2, "t": 5, "t_right": 9},
                                       {"id": 1, "t": 7, "t_right": 3}]  # fmt: skip
    assert "method keep_all (Keep-all join: keeps all rows until the end)" in plan
    assert "because method='keep_all' was asked for" in plan


def test_its_name_is_among_those_that_errors_list_and_its_own_rules_hold(monkeypatch):
    with pytest.raises(ConfigError, match="method='keep_all' is not one of auto, oa"):
        joined("keep_all")
    monkeypatch.setitem(METHODS, ENTRY.name, ENTRY)
    with pytest.raises(ConfigError, match=r"shj, keep_all\. Write one of these"):
        joined("keep_some")
    with pytest.raises(ConfigError, match="pages=0 keeps nothing"):
        KeepAll(pages=0)


def test_the_recipe_names_the_files_that_it_takes():
    """Two: what `toy.py` stands for, and the list; a third for what `auto` may pick."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    recipe = text.split("## Adding a join method")[1].split("\n## ")[0]
    assert re.findall(r"^\d\. `([^`]+)`", recipe, flags=re.MULTILINE) == [
        "operators/window_join/<name>.py",
        "operators/window_join/registry.py",
        "planner/window_join/costs.py",
    ]
    assert "Two files, and a third if `auto` may pick it" in recipe


@pytest.mark.parametrize("family", ["a join method", "an aggregate", "a table store"])
def test_files_that_recipes_name_are_there(family):
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    recipe = text.split(f"## Adding {family}")[1].split("\n## ")[0]
    named = re.findall(r"^\d\. `([^`]+)`", recipe, flags=re.MULTILINE)
    places = [REPOSITORY / "src" / "penstock" / (name if "<" not in name else str(Path(name).parent)) for name in named]
    assert named
    assert [place for place in places if not place.exists()] == []
