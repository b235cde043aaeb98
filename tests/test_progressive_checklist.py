"""Every feature of the checklist of joins without a window has a test that is named after it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FILES = (
    "flow/test_near.py",
    "flow/test_spatial.py",
    "lab/test_cells*.py",
    "lab/test_early_spatial.py",
    "lab/test_progressive.py",
    "operators/window_join/progressive/**/test_*.py",
    "spark/test_near.py",
    "spark/test_progressive.py",
    "spark/test_spatial.py",
)
"""Where these letters stand for that checklist; elsewhere they are those of another source."""

SECTIONS = {"E": 6, "P": 5, "X": 5, "S": 4, "H": 2, "R": 4, "K": 2}
"""Engine, policies, experiments, spatial, high dimensions, early spatial joins, on Spark; and how many each has."""

LISTED = [f"{letter}{number}" for letter, count in SECTIONS.items() for number in range(1, count + 1)]


def features() -> dict[str, list[str]]:
    """By id, the tests that are named after it."""
    found: dict[str, list[str]] = defaultdict(list)
    for pattern in FILES:
        paths = sorted(TESTS.glob(pattern))
        assert paths, f"there is no {pattern} any more"
        for path in paths:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    for name in re.findall(r"(?<=_)([epxshrk]\d)(?=_)", node.name):
                        found[name.upper()].append(f"{path.relative_to(TESTS)}::{node.name}")
    return found


@pytest.mark.parametrize("name", LISTED)
def test_it_has_a_test(name):
    assert features()[name]


def test_no_test_is_named_after_a_feature_that_there_is_not():
    assert {*features()} <= {*LISTED}
