"""Every algorithm against the definition: random streams, epochs, shards and memory (F03, F10, F12, F13)."""

from __future__ import annotations

import pytest
from hypothesis import given

from penstock.operators.aggregate.paned import PanedAggregation
from tests.aggregates import BOUNDED, HOLISTIC, SUBTRACTABLE, Case, cases, landmarks, run, sessions
from tests.streams import examples


def check(case: Case) -> None:
    aggregation = run(case)
    assert aggregation.results == case.expected()
    assert aggregation.held == 0, "nothing is left after the end"
    assert all(budget.peak <= case.memory for budget in aggregation.budgets)
    assert sum(budget.held for budget in aggregation.budgets) == 0


@given(cases(methods=["wid"]))
@examples(0.06)
def test_f10_wid_equals_its_definition(case):
    check(case)


@given(cases(methods=["wid"], names=[*BOUNDED, *HOLISTIC]))
@examples(0.06)
def test_wid_equals_its_definition_for_holistic_aggregates_beside_others(case):
    check(case)


@given(cases(methods=["paned"], names=[*BOUNDED, *HOLISTIC]))
@examples(0.06)
def test_f12_panes_equal_their_definition(case):
    check(case)


@given(cases(methods=["paned"], names=[*BOUNDED, *HOLISTIC]))
@examples(0.1)
def test_f12_panes_on_two_stacks_equal_their_definition(case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PanedAggregation, "direct_rows", 0)
        check(case)


@given(cases(methods=["differential"], names=[*SUBTRACTABLE, *HOLISTIC]))
@examples(0.06)
def test_f13_windows_that_slide_by_subtraction_equal_their_definition(case):
    check(case)


@given(cases(window=landmarks, methods=["auto"], names=[*BOUNDED, *HOLISTIC]))
@examples(0.06)
def test_f06_landmark_windows_equal_their_definition(case):
    check(case)


@given(cases(window=sessions, methods=["auto"], names=[*BOUNDED, *HOLISTIC]))
@examples(0.06)
def test_sessions_equal_their_definition(case):
    check(case)
