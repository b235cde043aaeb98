"""Bands and windows: spellings, refusals, and the reach against the oracle's predicates up to the ends of int64."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from penstock.core.durations import Duration
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


@pytest.mark.parametrize("within", [band(5, 5), band(before=-5, after=10), tumbling(10, origin=3)], ids=str)
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
        (band(before=10, after=10), -10, 10),
        (band(before=-5, after=10), 5, 10),
        (band(before=10, after=-5), -10, -5),
        (band(before="-5", after="+10"), 5, 10),
        (band(before=0, after=0), 0, 0),
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


TICK = timedelta(microseconds=1)
OFFSETS: list[tuple[object, object, int, int]] = [
    # neither has a sign: distances before and after
    (10, 3, -10, 3),
    ("10", "3", -10, 3),
    ("10 us", "3 us", -10, 3),
    (10 * TICK, 3 * TICK, -10, 3),
    (Duration(10), Duration(3), -10, 3),
    ("10 us", 3 * TICK, -10, 3),
    # both have a sign: offsets, first and last
    ("-10", "+3", -10, 3),
    ("+3", "+10", 3, 10),
    ("-10", "-3", -10, -3),
    (" - 10 us", "+ 3 us", -10, 3),
    (-10, -3, -10, -3),
    (-10, "+3", -10, 3),
    (-10 * TICK, -3 * TICK, -10, -3),
    (Duration(-10), Duration(-3), -10, -3),
    (Duration(-10), "+3 us", -10, 3),
    # zero goes with either
    (0, 0, 0, 0),
    (0, 10, 0, 10),
    (10, 0, -10, 0),
    (-10, 0, -10, 0),
    ("-10", "0", -10, 0),
    ("-10", "+0", -10, 0),
    ("10", "-0", -10, 0),
    ("0", "+10", 0, 10),
    ("+0", "10", 0, 10),
    (0 * TICK, "+10 us", 0, 10),
    (Duration(-10), 0 * TICK, -10, 0),
]


@pytest.mark.parametrize(("first", "last", "start", "end"), OFFSETS)
def test_without_keywords_unsigned_values_are_distances_and_signed_ones_offsets(first, last, start, end):
    within = band(first, last)
    unit = "microseconds" if "time" in {d.kind for d in (within.before, within.after) if d.amount} else "ticks"
    assert within.reach(unit) == Offsets(start, end)


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        (
            "-10 min",
            "5 min",
            r"band\('-10 min', '5 min'\) has a sign on only one of its values, so they could be offsets .* or distances"
            r" before and after it\. Write band\(before='10 min', after='5 min'\) if they are offsets\.",
        ),
        (
            "-5 min",
            "10 min",
            r"Write band\(before='5 min', after='10 min'\) if they are offsets, "
            r"or band\(before='-5 min', after='10 min'\) if they are distances\.",
        ),
        (
            "+5 min",
            "10 min",
            r"before='-5 min', after='10 min'\) if they are offsets, or band\(before='5 min', after='10",
        ),
        (
            "5 min",
            "+10 min",
            r"before='-5 min', after='10 min'\) if they are offsets, or band\(before='5 min', after='10",
        ),
        ("10 min", "-5 min", r"Write band\(before='10 min', after='-5 min'\) if they are distances\.$"),
        (-10, 10, r"band\(-10, 10\) .* Write band\(before=10, after=10\) if they are offsets, or band\(before=-10, af"),
        (10, -5, r"band\(10, -5\) has a sign on only one .* Write band\(before=10, after=-5\) if they are distances\."),
        ("-10", 10, r"band\('-10', 10\) has a sign on only one of its values"),
        ("+5", 10, r"band\('\+5', 10\) has a sign on only one of its values"),
        (
            timedelta(minutes=-1),
            timedelta(minutes=1),
            r"band\('-1 min', '1 min'\) has a sign on only one of its values",
        ),
        (Duration(-10, "ticks"), Duration(10, "ticks"), r"band\(-10, 10\) has a sign on only one of its values"),
    ],
)
def test_a_sign_on_only_one_value_is_refused_with_what_to_write(first, last, message):
    with pytest.raises(BandError, match=message):
        band(first, last)


@given(
    st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([str, "{:+}".format, int, lambda n: Duration(n, "ticks")])
)
@examples(0.2)
def test_whatever_is_accepted_without_keywords_means_the_same_in_either_reading_or_shows_its_sign(low, high, written):
    first, last = written(low), written(high)
    try:
        within = band(first, last)
    except BandError:
        return
    as_offsets, as_distances = (low, high), (-low, high)
    meant = (-within.before.amount, within.after.amount)
    signs = written is not int and str(first)[0] in "+-" and str(last)[0] in "+-"
    empty = as_distances[0] > as_distances[1]
    assert meant == (as_offsets if signs or empty else as_distances)
    assert meant == as_offsets or not any(str(end)[0] in "+-" and int(str(end)) for end in (first, last))


def test_a_plus_before_a_distance_is_refused_because_it_reads_as_an_offset():
    message = (
        r"before='\+5 min' could start the band 5 min before .* or 5 min after it. Write before='5 min' or before='-5"
    )
    with pytest.raises(BandError, match=message):
        band(before="+5 min", after="10 min")
    assert band(before=5, after="+10") == band(before="5", after=10)


@pytest.mark.parametrize(
    "arguments",
    [((), {}), ((5,), {}), ((), {"before": 5}), ((), {"after": 5}), ((5,), {"after": 5}), ((5, 5), {"after": 5})],
)
def test_a_band_needs_both_ends_written_the_same_way(arguments):
    positional, named = arguments
    with pytest.raises(BandError, match=r"needs both ends, written the same way. Write band\(before='10 min', after="):
        band(*positional, **named)


def test_a_checkpoint_knows_a_band_by_the_text_of_the_first_version():
    assert band(before="10 min", after=0).identity == "band(10 min, 0, ends='[]')"
    assert band(before=-1, after=16, ends="()").identity == "band(-1, 16, ends='()')"


def test_a_band_in_real_time_counts_the_steps_of_its_column():
    assert band("10 min", "1 s").reach("microseconds") == Offsets(-600_000_000, 1_000_000)
    assert band("2 days", 0).reach("days") == Offsets(-2, 0)
    assert tumbling("1 week", origin="1 day").reach("days") == Buckets(7, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: band(before="5 min", after="-10 min"),
            r"within=band\(before=5 min, after=-10 min, .*ends 5 min before it starts\. before= and after= are dis",
        ),
        (lambda: band("+10 min", "+5 min"), r"can match nothing: it ends 5 min before it starts"),
        (lambda: band(0, -5), r"within=band\(before=0, after=-5, .*\) can match nothing: it ends 5 before it starts"),
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


@pytest.mark.parametrize(
    ("within", "which"),
    [
        (band(0, 0, ends="()"), "both ends are"),
        (band(0, 1, ends="()"), "both ends are"),
        (band(0, 0, ends="[)"), "one end is"),
        (band(0, 0, ends="(]"), "one end is"),
    ],
    ids=str,
)
def test_open_ends_with_nothing_between_are_refused(within, which):
    with pytest.raises(BandError, match=f"can match nothing: {which} open and nothing lies between them"):
        within.reach("ticks")


def test_a_band_must_fit_the_unit_of_its_columns():
    with pytest.raises(DurationError, match="before=10 min is real time, but the time column is an integer"):
        band("10 min", "10 min").reach("ticks")
    with pytest.raises(DurationError, match="after=10 has no unit"):
        band("10 min", 10).reach("microseconds")
    with pytest.raises(DurationError, match="size=36 h is not a whole number of days"):
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
    assert getattr(one, "identity", str(one)) != getattr(other, "identity", str(other))
