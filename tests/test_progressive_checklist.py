"""Every feature of the checklist of joins without a window has a test that is named after it."""

from __future__ import annotations

import pytest

from tests.checklists import named_after

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
    return named_after(FILES, r"[epxshrk]\d")


@pytest.mark.parametrize("name", LISTED)
def test_it_has_a_test(name):
    assert features()[name]


def test_no_test_is_named_after_a_feature_that_there_is_not():
    assert {*features()} <= {*LISTED}
