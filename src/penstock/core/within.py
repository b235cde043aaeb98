"""Which rows of two streams are near enough in time to match: bands, per-stream windows, tumbling windows, or all.

What a user writes (`Band`, `Tumbling`, `Always`) becomes a `Reach` once the unit of the time columns is known. A reach
answers one question – which times on the other stream can a row meet? – and everything a window join needs
follows from it: whom to probe, when a row is dead, and which results can still come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol, overload

import numpy as np

from penstock.core.durations import Duration, DurationLike, TimeUnit
from penstock.core.errors import BandError
from penstock.core.time import TIME_MAX, TIME_MIN, Time, Times, into_steps

LEFT, RIGHT = 0, 1
Ends = Literal["[]", "()", "[)", "(]"]
"""Whether the two ends of a band match, in interval notation: ``[`` and ``]`` do, ``(`` and ``)`` do not."""


class Reach(Protocol):
    """The times on the other stream that rows of one stream can meet."""

    def of(self, port: int, times: Times) -> tuple[Times, Times]:
        """First and last time (both included) that each row of `port` can meet on the other port."""
        ...

    @property
    def farthest(self) -> int | None:
        """How far apart two rows that meet can be, in steps of time; None if nothing limits it."""
        ...


def horizon(reach: Reach, port: int, bound: Time) -> Time:
    """The smallest time at which a row of `port` can still meet a row of the other port at or after `bound`."""
    if bound in (TIME_MIN, TIME_MAX):
        return bound
    first, _ = reach.of(1 - port, np.array([bound], np.int64))
    return int(first[0])


def reach_end(reach: Reach, port: int, bound: Time) -> Time:
    """The first time on `port` that no row of the other port below `bound` can meet."""
    if bound in (TIME_MIN, TIME_MAX):
        return bound
    _, last = reach.of(1 - port, np.array([bound - 1], np.int64))
    return min(TIME_MAX, int(last[0]) + 1)


@dataclass(frozen=True, slots=True)
class Band:
    """A pair (l, r) matches iff ``l.time - before <= r.time <= l.time + after``; `ends` says which ends count.

    >>> reach = Band(Duration.of("10 min"), Duration.of("0 s")).reach("microseconds")
    >>> [int(end[0]) for end in reach.of(LEFT, np.array([600_000_000]))]
    [0, 600000000]
    """

    before: Duration
    after: Duration
    ends: Ends = "[]"

    def __post_init__(self) -> None:
        if self.ends not in ("[]", "()", "[)", "(]"):
            raise BandError(f"ends={self.ends!r} is not one of '[]', '()', '[)', '(]'. Write '[]' for a closed band.")
        if self.before.amount + self.after.amount < 0:
            short = Duration(-self.before.amount - self.after.amount, self.after.kind)
            raise BandError(
                f"within={self} can match nothing: it ends {short} before it starts. before= and after= are distances "
                f"from the left row's time: make one of them larger."
            )

    def reach(self, unit: TimeUnit) -> Reach:
        """Open ends become closed ones a single step further in: time is discrete."""
        first = -self.before.on(unit, "before") + (self.ends[0] == "(")
        last = self.after.on(unit, "after") - (self.ends[1] == ")")
        if last < first:
            which = "both ends are" if self.ends == "()" else "one end is"
            raise BandError(f"within={self} can match nothing: {which} open and nothing lies between them.")
        return Offsets(first, last)

    @property
    def identity(self) -> str:
        """How a checkpoint records this band. Never change this text: it would lock users out of their checkpoints."""
        return f"band({self.before}, {self.after}, ends={self.ends!r})"

    def __str__(self) -> str:
        return f"band(before={self.before}, after={self.after}, ends={self.ends!r})"


@dataclass(frozen=True, slots=True)
class Offsets:
    """The reach of a band: ``first <= r.time - l.time <= last``, in steps of the time column."""

    first: int
    last: int

    def of(self, port: int, times: Times) -> tuple[Times, Times]:
        """A left row looks from `first` to `last`; a right row looks back along the same offsets."""
        if port == LEFT:
            return _shifted(times, self.first), _shifted(times, self.last)
        return _shifted(times, -self.last), _shifted(times, -self.first)

    @property
    def farthest(self) -> int | None:
        """The longer side."""
        return max(abs(self.first), abs(self.last))


@dataclass(frozen=True, slots=True)
class Tumbling:
    """A pair matches iff both rows fall into the same window of `size`, counted from `origin`.

    >>> reach = Tumbling(Duration.of(10)).reach("ticks")
    >>> [int(end[0]) for end in reach.of(LEFT, np.array([-1]))]
    [-10, -1]
    """

    size: Duration
    origin: Duration = field(default_factory=lambda: Duration(0))

    def __post_init__(self) -> None:
        if self.size.amount <= 0:
            raise BandError(f"tumbling(size={self.size}) has no length. Write a positive size, as in '5 min'.")

    def reach(self, unit: TimeUnit) -> Reach:
        """Windows of `size` steps."""
        origin = self.origin.on(unit, "origin") if self.origin.amount else 0
        return Buckets(self.size.on(unit, "size"), origin)

    def __str__(self) -> str:
        origin = f", origin={self.origin}" if self.origin.amount else ""
        return f"tumbling({self.size}{origin})"


@dataclass(frozen=True, slots=True)
class Buckets:
    """The reach of a tumbling window: from the start of a row's window to its last step."""

    size: int
    origin: int

    def of(self, port: int, times: Times) -> tuple[Times, Times]:
        """The same window on either port. Floors, never ceilings: Fig 7-2 as printed is unsound."""
        into, rest = into_steps(times, self.size), self.origin % self.size
        if rest:
            into = np.where(into < rest, into + (self.size - rest), into - rest)
        return _lowered(times, into), _raised(times, self.size - 1 - into)

    @property
    def farthest(self) -> int | None:
        """From the first step of a window to its last one."""
        return self.size - 1


@dataclass(frozen=True, slots=True)
class Always:
    """Every pair matches, however far apart its rows are in time: both streams are kept from their beginning.

    >>> [int(end[0]) for end in Always().reach("ticks").of(LEFT, np.array([7]))] == [TIME_MIN, TIME_MAX]
    True
    """

    def reach(self, unit: TimeUnit) -> Reach:
        """All of time."""
        return AllOfTime()

    def __str__(self) -> str:
        return "always()"


@dataclass(frozen=True, slots=True)
class AllOfTime:
    """The reach of a join without a window: any row can meet any other."""

    def of(self, port: int, times: Times) -> tuple[Times, Times]:
        """From the first time to the last."""
        return np.full_like(times, TIME_MIN), np.full_like(times, TIME_MAX)

    @property
    def farthest(self) -> int | None:
        """Any distance."""
        return None


Within = Band | Tumbling | Always
"""What ``within=`` of a join may be."""


@overload
def band(*, before: DurationLike, after: DurationLike, ends: Ends = "[]") -> Band: ...
@overload
def band(first: DurationLike, last: DurationLike, /, ends: Ends = "[]") -> Band: ...
def band(
    first: DurationLike | None = None,
    last: DurationLike | None = None,
    /,
    ends: Ends = "[]",
    *,
    before: DurationLike | None = None,
    after: DurationLike | None = None,
) -> Band:
    """Match rows whose right time lies from `before` the left time to `after` it.

    `before` and `after` are distances from the left row's time, and either may be negative:

    >>> print(band(before="10 min", after="2 min"))
    band(before=10 min, after=2 min, ends='[]')
    >>> print(band(before="-5 min", after="10 min"))  # from 5 to 10 minutes after the left row
    band(before=-5 min, after=10 min, ends='[]')

    Without keywords, two values without a sign are `before` and `after`. Two values with a sign are offsets from the
    left row's time, first and last. Zero goes with either; a sign on only one of two other values is an error.

    >>> print(band("10 min", "2 min"))
    band(before=10 min, after=2 min, ends='[]')
    >>> print(band("-10 min", "+2 min"))
    band(before=10 min, after=2 min, ends='[]')
    >>> print(band("+5 min", "+10 min", ends="[)"))
    band(before=-5 min, after=10 min, ends='[)')
    """
    if before is not None and after is not None and first is None and last is None:
        return Band(_distance_before(before), Duration.of(after, "after"), ends)
    if first is not None and last is not None and before is None and after is None:
        return _positional(first, last, ends)
    raise BandError(
        "band() needs both ends, written the same way. Write band(before='10 min', after='10 min'); "
        "before=0 starts at the left row's time, and after=0 ends there."
    )


def windows(left: DurationLike, right: DurationLike, ends: Ends = "[]") -> Band:
    """Give each stream its own window: a row can be matched for as long as its stream's window.

    A pair matches iff ``l.time - right <= r.time <= l.time + left``.

    >>> print(windows(left="3 min", right="2 min"))
    band(before=2 min, after=3 min, ends='[]')
    """
    lengths = Duration.of(left, "left"), Duration.of(right, "right")
    for name, length in zip(("left", "right"), lengths, strict=True):
        if length.amount < 0:
            raise BandError(f"windows({name}={length}) is negative. A window is a length: leave the minus out.")
    return Band(before=lengths[RIGHT], after=lengths[LEFT], ends=ends)


def tumbling(size: DurationLike, origin: DurationLike = 0) -> Tumbling:
    """Match rows that fall into the same window of `size`; windows are counted from `origin` (the epoch).

    >>> print(tumbling("5 min"))
    tumbling(5 min)
    """
    return Tumbling(Duration.of(size, "size"), Duration.of(origin, "origin"))


def always() -> Always:
    """Match rows however far apart they are in time: a join over the full history of both streams.

    >>> print(always())
    always()
    """
    return Always()


def _distance_before(value: DurationLike) -> Duration:
    """`before` as a distance; ``before="+5 min"`` could also be an offset, which is the opposite."""
    distance = Duration.of(value, "before")
    if isinstance(value, str) and _signed(value, distance) and distance.amount > 0:
        raise BandError(
            f"before={value!r} could start the band {distance} before the left row's time or {distance} after it. "
            f"Write before={_quoted(distance)} or before={_quoted(_negated(distance))}."
        )
    return distance


def _positional(first: DurationLike, last: DurationLike, ends: Ends) -> Band:
    """Two distances, neither with a sign, or two offsets, both with one."""
    low, high = Duration.of(first, "first"), Duration.of(last, "last")
    signed = {_signed(*end) for end in ((first, low), (last, high)) if end[1].amount}
    if len(signed) == 2:
        raise _unclear(first, last)
    return Band(_negated(low) if True in signed else low, high, ends)


def _signed(value: DurationLike, read: Duration) -> bool:
    """Whether a value is written with a sign. A number, a timedelta and a Duration show only a minus."""
    return value.strip().startswith(("+", "-")) if isinstance(value, str) else read.amount < 0


def _unclear(first: DurationLike, last: DurationLike) -> BandError:
    low, high = Duration.of(first), Duration.of(last)
    readings = (("offsets", _negated(low)), ("distances", low))
    hints = [
        f"band(before={_quoted(before)}, after={_quoted(high)}) if they are {meaning}"
        for meaning, before in readings
        if before.amount + high.amount >= 0
    ]
    shown = ", ".join(repr(value) if isinstance(value, str) else _quoted(Duration.of(value)) for value in (first, last))
    return BandError(
        f"band({shown}) has a sign on only one of its values, so they could be offsets from the left row's time or "
        f"distances before and after it. Write {', or '.join(hints)}."
    )


def _negated(duration: Duration) -> Duration:
    return Duration(-duration.amount, duration.kind)


def _quoted(duration: Duration) -> str:
    """A duration as it is written in Python: ticks are plain numbers."""
    return str(duration) if duration.kind == "ticks" else f"'{duration}'"


def _shifted(times: Times, by: int) -> Times:
    if by >= 0:
        return np.where(times > TIME_MAX - by, TIME_MAX, times + np.int64(by))
    return np.where(times < TIME_MIN - by, TIME_MIN, times + np.int64(by))


def _lowered(times: Times, by: Times) -> Times:
    return np.where(times < TIME_MIN + by, TIME_MIN, times - by)


def _raised(times: Times, by: Times) -> Times:
    return np.where(times > TIME_MAX - by, TIME_MAX, times + by)
