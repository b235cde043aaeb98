"""State goes from any method to any other at the end of an epoch, and no pair is lost or doubled by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.within import windows
from penstock.operators.window_join import AhEwj, Ewj, Rpwj, WindowJoin
from tests.streams import (
    DRAWN,
    Case,
    EpochEnd,
    Idle,
    Run,
    advance,
    ah_ewjs,
    cases,
    ewjs,
    examples,
    left,
    right,
    rpwjs,
    run,
    trace,
)

ANY = st.one_of(st.just("oa"), ewjs(), ah_ewjs(), rpwjs())


def check(case: Case) -> None:
    join = run(case)
    assert join.results == case.expected()
    assert join.held == 0
    assert join.budget.held == 0
    assert join.budget.peak <= case.memory


def switching(case: Case, methods: list) -> Case:
    """The same stream, begun by the first method and gone on with by another after each epoch."""
    later = iter(methods[1:] * len(case.events))
    events = [replace(e, method=next(later)) if isinstance(e, EpochEnd) else e for e in case.events]
    return replace(case, events=events, method=methods[0])


def drawn(name: str, seed: int):
    return "oa" if name == "oa" else DRAWN[name](np.random.default_rng(seed))


@pytest.mark.parametrize("after", ["oa", *DRAWN])
@pytest.mark.parametrize("before", ["oa", *DRAWN])
def test_from_each_method_to_each_other_and_back(before, after):
    """The same method, too: with other parameters."""
    for seed in range(3):
        check(switching(trace(seed, "ewj"), [drawn(before, seed), drawn(after, seed + 1)]))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 150), marks=pytest.mark.deep)], ids=len)
def test_methods_in_random_order_equal_the_definition_on_traces(seeds):
    for seed in seeds:
        names = np.random.default_rng(seed).choice(["oa", *DRAWN], 9)
        check(switching(trace(seed, "ewj"), [drawn(name, seed + n) for n, name in enumerate(names)]))


@given(cases(), st.lists(ANY, min_size=4, max_size=4))
@examples(0.15)
def test_methods_in_random_order_equal_the_definition(case, methods):
    check(switching(case, methods))


def test_what_rpwj_counted_does_not_trouble_ah_ewj():
    """A ledger gives the next epoch what the one before remembered, whichever method that was."""
    counting = [left(t=0, k=1), right(t=0, k=1), EpochEnd(1, AhEwj()), left(t=1, k=1), EpochEnd(1, "rpwj")]
    check(Case(windows(5, 5), "inner", counting, method="rpwj"))


def test_blocks_of_other_partitions_are_joined_once():
    """They leave memory as they are taken up; their rows are still there and must not be met."""
    small, other = (Rpwj(memory=20, page=1, row=1, partitions=count) for count in (5, 7))
    check(Case(windows(9, 9), "inner", [right(t=6, k=1), left(t=4, k=1), EpochEnd(1, other)], method=small))


def test_rows_that_waited_do_not_meet_again_what_they_met_on_its_way_out():
    """The right row at 1 leaves and meets the left row, which waits; the one at 10, of the same page, stays."""
    method = AhEwj(memory=20, page=2, row=1, partitions=1)
    events = [right(t=1, k=1), right(t=10, k=1), left(t=6, k=1), advance(left=12), EpochEnd(1, "oa")]
    check(Case(windows(left=41, right=9), "inner", events, method=method))


def test_an_epoch_in_which_nothing_happens_hands_on_what_is_owed():
    """OA-Join joins what another method put off when it is told something; if it is not, the debts stay."""
    config = WindowJoin((("k", "k"),), windows(9, 9), method=Ewj(memory=4, page=3, row=1))
    join = Run(config)
    for event in (left(t=0, k=1), left(t=1, k=2), left(t=2, k=2), right(t=0, k=1)):
        join.on(event)
    join.config = replace(config, method="oa")
    for _ in range(2):
        (logic,) = join.logics
        join.logics = [join.config.logic(join.types, join.store, join.budgets[0], logic.state())]
    assert not join.results
    join.on(advance(left=0))
    assert list(join.results) == [(0, 0)]


def test_a_smaller_memory_after_the_switch_settles_what_does_not_fit():
    before, after = Ewj(memory=40, page=2, row=1), Ewj(memory=4, page=2, row=1)
    rows = [event for t in range(12) for event in (left(t=t, k=t % 3), right(t=t, k=t % 3))]
    check(Case(windows(9, 9), "full", [*rows, EpochEnd(1, after), Idle(), *rows[:2]], method=before))
