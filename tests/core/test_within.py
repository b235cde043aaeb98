"""Bands and windows: spellings, refusals, and the reach against the oracle's predicates up to the ends of int64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from penstock.core.errors import BandError, DurationError
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.core.within import LEFT, RIGHT, Buckets, Offsets, band, horizon, reach_end, tumbling, windows
from tests.oracle import window_join as oracle
from tests.streams import examples, near, withins

FIRST, LAST = TIME_MIN + 1, TIME_MAX - 1
"""The first and last moment a row can have: TIME_MIN is before every row, TIME_MAX after."""

moments = st.one_of(
    st.integers(-30, 30), st.integers(FIRST, FIRST + 30), st.integers(LAST - 30, LAST), st.integers(FIRST, LAST)
)
lengths = st.one_of(st.integers(-12, 12), st.integers(-(2**62), 2**62))


def meets(reach, port: int, mine: int, other: int) -> bool:
    """Whether the reach of one row on `port` holds a time on the other port."""
    first, last = reach.of(port, np.array([mine], np.int64))
    return int(first[0]) <= other <= int(last[0])


def assert_reach_is(reach, near_, left: int, right: int) -> None:
    assert meets(reach, LEFT, left, right) == near_(left, right)
    assert meets(reach, RIGHT, right, left) == near_(left, right)


@given(lengths, lengths, moments, moments, st.integers(-2, 2))
@example(5, 10, LAST - 3, LAST, 0)
@example(-10, -5, FIRST + 3, FIRST, 0)
@examples(0.4)
def test_a_band_reaches_what_its_definition_says_to_the_ends_of_the_axis(a, b, left, right, off):
    reach = Offsets(min(a, b), max(a, b))
    assert_reach_is(reach, oracle.band(min(a, b), max(a, b)), left, right)
    for edge in (left + a + off, left + b + off):
        assert_reach_is(reach, oracle.band(min(a, b), max(a, b)), left, max(FIRST, min(LAST, edge)))


@given(st.one_of(st.integers(1, 12), st.integers(1, 2**62)), lengths, moments, moments, st.integers(-2, 2))
@example(12, -5, LAST, LAST - 3, 0)
@example(12, 5, FIRST, FIRST + 3, 0)
@examples(0.4)
def test_a_tumbling_window_reaches_what_its_definition_says_to_the_ends_of_the_axis(size, origin, left, right, off):
    reach = Buckets(size, origin)
    start = (left - origin) // size * size + origin
    for other in (right, start + off, start + size + off):
        assert_reach_is(reach, oracle.tumbling(size, origin), left, max(FIRST, min(LAST, other)))


DOMAIN = range(-60, 61)


def brute_horizon(near_, port: int, bound: int) -> int:
    """By definition: the smallest time on `port` that meets some time at or after `bound` on the other."""
    return min(t for t in DOMAIN if any(pair(near_, port, t, o) for o in DOMAIN if o >= bound))


def brute_reach_end(near_, port: int, bound: int) -> int:
    return 1 + max(t for t in DOMAIN if any(pair(near_, port, t, o) for o in DOMAIN if o < bound))


def pair(near_, port: int, mine: int, other: int) -> bool:
    return near_(mine, other) if port == LEFT else near_(other, mine)


@given(withins, st.sampled_from([LEFT, RIGHT]), st.integers(-12, 12))
@examples(0.1)
def test_horizon_and_reach_end_are_what_they_say(within, port, bound):
    reach = within.reach("ticks")
    assert horizon(reach, port, bound) == brute_horizon(near(within), port, bound)
    assert reach_end(reach, port, bound) == brute_reach_end(near(within), port, bound)


@pytest.mark.parametrize("within", [band(5, 5), band("+5", 10), tumbling(10, origin=3)], ids=str)
@pytest.mark.parametrize("end", [TIME_MIN, TIME_MAX])
def test_at_the_ends_of_time_horizons_are_there_too(within, end):
    reach = within.reach("ticks")
    assert [horizon(reach, port, end) for port in (LEFT, RIGHT)] == [end, end]
    assert [reach_end(reach, port, end) for port in (LEFT, RIGHT)] == [end, end]


@pytest.mark.parametrize("bound", [FIRST, FIRST + 3, LAST - 3, LAST])
def test_near_the_ends_a_horizon_stops_at_the_end_and_does_not_wrap_around(bound):
    reach = band(5, 5).reach("ticks")
    for port in (LEFT, RIGHT):
        assert horizon(reach, port, bound) == max(TIME_MIN, bound - 5)
        assert reach_end(reach, port, bound) == min(TIME_MAX, bound + 5)


@pytest.mark.parametrize(
    ("within", "first", "last"),
    [
        (band(10, 10), -10, 10),
        (band(-10, 10), -10, 10),
        (band("-10", "+10"), -10, 10),
        (band("+5", 10), 5, 10),
        (band("+5", "+10"), 5, 10),
        (band(10, -5), -10, -5),
        (band(0, 0), 0, 0),
        (band(2, 3, ends="()"), -1, 2),
        (band(2, 3, ends="[)"), -2, 2),
        (band(2, 3, ends="(]"), -1, 3),
        (windows(left=3, right=2), -2, 3),
        (windows(left=3, right=2, ends="()"), -1, 2),
        (windows(left=0, right=0), 0, 0),
    ],
    ids=str,
)
def test_bands_mean_offsets_from_the_left_row(within, first, last):
    assert within.reach("ticks") == Offsets(first, last)


def test_a_band_in_real_time_counts_the_steps_of_its_column():
    assert band("10 min", "1 s").reach("microseconds") == Offsets(-600_000_000, 1_000_000)
    assert band("2 days", 0).reach("days") == Offsets(-2, 0)
    assert tumbling("1 week", origin="1 day").reach("days") == Buckets(7, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: band("5 min", "-10 min"), r"within=band\(5 min, -10 min, .*ends 5 min before it starts. Swap the two"),
        (lambda: band("+10 min", "5 min"), r"can match nothing: it ends 5 min before it starts"),
        (lambda: band(2, -5), r"within=band\(2, -5, ends='\[\]'\) can match nothing: it ends 3 before it starts"),
        (lambda: band(1, 1, ends="<>"), r"ends='<>' is not one of '\[\]', '\(\)'.* Write '\[\]' for a closed band"),
        (lambda: windows(left=-3, right=2), r"windows\(left=-3\) is negative. A window is a length: leave the minus"),
        (lambda: windows(left="3 s", right="-2 s"), r"windows\(right=-2 s\) is negative"),
        (lambda: tumbling(0), r"tumbling\(size=0\) has no length. Write a positive size, as in '5 min'"),
        (lambda: tumbling("-5 min"), r"tumbling\(size=-5 min\) has no length"),
    ],
)
def test_what_can_match_nothing_is_refused_where_it_is_written(make, message):
    with pytest.raises(BandError, match=message):
        make()


@pytest.mark.parametrize("within", [band(0, 0, ends="()"), band(0, 0, ends="[)"), band(0, 1, ends="()")], ids=str)
def test_open_ends_with_nothing_between_are_refused(within):
    with pytest.raises(BandError, match="can match nothing: both ends are open and nothing lies between them"):
        within.reach("ticks")


def test_a_band_must_fit_the_unit_of_its_columns():
    with pytest.raises(DurationError, match="before=10 min is real time, but the time column is an integer"):
        band("10 min", "10 min").reach("ticks")
    with pytest.raises(DurationError, match="after=10 has no unit"):
        band("10 min", 10).reach("microseconds")
    with pytest.raises(DurationError, match="size=36 h is no whole number of days"):
        tumbling("36 h").reach("days")


@pytest.mark.parametrize(
    "within", [band(0, 2**63), band("100000000 weeks", 0), tumbling(2**64), tumbling("100000000 weeks")], ids=str
)
def test_a_length_beyond_the_time_axis_is_refused_rather_than_overflowing_later(within):
    unit = "microseconds" if getattr(within, "before", getattr(within, "size", None)).kind == "time" else "ticks"
    with pytest.raises((BandError, DurationError)):
        within.reach(unit)


@given(withins, withins)
@example(tumbling(5), tumbling(5, origin=2))
@examples(0.1)
def test_conditions_that_differ_look_different(one, other):
    """A checkpoint knows a flow by this text: what it leaves out could be changed behind its back."""
    assume(one != other)
    assert str(one) != str(other)
