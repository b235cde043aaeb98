"""The choice of a window join's method: what is small is OA-Join's, what must be prompt too, else the cheapest."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.operators.window_join import METHODS
from penstock.operators.window_join.config import JoinTime
from penstock.planner.machine import SERVER, Machine
from penstock.planner.window_join import choice as window_join
from penstock.planner.window_join.choice import DEFAULT, Choice, Preference, plan_window_join, predict
from penstock.planner.window_join.costs import COSTS, Cost
from penstock.planner.window_join.load import Load
from tests.streams import examples

NAMES = tuple(name for name in COSTS if not METHODS[name].parameters.windowless)
MEMORY = 64_000_000
HEAVY = Load((15e3, 15e3), (100.0, 100.0), (600.0, 600.0))
"""1.8 GB of state, 28 × the memory, two thirds more than the machine caches."""


def plan(load=HEAVY, memory=MEMORY, feeds=False, time="left", current=None, machine=SERVER, preference=DEFAULT):
    return plan_window_join(load, memory, feeds, time, 2.0, current, machine, preference)


def held(times: float) -> Load:
    """State of so many times the memory."""
    return Load((times * MEMORY / 120_000,) * 2, (100.0, 100.0), (600.0, 600.0))


def priced(monkeypatch, oa: float, **others: tuple[float, float] | float) -> None:
    """Let methods cost what the test says: seconds, or seconds and the share of results at once; the rest 9 s."""
    costs = {"oa": Cost(oa, 100.0, 100.0, at_once=1.0)}
    for name in NAMES[1:]:
        price = others.get(name, 9.0)
        seconds, at_once = price if isinstance(price, tuple) else (price, 0.1)
        costs[name] = Cost(seconds, 100.0, 100.0, at_once)
    monkeypatch.setattr(window_join, "predict", lambda *_: costs)


def why(choice: Choice, method: str) -> str:
    return next(other.why for other in choice.alternatives if other.method == method)


# Small state


def test_state_that_fits_is_oa_joins():
    choice = plan(held(0.5))
    assert choice.method == "oa"
    assert choice.reason == (
        "state of about 32.0 MB fits the memory of one task (64.0 MB): small enough to defer nothing"
    )
    assert {other.why for other in choice.alternatives} == {"defers results without need"}


def test_a_small_multiple_of_the_memory_is_oa_joins_too():
    choice = plan(held(3.9))
    assert choice.method == "oa"
    assert choice.reason == (
        "state of about 249.6 MB is 3.9 × the memory of one task (64.0 MB): small enough to defer nothing"
    )


def test_small_ends_where_the_preference_says(monkeypatch):
    priced(monkeypatch, oa=0.9, ewj=0.1)
    assert [plan(held(times)).method for times in (3.99, 4.01)] == ["oa", "ewj"]
    assert plan(held(4.01), preference=Preference(small=5)).method == "oa"


def test_a_join_that_puts_off_goes_back_only_when_its_state_has_shrunk_well_below(monkeypatch):
    priced(monkeypatch, oa=0.9, ewj=0.1)
    assert [plan(held(times), current="ewj").method for times in (3.9, 2.9, 2.7)] == ["ewj", "ewj", "oa"]
    assert plan(held(3.9), current="oa").method == "oa"


# Exclusion


def test_results_that_feed_an_operator_by_the_later_time_are_oa_joins_alone():
    choice = plan(feeds=True, time="latest", current="ewj")
    assert choice.method == "oa"
    assert "a method that defers results would hold back its bound" in choice.reason
    assert [other.method for other in choice.alternatives] == ["ewj", "ah_ewj", "rpwj"]
    assert {other.why for other in choice.alternatives} == {
        "excluded: would hold back the bound of the operator that its results feed"
    }


@pytest.mark.parametrize(("feeds", "time"), [(False, "latest"), (True, "left"), (True, "right"), (True, "earliest")])
def test_other_results_may_be_put_off(feeds, time):
    assert plan(feeds=feeds, time=time).method == "ewj"


# The cheapest


def test_the_cheapest_is_chosen_and_says_by_how_much():
    choice = plan()
    assert choice.method == "ewj"
    assert choice.reason == (
        "state of about 1.8 GB is 28 × the memory of one task (64.0 MB), and EWJ costs least: "
        "0.45 s of work per second of stream against 0.81 s by OA-Join"
    )
    assert choice.cost == predict(HEAVY, MEMORY, 2.0)["ewj"]
    assert why(choice, "oa") == "costs 1.8 × as much"
    assert why(choice, "ah_ewj") == "costs 1.7 × as much"
    assert why(choice, "rpwj").startswith("costs ")


def test_a_disk_fast_enough_leaves_oa_join_its_results_at_once():
    choice = plan(machine=Machine(page_cache=1e10))
    assert choice.method == "oa"
    assert choice.reason.endswith(
        "but no method is 1.5 × cheaper than OA-Join, which defers nothing, "
        "and saves 0.1 s of work per second of stream"
    )


@pytest.mark.parametrize(
    ("ewj", "preference", "chosen"),
    [
        (0.40, DEFAULT, "oa"),  # 1.25 × cheaper is not enough
        (0.32, DEFAULT, "ewj"),  # 1.56 × is
        (0.39, Preference(prompt=1.2), "ewj"),
        (0.40, Preference(prompt=1.2, worth=0.11), "oa"),  # saves no more than 0.1
        (0.32, Preference(prompt=2.0), "oa"),
    ],
)
def test_what_results_at_once_are_worth_is_the_callers_to_say(ewj, preference, chosen, monkeypatch):
    priced(monkeypatch, oa=0.5, ewj=ewj)
    assert plan(preference=preference).method == chosen


def test_a_few_saved_milliseconds_put_nothing_off(monkeypatch):
    priced(monkeypatch, oa=0.09, ewj=(0.01, 0.25))
    choice = plan()
    assert choice.method == "oa"
    assert why(choice, "ewj") == "defers 75 % of the results and saves 0.08 s"
    assert why(choice, "rpwj") == "costs 100 × as much, and falls behind"


def test_promptness_counts_for_nothing_once_oa_join_falls_behind(monkeypatch):
    priced(monkeypatch, oa=1.2, ewj=0.95)
    choice = plan()
    assert choice.method == "ewj"
    assert why(choice, "oa") == "costs 1.3 × as much, and falls behind"


def test_where_all_fall_behind_alike_oa_join_is_chosen(monkeypatch):
    priced(monkeypatch, oa=2.0, ewj=1.95)
    assert plan().method == "oa"


def test_a_choice_that_falls_behind_says_so(monkeypatch):
    priced(monkeypatch, oa=3.0, ewj=2.0)
    assert plan().reason.endswith("against 3.00 s by OA-Join, and even that falls behind")


def test_oa_join_may_simply_cost_least(monkeypatch):
    priced(monkeypatch, oa=0.5, ewj=0.6)
    choice = plan()
    assert choice.method == "oa"
    assert choice.reason.endswith("and OA-Join costs least: 0.50 s of work per second of stream")


def test_ties_go_to_the_method_that_puts_fewer_results_off(monkeypatch):
    priced(monkeypatch, oa=0.9, ewj=(0.300, 0.10), ah_ewj=(0.305, 0.20), rpwj=(0.30, 0.05))
    choice = plan()
    assert choice.method == "ah_ewj"
    assert why(choice, "ewj") == "defers 90 % of the results and saves 0.01 s"
    assert plan(preference=Preference(tie=0.0)).method == "ewj"


def test_what_costs_nothing_is_many_times_cheaper(monkeypatch):
    priced(monkeypatch, oa=0.9, ewj=0.0)
    assert why(plan(), "oa") == "costs many × as much"


# Hysteresis


@pytest.mark.parametrize(
    ("current", "oa", "ewj", "chosen"),
    [
        ("oa", 0.9, 0.43, "oa"),  # weighed 0.645: 28 % cheaper
        ("oa", 0.9, 0.41, "ewj"),  # weighed 0.615: 32 % cheaper
        ("ewj", 0.6, 0.5, "ewj"),  # weighed 0.75: OA-Join is 20 % cheaper
        ("ewj", 0.5, 0.5, "oa"),  # a third cheaper
        (None, 0.9, 0.43, "ewj"),
        ("auto", 0.9, 0.43, "ewj"),
    ],
)
def test_what_runs_goes_on_until_another_is_much_cheaper(current, oa, ewj, chosen, monkeypatch):
    priced(monkeypatch, oa=oa, ewj=ewj)
    assert plan(current=current).method == chosen


def test_going_on_says_what_was_not_enough(monkeypatch):
    priced(monkeypatch, oa=0.9, ewj=0.43, ah_ewj=0.5)
    choice = plan(current="oa")
    assert choice.reason == (
        "state of about 1.8 GB is 28 × the memory of one task (64.0 MB), OA-Join runs already, "
        "and EWJ is not cheaper by enough to switch"
    )
    assert why(choice, "ewj") == "28 % cheaper, all things considered, but a switch needs 30 %"
    assert why(choice, "ah_ewj") == "17 % cheaper, all things considered, but a switch needs 30 %"


def test_what_runs_and_is_best_is_chosen_for_what_it_is():
    assert plan(current="ewj") == plan(current=None)


def test_two_that_are_alike_do_not_take_turns(monkeypatch):
    priced(monkeypatch, oa=0.9, ewj=0.3, ah_ewj=0.3)
    assert [plan(current=name).method for name in ("ewj", "ah_ewj")] == ["ewj", "ah_ewj"]
    assert why(plan(current="ah_ewj"), "ewj") == "costs as much"


def test_a_change_takes_as_much_as_the_preference_says(monkeypatch):
    priced(monkeypatch, oa=0.9, ewj=0.43)
    assert plan(current="oa", preference=Preference(stay=0.25)).method == "ewj"


# Nothing known


def test_before_anything_is_measured_oa_join_is_chosen_or_what_runs_goes_on():
    assert plan(load=None) == Choice(
        "oa", "nothing is measured yet; OA-Join defers nothing, and its state may outgrow the memory"
    )
    assert plan(load=None, current="rpwj") == Choice("rpwj", "RPWJ runs already, and nothing is measured yet")
    assert plan(load=None, current="rpwj", feeds=True, time="latest").method == "oa"


@pytest.mark.parametrize("current", [None, "oa", "ewj"])
def test_a_silent_join_is_oa_joins(current):
    assert plan(Load((0.0, 0.0), (0.0, 0.0), (0.0, 0.0)), current=current).method == "oa"


# Errors


@pytest.mark.parametrize("memory", [0, -1])
def test_no_memory_is_no_plan(memory):
    with pytest.raises(ConfigError, match=rf"memory={memory} must be above 0"):
        plan(memory=memory)


def test_an_epoch_takes_time():
    with pytest.raises(ConfigError, match="epoch_seconds=0 must be above 0"):
        plan_window_join(HEAVY, MEMORY, False, "left", 0, None)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("small", 0.5), ("prompt", 0.9), ("worth", -0.1), ("tie", math.nan), ("stay", 1.0), ("stay", -0.1)],
)
def test_a_preference_that_cannot_be_is_refused_by_name(argument, value):
    with pytest.raises(ConfigError, match=rf"^{argument}={value} must be "):
        Preference(**{argument: value})


# Any load

loads = st.builds(
    Load,
    rows_per_second=st.tuples(st.floats(0, 1e5), st.floats(0, 1e5)),
    row_bytes=st.tuples(st.floats(8, 1000), st.floats(8, 1000)),
    window_seconds=st.tuples(st.floats(0, 1e4), st.floats(0, 1e4)),
)


@given(loads, st.booleans(), st.sampled_from(get_args(JoinTime)), st.sampled_from([None, "auto", *NAMES]))
@examples(0.2)
def test_a_choice_names_every_method_once_and_is_kept_when_asked_again(load, feeds, time, current):
    choice = plan(load, feeds=feeds, time=time, current=current)
    assert sorted([choice.method, *(other.method for other in choice.alternatives)]) == sorted(NAMES)
    assert plan(load, feeds=feeds, time=time, current=choice.method).method == choice.method
    if feeds and time == "latest":
        assert choice.method == "oa"
