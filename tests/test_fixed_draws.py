"""Tests must give everyone the same verdict: what they draw is fixed, whatever ran before and in whichever order."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

TESTS = Path(__file__).parent

UNSEEDED = re.compile(
    r"default_rng\(\)|\brandom\.Random\(\)|np\.random\.(rand|randint|choice|shuffle)\b|\bimport secrets\b"
)


def drawn(profile: str, examples: int = 300) -> list[list[int]]:
    """The examples that a property gets under a profile."""
    seen: list[list[int]] = []

    @settings(settings.get_profile(profile), max_examples=examples)
    @given(st.lists(st.integers()))
    def prop(value: list[int]) -> None:
        seen.append(value)

    prop()
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["fast", "ci"])
def test_profiles_for_everyone_draw_the_same_examples_each_time(profile):
    assert drawn(profile) == drawn(profile)
    assert settings.get_profile(profile).database is None


@pytest.mark.parametrize("profile", ["fuzz", "deep"])
def test_profiles_that_search_print_what_reproduces_a_failure(profile):
    chosen = settings.get_profile(profile)
    assert not chosen.derandomize
    assert chosen.print_blob


@pytest.mark.slow
def test_draws_do_not_depend_on_modules_loaded_meanwhile(tmp_path, monkeypatch):
    before = drawn("ci")
    for number in range(20):
        (tmp_path / f"absurd{number}.py").write_text(
            f"VALUES = [{', '.join(str(number * 7919 + i) for i in range(99))}]"
        )
        monkeypatch.syspath_prepend(tmp_path)
        importlib.import_module(f"absurd{number}")
    assert drawn("ci") == before


def test_every_other_random_number_has_a_seed():
    tests = {path: path.read_text() for path in TESTS.rglob("*.py") if path != Path(__file__)}
    assert {str(path): found for path, text in tests.items() if (found := UNSEEDED.findall(text))} == {}
