"""Lists of pages against tuples of them, and what they take."""

from __future__ import annotations

import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.operator import State
from penstock.core.page_list import PageList
from penstock.core.pages import Page
from penstock.core.time import TIME_MAX
from penstock.spark.task import _LISTED, packed, unpacked
from penstock.storage.versioned import _in_parts

pages = st.builds(
    Page,
    name=st.text(max_size=5),
    kind=st.integers(0, 3),
    begin=st.integers(0, 5),
    end=st.integers(5, 9),
    nbytes=st.integers(0, 99),
    min_time=st.integers(-9, 9),
    max_time=st.integers(-9, 9),
    min_hash=st.integers(0, 2**64 - 1),
    max_hash=st.integers(0, 2**64 - 1),
    marks=st.none() | st.text(max_size=3),
    maker=st.none() | st.text(max_size=3),
)


@pytest.mark.slow
@given(given_pages=st.lists(pages, max_size=8), cut=st.integers(-9, 9), kind=st.integers(0, 3))
def test_a_list_is_what_a_tuple_of_the_pages_is(given_pages, cut, kind):
    whole, listed = tuple(given_pages), PageList.of(given_pages)
    assert tuple(listed) == whole == listed
    assert tuple(listed[cut:]) == whole[cut:]
    assert tuple(listed[:cut]) == whole[:cut]
    assert tuple(PageList.joined([listed[cut:], (), whole[:2]]).packed()) == (*whole[cut:], *whole[:2])
    assert tuple(listed.of_kind(kind)) == tuple(page for page in whole if page.kind == kind)
    assert listed.rows == sum(page.rows for page in whole)
    assert listed.earliest == min((page.min_time for page in whole), default=TIME_MAX)
    if whole:
        assert (listed[0], listed[-1]) == (whole[0], whole[-1])


def test_pages_are_not_taken_by_leaps():
    with pytest.raises(ValueError, match="as they follow each other"):
        PageList.of(())[::2]


@pytest.mark.slow
def test_many_pages_go_to_a_task_and_back_in_a_small_part_of_what_they_take_one_by_one():
    count = 6_000
    many = tuple(
        Page(f"00000001-00001-{n:012x}-250000-0badc0de.arrow", 4, 0, 20, 250_000, n, n + 1, n, n + 1)
        for n in range(count)
    )
    sent = packed(State(many), listed=True)
    assert len(sent) < 40 * count
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        arrived = unpacked(sent)
        stays = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - before
        queue = PageList.of(arrived.pages).of_kind(4)
        left = State(PageList.joined([many[:3], queue[5:], many[-2:]]))
        length = sum(len(part) for part in _in_parts({"rows": 1}, left))
        taken = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before
    finally:
        tracemalloc.stop()
    assert length > 200 * count, "it was all written"
    assert stays < _LISTED * count, "what a task is charged"
    assert taken < 3 * _LISTED * count
