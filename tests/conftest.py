"""What all tests share.

Hypothesis profiles: `fast` for the inner loop, `ci` for everyone, `deep` by flag (--hypothesis-profile=deep).
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from penstock.core.budget import Budget
from penstock.core.kept import hand_over

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("fast", max_examples=50, **_COMMON)
settings.register_profile("ci", max_examples=400, **_COMMON)
settings.register_profile("deep", max_examples=50_000, **_COMMON)
settings.load_profile("ci")


@pytest.fixture
def nothing_kept() -> None:
    """Nothing stays of tables that were looked up in before."""
    hand_over(Budget(10**9), 0)
