"""The choice of a method for sliding windows: the cheapest, AdaptWID if that holds too much, what can take over."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.core.operator import State
from penstock.core.pages import Page
from penstock.core.rows import RowType
from penstock.core.windows import Slides, TupleWindow, session, sliding
from penstock.operators.aggregate import AdaptWid
from penstock.operators.aggregate import spellings as pk
from penstock.operators.aggregate.config import WindowAggregate
from penstock.operators.aggregate.functions import Count
from penstock.operators.aggregate.roles import takes_up
from penstock.planner import AggregateChoice, AggregatePilot, is_planned, plan_window_aggregate
from penstock.planner.window_aggregate import explain_aggregate
from penstock.planner.window_aggregate.choice import AggregatePreference
from penstock.planner.window_aggregate.costs import MEASURED, AggregateLoad, Price, Sizes, predict
from tests.streams import examples

ROWS = (RowType(pa.schema({"k": pa.int64(), "v": pa.int64(), "x": pa.float64(), "t": pa.int64()}), ("k",), "t"),)
NARROW, WIDE = Sizes(partial=56, value=0, row=32, group=32), Sizes(partial=200, value=0, row=32, group=32)
MEMORY = 10**9
METHODS = ["wid", "paned", "differential", "adapt"]


def asked(window, *aggregates, **more) -> WindowAggregate:
    named = tuple((f"a{place}", function) for place, function in enumerate(aggregates or [Count()]))
    return WindowAggregate(window, ("k",), named, **more)


def plan(slides, load, sizes=NARROW, memory=MEMORY, subtracts=True, current=None, holds_state=True, **more):
    return plan_window_aggregate(slides, load, sizes, memory, subtracts, current, holds_state, **more)


def dense(groups: float, rows: float = 10.0) -> AggregateLoad:
    """The same groups in every pane."""
    return AggregateLoad(rows * groups, groups, groups)


def single(rows: float, overlap: float) -> AggregateLoad:
    """Each row of another group."""
    return AggregateLoad(rows, rows, rows * overlap)


@pytest.mark.parametrize("groups", [10, 1_000, 100_000])
def test_tumbling_windows_are_panes(groups):
    assert plan(Slides(60, 60), dense(groups), current="paned").method == "paned"


def test_f14_hundreds_of_panes_of_sums_that_can_be_undone_slide_by_differences():
    assert plan(Slides(720, 1), dense(10_000), current="paned").method == "differential"


def test_f14_what_cannot_be_undone_is_made_of_panes():
    choice = plan(Slides(720, 1), dense(10_000), subtracts=False, current="paned")
    assert choice.method == "paned"
    assert choice.why_not["differential"] == "excluded: an aggregate cannot be undone exactly"


def test_f14_panes_of_one_row_for_each_group_save_nothing():
    """Counted in updates, and in time where windows are few and groups many."""
    assert (
        plan(Slides(4, 1), single(10, 4), subtracts=False, prices=dict.fromkeys(MEASURED, Price(1.0))).method == "wid"
    )
    assert plan(Slides(4, 1), single(10_000, 4), current="paned").method == "wid"
    assert plan(Slides(60, 1), single(10_000, 60), subtracts=False).method == "paned"


def test_f15_many_small_groups_that_do_not_fit_are_kept_as_rows_while_they_are_few():
    load = single(10_000, 60)
    choice = plan(Slides(60, 1), load, sizes=WIDE, memory=10**8, subtracts=False, current="paned")
    assert choice.method == "adapt"
    assert "does not fit the memory of one task (100.0 MB), and AdaptWID holds 38.4 MB" in choice.reason
    assert plan(Slides(60, 1), load, sizes=WIDE, memory=10**10, subtracts=False, current="paned").method == "paned"


def test_f15_adapting_is_no_help_where_groups_have_many_rows():
    assert plan(Slides(60, 1), dense(10**6, rows=50), memory=10**6, subtracts=False).method == "paned"


def test_f15_adapting_is_no_help_where_it_does_not_fit_either():
    assert plan(Slides(60, 1), single(10_000, 60), sizes=WIDE, memory=5 * 10**7, subtracts=False).method == "paned"


def test_f15_the_state_of_adapting_is_that_of_the_turning_point():
    slides, sizes = Slides(600, 60), Sizes(partial=64, value=0, row=32, group=0)
    at = AdaptWid(partial=64, row=32).turning_point(slides.range, slides.slide)
    for times in (0.5, 1.0, 2.0):
        load = AggregateLoad(rows=times * at * 100 / 10, partials=100, results=100)
        assert predict(slides, load, sizes)["adapt"].state == 100 * 64 * 10 * min(1.0, times)


def test_the_method_that_runs_stays_until_a_change_clearly_pays():
    load, slides = dense(10_000), Slides(720, 1)
    keen = AggregatePreference(stay=0.0)
    assert plan(slides, load, current="differential").method == "differential"
    choice = plan(slides, load, current="paned", preference=AggregatePreference(stay=0.9))
    assert choice.method == "paned"
    assert "differential is not cheaper by enough to switch" in choice.reason
    assert choice.why_not["differential"].endswith("% cheaper, but a switch needs 90 %")
    assert plan(slides, load, current="paned", preference=keen).method == "differential"


def test_what_panes_cannot_come_back_from_must_pay_more():
    load, slides = single(50_000, 4), Slides(4, 1)
    assert plan(slides, load, current="paned").method == "paned"
    assert plan(slides, load, current="paned", preference=AggregatePreference(for_good=0.1)).method == "wid"


def test_adapting_ends_only_once_there_is_clearly_room():
    load, held = single(10_000, 60), predict(Slides(60, 1), single(10_000, 60), WIDE)["paned"].state
    little, enough = int(1.05 * held), int(1.3 * held)
    for memory, method in ((little, "adapt"), (enough, "paned")):
        choice = plan(Slides(60, 1), load, WIDE, memory, subtracts=False, current="adapt", holds_state=False)
        assert choice.method == method


def test_open_windows_that_cannot_be_taken_up_hold_the_change_back():
    waiting = plan(Slides(720, 1), dense(10_000), current="wid")
    assert waiting.method == "wid"
    assert waiting.reason == (
        "differential cannot continue the windows that wid has open: it takes over once they are closed"
    )
    assert plan(Slides(720, 1), dense(10_000), current="wid", holds_state=False).method == "differential"


loads = st.builds(
    lambda partials, rows, results: AggregateLoad(partials * rows, partials, results),
    st.floats(1, 1e7),
    st.floats(1, 1e4),
    st.floats(1, 1e8),
)


@given(
    st.builds(Slides, st.integers(1, 1000), st.integers(1, 1000)),
    loads,
    st.integers(1, 10**12),
    st.booleans(),
    st.sampled_from([None, *METHODS]),
    st.booleans(),
)
@examples(0.1)
def test_whatever_is_chosen_can_take_over_and_is_explained(slides, load, memory, subtracts, current, holds_state):
    choice = plan(slides, load, WIDE, memory, subtracts, current, holds_state)
    assert subtracts or choice.method != "differential" or current == "differential"
    assert current is None or not holds_state or takes_up(choice.method, current)
    lines = explain_aggregate(asked(sliding(5, 1)), choice)
    assert lines[1] == f"because {choice.reason}"
    assert [line.split()[0] for line in lines[3:]] == [choice.method, *(m for m in choice.costs if m != choice.method)]


@pytest.mark.parametrize(
    ("slides", "current", "method", "reason"),
    [
        (Slides(60, 1), None, "paned", "a row is in 60 windows, but in one pane; nothing is measured yet"),
        (Slides(5, 5), None, "paned", "windows do not overlap: a window is one pane, and nothing is cheaper"),
        (Slides(60, 1), "wid", "wid", "wid runs already, and nothing is measured yet"),
    ],
    ids=["overlapping", "tumbling", "running"],
)
def test_before_anything_is_measured_the_window_is_reason_enough(slides, current, method, reason):
    assert plan(slides, None, current=current) == AggregateChoice(method, reason)


def test_every_method_is_shown_with_its_cost():
    choice = plan(Slides(720, 1), dense(10_000), subtracts=False, current="paned")
    lines = explain_aggregate(asked(sliding(720, 1)), choice)
    assert lines[0] == "method paned (Paned-WID: each row updates its pane, and windows are assembled from panes)"
    assert lines[1].startswith("because a pane has 10.0 rows per group, a row is in 720 windows, and paned ")
    assert [line.split()[0] for line in lines[2:]] == ["predicted", "paned", "differential", "wid", "adapt"]
    assert lines[3].endswith("chosen")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (asked(sliding(60, 1)), "because nothing has run yet: the method is chosen again before each epoch"),
        (asked(sliding(60, 1), method="wid"), "because method='wid' was asked for"),
        (asked(sliding(60, 1), method=AdaptWid()), "because method='adapt' was asked for"),
        (
            asked(sliding(60, 1), emit="update"),
            "because windows are sent before they are complete, which only panes support",
        ),
        (asked(TupleWindow(60, 1)), "because windows count arrivals, and their numbers say nothing about time"),
    ],
    ids=["unstarted", "asked", "settings", "early", "arrivals"],
)
def test_without_a_choice_the_reason_is_in_what_was_asked(config, reason):
    assert explain_aggregate(config, None)[1] == reason


def test_other_windows_have_one_way_only():
    assert explain_aggregate(asked(session(5)), None) == []
    assert not is_planned(asked(session(5)))


def test_what_is_no_load_and_no_memory_is_refused():
    with pytest.raises(ConfigError, match=r"all three must be above 0, with no more partials than rows"):
        AggregateLoad(rows=1.0, partials=2.0, results=1.0)
    with pytest.raises(ConfigError, match="memory=0 must be above 0"):
        plan(Slides(5, 1), None, memory=0)
    with pytest.raises(ConfigError, match=r"stay=1 must be in \[0, 1\)"):
        AggregatePreference(stay=1)


def pilot(*aggregates, **more) -> AggregatePilot:
    return AggregatePilot(asked(sliding(720, 1), *aggregates), ROWS, MEMORY, tasks=1, **more)


def test_a_pilot_changes_the_method_once_windows_have_closed():
    steered = pilot(pk.sum("v"))
    assert steered.decide().method == "paned"
    steered.saw(-(2**63), 100, (10**6, 10**4), 0, State().pages)
    assert steered.decide().reason.endswith("nothing is measured yet")
    for bound in range(100, 110):
        steered.saw(bound, bound + 1, (10**5, 10**4), 10**4, State().pages)
    assert steered.decide().method == "differential"


def test_a_pilot_keeps_to_panes_for_means_of_fractions():
    steered = pilot(pk.mean("x"))
    steered.saw(0, 10, (10**6, 10**5), 10**5, State().pages)
    assert steered.decide().method == "paned"


def test_a_pilot_goes_on_with_what_a_ledger_says():
    steered = pilot(current="adapt", holds_state=True)
    assert steered.decide().method == "adapt"
    steered.follow("wid")
    assert steered.decide().method == "wid"


def test_a_pilot_knows_from_the_state_how_large_texts_are():
    texts = (RowType(pa.schema({"k": pa.string(), "t": pa.int64()}), ("k",), "t"),)
    for each, small in ((60, True), (2_000, False)):
        config = asked(sliding(60, 1), pk.max("k"))
        steered = AggregatePilot(config, texts, 8_000_000, tasks=1, current="paned", holds_state=True)
        page = Page("p", 0, 0, 100, 100 * each, min_time=0, max_time=9, min_hash=0, max_hash=9)
        for bound in range(10):
            steered.saw(bound, bound + 1, (500, 500), 60_000, [page])
        assert (steered.decide().method == "adapt") == small
