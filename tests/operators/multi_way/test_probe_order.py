"""The order in which stores are probed against brute force (F25)."""

from __future__ import annotations

from itertools import permutations
from math import prod

import numpy as np
import pytest

from penstock.operators.multi_way.probe_order import expected_partials, probe_order


def partials(order: tuple[int, ...], matches: np.ndarray) -> float:
    """By the definition: every row with all it finds in a store goes on to the next; the last store makes results."""
    return sum(
        prod(int(row[port]) for port in order[:visited]) for row in matches for visited in range(1, len(order))
    ) / len(matches)


@pytest.mark.parametrize("seed", range(60))
def test_f25_the_order_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    ports = int(rng.integers(2, 7))
    origin = int(rng.integers(ports))
    matches = rng.integers(0, rng.integers(2, 9), (int(rng.integers(1, 6)), ports)).astype(float)
    others = [port for port in range(ports) if port != origin]
    best = min(permutations(others), key=lambda order: partials(order, matches))
    order = probe_order(origin, matches)
    assert partials(order, matches) == pytest.approx(partials(best, matches))
    assert expected_partials(order, matches) == pytest.approx(partials(order, matches))


def test_keys_decide_together_and_not_each_store_by_its_mean():
    """Store 1 has fewer matches than 2 and 3 on average, but 2 and 3 together leave nothing."""
    matches = np.array([[0, 4, 0, 10], [0, 4, 10, 0.0]])
    assert matches.mean(axis=0).argsort().tolist()[:2] == [0, 1]
    assert expected_partials((1, 2, 3), matches) == 4 + 20
    assert probe_order(0, matches) == (2, 3, 1), "5 + 0 partials"


def test_of_more_than_six_streams_each_next_store_leaves_the_fewest_partials():
    matches = np.array([[5, 0, 9, 4, 3, 2, 1.0]])
    assert probe_order(1, matches) == (6, 5, 4, 3, 0, 2)


@pytest.mark.parametrize("ports", [3, 8])
def test_without_anything_measured_or_in_a_tie_stores_are_probed_as_they_are_given(ports):
    others = tuple(port for port in range(ports) if port != 1)
    assert probe_order(1, np.empty((0, ports))) == others
    assert probe_order(1, np.ones((4, ports))) == others
