"""F21: Merge and BSort give their rows by time, and hold what came too early."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.operators import BSort, Merge
from penstock.core.errors import ConfigError
from tests.items import Bound, Host, Restart, Rows, is_sorted, memories, rows, streams
from tests.streams import examples


def given_in(items) -> Counter:
    return Counter(pair for item in items if isinstance(item, Rows) for pair in item.rows)


# Merge


def test_f21_merge_waits_for_the_input_that_is_behind():
    host = Host(Merge(2), inputs=2).on(rows((1, 3), (1, 8), port=0))
    assert (host.times(), host.logic.held) == ([], 2)
    assert host.on(rows((2, 5), port=1)).times() == [3, 5]
    assert host.on(Bound(1, 9)).times() == [3, 5, 8]
    assert host.logic.held == 0


def test_f21_a_silent_input_lets_the_buffer_grow_without_limit():
    host = Host(Merge(2), inputs=2).on(*(rows((1, n), port=0) for n in range(100)))
    assert (host.times(), host.logic.held) == ([], 100)
    assert host.end().times() == list(range(100))


def test_f21_a_row_behind_what_has_left_is_late():
    host = Host(Merge(2), inputs=2).on(rows((1, 9), port=0), rows((1, 9), port=1), rows((1, 4), (1, 9), port=0))
    assert host.times() == [9, 9, 9]
    assert host.times("late") == [4]
    assert host.logic.violators == 1


@given(st.integers(1, 3).flatmap(lambda n: st.tuples(st.just(n), streams(inputs=n, ordered=True))), memories)
@examples(0.1)
def test_f21_merge_gives_every_row_of_ordered_inputs_in_order(case, memory):
    inputs, items = case
    host = Host(Merge(inputs), inputs, memory).on(*items).end()
    assert Counter(host.pairs()) == given_in(items)
    assert is_sorted(host.times())
    assert host.logic.held == host.budget.held == host.logic.violators == 0
    assert host.budget.peak <= memory


@given(streams(inputs=2))
@examples(0.05)
def test_f21_merge_is_ordered_even_if_its_inputs_are_not_and_loses_nothing(items):
    host = Host(Merge(2), inputs=2).on(*items).end()
    assert is_sorted(host.times())
    assert Counter(host.pairs()) + Counter(host.pairs("late")) == given_in(items)


# BSort


def test_f21_bsort_holds_rows_until_the_latest_is_ahead_by_more_than_the_slack():
    host = Host(BSort(slack=3)).on(rows((1, 5), (1, 4)))
    assert host.times() == []
    assert host.on(rows((1, 8))).times() == [4], "5 is not below 8 - 3"
    assert host.on(rows((1, 6)), Bound(0, 7)).times() == [4, 5, 6], "a bound lets go as well"
    assert host.end().times() == [4, 5, 6, 8]


def test_f21_bsort_puts_aside_what_comes_later_than_the_slack():
    host = Host(BSort(slack=3)).on(rows((1, 10)), rows((1, 6), (1, 7))).end()
    assert host.times() == [7, 10]
    assert host.times("late") == [6]


@given(streams(), st.integers(0, 60), memories)
@examples(0.1)
def test_f21_bsort_output_is_ordered_and_whole_at_enough_slack(items, slack, memory):
    host = Host(BSort(slack=slack), memory=memory).on(*items).end()
    assert is_sorted(host.times())
    assert Counter(host.pairs()) + Counter(host.pairs("late")) == given_in(items)
    came = [t for item in items if isinstance(item, Rows) for _, t in item.rows]
    if slack >= max((before - t for n, t in enumerate(came) for before in came[:n]), default=0):
        assert host.times("late") == []
    assert host.budget.peak <= memory


@pytest.mark.parametrize("operator", [BSort(slack=0), Merge(1)])
@given(items=streams())
@examples(0.05)
def test_no_row_comes_after_a_bound_that_excludes_it(operator, items):
    host = Host(operator)
    for item in items:
        before = host.logic.bounds().individual[0]
        count = len(host.times())
        host.on(item)
        assert all(t >= before for t in host.times()[count:])


def test_rows_that_wait_survive_a_restart():
    host = Host(BSort(slack=3)).on(rows((1, 5), (1, 4)), Restart(), rows((1, 9)))
    assert host.times() == [4, 5]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BSort(slack=-1), r"^slack=-1 is negative\. Write how far behind the latest row one may come\.$"),
        (lambda: Merge(0), r"^inputs=0 is a union of nothing\."),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
