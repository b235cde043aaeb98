"""Hypothesis profiles: `fast` for the inner loop, `ci` for everyone, `deep` by flag (--hypothesis-profile=deep)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("fast", max_examples=50, **_COMMON)
settings.register_profile("ci", max_examples=500, **_COMMON)
settings.register_profile("deep", max_examples=50_000, **_COMMON)
settings.load_profile("ci")
