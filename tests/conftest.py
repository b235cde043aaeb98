"""Hypothesis profiles, and which tests may run side by side.

Profiles: `fast` for the inner loop, `ci` for everyone, `deep` by flag (--hypothesis-profile=deep).
Tests on Spark all run in one process, one after the other: they share a session, and some measure its workers.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("fast", max_examples=100, **_COMMON)
settings.register_profile("ci", max_examples=2_500, **_COMMON)
settings.register_profile("deep", max_examples=50_000, **_COMMON)
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
