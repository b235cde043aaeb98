"""The list of a window join's methods, and the parameters of those that put joins off, named as in the source.

Sizes are in bytes. What is left out follows from the budget of the task that runs the join.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from penstock.core.checks import is_number, is_whole
from penstock.core.durations import Duration, DurationLike, TimeUnit
from penstock.core.errors import ConfigError
from penstock.core.methods import Methods
from penstock.core.within import LEFT, Within


@dataclass(frozen=True, slots=True)
class JoinMethod:
    """What every method of a window join says of itself; its fields are its parameters."""

    inner_only: ClassVar[bool] = False
    defers: ClassVar[bool] = False
    """Whether it puts joins off: a pair of rows may then come out after the bounds of both have passed."""
    in_order: ClassVar[bool] = False
    """Whether results come out by the left row's time, and are held back for that."""
    holds: ClassVar[tuple[int, ...]] = ()
    """The ports of pages from which no other method can go on."""
    windowless: ClassVar[bool] = False
    """Whether it is for joins over the full history of both streams, and for no others."""
    takes_over: ClassVar[bool] = True
    """Whether it can go on from the pages of rows that other methods leave."""

    def check(self, unit: TimeUnit) -> None:
        """Raise an error unless the lengths of time among the parameters can be counted in `unit`."""

    def step(self, within: Within, unit: TimeUnit) -> int:
        """How far bounds move at a time, in steps of the time column."""
        return 1


METHODS: Methods[JoinMethod] = Methods(
    JoinMethod, "oa", hint=" Write one of these, or the parameters of one, as in method=pk.Ewj(probe=0.5)."
)
"""Every method of a window join."""

JoinMethodLike = str | JoinMethod
"""What ``method=`` may be: a name, or the parameters of a method."""


@dataclass(frozen=True, slots=True)
class Segments(JoinMethod):
    """How much memory the windows of both streams may take, and the pages it is spent in.

    `memory` is for both streams together (a quarter of the task's budget), `page` the size of a page (a 16th of the
    memory, less if there are many partitions, at most 4 MB), `row` what a row counts (what it takes in Arrow), `chunk`
    a basic window, the pages that lie together on disk (16 pages).
    """

    memory: int | None = None
    page: int | None = None
    row: int | None = None
    chunk: int | None = None

    defers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for field in fields(Segments):
            value = getattr(self, field.name)
            if value is not None and (not is_whole(value) or value < 1):
                raise ConfigError(f"{field.name}={value!r} must be a number of bytes, 1 or more.")

    def check(self, unit: TimeUnit) -> None:
        """Lengths of time are counted in `unit`, and none is negative."""
        for name in ("idle_gap", "count_epoch", "slide"):
            given = getattr(self, name, None)
            if given is not None and Duration.of(given, name).on(unit, name) < 0:
                raise ConfigError(f"{name}={given!r} is negative. Write 0 or more.")


@dataclass(frozen=True, slots=True)
class Ewj(Segments):
    """EWJ (spec 2.2): recent, frequent and invalidation blocks in memory, the rest on disk, probed now and then.

    >>> Ewj(probe=0.5).frequent
    0.15
    """

    recent: float = 0.70
    frequent: float = 0.15
    invalidation: float = 0.15
    probe: float = 0.95
    """r: the part of the recent memory that fresh blocks may fill before they are dumped and probe the disk."""
    gain: float = 100
    """δ: how many more matches a block must have had than a frequent one to take its place."""
    decay: float = 0.5
    """α: what is left of productivity after it was used to choose frequent blocks; 0 resets it."""
    refresh: int = 5
    """Epoch: how many probes until the frequent blocks are chosen anew."""
    idle_gap: DurationLike | None = None
    """How long after a probe an idle join may probe again: 15 seconds, or at once where time does not count those."""

    def __post_init__(self) -> None:
        Segments.__post_init__(self)
        _check_parts(self.recent, self.frequent, self.invalidation)
        _check_fraction(probe=self.probe, decay=self.decay)
        _check_count(refresh=self.refresh)
        _check_not_negative(gain=self.gain)


@dataclass(frozen=True, slots=True)
class AhEwj(Segments):
    """AH-EWJ (spec 2.4): EWJ by hash partitions, with memory that moves to the slower stream and sequential writes.

    >>> AhEwj().partitions
    8
    """

    partitions: int = 8
    recent: float = 0.70
    frequent: float = 0.15
    invalidation: float = 0.15
    least: float = 0.3
    """N_rec_min: the part of the recent memory that a stream never falls below."""
    probe: float = 0.9
    """r: the part of the least recent memory that fresh blocks may fill before they probe the disk."""
    gain: float = 0.4
    """ρ: by how much more productive a block, or more frequent a stream, must be to win over another."""
    decay: float = 0.4
    """α: what is left of productivity and arrival counts after each epoch of theirs."""
    flush: int | None = None
    """N_flush, in bytes: what a dump writes at a time; a basic window."""
    train: int = 3
    """Train size in flushes: pages of so many dumps may change places on disk."""
    refresh: int = 5
    count_epoch: DurationLike | None = None
    """t_epoch: how often arrival counts decay: 10 seconds, or at each step where time is a mere number."""
    idle_gap: DurationLike | None = None

    def __post_init__(self) -> None:
        Segments.__post_init__(self)
        _check_parts(self.recent, self.frequent, self.invalidation)
        _check_fraction(least=self.least, probe=self.probe, decay=self.decay)
        _check_count(partitions=self.partitions, train=self.train, refresh=self.refresh)
        _check_not_negative(gain=self.gain)
        if self.flush is not None:
            _check_count(flush=self.flush)
        if self.least > 0.5:
            raise ConfigError(f"least={self.least} must be at most 0.5: two streams share the memory.")


@dataclass(frozen=True, slots=True)
class Rpwj(Segments):
    """RPWJ (spec 2.3): the rate-based progressive join with windows; flushes partitions, joins from disk when idle.

    >>> Rpwj().flush
    0.4
    """

    partitions: int = 8
    flush: float = 0.4
    """N_flush: the part of the memory that a flush frees."""
    slide: DurationLike | None = None
    """τ: how often all is joined and what is over leaves; a tenth of both windows together."""
    decay: float = 0.4
    """α: what is left of arrival counts after each epoch of theirs."""
    count_epoch: DurationLike | None = None
    idle_gap: DurationLike | None = None
    """The least time between two reactive stages: 15 seconds, or none where time does not count those."""
    high_mark: int = 100
    """So many blocks of arrivals at once are processed block by block …"""
    low_mark: int = 2
    """… until fewer than so many come at once: these are processed as they are."""
    read_memory: int = 1 << 20
    """M_read: the buffer that disk reads go through."""
    access_time: float = 8.29e-3
    """t_A: seconds to position the disk."""
    read_rate: float = 20e6
    """1 / C_R: bytes a second that the disk reads."""

    def __post_init__(self) -> None:
        Segments.__post_init__(self)
        _check_fraction(flush=self.flush, decay=self.decay)
        _check_count(partitions=self.partitions, read_memory=self.read_memory)
        _check_not_negative(access_time=self.access_time, low_mark=self.low_mark, high_mark=self.high_mark)
        if not is_number(self.read_rate) or self.read_rate <= 0:
            raise ConfigError(f"read_rate={self.read_rate!r} must be above 0, in bytes per second.")
        if self.slide is not None and Duration.of(self.slide, "slide").amount <= 0:
            raise ConfigError(f"slide={self.slide!r} must be positive: how often rows may leave.")

    def step(self, within: Within, unit: TimeUnit) -> int:
        """Rows are let go of once every slide."""
        if self.slide is not None:
            return max(1, Duration.of(self.slide).on(unit, "slide"))
        first, last = within.reach(unit).of(LEFT, np.zeros(1, np.int64))
        return max(1, (int(last[0]) - int(first[0])) // 10)


Deferring = Ewj | AhEwj | Rpwj
"""The parameters of the methods that put off joins with what is on disk."""


def read_method(method: JoinMethodLike) -> JoinMethodLike:
    """Read ``method=``: a name, however it is spelled, or the parameters of a method.

    >>> read_method("AH-EWJ"), read_method(Ewj(probe=0.5)).probe
    ('ah_ewj', 0.5)
    """
    plain = method.lower().replace("-", "_") if isinstance(method, str) else ""
    if plain == "auto" or plain in METHODS:
        return plain
    METHODS.of(method)
    return method


def _check_parts(*parts: float) -> None:
    if not all(map(is_number, parts)) or min(parts) < 0 or parts[0] <= 0 or abs(sum(parts) - 1) > 1e-9:
        raise ConfigError(
            f"recent={parts[0]!r}, frequent={parts[1]!r}, invalidation={parts[2]!r} must be fractions of the memory "
            f"that add up to 1, with recent above 0."
        )


def _check_fraction(**fractions: float) -> None:
    for name, value in fractions.items():
        if not is_number(value) or not 0 <= value <= 1:
            raise ConfigError(f"{name}={value!r} must be a number from 0 to 1.")


def _check_count(**counts: int) -> None:
    for name, value in counts.items():
        if not is_whole(value) or value < 1:
            raise ConfigError(f"{name}={value!r} must be a whole number of at least 1.")


def _check_not_negative(**values: float) -> None:
    for name, value in values.items():
        if not is_number(value) or value < 0:
            raise ConfigError(f"{name}={value!r} must be a number of at least 0.")
