"""F01: what a punctuation excludes is turned away and counted, nothing else is."""

from __future__ import annotations

from hypothesis import given

from penstock.operators.progress import Guard
from tests.items import Bound, Host, Restart, Rows, memories, rows, streams
from tests.oracle.progress import is_violator
from tests.streams import examples


def test_f01_a_violator_is_turned_away_and_counted():
    host = Host(Guard()).on(rows((1, 4), (1, 9)), Bound(0, 5), rows((1, 4), (1, 5)))
    assert host.times() == [4, 9, 5], "strict: 5 may come after punctuation 5"
    assert host.times("late") == [4]
    assert host.logic.violators == 1


def test_f01_a_group_may_be_further_than_its_stream():
    host = Host(Guard()).on(Bound(0, 5), Bound(0, 8, group=1), rows((1, 7), (2, 7), (1, 8), (None, 5)))
    assert host.pairs() == [(2, 7), (1, 8), (None, 5)]
    assert host.pairs("late") == [(1, 7)]


def test_a_bound_of_all_makes_those_of_groups_below_it_superfluous():
    host = Host(Guard()).on(Bound(0, 8, group=1), Bound(0, 9))
    assert host.logic.state().pages == ()


@given(streams(groups=True, violators=True), memories)
@examples(0.1)
def test_f01_exactly_the_violators_are_late(items, memory):
    host = Host(Guard(), memory=memory)
    said, passed, late = [], [], []
    for item in items:
        host.on(item)
        if isinstance(item, Bound):
            said.append((item.group, item.bound))
        elif isinstance(item, Rows):
            for k, t in item.rows:
                (late if is_violator(said, k, t) else passed).append((k, t))
    assert host.pairs() == passed
    assert host.pairs("late") == late
    assert host.logic.violators == len(late)
    assert host.budget.peak <= memory


@given(streams(groups=True))
@examples(0.1)
def test_f01_a_grammatical_stream_passes_whole(items):
    assert Host(Guard()).on(*items).end().logic.violators == 0


def test_counts_survive_a_restart():
    host = Host(Guard()).on(Bound(0, 5), rows((1, 4)), Restart(), rows((1, 4)))
    assert host.logic.violators == 2
