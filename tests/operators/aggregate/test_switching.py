"""State goes from one method to another at the end of an epoch wherever it can, and no window is the worse for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import StateError
from penstock.core.windows import sliding
from penstock.operators.aggregate.paned import PanedAggregation
from penstock.operators.aggregate.roles import takes_up
from tests.aggregates import (
    BOUNDED,
    HOLISTIC,
    SUBTRACTABLE,
    Advance,
    Arrive,
    Case,
    EpochEnd,
    Run,
    cases,
    row,
    run,
)
from tests.streams import examples

METHODS = ("wid", "paned", "differential", "adapt")


def check(case: Case) -> None:
    aggregation = run(case)
    assert aggregation.results == case.expected()
    assert aggregation.held == 0
    assert all(budget.peak <= case.memory for budget in aggregation.budgets)
    assert sum(budget.held for budget in aggregation.budgets) == 0


def switching(case: Case, methods: list[str], every: int) -> Case:
    """The same stream, begun by the first method; epochs end after every so many events, each with another method."""
    later, events = iter(methods[1:] * (1 + len(case.events))), []
    for number, event in enumerate(case.events):
        if isinstance(event, EpochEnd):
            events.append(replace(event, method=next(later)))
            continue
        events.append(event)
        if number % every == 0:
            events.append(EpochEnd(case.shards, method=next(later)))
    return replace(case, events=events, method=methods[0], memory=max(60_000, case.memory))


def orders(*methods: str):
    return st.lists(st.sampled_from(methods), min_size=3, max_size=5)


@given(cases(names=[*SUBTRACTABLE, *HOLISTIC]), orders(*METHODS), st.integers(1, 3))
@examples(0.1)
def test_methods_in_random_order_equal_the_definition(case, methods, every):
    check(switching(case, methods, every))


@given(cases(names=[*SUBTRACTABLE, *HOLISTIC]), orders("paned", "differential"), st.integers(1, 3))
@examples(0.06)
def test_two_stacks_and_differences_in_turn_equal_the_definition(case, methods, every):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PanedAggregation, "direct_rows", 0)
        check(switching(case, methods, every))


@given(cases(names=list(BOUNDED)), orders("paned", "wid", "adapt"), st.integers(1, 3))
@examples(0.06)
def test_methods_in_random_order_equal_the_definition_for_aggregates_that_cannot_be_undone(case, methods, every):
    check(switching(case, methods, every))


ROWS = [Arrive([row(t, k=k) for k in (1, 2)]) for t in range(9)]


@pytest.mark.parametrize("after", METHODS)
@pytest.mark.parametrize("before", METHODS)
def test_open_windows_go_over_wherever_they_can(before, after):
    first = Run(Case(sliding(6, 2), ("sum.i",), [], method=before).config)
    for event in (*ROWS[:5], Advance(4)):
        first.on(event)
    first.restart(1, method=after)
    assert first.config.method == (after if takes_up(after, before) else before)
    for event in (*ROWS[5:], Advance(7)):
        first.on(event)
    first.end()
    whole = Case(sliding(6, 2), ("sum.i",), [*ROWS, Advance(7)])
    assert first.results == whole.expected()


def test_panes_cannot_be_made_of_windows():
    aggregation = Run(Case(sliding(6, 2), ("sum.i",), [], method="wid").config)
    aggregation.on(ROWS[0])
    aggregation.config = replace(aggregation.config, method="paned")
    with pytest.raises(
        StateError, match=r"^The state holds windows, but this method can resume only from panes, running, "
    ):
        aggregation.restart(1)


def test_without_open_windows_any_method_may_follow():
    aggregation = Run(Case(sliding(6, 2), ("sum.i",), [], method="wid").config)
    for event in (ROWS[0], Advance(20)):
        aggregation.on(event)
    aggregation.restart(1, method="differential")
    assert aggregation.config.method == "differential"


def test_what_only_another_method_needs_does_not_stay():
    """The stacks of panes are dropped as differences take over, and their pages with them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PanedAggregation, "direct_rows", 0)
        aggregation = Run(Case(sliding(6, 1), ("sum.i",), [], method="paned").config)
        for event in (*ROWS, Advance(8)):
            aggregation.on(event)
        stacked = aggregation.held
        aggregation.restart(1, method="differential")
        assert aggregation.held < stacked
