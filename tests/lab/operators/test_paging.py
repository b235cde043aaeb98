"""F27: a page leaves when it is full, and when a punctuation comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.operators import Paging
from penstock.core.errors import ConfigError
from tests.items import Bound, Host, Restart, Rows, memories, rows, streams
from tests.streams import examples


def sizes(host: Host) -> list[int]:
    return [out.rows.num_rows for out in host.out]


def test_f27_in_a_lull_a_result_leaves_without_a_full_page():
    host = Host(Paging()).on(rows((1, 5)))
    assert sizes(host) == [], "one row of thirty"
    assert sizes(host.on(Bound(0, 6))) == [1], "nothing else may come for hours"
    assert sizes(host.on(Bound(0, 9))) == [1], "there is no empty page"


def test_f27_full_pages_leave_at_once():
    host = Host(Paging(page=3)).on(rows(*((1, n) for n in range(8))))
    assert sizes(host) == [3, 3]
    assert sizes(host.on(rows((1, 8), (1, 9)))) == [3, 3, 3]
    assert host.times() == list(range(9))
    assert host.logic.held == 1
    assert sizes(host.end()) == [3, 3, 3, 1]


@given(streams(), st.integers(1, 9), memories)
@examples(0.05)
def test_f27_no_row_stays_behind_the_bound_that_followed_it(items, page, memory):
    host = Host(Paging(page), memory=memory)
    for item in items:
        host.on(item)
        assert max([0, *sizes(host)]) <= page
        assert host.logic.held < page
        if isinstance(item, Bound):
            assert host.logic.held == 0
    host.end()
    came = [pair for item in items if isinstance(item, Rows) for pair in item.rows]
    assert sorted(host.pairs(), key=str) == sorted(came, key=str)
    assert host.pairs() == came or any(isinstance(item, Restart) for item in items)
    assert host.budget.held == 0


def test_a_page_that_has_been_begun_survives_a_restart():
    assert Host(Paging()).on(rows((1, 5)), Restart(), Bound(0, 6)).times() == [5]


def test_a_page_without_room_is_refused():
    with pytest.raises(ConfigError, match=r"^page=0 has no place for a row\. Write 1 or more\.$"):
        Paging(0)
