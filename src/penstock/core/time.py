"""Event time: which columns can carry it, and how each becomes an int64 that can be compared.

Timestamps (with or without zone) count microseconds, dates count days, integers count themselves.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.durations import TimeUnit
from penstock.core.errors import ConfigError, TimeError

Time = int
"""A moment on a stream's time axis."""

TIME_MIN: Time = -(2**63)
"""Before every row: the bound of a stream that has promised nothing."""

TIME_MAX: Time = 2**63 - 1
"""After every row: the bound of a stream that has ended."""

Times = npt.NDArray[np.int64]
"""The times of many rows."""

FARTHEST: dict[TimeUnit, int] = {"microseconds": 2**62, "days": 2**30, "ticks": 2**62}
"""A row's time must be fewer steps than this from 0, so that what windows add to it still fits its type."""


STEPS = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Microseconds in a step of a timestamp column, by its unit."""


def time_unit(schema: pa.Schema, column: str, argument: str = "time") -> TimeUnit:
    """What one step of `column` is, or an error if it cannot be event time.

    >>> time_unit(pa.schema({"ts": pa.timestamp("us")}), "ts")
    'microseconds'
    """
    if column not in schema.names:
        raise ConfigError.unknown_column(argument, column, schema.names)
    kind = schema.field(column).type
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return "microseconds"
    if pa.types.is_date(kind):
        return "days"
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return "ticks"
    hint = f"to_timestamp({column})" if pa.types.is_string(kind) else f"cast({column} AS TIMESTAMP) or BIGINT"
    raise TimeError(
        f"{argument}={column!r} is of type {kind}; event time must be a timestamp (microseconds at the finest), a date "
        f"or an integer, because it is compared exactly. Select {hint} as a column first."
    )


def as_times(column: pa.Array | pa.ChunkedArray) -> pa.Int64Array:
    """A time column as int64 (nulls stay null), without copying when it is a microsecond timestamp or a long.

    >>> as_times(pa.array([1, None], pa.timestamp("us"))).to_pylist()
    [1, None]
    """
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = whole.type
    if pa.types.is_timestamp(kind):
        return _in_microseconds(whole).view(pa.int64())
    if pa.types.is_date32(kind):
        return whole.view(pa.int32()).cast(pa.int64())
    if pa.types.is_date64(kind):
        return whole.cast(pa.date32()).view(pa.int32()).cast(pa.int64())
    return whole.cast(pa.int64())


def _in_microseconds(times: pa.TimestampArray) -> pa.TimestampArray:
    """Timestamps in microseconds; null where that is too far from 1970 for 64 bits."""
    kind = pa.timestamp("us", times.type.tz)
    try:
        return times.cast(kind)
    except pa.ArrowInvalid:
        most = TIME_MAX // STEPS[times.type.unit]
        steps = times.view(pa.int64())
        near = pc.and_(pc.less_equal(steps, most), pc.greater_equal(steps, -most))
        return pc.if_else(near, times, None).cast(kind)


def in_range(times: pa.Int64Array, unit: TimeUnit) -> pa.BooleanArray:
    """Which times are near enough to 0 to be used; null where there is none.

    >>> in_range(pa.array([2**30 - 1, -(2**30), None]), "days").to_pylist()
    [True, False, None]
    """
    end = FARTHEST[unit]
    return pc.and_(pc.less(times, end), pc.greater(times, -end))


def into_steps(times: Times, step: int) -> Times:
    """How far into its step each time is, if steps of one length tile the axis from 0; never negative.

    NumPy divides by one number faster than it finds remainders. What leaves the axis on the way comes back to it.

    >>> into_steps(np.array([7, -1, TIME_MIN]), 5).tolist() == [2, 4, TIME_MIN % 5]
    True
    """
    return times - times // step * np.int64(step)


def from_times(times: pa.Int64Array, kind: pa.DataType) -> pa.Array:
    """The inverse of `as_times`: int64 back to the column type it came from.

    >>> from_times(pa.array([1]), pa.date32()).to_pylist()
    [datetime.date(1970, 1, 2)]
    """
    if pa.types.is_timestamp(kind):
        return times.view(pa.timestamp("us", kind.tz)).cast(kind)
    if pa.types.is_date(kind):
        return times.cast(pa.int32()).view(pa.date32()).cast(kind)
    return times.cast(kind)


def show_time(time: Time, unit: TimeUnit) -> str:
    """A moment as people read it.

    >>> show_time(0, "microseconds"), show_time(TIME_MAX, "days"), show_time(7, "ticks")
    ('1970-01-01 00:00:00', 'end', '7')
    """
    if time <= TIME_MIN:
        return "none yet"
    if time >= TIME_MAX:
        return "end"
    if unit == "ticks":
        return str(time)
    moment = np.datetime64(time, "us") if unit == "microseconds" else np.datetime64(time, "D")
    text = str(moment).replace("T", " ")
    return text.rstrip("0").rstrip(".") if "." in text else text


_SPANS = ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms"), (1, "us"))


def show_span(steps: int, unit: TimeUnit) -> str:
    """How far two moments are apart, as people read it.

    >>> show_span(5_400_000_000, "microseconds"), show_span(12_345_678, "microseconds"), show_span(7, "ticks")
    ('1.5 h', '12.3 s', '7')
    """
    if unit == "ticks":
        return f"{steps:,}"
    if unit == "days":
        return f"{steps:,} d"
    size, name = next(((size, name) for size, name in _SPANS if steps >= size), _SPANS[-1])
    return f"{round(steps / size, 1):,g} {name}"


def clamp(time: int) -> Time:
    """A computed moment kept on the axis, so that arithmetic on TIME_MIN and TIME_MAX stays there.

    >>> clamp(TIME_MAX + 5) == TIME_MAX
    True
    """
    return max(TIME_MIN, min(TIME_MAX, time))
