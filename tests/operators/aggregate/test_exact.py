"""Every algorithm against the definition: random streams, epochs, shards and memory (F03, F10, F12, F13)."""

from __future__ import annotations

from hypothesis import given

from tests.aggregates import BOUNDED, HOLISTIC, Case, cases, run
from tests.streams import examples


def check(case: Case) -> None:
    aggregation = run(case)
    assert aggregation.results == case.expected()
    assert aggregation.held == 0, "nothing is left after the end"
    assert all(budget.peak <= case.memory for budget in aggregation.budgets)
    assert sum(budget.held for budget in aggregation.budgets) == 0


@given(cases(methods=["wid"]))
@examples(0.2)
def test_f10_wid_equals_its_definition(case):
    check(case)


@given(cases(methods=["wid"], names=[*BOUNDED, *HOLISTIC]))
@examples(0.2)
def test_wid_equals_its_definition_for_holistic_aggregates_beside_others(case):
    check(case)
