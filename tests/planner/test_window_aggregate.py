"""Why windows are computed as they are: the cost equations, in words."""

from __future__ import annotations

import pytest

from penstock.core.windows import Slides, session, sliding
from penstock.operators.aggregate.config import WindowAggregate
from penstock.operators.aggregate.functions import Count
from penstock.planner.window_aggregate import explain_aggregate, window_costs


def asked(window, **more) -> WindowAggregate:
    return WindowAggregate(window, ("k",), (("n", Count()),), **more)


def test_f14_panes_cost_less_exactly_where_a_pane_has_enough_rows_of_a_group():
    assert window_costs(Slides(60, 1), 100).cheapest(subtracts=False) == "paned"
    assert window_costs(Slides(60, 1), 1).cheapest(subtracts=False) == "wid"
    assert window_costs(Slides(60, 1), 100).cheapest(subtracts=True) == "differential"


def test_the_reason_is_said_with_the_costs_of_the_others():
    assert explain_aggregate(asked(sliding(60, 1)), 100.0) == [
        "method paned (each row updates its pane, windows are put together from panes)",
        "because a pane has 100.0 rows of each group it has, and a row is in 60 windows",
        "updates per window and group: paned 161, on two stacks about as many as differential, 103; wid 6,000",
    ]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (asked(sliding(60, 1)), "because a row is in 60 windows, but in one pane"),
        (asked(sliding(5)), "because windows do not overlap: a window is a pane, and all methods are the same"),
        (asked(sliding(60, 1), method="wid"), "because method='wid' was asked for"),
    ],
    ids=["overlapping", "tumbling", "asked"],
)
def test_without_measurements_the_window_is_reason_enough(config, reason):
    assert explain_aggregate(config, None)[1] == reason


def test_other_windows_have_one_way_only():
    assert explain_aggregate(asked(session(5)), None) == []
