"""Every feature of the checklist of multi-way joins, F01 to F40, has a test that is named after it."""

from __future__ import annotations

import pytest

from tests.checklists import named_after

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
    "runtime/test_homes.py",
    "runtime/test_partials.py",
    "runtime/test_payload.py",
    "runtime/test_steps.py",
    "spark/drivers/test_multi_way_*.py",
    "spark/test_multi_way*.py",
    "spark/test_payload.py",
    "storage/test_payload.py",
)
"""Where F stands for the checklist of multi-way joins; elsewhere it is that of another source."""


def features() -> dict[str, list[str]]:
    """By id, the tests that are named after it."""
    return named_after(FILES, r"f\d\d")


@pytest.mark.parametrize("number", range(1, 41))
def test_it_has_a_test(number):
    assert features()[f"F{number:02d}"]


def test_no_test_is_named_after_a_feature_that_there_is_not():
    assert {*features()} <= {f"F{number:02d}" for number in range(1, 41)}
