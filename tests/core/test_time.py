"""Time columns: which there are, and that nothing is lost on the way to int64 and back."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError, TimeError
from penstock.core.time import TIME_MAX, TIME_MIN, as_times, clamp, from_times, into_steps, show_time, time_unit
from tests.streams import examples

INT64, INT32 = (-(2**63), 2**63 - 1), (-(2**31), 2**31 - 1)
COLUMNS = {
    pa.timestamp("us"): INT64,
    pa.timestamp("us", "UTC"): INT64,
    pa.timestamp("us", "Europe/Berlin"): INT64,
    pa.timestamp("ms"): (INT64[0] // 1000 + 1, INT64[1] // 1000),
    pa.timestamp("s"): (INT64[0] // 10**6 + 1, INT64[1] // 10**6),
    pa.date32(): INT32,
    pa.int64(): INT64,
    pa.int32(): INT32,
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int8(): (-128, 127),
    pa.uint32(): (0, 2**32 - 1),
}
"""Column types that can be event time, with the smallest and largest number that they hold as one."""


def column(kind: pa.DataType, numbers: list[int | None]) -> pa.Array:
    if pa.types.is_integer(kind):
        return pa.array(numbers, kind)
    return pa.array(numbers, pa.int32() if kind == pa.date32() else pa.int64()).view(kind)


@pytest.mark.parametrize("kind", COLUMNS, ids=str)
def test_times_come_back_as_the_column_they_were(kind):
    smallest, largest = COLUMNS[kind]
    numbers = st.lists(st.one_of(st.none(), st.integers(smallest, largest)), max_size=5)

    @given(numbers)
    @example([smallest, smallest + 1, None, largest - 1, largest])
    @examples(0.02)
    def round_trip(numbers):
        given_ = column(kind, numbers)
        times = as_times(given_)
        assert times.type == pa.int64()
        assert from_times(times, kind).equals(given_)

    round_trip()


def test_days_milliseconds_and_seconds_are_counted_from_the_epoch():
    assert as_times(pa.array([dt.date(1970, 1, 3)])).to_pylist() == [2]
    assert as_times(pa.array([dt.date(1970, 1, 3)], pa.date64())).to_pylist() == [2]
    assert as_times(pa.array([dt.datetime(1970, 1, 1, 0, 0, 2)], pa.timestamp("s"))).to_pylist() == [2_000_000]


def test_a_date64_column_comes_back_as_one():
    given_ = pa.array([dt.date(1969, 12, 31), None], pa.date64())
    assert from_times(as_times(given_), pa.date64()).equals(given_)


def test_a_column_in_chunks_is_one_column():
    assert as_times(pa.chunked_array([[1], [2, None]])).to_pylist() == [1, 2, None]


def test_a_zone_does_not_change_the_moment():
    moment = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
    zones = [as_times(pa.array([moment], pa.timestamp("us", zone)))[0].as_py() for zone in ("UTC", "Asia/Tokyo")]
    assert zones[0] == zones[1] == int(moment.timestamp()) * 1_000_000


@pytest.mark.parametrize("kind", COLUMNS, ids=str)
def test_every_time_column_has_a_unit(kind):
    unit = time_unit(pa.schema({"t": kind}), "t")
    expected = "microseconds" if pa.types.is_timestamp(kind) else "days" if pa.types.is_date(kind) else "ticks"
    assert unit == expected


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        (pa.string(), r"Select to_timestamp\(t\) as a column first"),
        (pa.float64(), r"Select cast\(t AS TIMESTAMP\) or BIGINT"),
        (pa.uint64(), "BIGINT"),
        (pa.bool_(), "BIGINT"),
        (pa.time64("us"), "BIGINT"),
    ],
    ids=str,
)
def test_other_types_are_refused_with_what_to_select_instead(kind, hint):
    with pytest.raises(TimeError, match=f"time='t' is of type .*; event time must be a timestamp .*, a date.*{hint}"):
        time_unit(pa.schema({"t": kind}), "t")


def test_an_unknown_time_column_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"time='tss' is not a column of this stream. Did you mean 'ts'?"):
        time_unit(pa.schema({"ts": pa.int64(), "k": pa.int64()}), "tss")
    with pytest.raises(ConfigError, match=r"time='when' is not a column of this stream. Its columns are: ts, k"):
        time_unit(pa.schema({"ts": pa.int64(), "k": pa.int64()}), "when")


@pytest.mark.parametrize(
    ("time", "unit", "text"),
    [
        (TIME_MIN, "ticks", "none yet"),
        (TIME_MAX, "microseconds", "end"),
        (-5, "ticks", "-5"),
        (1, "days", "1970-01-02"),
        (1_500_000, "microseconds", "1970-01-01 00:00:01.5"),
        (600_000_000, "microseconds", "1970-01-01 00:10:00"),
    ],
)
def test_moments_are_shown_as_people_read_them(time, unit, text):
    assert show_time(time, unit) == text


def test_clamp_keeps_arithmetic_on_the_axis():
    assert [clamp(TIME_MIN - 1), clamp(5), clamp(TIME_MAX + 1)] == [TIME_MIN, 5, TIME_MAX]


@given(st.integers(TIME_MIN, TIME_MAX), st.integers(1, TIME_MAX))
@example(TIME_MIN, 3)
@example(TIME_MIN, TIME_MAX)
def test_how_far_into_its_step_a_time_is(time, step):
    assert into_steps(np.array([time]), step).tolist() == [time % step]
