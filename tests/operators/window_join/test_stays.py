"""Which births met a block: those that fell into one of its stays, by their definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.window_join.stays import FOREVER, Stays
from tests.streams import examples

TICKS = st.integers(0, 32)
cuts = st.lists(st.integers(1, 30), unique=True, max_size=6).map(sorted)


def stays_of(ticks: list[int], stays: Stays, number: int) -> list[tuple[int, int]]:
    """A block that leaves memory at the first tick, comes back at the second, and so on; its stays."""
    stays.begin(number)
    for place, tick in enumerate(ticks):
        stays.begin_again(number, tick) if place % 2 else stays.end(number, tick)
    ends = [0, *ticks, *([] if len(ticks) % 2 else [FOREVER])]
    return list(zip(ends[::2], ends[1::2], strict=True))


@given(
    st.lists(cuts, min_size=1, max_size=80), st.lists(st.integers(0, 32), min_size=1).map(sorted), st.integers(0, 32)
)
@examples(0.3)
def test_births_are_covered_missed_and_forgotten_as_the_stays_say(blocks, births, before):
    stays, born = Stays(), np.array(births)
    known = {number: stays_of(ticks, stays, number) for number, ticks in enumerate(blocks, start=1)}
    for number, spans in known.items():
        met = [any(since <= birth < until for since, until in spans) for birth in births]
        assert stays.of(number) == spans
        assert stays.cover(np.full(born.size, number), born).tolist() == met
        assert stays.missed(number, born) == met.count(False)
        one = any(since <= births[0] and births[-1] < until for since, until in spans)
        assert stays.met_all(number, births[0], births[-1]) == one
    stays.forget(before)
    later = born[born >= before]
    for number, spans in known.items():
        met = [any(since <= birth < until for since, until in spans) for birth in later]
        assert stays.cover(np.full(later.size, number), later).tolist() == met


def test_a_block_that_all_have_met_is_covered_whenever_rows_were_born():
    stays = Stays()
    stays_of([3, 8, 9], stays, 1)
    stays.join(1)
    assert stays.cover(np.array([1, 1]), np.array([5, 10])).all()
    assert stays.of(1) == [(0, FOREVER)]
