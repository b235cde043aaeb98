"""Wrong forms must fail: each subtle rule of the lab's operators broken on purpose, with a stream that shows it."""

from __future__ import annotations

import numpy as np

from lab.operators import BSort, Meld, Merge, Paging, Projection
from lab.operators.bsort import Sorting
from lab.operators.meld import Melding
from lab.operators.merge import Merging
from lab.operators.paging import Pager
from lab.operators.punctuation import Punctuation, below
from penstock.core.time import clamp
from tests.items import Bound, Host, rows

# Meld: the least of the inputs' bounds, each said once (spec 2.10, 6.10)


def test_a_union_as_far_as_its_fastest_input_is_broken_by_a_row_of_the_other(monkeypatch):
    stream = Bound(0, 9), Bound(1, 4)
    assert Host(Meld(2), inputs=2).on(*stream).logic.news().bound == 4, "a row at 4 may come on the second"
    monkeypatch.setattr("lab.operators.meld.min", max, raising=False)
    assert Host(Meld(2), inputs=2).on(*stream).logic.news().bound == 9


def test_a_group_as_far_as_its_own_bound_alone_stays_behind(monkeypatch):
    """Group 1 has word of its own on the first input only; the second's bound speaks of it as well."""

    def far(host: Host) -> list[int]:
        return host.on(Bound(0, 9, group=1), Bound(1, 6)).logic.news().groups.column(1).to_pylist()

    assert far(Host(Meld(2), inputs=2)) == [6]
    monkeypatch.setattr(Melding, "_bounds_of", lambda self, g: np.minimum.reduce([own.of(g) for own in self._groups]))
    assert far(Host(Meld(2), inputs=2)) == []


def test_a_union_that_forgets_what_it_said_says_it_again(monkeypatch):
    def said(host: Host) -> list[int | None]:
        host.on(Bound(0, 5))
        return [host.logic.news().bound, host.logic.news().bound]

    assert said(Host(Meld(1))) == [5, None]
    once = Melding.news

    def forgetful(self):
        before = self._said
        news = once(self)
        self._said = before
        return news

    monkeypatch.setattr(Melding, "news", forgetful)
    assert said(Host(Meld(1))) == [5, 5]


# Merge and BSort


def test_a_merge_that_does_not_wait_for_the_slowest_is_out_of_order(monkeypatch):
    stream = rows((1, 9), port=0), rows((1, 4), port=1)
    assert Host(Merge(2), inputs=2).on(*stream).end().times() == [4, 9]
    monkeypatch.setattr("lab.operators.merge.min", max, raising=False)
    host = Host(Merge(2), inputs=2).on(*stream).end()
    assert (host.times(), host.times("late")) == ([9], [4])


def test_a_merge_that_forgets_its_latest_row_holds_what_could_go(monkeypatch):
    """An input has got as far as its latest row, also once that has left."""
    stream = rows((1, 4), port=0), rows((1, 4), port=1), Bound(1, 9), rows((1, 4), port=0)
    assert Host(Merge(2), inputs=2).on(*stream).times() == [4, 4, 4]
    monkeypatch.setattr(Merging, "advance", lambda self, port, bound: iter(()))
    assert Host(Merge(2), inputs=2).on(*stream).times() == []


def test_a_sort_with_less_slack_than_disorder_puts_rows_aside(monkeypatch):
    stream = rows((1, 10)), rows((1, 7))
    assert Host(BSort(slack=3)).on(*stream).end().times("late") == []
    advancing = Sorting.advance
    monkeypatch.setattr(Sorting, "advance", lambda self, port, bound: advancing(self, port, clamp(bound + 1)))
    assert Host(BSort(slack=3)).on(*stream).end().times("late") == [7]


# Rules and paging


def test_a_projection_that_leaves_the_group_out_claims_too_much():
    said = Punctuation.of(ts=below(9), ip=1)
    projection = Projection((("ts", "ts"),), on="ts")
    assert projection.punctuation(said) is None
    claimed = Punctuation.of(ts=below(9))
    assert claimed.covers(said)
    assert not said.covers(claimed), "it excludes rows of other groups, which may come"


def test_a_page_that_waits_until_it_is_full_holds_results_in_a_lull(monkeypatch):
    """F27."""
    stream = rows((1, 5)), Bound(0, 6)
    assert Host(Paging()).on(*stream).times() == [5]
    monkeypatch.setattr(Pager, "advance", lambda self, port, bound: iter(()))
    assert Host(Paging()).on(*stream).times() == []
