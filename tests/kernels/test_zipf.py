"""Zipf's law by formulas: sums, shares and their inverse equal those that are added up rank by rank."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.zipf import collisions, harmonic, ranks_at, top_share

exponents = st.floats(0, 1.5) | st.sampled_from([0.0, 0.5, 0.75, 1.0])
counts = st.integers(1, 50_000)


@given(counts, exponents)
def test_a_harmonic_number_is_the_sum_of_its_terms(count, exponent):
    assert harmonic(count, exponent) == pytest.approx(float((np.arange(1, count + 1) ** -exponent).sum()), rel=1e-12)


def test_a_billion_terms_are_not_added_up():
    gamma = 0.5772156649015329
    assert harmonic(10**9, 1.0) == pytest.approx(np.log(1e9) + gamma + 0.5e-9, rel=1e-14)


@given(counts, exponents)
def test_ranks_are_where_the_cumulated_shares_say(count, exponent):
    shares = np.arange(1, count + 1) ** -exponent
    ends = np.cumsum(shares) / shares.sum()
    middles = ends - shares / shares.sum() / 2
    assert (ranks_at(middles, count, exponent) == np.arange(count)).all()


@given(counts, exponents, st.floats(0, 1, exclude_max=True))
def test_a_rank_is_always_one_of_those_there_are(count, exponent, place):
    assert 0 <= ranks_at(np.array([place]), count, exponent)[0] < count


def test_shares_of_the_most_frequent_and_of_equal_pairs():
    assert top_share(10, 100, 0.0) == pytest.approx(0.1)
    assert top_share(200, 100, 1.0) == 1.0
    assert top_share(1, 0, 1.0) == 0.0
    shares = np.arange(1, 101) ** -0.8
    assert collisions(100, 0.8) == pytest.approx(float((shares**2).sum() / shares.sum() ** 2))
