"""How unevenly keys are asked for, judged by samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.kernels.zipf import ranks_at
from penstock.planner.lookup.skew import Skew, fit_exponent


def sample(keys, exponent, rows=50_000, seed=1):
    ranks = ranks_at(np.random.default_rng(seed).random(rows), keys, exponent)
    return np.bincount(ranks)[np.bincount(ranks) > 0]


@pytest.mark.parametrize("exponent", [0.25, 0.5, 0.75, 1.0, 1.25, 1.5])
def test_the_exponent_is_told_from_counts_without_their_ranks(exponent):
    counts = np.random.default_rng(3).permutation(sample(20_000, exponent))
    assert fit_exponent(counts, 20_000) == pytest.approx(exponent, abs=0.03)


def test_even_keys_are_told_from_skewed_ones():
    assert fit_exponent(sample(20_000, 0.0, rows=200_000), 20_000) < 0.1


def test_a_sample_of_nothing_is_even():
    assert fit_exponent(np.array([], np.int64), 100) == 0.0
    assert fit_exponent(np.array([1]), 100) == 0.0


@given(st.integers(1, 5000), st.floats(0, 1.5), st.integers(1, 20_000), st.integers(0, 2000))
def test_groups_are_all_keys_and_distinct_keys_are_what_adding_up_gives(keys, exponent, rows, beyond):
    skew, beyond = Skew(keys, exponent), min(beyond, keys - 1)
    counts, shares = skew.groups(beyond)
    assert counts.sum() == keys - beyond
    assert float((counts * shares).sum()) == pytest.approx(1.0)
    each = np.arange(beyond + 1, keys + 1) ** -exponent
    exact = float((1 - np.exp(-rows * each / each.sum())).sum())
    assert skew.distinct(rows, beyond) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("make", [lambda: Skew(0), lambda: Skew(5, 3.0)])
def test_what_is_no_skew_is_refused(make):
    with pytest.raises(ConfigError):
        make()
