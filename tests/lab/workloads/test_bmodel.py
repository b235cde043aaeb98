"""000-02: the b-model has 2ⁿ cells that sum to the volume, the largest being V·bⁿ; keys are skewed by the same bias."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.workloads.bmodel import descend, largest, levels_within, skewed_keys, split
from penstock import ConfigError

volumes = st.integers(0, 10**9)
biases = st.floats(0.5, 1)
levels = st.integers(0, 8)
seeds = st.integers(0, 2**40)


@given(volumes, biases, levels, seeds)
def test_000_02_there_are_two_to_the_n_cells_and_they_sum_to_the_volume(volume, bias, n, seed):
    cells = split(volume, bias=bias, levels=n, seed=seed)
    assert cells.size == 2**n
    assert cells.min() >= 0
    assert cells.sum() == volume


@given(volumes, st.floats(0.5, 0.99), levels, seeds)
def test_000_02_the_largest_cell_is_the_volume_times_the_bias_to_the_n(volume, bias, n, seed):
    top = split(volume, bias=bias, levels=n, seed=seed).max()
    assert top == largest(volume, bias=bias, levels=n)
    assert abs(top - volume * bias**n) <= 0.5 / (1 - bias) + 1e-6


@given(volumes, levels, seeds)
def test_000_02_without_bias_all_cells_are_the_same_but_for_one(volume, n, seed):
    cells = split(volume, bias=0.5, levels=n, seed=seed)
    assert cells.max() - cells.min() <= 1


def test_000_02_each_halving_gives_one_side_the_bias():
    cells = split(10**12, bias=0.6, levels=10, seed=3)
    while cells.size > 1:
        halves = cells.reshape(-1, 2)
        cells = halves.sum(axis=1)
        np.testing.assert_allclose(halves.max(axis=1) / cells, 0.6, rtol=1e-3)


def test_000_02_the_favoured_side_is_the_first_as_often_as_the_second():
    halves = split(10**12, bias=0.6, levels=12, seed=3).reshape(-1, 2)
    assert 0.46 < (halves[:, 0] > halves[:, 1]).mean() < 0.54


def test_the_same_seed_gives_the_same_cells_and_another_seed_others():
    cells = split(10**6, bias=0.7, levels=8, seed=1)
    assert (cells == split(10**6, bias=0.7, levels=8, seed=1)).all()
    assert (cells != split(10**6, bias=0.7, levels=8, seed=2)).any()


@given(st.integers(0, 10**6), st.floats(0.5, 0.7), st.integers(50, 10**5))
def test_the_levels_are_the_fewest_that_keep_the_cap(volume, bias, cap):
    n = levels_within(volume, bias=bias, cap=cap)
    assert largest(volume, bias=bias, levels=n) <= cap
    assert n == 0 or largest(volume, bias=bias, levels=n - 1) > cap


@given(st.integers(1, 10**12), biases, st.integers(0, 200), seeds)
def test_keys_are_of_the_domain(domain, bias, count, seed):
    keys = skewed_keys(count, domain=domain, bias=bias, seed=seed)
    assert keys.size == count
    assert ((keys >= 0) & (keys < domain)).all()


@pytest.mark.parametrize("domain", [1024, 1000, 10_000_001])
def test_000_05_the_favoured_half_of_the_keys_has_the_bias_at_every_halving(domain):
    keys = skewed_keys(200_000, domain=domain, bias=0.7, seed=5)
    low, size = np.array([0]), np.array([domain])
    for _ in range(5):
        first, second = (descend(low, size, np.array([side])) for side in (False, True))
        inside = [((keys >= part[0]) & (keys < part[0] + part[1])).sum() for part in (first, second)]
        assert abs(max(inside) / sum(inside) - 0.7) < 0.02
        low, size = first if inside[0] > inside[1] else second


def test_keys_without_bias_are_uniform():
    counts = np.bincount(skewed_keys(160_000, domain=16, bias=0.5, seed=5), minlength=16)
    assert abs(counts - 10_000).max() < 500


@pytest.mark.parametrize("domain", [1, 2, 5, 7, 13])
def test_no_key_of_a_domain_is_left_out(domain):
    assert set(skewed_keys(2000, domain=domain, bias=0.6, seed=5).tolist()) == set(range(domain))


def test_with_all_the_bias_there_is_one_key():
    assert len(set(skewed_keys(100, domain=10**7, bias=1, seed=5).tolist())) == 1


def test_other_seeds_draw_other_keys_of_the_same_hot_half_and_other_sides_make_others_hot():
    one, other = (skewed_keys(50_000, domain=64, bias=0.8, seed=seed, sides=3) for seed in (1, 2))
    counts, again = np.bincount(one, minlength=64), np.bincount(other, minlength=64)
    assert (one != other).any()
    assert counts.argmax() == again.argmax()
    hottest = {int(np.bincount(skewed_keys(5000, domain=64, bias=0.8, seed=1, sides=s)).argmax()) for s in range(10)}
    assert len(hottest) > 5


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: split(-1, bias=0.6, levels=1, seed=0), "-1 rows are fewer than none"),
        (lambda: split(1, bias=0.4, levels=1, seed=0), "bias=0.4 is no share of a favoured half"),
        (lambda: split(1, bias=0.6, levels=31, seed=0), r"levels=31 makes 2 \*\* 31 cells. Write 0 to 30"),
        (lambda: levels_within(10, bias=1, cap=5), "cap=5 cannot be kept: with bias=1, a cell of 10 rows"),
        (lambda: skewed_keys(1, domain=0, bias=0.6, seed=0), "domain=0 has no key"),
    ],
)
def test_what_cannot_be_made_is_refused(call, says):
    with pytest.raises(ConfigError, match=says):
        call()
