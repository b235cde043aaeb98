"""Windows for aggregation: which rows each window holds, and which windows hold each row.

What a user writes (`Sliding`, `Landmark`, `Session` …) becomes executable once the unit of the windowing attribute is
known: `on(unit)`. Executable windows are numbered. `extent` says what a window holds and is the definition; `wids`
is its inverse over many rows at once: a row lies in extent(w) iff w lies in wids(row). `complete(bound)` is the number
of the first window that a row at or after the bound could still enter.

Windows tile the axis in both directions from their origin, so numbers may be negative and no row is before the first
window. The result of a window has the event time ``end - 1``, the latest that any of its rows can have: so a window
over results holds what the same window over the rows would.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from penstock.core.durations import Duration, DurationLike, TimeUnit
from penstock.core.errors import WindowError
from penstock.core.rows import Indices
from penstock.core.time import FARTHEST, TIME_MAX, TIME_MIN, Time, Times, into_steps

Wid = int
"""The number of a window."""

Wids = npt.NDArray[np.int64]
"""The numbers of many windows."""

Slide = Literal["each", "row-num", "rank"]
"""Which rows slide a slide-by-tuple window: each, or every n-th by its row number or by its rank in time."""


@dataclass(frozen=True, slots=True)
class Sliding:
    """A window of `range` every `slide`: window w holds ``origin + (w+1)*slide - range <= t < origin + (w+1)*slide``.

    With range = slide, windows are tumbling. With range < slide, rows between windows are in none.

    >>> ten = sliding("10 min", "1 min").on("microseconds")
    >>> [int(end[0]) for end in ten.wids(np.array([5_000_000]))]
    [0, 10]
    """

    range: Duration
    slide: Duration
    origin: Duration = field(default_factory=lambda: Duration(0))

    def __post_init__(self) -> None:
        _check_length("range", self.range, "window")
        _check_length("slide", self.slide, "slide")
        if self.range.kind != self.slide.kind:
            raise WindowError(
                f"range={self.range} and slide={self.slide} differ in kind: one is real time, the other counts steps. "
                f"Write both as durations like '10 min', or both as numbers."
            )

    def on(self, unit: TimeUnit) -> Slides:
        """These windows over a time column of `unit`."""
        return Slides(self.range.on(unit, "range"), self.slide.on(unit, "slide"), _origin(self.origin, unit))

    def edges(self, unit: TimeUnit) -> tuple[int, ...]:
        """What windows start and end at multiples of, or that far from a row, in steps of `unit`."""
        return self.range.on(unit), self.slide.on(unit), _origin(self.origin, unit)

    def reach(self, unit: TimeUnit) -> int:
        """How far from a row the windows that hold it reach at most, in steps of `unit`."""
        return self.range.on(unit)

    def __str__(self) -> str:
        origin = f", origin={self.origin}" if self.origin.amount else ""
        return f"sliding(range={self.range}, slide={self.slide}{origin})"


@dataclass(frozen=True, slots=True)
class TupleWindow:
    """The latest `range` rows, every `slide` rows: sliding over row numbers, which count from 0.

    Rows are numbered as they arrive, or by `order`, an integer column of row numbers that must be the stream's time.

    >>> TupleWindow(range=1000, slide=10).on("ticks")
    Slides(range=1000, slide=10, origin=0)
    """

    range: int
    slide: int
    order: str | None = None

    def __post_init__(self) -> None:
        _check_count("range", self.range)
        _check_count("slide", self.slide)

    def on(self, unit: TimeUnit = "ticks") -> Slides:
        """These windows over row numbers, whatever the unit of the time column is."""
        return Slides(self.range, self.slide, 0)

    def edges(self, unit: TimeUnit) -> tuple[int, ...]:
        """What windows start and end at multiples of, or that far from a row, in steps of `unit`."""
        return ()

    def reach(self, unit: TimeUnit) -> int:
        """How far from a row the windows that hold it reach at most, in steps of `unit`."""
        return self.range if self.order is not None else 0

    def __str__(self) -> str:
        order = f", order={self.order!r}" if self.order else ""
        return f"rows(range={self.range}, slide={self.slide}{order})"


@dataclass(frozen=True, slots=True)
class PartitionedWindow:
    """The latest `range` rows of each partition, every `slide` rows of it: each partition counts its own from 0.

    Differs from grouping a `TupleWindow`: there one count runs over all groups. Within a partition rows are ranked as
    they arrive, or by the stream's time if `order` names the time column.

    >>> PartitionedWindow(range=1000, slide=10, partition=("src",)).on("ticks")
    Slides(range=1000, slide=10, origin=0)
    """

    range: int
    slide: int
    partition: tuple[str, ...]
    order: str | None = None

    def __post_init__(self) -> None:
        _check_count("range", self.range)
        _check_count("slide", self.slide)
        columns = self.partition if isinstance(self.partition, tuple | list) else ()
        if not columns or not all(isinstance(name, str) for name in columns):
            raise WindowError(
                f"partition={self.partition!r} must be a tuple of column names. "
                f"Write partition=('device',), or use TupleWindow for one count over all rows."
            )

    def on(self, unit: TimeUnit = "ticks") -> Slides:
        """These windows over the ranks of one partition."""
        return Slides(self.range, self.slide, 0)

    def edges(self, unit: TimeUnit) -> tuple[int, ...]:
        """What windows start and end at multiples of, or that far from a row, in steps of `unit`."""
        return ()

    def reach(self, unit: TimeUnit) -> int:
        """How far from a row the windows that hold it reach at most, in steps of `unit`."""
        return 0

    def __str__(self) -> str:
        order = f", order={self.order!r}" if self.order else ""
        return f"rows(range={self.range}, slide={self.slide}, partition={list(self.partition)}{order})"


@dataclass(frozen=True, slots=True)
class Landmark:
    """Everything so far, every `slide`: window w holds all rows with ``t < origin + (w+1)*slide`` (RANGE ALL).

    >>> landmark(10).on("ticks").complete(25)
    2
    """

    slide: Duration
    origin: Duration = field(default_factory=lambda: Duration(0))

    def __post_init__(self) -> None:
        _check_length("slide", self.slide, "slide")

    def on(self, unit: TimeUnit) -> Landmarks:
        """These windows over a time column of `unit`."""
        return Landmarks(self.slide.on(unit, "slide"), _origin(self.origin, unit))

    def edges(self, unit: TimeUnit) -> tuple[int, ...]:
        """What windows start and end at multiples of, or that far from a row, in steps of `unit`."""
        return self.slide.on(unit), _origin(self.origin, unit)

    def reach(self, unit: TimeUnit) -> int:
        """How far from a row the windows that hold it reach at most, in steps of `unit`."""
        return self.slide.on(unit)

    def __str__(self) -> str:
        origin = f", origin={self.origin}" if self.origin.amount else ""
        return f"landmark(slide={self.slide}{origin})"


@dataclass(frozen=True, slots=True)
class SlideByTuple:
    """A window of `range` that ends at a row: window w holds ``w - range < t <= w``, where w is a row's time.

    Which rows slide: 'each' (one window per distinct time), 'row-num' (rows whose number, counting from 1, is a
    multiple of `every`; numbers are the column `row_num`, or count arrivals), 'rank' (every `every`-th row in order
    of time, ties as they arrive). Each group of a query has its own windows: only its own rows slide them.

    >>> five = slide_by_tuple("5 min").on("microseconds")
    >>> five.extent(300_000_000)
    (1, 300000001)
    """

    range: Duration
    every: int = 1
    by: Slide = "each"
    row_num: str | None = None

    def __post_init__(self) -> None:
        _check_length("range", self.range, "window")
        _check_count("every", self.every)
        if self.by not in ("each", "row-num", "rank"):
            raise WindowError(f"by={self.by!r} is not a way to slide by tuple. Write 'each', 'row-num' or 'rank'.")
        if self.by == "each" and self.every > 1:
            raise WindowError(
                f"every={self.every} needs an order to count rows in. "
                f"Write by='row-num' to count arrivals, or by='rank' to count in order of time."
            )
        if self.row_num is not None and self.by != "row-num":
            raise WindowError(f"row_num={self.row_num!r} needs by='row-num', but by={self.by!r}. Leave row_num= out.")

    def on(self, unit: TimeUnit) -> TupleSlides:
        """These windows over a time column of `unit`."""
        return TupleSlides(self.range.on(unit, "range"), self.every, self.by)

    def edges(self, unit: TimeUnit) -> tuple[int, ...]:
        """What windows start and end at multiples of, or that far from a row, in steps of `unit`."""
        return (1,)

    def reach(self, unit: TimeUnit) -> int:
        """How far from a row the windows that hold it reach at most, in steps of `unit`."""
        return self.range.on(unit)

    def __str__(self) -> str:
        every = f", every={self.every}, by={self.by!r}" if self.by != "each" else ""
        return f"slide_by_tuple(range={self.range}{every})"


@dataclass(frozen=True, slots=True)
class Session:
    """Rows of a group with no gap longer than `gap` between neighbours: from the first row to `gap` after the last.

    Two rows exactly `gap` apart share a session, as in Spark.

    >>> session("5 min").on("microseconds").gap
    300000000
    """

    gap: Duration

    def __post_init__(self) -> None:
        _check_length("gap", self.gap, "gap")

    def on(self, unit: TimeUnit) -> Sessions:
        """These windows over a time column of `unit`."""
        return Sessions(self.gap.on(unit, "gap"))

    def edges(self, unit: TimeUnit) -> tuple[int, ...]:
        """What windows start and end at multiples of, or that far from a row, in steps of `unit`."""
        return (self.gap.on(unit),)

    def reach(self, unit: TimeUnit) -> int:
        """How far from a row the windows that hold it reach at most, in steps of `unit`."""
        return self.gap.on(unit)

    def __str__(self) -> str:
        return f"session(gap={self.gap})"


Window = Sliding | TupleWindow | PartitionedWindow | Landmark | SlideByTuple | Session
"""Every kind of window that an aggregation supports."""


@dataclass(frozen=True, slots=True)
class Slides:
    """Sliding windows in steps of the axis.

    >>> nine = Slides(range=9, slide=6, origin=0)
    >>> nine.extent(1), nine.complete(11), nine.windows(np.array([2, 14])).tolist()
    ((3, 12), 1, [0, 2])
    """

    range: int
    slide: int
    origin: int = 0

    def wids(self, times: Times) -> tuple[Wids, Wids]:
        """Floors, never ceilings: the ceilings in Eq 5.3 as printed contradict the extent.

        The range is taken off the origin, not added to the times, so that nothing leaves the axis on the way.
        """
        whole, rest = divmod(self.range, self.slide)
        return _floors(times, self.origin, self.slide), _floors(times, self.origin - rest, self.slide, whole)

    def extent(self, wid: Wid) -> tuple[Time, Time]:
        """Eq 5.2."""
        end = self.origin + (wid + 1) * self.slide
        return end - self.range, end

    def complete(self, bound: Time) -> Wid:
        """A window is complete once its end is not after the bound."""
        return bound if bound in (TIME_MIN, TIME_MAX) else (bound - self.origin) // self.slide

    def windows(self, times: Times) -> Wids:
        """The union of all rows' windows."""
        first, after = self.wids(np.unique(times))
        held = after > first
        return np.unique(_ranges(first[held], after[held]))

    def starts(self, wids: Wids) -> Times:
        """Where windows begin."""
        return _on_axis(wids, self.slide, self.origin + self.slide - self.range)

    def ends(self, wids: Wids) -> Times:
        """Where windows end."""
        return _on_axis(wids, self.slide, self.origin + self.slide)


@dataclass(frozen=True, slots=True)
class Landmarks:
    """Landmark windows in steps of the axis.

    >>> [end.tolist() for end in Landmarks(slide=10).wids(np.array([25]))]
    [[2], [9223372036854775807]]
    """

    slide: int
    origin: int = 0

    def wids(self, times: Times) -> tuple[Wids, Wids]:
        """Every window from the row's own on."""
        return _floors(times, self.origin, self.slide), np.full(times.size, TIME_MAX)

    def extent(self, wid: Wid) -> tuple[Time, Time]:
        """Eq 5.8: from the beginning of the axis."""
        return TIME_MIN, self.origin + (wid + 1) * self.slide

    def complete(self, bound: Time) -> Wid:
        """A window is complete once its end is not after the bound."""
        return bound if bound in (TIME_MIN, TIME_MAX) else (bound - self.origin) // self.slide

    def windows(self, times: Times) -> Wids:
        """From the first row's window to the last row's; the ones after hold the same rows as that."""
        if not times.size:
            return np.empty(0, np.int64)
        first, last = _floors(np.array([times.min(), times.max()]), self.origin, self.slide)
        return np.arange(first, last + 1)

    def starts(self, wids: Wids) -> Times:
        """The beginning of the axis."""
        return np.full(wids.size, TIME_MIN)

    def ends(self, wids: Wids) -> Times:
        """Where windows end."""
        return _on_axis(wids, self.slide, self.origin + self.slide)


@dataclass(frozen=True, slots=True)
class TupleSlides:
    """Slide-by-tuple windows in steps of the axis; a window's number is the time of the row that defines it.

    >>> slides = TupleSlides(range=5, every=2, by="rank")
    >>> slides.windows(np.array([7, 1, 3, 9])).tolist()
    [3, 9]
    """

    range: int
    every: int = 1
    by: Slide = "each"

    def wids(self, times: Times) -> tuple[Wids, Wids]:
        """Of these, the numbers that are windows at all are only known from `windows`."""
        return times, np.where(times > TIME_MAX - self.range, TIME_MAX, times + self.range)

    def extent(self, wid: Wid) -> tuple[Time, Time]:
        """Open-closed in the thesis, ``(w - range, w]``; the same steps written as half-open."""
        return wid - self.range + 1, wid + 1

    def complete(self, bound: Time) -> Wid:
        """No row below the bound comes any more, and so no window either."""
        return bound

    def windows(self, times: Times) -> Wids:
        """Of one group's rows, numbered as they stand: the times of those that slide, once for each that does."""
        if self.by == "each":
            return np.unique(times)
        order = np.argsort(times, kind="stable") if self.by == "rank" else np.arange(times.size)
        return np.sort(times[order[self.defining(np.arange(1, times.size + 1))]])

    def defining(self, numbers: Indices) -> npt.NDArray[np.bool_]:
        """Which rows slide the window, by their number or rank, counting from 1."""
        mask: npt.NDArray[np.bool_] = numbers % self.every == 0
        return mask

    def starts(self, wids: Wids) -> Times:
        """The first moment that is not yet a whole range before the row."""
        return np.where(wids < TIME_MIN + self.range, TIME_MIN, wids - (self.range - 1))

    def ends(self, wids: Wids) -> Times:
        """Right after the row."""
        return _raised(wids, 1)


@dataclass(frozen=True, slots=True)
class Sessions:
    """Session windows in steps of the axis. A session is known by its rows only: its number is its first row's time.

    >>> sessions = Sessions(gap=5)
    >>> sessions.windows(np.array([0, 5, 11, 12])).tolist(), sessions.complete(17)
    ([0, 11], 17)
    """

    gap: int

    def wids(self, times: Times) -> tuple[Wids, Wids]:
        """The session each row makes alone; `windows` merges them."""
        return times, np.where(times > TIME_MAX - self.gap, TIME_MAX, times + self.gap)

    def complete(self, bound: Time) -> Time:
        """A session is complete once its end is before the bound: a row at its end would still join it."""
        return bound

    def windows(self, times: Times) -> Wids:
        """The first times of the sessions of one group's rows."""
        ordered = np.unique(times)
        return ordered[self.begins(ordered)]

    def begins(self, times: Times) -> npt.NDArray[np.bool_]:
        """Which of one group's rows, in order of time, begin a session."""
        first = np.ones(times.size, np.bool_)
        _, ends = self.wids(times)
        first[1:] = times[1:] > ends[:-1]
        return first


def sliding(range: DurationLike, slide: DurationLike | None = None, origin: DurationLike = 0) -> Sliding:
    """A window of `range` every `slide`; without a slide, tumbling windows.

    Windows end at `origin` and every `slide` before and after it. Spark and Flink align the starts, so their windows
    differ if `range` is not a multiple of `slide`. To get theirs, write ``origin=range``.

    >>> print(sliding("1 h", "1 min"), sliding("5 min"))
    sliding(range=1 h, slide=1 min) sliding(range=5 min, slide=5 min)
    """
    length = Duration.of(range, "range")
    step = length if slide is None else Duration.of(slide, "slide")
    return Sliding(length, step, Duration.of(origin, "origin"))


def rows(
    range: int, slide: int | None = None, partition: str | tuple[str, ...] | None = None, order: str | None = None
) -> TupleWindow | PartitionedWindow:
    """The latest `range` rows, every `slide` rows (by default, tumbling); with `partition`, of each partition.

    >>> print(rows(1000, 10), rows(100, partition="device"))
    rows(range=1000, slide=10) rows(range=100, slide=100, partition=['device'])
    """
    step = range if slide is None else slide
    if partition is None:
        return TupleWindow(range, step, order)
    return PartitionedWindow(range, step, (partition,) if isinstance(partition, str) else partition, order)


def landmark(slide: DurationLike, origin: DurationLike = 0) -> Landmark:
    """Everything so far, every `slide`.

    >>> print(landmark("1 min"))
    landmark(slide=1 min)
    """
    return Landmark(Duration.of(slide, "slide"), Duration.of(origin, "origin"))


def slide_by_tuple(
    range: DurationLike, every: int = 1, by: Slide | None = None, row_num: str | None = None
) -> SlideByTuple:
    """A window of `range` that ends at each distinct time, or at every n-th row by number or rank (`every`).

    `by` is ``"each"`` (a window per distinct time) if `every` is 1 and there is no `row_num`, otherwise ``"row-num"``.

    >>> print(slide_by_tuple("5 min", every=5, by="rank"))
    slide_by_tuple(range=5 min, every=5, by='rank')
    >>> [slide_by_tuple("5 min", every=every).by for every in (1, 5)]
    ['each', 'row-num']
    """
    how: Slide = by if by is not None else "each" if every == 1 and row_num is None else "row-num"
    return SlideByTuple(Duration.of(range, "range"), every, how, row_num)


def session(gap: DurationLike) -> Session:
    """Rows with no gap longer than `gap` between neighbours.

    >>> print(session("30 min"))
    session(gap=30 min)
    """
    return Session(Duration.of(gap, "gap"))


def _check_length(argument: str, length: Duration, what: str) -> None:
    if length.amount <= 0:
        raise WindowError(
            f"{argument}={length} is not positive, so the {what} would never move or hold a row. "
            f"Write a positive length, like '10 min'."
        )


def _check_count(argument: str, count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise WindowError(f"{argument}={count!r} is not a number of rows. Write a whole number from 1 up.")
    if count > FARTHEST["ticks"]:
        raise WindowError(f"{argument}={count} is more rows than can be numbered. Write 2**62 at most.")


def _origin(origin: Duration, unit: TimeUnit) -> int:
    return origin.on(unit, "origin") if origin.amount else 0


def _floors(times: Times, origin: int, step: int, plus: int = 0) -> Wids:
    """``floor((times - origin) / step) + plus``, kept on the axis, which no part of it leaves before."""
    whole, rest = divmod(origin, step)
    numbers: Wids = np.floor_divide(times, step)
    return _raised(numbers, plus - whole, minus=into_steps(times, step) < rest if rest else 0)


def _raised(numbers: Wids, by: int, minus: npt.NDArray[np.bool_] | int = 0) -> Wids:
    """``numbers + by - minus``, kept on the axis."""
    raised = numbers + np.int64(max(TIME_MIN, min(TIME_MAX, by))) - minus
    if numbers.size and int(numbers.min()) + by > TIME_MIN and int(numbers.max()) + by <= TIME_MAX:
        return raised
    if by > 0:
        return np.where((numbers > 0) & (raised < 0), TIME_MAX, raised)
    return np.where((numbers < 0) & (raised > 0), TIME_MIN, raised)


def _on_axis(wids: Wids, step: int, offset: int) -> Times:
    """``wids * step + offset``, kept on the axis."""
    least, most = -((offset - TIME_MIN) // step), (TIME_MAX - offset) // step
    inside = np.clip(wids, max(least, TIME_MIN), min(most, TIME_MAX))
    high, low = divmod(offset, step)
    times = _raised(inside, high) * np.int64(step) + np.int64(low)
    kept: Times = np.where(wids > most, TIME_MAX, np.where(wids < least, TIME_MIN, times))
    return kept


def _ranges(first: Wids, after: Wids) -> Wids:
    """All numbers of all ranges, one after the other."""
    sizes = after - first
    ends = np.cumsum(sizes)
    numbers: Wids = np.arange(int(sizes.sum())) + np.repeat(first - (ends - sizes), sizes)
    return numbers
