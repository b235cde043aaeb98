"""OA-Join against its definition (F16, F17, F19), by hand and on hypothesis-made streams."""

from __future__ import annotations

from hypothesis import given

from penstock.core.within import band, tumbling, windows
from tests.streams import Case, Run, advance, cases, join, left, right, run


def pairs(config, *events):
    at_work = Run(config)
    for event in events:
        at_work.on(event)
    return sorted(at_work.results.elements(), key=str)


def test_a_late_row_still_meets_its_partner_while_the_bound_allows_it():
    out = pairs(join("k", band(5, 5)), left(t=0, k=1), right(t=9, k=2), advance(left=4), right(t=5, k=1))
    assert out == [(0, 5)]


def test_an_unmatched_left_row_comes_out_as_soon_as_no_partner_can_come():
    config = join("k", band(5, 5), how="left")
    assert pairs(config, left(t=0, k=1), advance(right=5)) == []
    assert pairs(config, left(t=0, k=1), advance(right=6)) == [(0, None)]


def test_window_on_si_a_left_row_stays_as_long_as_the_left_window():
    config = join("k", windows(left=3, right=2))
    assert pairs(config, left(t=10, k=1), right(t=13, k=1)) == [(10, 13)]
    assert pairs(config, left(t=10, k=1), right(t=14, k=1)) == []
    assert pairs(config, left(t=10, k=1), right(t=8, k=1)) == [(10, 8)]
    assert pairs(config, left(t=10, k=1), right(t=7, k=1)) == []


def test_tumbling_windows_start_at_the_floor_below_zero_too():
    config = join("k", tumbling(10))
    assert pairs(config, left(t=-1, k=1), right(t=-10, k=1), right(t=0, k=1)) == [(-1, -10)]


@given(cases())
def test_window_join_equals_its_definition(case: Case):
    join = run(case)
    assert join.results == case.expected()
    assert join.held == 0
    assert join.budget.held == 0
    assert join.budget.peak <= case.memory
