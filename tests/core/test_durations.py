"""Lengths of time as people write them, and what they become on a time column."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.durations import Duration
from penstock.core.errors import DurationError
from tests.streams import examples

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("written", "microseconds"),
    [
        ("10 minutes", 600 * SECOND),
        ("10 minute", 600 * SECOND),
        ("10 mins", 600 * SECOND),
        ("10 min", 600 * SECOND),
        ("10min", 600 * SECOND),
        ("10 m", 600 * SECOND),
        ("  10   MINUTES ", 600 * SECOND),
        ("INTERVAL 10 minutes", 600 * SECOND),
        ("interval 1 hour", 3600 * SECOND),
        ("1 hour 30 minutes", 5400 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("1.5 h", 5400 * SECOND),
        ("2 hrs", 7200 * SECOND),
        ("30 seconds", 30 * SECOND),
        ("30 sec", 30 * SECOND),
        ("30s", 30 * SECOND),
        ("0.5 s", SECOND // 2),
        ("5 milliseconds", 5_000),
        ("5 ms", 5_000),
        ("5 microseconds", 5),
        ("5 us", 5),
        ("5 µs", 5),
        ("1 day", 86_400 * SECOND),
        ("2 d", 172_800 * SECOND),
        ("1 week", 604_800 * SECOND),
        ("-10 min", -600 * SECOND),
        ("+10 min", 600 * SECOND),
        ("- 10 min", -600 * SECOND),
        (timedelta(minutes=10), 600 * SECOND),
        (timedelta(microseconds=-1), -1),
        (Duration(7), 7),
    ],
)
def test_real_time_is_read_as_microseconds(written, microseconds):
    assert Duration.of(written) == Duration(microseconds, "time")


@pytest.mark.parametrize(("written", "ticks"), [(250, 250), ("250", 250), ("-250", -250), ("+3", 3), (0, 0)])
def test_a_number_without_unit_is_ticks(written, ticks):
    assert Duration.of(written) == Duration(ticks, "ticks")


@pytest.mark.parametrize(
    "written",
    ["", "   ", "min", "ten minutes", "10 lightyears", "10 min and a bit", "1 month", "2 years", "1,5 h", "10 -5 min"],
)
def test_what_is_no_length_of_time_is_refused_with_the_value_and_what_to_write(written):
    with pytest.raises(DurationError) as error:
        Duration.of(written, "delay")
    assert str(error.value).startswith(f"delay={written!r} is not a length of time. Write a number and a unit")
    assert "months and years have no fixed length" in str(error.value)


@pytest.mark.parametrize("written", ["+-5 min", "--5 min", "-+5"])
def test_two_signs_are_refused(written):
    with pytest.raises(DurationError, match="is not a length of time"):
        Duration.of(written)


@pytest.mark.parametrize("value", [1.5, None, [1], b"10 min"])
def test_other_types_are_refused_by_name(value):
    with pytest.raises(DurationError, match=f"idle=.* is a {type(value).__name__}. Write a string like '10 min'"):
        Duration.of(value, "idle")


def test_true_is_no_length_of_time():
    with pytest.raises(DurationError, match=r"delay=True is not a length of time. Write a string like '10 min'"):
        Duration.of(True, "delay")


def test_on_a_date_column_only_whole_days_will_do():
    assert Duration.of("48 h").on("days") == 2
    with pytest.raises(DurationError, match=r"delay=36 h is not a whole number of days.*Write whole days, or make the"):
        Duration.of("36 h").on("days", "delay")


def test_on_a_timestamp_a_number_needs_a_unit():
    with pytest.raises(DurationError, match=r"after=10 has no unit. The time column counts microseconds: write '10 s'"):
        Duration.of(10).on("microseconds", "after")


def test_zero_needs_no_unit():
    assert [Duration.of(0).on(unit) for unit in ("microseconds", "days", "ticks")] == [0, 0, 0]


def test_on_an_integer_column_real_time_means_nothing():
    with pytest.raises(
        DurationError, match=r"before=10 min is real time, but the time column is an integer.*plain num"
    ):
        Duration.of("10 min").on("ticks", "before")


@given(st.integers(-(10**15), 10**15), st.sampled_from(["time", "ticks"]))
@examples(0.1)
def test_a_duration_shows_itself_as_it_can_be_written(amount, kind):
    assert Duration.of(str(Duration(amount, kind))) == Duration(amount, kind)
