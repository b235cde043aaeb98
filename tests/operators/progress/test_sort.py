"""Sort: rows of one or several streams in order of time, exact by bounds, within the memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.core.time import TIME_MAX
from penstock.operators.progress import Sort
from penstock.operators.progress import held as held_module
from penstock.operators.progress.held import Held
from tests.items import Bound, Host, Rows, is_sorted, memories, rows, streams
from tests.streams import examples


def ended(host: Host) -> Host:
    """Streams end as hosts end them."""
    return host.on(*(Bound(port, TIME_MAX) for port in range(host.inputs)))


def test_rows_leave_in_order_once_the_bound_has_passed_them():
    host = Host(Sort()).on(rows((1, 7), (2, 3)), Bound(0, 3))
    assert host.times() == []
    assert host.on(rows((3, 5)), Bound(0, 7)).times() == [3, 5]
    assert ended(host).times() == [3, 5, 7]


def test_a_merge_waits_for_the_bound_of_every_input():
    host = Host(Sort(2), inputs=2).on(rows((1, 3), (1, 8)), rows((2, 5), port=1), Bound(0, 20))
    assert host.times() == []
    assert host.on(Bound(1, 6)).times() == [3, 5]
    assert host.on(Bound(1, 9)).times() == [3, 5, 8]


def test_the_bound_of_a_merge_is_the_least_of_its_inputs():
    assert Host(Sort(2), inputs=2).on(Bound(0, 9), Bound(1, 4), Bound(1, 12)).bounds[1:] == [4, 9]


@given(st.integers(1, 3).flatmap(lambda n: st.tuples(st.just(n), streams(inputs=n))), memories)
@examples(0.2)
def test_every_row_leaves_in_order_of_time_and_none_before_it_may(case, memory):
    inputs, items = case
    host = Host(Sort(inputs), inputs, memory)
    bounds = [-(2**63)] * inputs
    for item in items:
        host.on(item)
        if isinstance(item, Bound):
            bounds[item.port] = max(bounds[item.port], item.bound)
        assert all(t < min(bounds) for t in host.times())
    ended(host)
    assert Counter(host.pairs()) == Counter(pair for item in items if isinstance(item, Rows) for pair in item.rows)
    assert is_sorted(host.times())
    assert host.budget.peak <= memory
    assert host.budget.held == 0
    assert host.logic.state().pages == ()


@pytest.mark.slow
def test_what_waits_may_be_many_times_the_memory():
    host = Host(Sort(), memory=20_000)
    for step in range(50):
        host.on(rows(*((n, (7919 * (50 * step + n)) % 5000) for n in range(50))))
    assert ended(host).times() == sorted((7919 * n) % 5000 for n in range(2500))
    assert host.budget.peak <= 20_000


def test_a_sort_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="inputs=0 must be at least 1"):
        Sort(0)


def _late_by_one(take: Any) -> Any:
    return lambda self, until: take(self, until if until == TIME_MAX else until + 1)


MUTANTS = {
    "lets rows at the bound go": lambda patch: patch.setattr(Held, "take", _late_by_one(Held.take)),
    "lets rows go in the order of their pages": lambda patch: patch.setattr(held_module, "by_time", lambda rows: rows),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_of_these_mistakes_would_show(monkeypatch, name):
    MUTANTS[name](monkeypatch)
    early = Host(Sort()).on(rows((1, 5)), Bound(0, 5)).times()
    order = ended(Host(Sort()).on(rows((1, 7)), rows((2, 5)))).times()
    assert (early, order) != ([], [5, 7])
