"""A choice as `explain()` shows it."""

from __future__ import annotations

from penstock.planner import Load, explain_choice, plan_window_join
from penstock.planner.window_join import Alternative, Choice
from penstock.planner.window_join.costs import Cost


def test_method_reason_and_an_aligned_table():
    choice = Choice(
        "ewj",
        "it costs least",
        Cost(0.369, 9_348.4, 100.0, 0.0107),
        (Alternative("oa", Cost(12.5, 1_234_567.0, 0.0, 1.0), "costs 34 × as much, and falls behind"),),
    )
    assert explain_choice(choice) == (
        "method ewj (EWJ: keeps recent and productive blocks in memory, and joins with the blocks on disk in batches)",
        "because it costs least",
        "predicted  s per s  read/row  written/row  at once",
        "ewj          0.369    9.3 kB        100 B      1 %  chosen",
        "oa          12.500    1.2 MB          0 B    100 %  costs 34 × as much, and falls behind",
    )


def test_without_costs_there_is_no_table():
    assert explain_choice(Choice("oa", "nothing is measured yet"))[1:] == ("because nothing is measured yet",)


def test_a_planned_join_shows_all_four_methods_with_the_chosen_first():
    load = Load((15e3, 15e3), (100.0, 100.0), (600.0, 600.0))
    lines = explain_choice(plan_window_join(load, 64_000_000, False, "left", 2.0, None))
    assert [line.split()[0] for line in lines[3:]] == ["ewj", "oa", "ah_ewj", "rpwj"]
    assert lines[3].endswith("  chosen")
    assert len({line.index("%") for line in lines[3:]}) == 1
