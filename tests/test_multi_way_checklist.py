"""Every feature of the checklist of multi-way joins, F01 to F40, has a test that is named after it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FILES = (
    "draws/test_multi_way.py",
    "flow/test_linear_plans.py",
    "flow/test_materialize.py",
    "flow/test_multi_way.py",
    "flow/test_tpch_joins.py",
    "lab/test_column_store.py",
    "lab/test_invisible_join.py",
    "lab/test_multi_way_*.py",
    "lab/test_sample_topology.py",
    "lab/test_spilling_joins.py",
    "lab/workloads/test_tpch.py",
    "operators/multi_way/**/test_*.py",
    "planner/multi_way/test_*.py",
    "planner/test_payload.py",
    "runtime/test_payload.py",
    "spark/drivers/test_multi_way_kills.py",
    "spark/test_multi_way*.py",
    "spark/test_payload.py",
)
"""Where F stands for the checklist of multi-way joins; elsewhere it is that of another source."""


def features() -> dict[str, list[str]]:
    """By id, the tests that are named after it."""
    found: dict[str, list[str]] = defaultdict(list)
    for pattern in FILES:
        paths = sorted(TESTS.glob(pattern))
        assert paths, f"there is no {pattern} any more"
        for path in paths:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    for number in re.findall(r"(?<=_)f(\d\d)(?=_)", node.name):
                        found[f"F{number}"].append(f"{path.relative_to(TESTS)}::{node.name}")
    return found


@pytest.mark.parametrize("number", range(1, 41))
def test_it_has_a_test(number):
    assert features()[f"F{number:02d}"]


def test_no_test_is_named_after_a_feature_that_there_is_not():
    assert {*features()} <= {f"F{number:02d}" for number in range(1, 41)}
