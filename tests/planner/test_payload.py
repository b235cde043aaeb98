"""Where payload is kept: by cost, with hysteresis, and as the user says."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.planner.payload import HomePilot


def test_wide_rows_of_which_few_become_results_leave_payload_behind():
    pilot = HomePilot("auto", width=3000)
    pilot.learn(rows=1000, partials=0, results=100)
    assert pilot.late


@pytest.mark.parametrize(("joins", "late"), [(0, False), (1, True)])
def test_before_anything_is_known_payload_stays_where_it_would_be_sent_on(joins, late):
    assert HomePilot("auto", width=40, joins=joins).late == late


def test_payload_that_does_not_fit_the_driver_takes_longer_to_bring():
    small, large = (HomePilot("auto", width=1000, columns=10, room=room) for room in (64e6, 256e6))
    assert small.costs(100_000, 0, 100_000)["row"] > large.costs(100_000, 0, 100_000)["row"]
    beside = 40e6
    assert small.costs(30_000, 0, 30_000, beside)["row"] > small.costs(30_000, 0, 30_000)["row"]
    small.learn(30_000, 0, 900_000)
    assert not small.late
    assert small.brings == 30_000 * 1000


def test_payload_travels_where_tasks_have_too_little_memory_to_fetch_it():
    pilot = HomePilot("auto", width=3000, room=1e6)
    pilot.learn(rows=1000, partials=0, results=100)
    assert not pilot.late
    assert "too little memory" in pilot.says()
    assert HomePilot("source", width=3000, room=1e6).late


def test_many_columns_take_longer_to_find():
    few, many = (HomePilot("auto", width=115, columns=columns).costs(100, 0, 100) for columns in (1, 13))
    assert few["source"] < many["source"]
    assert few["row"] == many["row"]


@pytest.mark.parametrize(("joins", "results"), [(0, 0), (1, 20_000)])
def test_the_first_epoch_is_gone_by_at_once(joins, results):
    pilot = HomePilot("auto", width=40, joins=joins)
    before = pilot.late
    pilot.learn(rows=1000, partials=0, results=results)
    assert pilot.late != before


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


def test_payload_travels_while_windows_fill_and_rows_come_into_more_results_each_epoch() -> None:
    pilot = HomePilot("auto", width=20)
    for epoch in range(7):
        pilot.learn(rows=100_000, partials=0, results=40_000 * epoch)
        assert not pilot.late
