"""MJoin: probes until a store has no partner (F30)."""

from __future__ import annotations

import pytest

from penstock.operators.multi_way.baselines.mjoin import MJoin
from tests.operators.multi_way.cases import LinearRun, arrive, linear


def stored(method) -> LinearRun:
    """Key 1 is in all of the stores 1 to 4, key 2 in 1 to 3, key 3 in 1 and 2, key 4 in 1, key 5 in none."""
    join = LinearRun(linear(5, method=method))
    for port in range(1, 5):
        join.on(arrive(port, *((key, 0) for key in range(1, 6 - port))))
    return join


def probes(join: LinearRun, *keys: int) -> int:
    before = join.counts()["probes"]
    join.on(arrive(0, *((key, 0) for key in keys)))
    return join.counts()["probes"] - before


@pytest.mark.parametrize(("key", "expected"), [(1, 4), (2, 4), (3, 3), (4, 2), (5, 1)])
def test_f30_an_arrival_probes_until_a_store_fails_it(key, expected):
    assert probes(stored("mjoin"), key) == expected


def test_f30_a_failing_arrival_takes_about_half_the_stores():
    """(n - 1) / 2 probes on average, plus a half, if each store is as likely as the others to be the one that fails."""
    join = stored("mjoin")
    failed = join.counts()["failed"], join.counts()["probes to failure"]
    assert probes(join, 2, 3, 4, 5) == 1 + 2 + 3 + 4
    assert join.counts()["failed"] - failed[0] == 4
    assert (join.counts()["probes to failure"] - failed[1]) / 4 == 2.5


def test_the_order_may_be_given():
    assert probes(stored(MJoin(order=(4, 3, 2, 1, 0))), 2, 3, 4, 5) == 4
