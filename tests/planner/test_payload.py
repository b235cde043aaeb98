"""Where payload is kept: by cost, with hysteresis, and as the user says."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.planner.payload import HomePilot


def test_wide_rows_of_which_few_become_results_leave_payload_behind():
    assert HomePilot("auto", width=3000).late


def test_narrow_rows_with_many_results_bring_theirs():
    pilot = HomePilot("auto", width=100)
    for _ in range(10):
        pilot.learn(rows=1000, partials=0, results=20_000)
    assert not pilot.late


@pytest.mark.parametrize(("asked", "late"), [("row", False), ("source", True)])
def test_what_the_user_says_goes_first(asked, late):
    pilot = HomePilot(asked, width=3000 if asked == "row" else 1)
    pilot.learn(1000, 0, 0 if asked == "row" else 10**6)
    assert pilot.late == late
    assert f"as payload={asked!r} says" in pilot.says()


def test_f18_it_changes_for_a_clear_gain_only_and_not_again_soon():
    pilot = HomePilot("auto", width=100)
    began = pilot.late
    changed = []
    for epoch in range(40):
        results = 0 if (epoch // 20) % 2 else 100_000
        pilot.learn(rows=1000, partials=0, results=results)
        changed.append(pilot.late)
    moves = [epoch for epoch, (one, other) in enumerate(zip([began, *changed], changed, strict=False)) if one != other]
    assert pilot.changes == len(moves) == 1 + began
    assert changed[19] is False
    assert changed[39] is True
    assert all(later - sooner >= 3 for sooner, later in pairwise(moves))


def test_partial_results_make_bringing_dearer():
    pilot = HomePilot("auto", width=500)
    alone, often = pilot.costs(100, 0, 10), pilot.costs(100, 1000, 10)
    assert often["row"] > alone["row"]
    assert often["source"] == alone["source"]


def test_silent_epochs_teach_nothing():
    pilot = HomePilot("auto", width=500)
    for _ in range(9):
        pilot.learn(0, 0, 0)
    assert "nothing was measured yet" in pilot.says()
