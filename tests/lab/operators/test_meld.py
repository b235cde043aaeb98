"""F21: Meld holds no row, gives out no punctuation twice and none that is not so, group by group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.operators import Meld
from penstock.core.errors import ConfigError
from penstock.core.rows import TIME
from tests.items import Bound, Host, Restart, Rows, memories, rows, streams
from tests.oracle.progress import LEAST, effective
from tests.streams import examples


def news(host: Host) -> tuple[int | None, dict]:
    bound, groups = host.logic.news()
    return bound, dict(zip(groups.column("k").to_pylist(), groups.column(TIME).to_pylist(), strict=True))


def test_f21_the_union_is_as_far_as_its_slowest_input():
    host = Host(Meld(3), inputs=3).on(Bound(0, 7), Bound(1, 5))
    assert news(host) == (None, {}), "nothing is known of the third"
    assert news(host.on(Bound(2, 9))) == (5, {})
    assert news(host.on(Bound(2, 11), Bound(0, 8))) == (None, {}), "no duplicate punctuation"
    assert news(host.on(Bound(1, 20))) == (8, {})


def test_f21_rows_pass_at_once_and_none_is_held():
    host = Host(Meld(2), inputs=2).on(rows((1, 9), port=0), rows((1, 3), port=1))
    assert host.times() == [9, 3]
    assert host.logic.state().pages == ()


def test_f21_a_group_is_as_far_as_on_the_input_that_is_slowest_for_it():
    host = Host(Meld(2), inputs=2).on(Bound(0, 5), Bound(1, 2))
    assert news(host) == (2, {})
    assert news(host.on(Bound(0, 9, group=1))) == (None, {}), "the other input has not got further for group 1"
    assert news(host.on(Bound(1, 7, group=1))) == (None, {1: 7})
    assert news(host.on(Bound(1, 7, group=1))) == (None, {}), "no duplicate punctuation"


def test_f21_the_bound_of_an_input_holds_for_its_groups():
    """Effective bound of a group: the further of linear and its own (spec 6.10)."""
    host = Host(Meld(2), inputs=2).on(Bound(0, 9, group=1), Bound(1, 4, group=1))
    assert news(host) == (None, {1: 4})
    assert news(host.on(Bound(1, 6))) == (None, {1: 6})
    assert news(host.on(Bound(0, 7))) == (6, {}), "group 1 was said to be at 6 before"
    assert news(host.on(Bound(1, 8))) == (7, {1: 8})


@given(st.integers(1, 3).flatmap(lambda n: st.tuples(st.just(n), streams(inputs=n, groups=True))), memories)
@examples(0.1)
def test_f21_every_punctuation_is_news_and_what_the_inputs_say_together(case, memory):
    inputs, items = case
    host = Host(Meld(inputs), inputs, memory)
    linear, own = [LEAST] * inputs, [{} for _ in range(inputs)]
    said, said_of = LEAST, {}
    for item in items:
        host.on(item)
        if isinstance(item, Bound) and item.group is None:
            linear[item.port] = max(linear[item.port], item.bound)
        elif isinstance(item, Bound):
            own[item.port][item.group] = max(own[item.port].get(item.group, LEAST), item.bound)
        bound, groups = news(host)
        assert bound == (min(linear) if min(linear) > said else None)
        said = max(said, min(linear))
        far = {g: min(effective(linear[n], own[n], g) for n in range(inputs)) for g in (1, 2, 3)}
        assert groups == {g: far[g] for g in far if far[g] > max(said, said_of.get(g, LEAST))}
        said_of |= groups
    assert host.pairs() == [pair for item in items if isinstance(item, Rows) for pair in item.rows]
    assert host.budget.peak <= memory


@given(streams(inputs=2, groups=True))
@examples(0.1)
def test_f21_no_later_row_matches_a_punctuation_that_was_given_out(items):
    host = Host(Meld(2), inputs=2)
    said, said_of = LEAST, {}
    for item in items:
        if isinstance(item, Rows):
            assert all(t >= effective(said, said_of, k) for k, t in item.rows)
        bound, groups = news(host.on(item))
        said, said_of = max(said, LEAST if bound is None else bound), said_of | groups


def test_what_was_said_is_not_said_again_after_a_restart_and_what_was_not_is():
    host = Host(Meld(1)).on(Bound(0, 5, group=1))
    assert news(host) == (None, {1: 5})
    assert news(host.on(Bound(0, 3), Restart())) == (3, {})
    assert news(host.on(Bound(0, 9, group=1), Restart())) == (None, {1: 9})


def test_a_union_of_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"^inputs=0 is a union of nothing\. Write how many streams there are\.$"):
        Meld(0)
