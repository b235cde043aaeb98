"""Joins without a window: OA-Join while every page is cheap to probe, RRPJ where that falls behind, and why."""

from __future__ import annotations

import pytest

import penstock as pk
from penstock.core.errors import ConfigError
from penstock.core.pages import Page
from penstock.core.within import always
from penstock.operators.window_join import WindowJoin
from penstock.planner.machine import Machine
from penstock.planner.window_join import Pilot, explain_choice
from penstock.planner.window_join.always import plan_always
from penstock.planner.window_join.load import Load

LOAD = Load(rows_per_second=(15e3, 15e3), row_bytes=(100.0, 100.0), window_seconds=(6e3, 6e3))
LOCAL, REMOTE = Machine(page_cache=64e9), Machine(page_cache=0)


def plan(machine, load=LOAD, current=None, feeds=False, time="left", **changes):
    return plan_always(load, 64_000_000, feeds, time, 2.0, current, machine, **changes)


def test_mapped_pages_are_cheap_to_probe_and_nothing_is_put_off():
    choice = plan(LOCAL)
    assert choice.method == "oa"
    assert choice.reason.startswith("mapped pages are cheap to probe: OA-Join takes 0.")
    assert "would give 0 % of the results at once" in "\n".join(explain_choice(choice))


def test_where_pages_are_far_away_rrpj_keeps_epochs_short():
    choice = plan(REMOTE)
    assert choice.method == "rrpj"
    assert "probing all pages would take OA-Join" in choice.reason
    assert [other.method for other in choice.alternatives] == ["oa"]
    assert choice.cost.keeps_up
    assert not choice.alternatives[0].cost.keeps_up


def test_a_change_back_takes_more_than_a_little():
    """OA-Join that would just keep up does not take over from RRPJ; one that is begun with, stays."""
    loads = [Load((rate, rate), (100.0, 100.0), (6e3, 6e3)) for rate in range(100, 15_000, 100)]
    first = next(load for load in loads if plan(REMOTE, load, current="oa").method == "rrpj")
    before = loads[loads.index(first) - 1]
    assert plan(REMOTE, before, current="oa").method == "oa"
    assert plan(REMOTE, before, current="rrpj").method == "rrpj"


def test_results_that_feed_an_operator_by_their_later_time_are_not_put_off():
    assert plan(REMOTE, feeds=True, time="latest").method == "oa"
    assert plan(REMOTE, feeds=True).method == "rrpj"


@pytest.mark.parametrize(("current", "method"), [(None, "oa"), ("auto", "oa"), ("rrpj", "rrpj")])
def test_what_runs_goes_on_until_something_is_measured(current, method):
    assert plan(REMOTE, load=None, current=current).method == method


def test_nothing_to_plan_with_is_an_error():
    with pytest.raises(ConfigError, match="memory=0 must be above 0"):
        plan_always(LOAD, 0, False, "left", 2.0, None)


def test_the_pilot_of_such_a_join_decides_by_it():
    pilot = Pilot(WindowJoin((("k", "k"),), always()), False, 10**6, 2, REMOTE, current="rrpj")
    assert pilot.decide().method == "rrpj"


PREDICATES = [
    pk.near("v", distance=0.3),
    pk.near("v", distance=0.3, metric="cosine"),
    pk.intersects("b"),
    pk.intersects("b", cell=2.0),
    pk.dwithin("b", distance=1.0),
]


def said(config: WindowJoin, machine: Machine) -> str:
    """What `explain()` says of a join after some epochs of a second, each with 30,000 rows on top of 2 × 20 M."""
    pilot = Pilot(config, False, 128_000_000, 2, machine)
    assert "nothing is measured yet" in pilot.decide().reason
    for epoch in range(1, 4):
        pages = [Page(f"p{port}", port, 0, 20_000_000, 2_000_000_000, 0, 6000 + epoch, 0, 0) for port in (0, 1)]
        pilot.saw([epoch] * 2, [epoch + 1] * 2, (15_000, 15_000), pages)
    return "\n".join(explain_choice(pilot.decide()))


@pytest.mark.parametrize("on", PREDICATES, ids=str)
def test_a_join_by_a_predicate_is_chosen_for_as_one_by_keys_and_says_why(on):
    by_keys, by_predicate = WindowJoin((("k", "k"),), always()), WindowJoin((), always(), matching=on)
    near, far = (said(by_predicate, machine) for machine in (LOCAL, REMOTE))
    assert near == said(by_keys, LOCAL)
    assert far == said(by_keys, REMOTE)
    assert "mapped pages are cheap to probe: OA-Join takes" in near
    assert "probing all pages would take OA-Join" in far


@pytest.mark.parametrize("on", PREDICATES, ids=str)
def test_within_a_window_a_predicate_leaves_no_choice(on):
    choice = Pilot(WindowJoin((), pk.band(5, 5), matching=on), False, 10**6, 2, REMOTE).decide()
    assert (choice.method, choice.reason) == ("oa", "other methods need equal keys")
