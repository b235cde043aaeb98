"""Progress: what a stream promises about the rows still to come.

A bound p says that no later row has a time below p (strict: a row at p may still arrive). Bounds follow from a policy
and from what each epoch has seen. They never go back, and a bound that comes late costs latency, never correctness. A
row below its bound is late and leaves through the late outlet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, Self

from penstock.core.checks import is_whole
from penstock.core.durations import Duration, DurationLike, TimeUnit
from penstock.core.errors import ConfigError
from penstock.core.time import TIME_MIN, Time, clamp


@dataclass(frozen=True, slots=True)
class Seen:
    """What one epoch has seen of one source: its rows that are in time, their latest time, the highest punctuation."""

    rows: int = 0
    max_time: Time = TIME_MIN
    mark: Time = TIME_MIN


@dataclass(frozen=True, slots=True)
class Track:
    """What has been seen of a source so far: all that a policy needs, small enough for a ledger.

    `recent` is kept by `bounded_tuples` only: (rows, largest time so far) of the latest epochs, oldest first.
    `heard` is when the latest row arrived, on the wall clock.
    """

    bound: Time = TIME_MIN
    max_time: Time = TIME_MIN
    mark: Time = TIME_MIN
    heard: int | None = None
    recent: tuple[tuple[int, Time], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For the ledger."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """From the ledger."""
        return cls(**{**record, "recent": tuple((rows, top) for rows, top in record["recent"])})


class Policy(Protocol):
    """How a source's bound follows from its rows. One frozen dataclass each; the fields are the whole meaning."""

    @property
    def idle(self) -> Duration | None:
        """How long a source may be silent before it stops holding the others back."""
        ...

    def check(self, unit: TimeUnit) -> None:
        """Raise an error if this policy makes no sense for a time column that counts `unit`."""
        ...

    def bound(self, track: Track, unit: TimeUnit, now: int) -> Time:
        """The bound after `track`, at wall-clock microsecond `now`."""
        ...

    def bound_from_rows(self, max_time: Time, unit: TimeUnit) -> Time:
        """The bound that follows from a single row at `max_time`; a shard may use it before the driver does."""
        ...


@dataclass(frozen=True, slots=True)
class NoPromise:
    """Promises nothing: the bound does not move until the source ends."""

    idle: Duration | None = None

    def check(self, unit: TimeUnit) -> None:
        """Any unit will do."""

    def bound(self, track: Track, unit: TimeUnit, now: int) -> Time:
        """None."""
        return TIME_MIN

    def bound_from_rows(self, max_time: Time, unit: TimeUnit) -> Time:
        """None."""
        return TIME_MIN


@dataclass(frozen=True, slots=True)
class Ordered:
    """Rows arrive in order of time (ties allowed): the bound is the latest time seen."""

    idle: Duration | None = None

    def check(self, unit: TimeUnit) -> None:
        """Any unit will do."""

    def bound(self, track: Track, unit: TimeUnit, now: int) -> Time:
        """The latest time seen."""
        return track.max_time

    def bound_from_rows(self, max_time: Time, unit: TimeUnit) -> Time:
        """The same: one row suffices."""
        return max_time


@dataclass(frozen=True, slots=True)
class BoundedDelay:
    """A row comes at most `delay` (in event time) after a later one: the bound is the latest time less `delay`."""

    delay: Duration
    idle: Duration | None = None

    def check(self, unit: TimeUnit) -> None:
        """The delay must be a length on the time column."""
        if self.delay.on(unit, "delay") < 0:
            raise ConfigError(f"bounded_delay(delay={self.delay}) is negative. Write how late a row may be.")

    def bound(self, track: Track, unit: TimeUnit, now: int) -> Time:
        """The latest time seen, less the delay."""
        return self.bound_from_rows(track.max_time, unit)

    def bound_from_rows(self, max_time: Time, unit: TimeUnit) -> Time:
        """The same: one row suffices."""
        return max_time if max_time == TIME_MIN else clamp(max_time - self.delay.on(unit))


@dataclass(frozen=True, slots=True)
class BoundedTuples:
    """A row comes at most `count` rows after a later one: the bound is the latest time before the last `count` rows.

    Rows of one epoch have no order among themselves, so an epoch counts only once `count` rows came after it.
    """

    count: int
    idle: Duration | None = None

    def check(self, unit: TimeUnit) -> None:
        """The count must be a number of rows."""
        if not is_whole(self.count):
            raise ConfigError(
                f"bounded_tuples(count={self.count!r}) is not a number of rows. Write how many rows late one may be."
            )
        if self.count < 0:
            raise ConfigError(f"bounded_tuples(count={self.count}) is negative. Write how many rows late one may be.")

    def bound(self, track: Track, unit: TimeUnit, now: int) -> Time:
        """The largest time of the epochs that at least `count` rows came after."""
        after = 0
        for rows, top in reversed(track.recent):
            if after >= self.count:
                return top
            after += rows
        return track.bound

    def bound_from_rows(self, max_time: Time, unit: TimeUnit) -> Time:
        """None: a shard does not see how many rows arrived."""
        return TIME_MIN


@dataclass(frozen=True, slots=True)
class Punctuated:
    """The source itself states its bound, in `column`; null states nothing.

    With `by`, a value is the bound of one group only: of later rows with the same values in these columns. `overall` is
    then an optional second column with the bound of all groups.
    """

    column: str
    idle: Duration | None = None
    by: tuple[str, ...] = ()
    overall: str | None = None

    def check(self, unit: TimeUnit) -> None:
        """Any unit will do; the columns' types are checked against the time column's by the source."""

    @property
    def linear(self) -> str | None:
        """The column with the bound of all rows, if there is one."""
        return self.overall if self.by else self.column

    @property
    def only_of_groups(self) -> bool:
        """Whether nothing but the end of the source moves the bound of all its rows."""
        return self.linear is None and self.idle is None

    def bound(self, track: Track, unit: TimeUnit, now: int) -> Time:
        """The largest statement so far."""
        return track.mark

    def bound_from_rows(self, max_time: Time, unit: TimeUnit) -> Time:
        """None: times state no bound."""
        return TIME_MIN


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows arrive in blocks of `length` of event time, in any order within a block, one block after the other.

    A router that dumps its cache each minute sends such a stream. The bound is the start of the latest block seen.
    """

    length: Duration
    origin: Duration
    idle: Duration | None = None

    def check(self, unit: TimeUnit) -> None:
        """The length must be one on the time column."""
        self.origin.on(unit, "origin")
        if self.length.on(unit, "length") <= 0:
            raise ConfigError(f"blocks(length={self.length}) must be positive. Write how much time one block holds.")

    def bound(self, track: Track, unit: TimeUnit, now: int) -> Time:
        """The start of the latest block seen."""
        return self.bound_from_rows(track.max_time, unit)

    def bound_from_rows(self, max_time: Time, unit: TimeUnit) -> Time:
        """The same: one row suffices."""
        into = (max_time - self.origin.on(unit)) % self.length.on(unit)
        return max_time if max_time == TIME_MIN else clamp(max_time - into)


@dataclass(frozen=True, slots=True)
class Timer:
    """Rows are nearly in order and event time follows the clock: the bound is the latest time seen or, if that is more
    than `slack` behind the clock, the clock less `slack`.
    """

    slack: Duration
    idle: Duration | None = None

    def check(self, unit: TimeUnit) -> None:
        """Only a timestamp can be compared with the clock."""
        if unit != "microseconds":
            raise ConfigError(
                f"timer(slack={self.slack}) compares event time with the clock, but the time column counts {unit}. "
                f"Make it a timestamp, or use bounded_delay(…)."
            )
        if self.slack.on(unit, "slack") < 0:
            raise ConfigError(f"timer(slack={self.slack}) is negative. Write how far behind the clock a row may be.")

    def bound(self, track: Track, unit: TimeUnit, now: int) -> Time:
        """The latest time seen, or the clock less the slack, whichever is later."""
        lull = clamp(now - self.slack.on(unit))
        return lull if track.max_time < lull else track.max_time

    def bound_from_rows(self, max_time: Time, unit: TimeUnit) -> Time:
        """The latest time seen."""
        return max_time


def ordered(*, idle: DurationLike | None = None) -> Ordered:
    """Promise that rows arrive in order of time; equal times are fine.

    >>> ordered(idle="10 s").idle
    Duration(amount=10000000, kind='time')
    """
    return Ordered(_idle(idle))


def bounded_delay(delay: DurationLike, *, idle: DurationLike | None = None) -> BoundedDelay:
    """Promise that a row comes at most `delay` of event time after a later one; Spark calls this a watermark.

    With `idle`, a source that stays silent that long stops holding the others back.

    >>> policy = bounded_delay("30 s")
    >>> policy.bound_from_rows(max_time=100_000_000, unit="microseconds")
    70000000
    """
    return BoundedDelay(Duration.of(delay, "delay"), _idle(idle))


def bounded_tuples(count: int, *, idle: DurationLike | None = None) -> BoundedTuples:
    """Promise that a row comes at most `count` rows after a later one.

    >>> bounded_tuples(1000).count
    1000
    """
    return BoundedTuples(count, _idle(idle))


def punctuated(
    column: str,
    *,
    by: str | Sequence[str] | None = None,
    overall: str | None = None,
    idle: DurationLike | None = None,
) -> Punctuated:
    """Use the source's own punctuation: a value in `column` promises that no later row has a time below it.

    Null promises nothing. With `by`, the
    promise is about one group: no later row *with the same values in these columns* has a time below it.
    Windows grouped by (at least) these columns then close group by group, and a row is late if it is below the bound of
    its own group. Null is a group like any other. `overall` names a column with the bound of all groups, for operators
    that need one, such as joins; without it, that bound does not move until the source ends or is silent for `idle`.

    >>> punctuated("complete_up_to").column
    'complete_up_to'
    >>> punctuated("done", by="sensor").by
    ('sensor',)
    """
    groups = () if by is None else tuple(by) if isinstance(by, Iterable) and not isinstance(by, str) else (by,)
    for argument, names in (("column", (column,)), ("by", groups), ("overall", () if overall is None else (overall,))):
        for name in names:
            if not isinstance(name, str):
                raise ConfigError.not_a_column(argument, name)
    if by is not None and not groups:
        raise ConfigError("punctuated(by=[]) names no column. Name the columns to group by, or leave by= out.")
    twice = next((name for name in groups if groups.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"punctuated(by={list(groups)}) names {twice!r} twice. Name each column once.")
    if overall is not None and not groups:
        raise ConfigError(
            f"punctuated({column!r}, overall={overall!r}) names two columns with the bound of all rows. Leave overall= "
            f"out, or add by= if {column!r} holds the bound of one group."
        )
    return Punctuated(column, _idle(idle), groups, overall)


def blocks(length: DurationLike, *, origin: DurationLike = 0, idle: DurationLike | None = None) -> Blocks:
    """Promise that rows arrive in blocks of `length` of event time, counted from `origin`, one block after the other.

    If the source itself says when a block is complete, use `punctuated`.

    >>> blocks("1 min").bound_from_rows(max_time=185_000_000, unit="microseconds")
    180000000
    """
    return Blocks(Duration.of(length, "length"), Duration.of(origin, "origin"), _idle(idle))


def timer(slack: DurationLike, *, idle: DurationLike | None = None) -> Timer:
    """Let the bound follow the data and, while the source is silent, the clock less `slack`.

    >>> timer("2 s").slack.amount
    2000000
    """
    return Timer(Duration.of(slack, "slack"), _idle(idle))


def follow(track: Track, policy: Policy, unit: TimeUnit, seen: Seen, now: int) -> Track:
    """The track after one more epoch. The bound never goes back.

    >>> follow(Track(), Ordered(), "ticks", Seen(rows=2, max_time=7), now=0).bound
    7
    """
    after = replace(
        track,
        max_time=max(track.max_time, seen.max_time),
        mark=max(track.mark, seen.mark),
        heard=now if seen.rows or track.heard is None else track.heard,
        recent=_recent(track, policy, seen),
    )
    return replace(after, bound=max(track.bound, policy.bound(after, unit, now)))


def wake(tracks: Sequence[Track], policies: Sequence[Policy], units: Sequence[TimeUnit], now: int) -> list[Track]:
    """Let sources that have been silent for their `idle` time catch up with the slowest one that is not.

    >>> quiet, busy = Track(bound=5, heard=0), Track(bound=90, heard=50)
    >>> [t.bound for t in wake([quiet, busy], [ordered(idle="20 us"), ordered()], ["ticks"] * 2, now=60)]
    [90, 90]
    """
    silent = [_silent(track, policy, now) for track, policy in zip(tracks, policies, strict=True)]
    woken = []
    for track, unit, quiet in zip(tracks, units, silent, strict=True):
        others = [t.bound for t, u, q in zip(tracks, units, silent, strict=True) if not q and u == unit]
        woken.append(replace(track, bound=max(track.bound, min(others))) if quiet and others else track)
    return woken


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an operator promises about its later results, each of which has a row of each port.

    `individual`, by port: no later result has a row of that port with a time below it. `joint`: no later result has all
    its times below those of their ports; sound on its own and earlier than the individual bounds.

    >>> Bounds((5, 3), (9, 8)).latest, Bounds((5, 3), (9, 8)).earliest
    (8, 3)
    """

    individual: tuple[Time, ...] = (TIME_MIN, TIME_MIN)
    joint: tuple[Time, ...] = (TIME_MIN, TIME_MIN)

    @classmethod
    def at(cls, bound: Time) -> Self:
        """The same bound on every time of a result."""
        return cls((bound, bound), (bound, bound))

    @property
    def latest(self) -> Time:
        """The bound on the latest of a result's times: the smallest side of the joint box, or any individual bound.

        A result whose latest time is below all sides of the box lies inside it, so it is out already.
        """
        return max(*self.individual, min(self.joint))

    @property
    def earliest(self) -> Time:
        """The bound on the earliest of a result's times: the lowest of all."""
        return min(self.individual)


def _idle(idle: DurationLike | None) -> Duration | None:
    if idle is None:
        return None
    silence = Duration.of(idle, "idle")
    if silence.on("microseconds", "idle") < 0:
        raise ConfigError(f"idle={silence} is negative. Write how long a source may be silent.")
    return silence


def _recent(track: Track, policy: Policy, seen: Seen) -> tuple[tuple[int, Time], ...]:
    if not isinstance(policy, BoundedTuples) or not seen.rows:
        return track.recent
    recent = [*track.recent, (seen.rows, max(track.max_time, seen.max_time))]
    after = 0
    for place in range(len(recent) - 1, -1, -1):
        if after >= policy.count:
            return tuple(recent[place:])
        after += recent[place][0]
    return tuple(recent)


def _silent(track: Track, policy: Policy, now: int) -> bool:
    if policy.idle is None or track.heard is None:
        return False
    return now - track.heard >= policy.idle.on("microseconds", "idle")
