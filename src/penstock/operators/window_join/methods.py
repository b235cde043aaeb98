"""The methods of window joins, and the parameters of those that defer joins, named as in the literature.

Sizes are in bytes. Defaults follow from the budget of the task that runs the join.
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
    """What every method of a window join declares; its fields are its parameters."""

    inner_only: ClassVar[bool] = False
    defers: ClassVar[bool] = False
    """Whether it defers joins: a pair may then be emitted after the bounds of both rows have passed."""
    in_order: ClassVar[bool] = False
    """Whether results are held back to be emitted in order of the left row's time."""
    holds: ClassVar[tuple[int, ...]] = ()
    """The ports of pages that no other method can resume from."""
    windowless: ClassVar[bool] = False
    """Whether it is only for joins over the full history of both streams."""
    sorts_arrivals: ClassVar[bool] = False
    """Whether it sorts arrivals by hash, then time, whatever their order."""
    takes_over: ClassVar[bool] = True
    """Whether it can resume from the pages of rows that other methods leave."""

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
    """How much memory the windows of both streams may take, and the size of their pages.

    `memory` is for both streams together (by default a quarter of the task's budget), `page` the size of a page (a 16th
    of the memory, less with many partitions, at most 4 MB), `row` the size of a row (its size in Arrow), `chunk` a
    basic window: the pages that are stored together on disk (16 pages).
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
    """EWJ (spec 2.2): recent, frequent and invalidation blocks in memory, the rest on disk, probed in batches.

    >>> Ewj(probe=0.5).frequent
    0.15
    """

    recent: float = 0.70
    frequent: float = 0.15
    invalidation: float = 0.15
    probe: float = 0.95
    """r: the fraction of the recent memory that fresh blocks may fill before they are dumped and probe the disk."""
    gain: float = 100
    """δ: how many more matches a block needs than a frequent one to replace it."""
    decay: float = 0.5
    """α: the factor by which productivity decays once it was used to choose frequent blocks; 0 resets it."""
    refresh: int = 5
    """Epoch: the number of probes until the frequent blocks are chosen again."""
    idle_gap: DurationLike | None = None
    """How long after a probe an idle join may probe again: 15 seconds, or at once if the time column has no seconds."""

    def __post_init__(self) -> None:
        Segments.__post_init__(self)
        _check_parts(self.recent, self.frequent, self.invalidation)
        _check_fraction(probe=self.probe, decay=self.decay)
        _check_count(refresh=self.refresh)
        _check_not_negative(gain=self.gain)


@dataclass(frozen=True, slots=True)
class AhEwj(Segments):
    """AH-EWJ (spec 2.4): EWJ with hash partitions, memory that shifts to the slower stream, and sequential writes.

    >>> AhEwj().partitions
    8
    """

    partitions: int = 8
    recent: float = 0.70
    frequent: float = 0.15
    invalidation: float = 0.15
    least: float = 0.3
    """N_rec_min: the fraction of the recent memory that a stream always keeps."""
    probe: float = 0.9
    """r: the fraction of the least recent memory that fresh blocks may fill before they probe the disk."""
    gain: float = 0.4
    """ρ: how much more productive a block, or more frequent a stream, must be to replace another."""
    decay: float = 0.4
    """α: the factor by which productivity and arrival counts decay after each of their epochs."""
    flush: int | None = None
    """N_flush, in bytes: how much a dump writes; a basic window."""
    train: int = 3
    """Train size, in flushes: pages of this many dumps may be reordered on disk."""
    refresh: int = 5
    count_epoch: DurationLike | None = None
    """t_epoch: how often arrival counts decay: every 10 seconds, or at each step if time is a plain number."""
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
    """RPWJ (spec 2.3): the rate-based progressive join with windows. Flushes partitions, and joins from disk when idle.

    >>> Rpwj().flush
    0.4
    """

    partitions: int = 8
    flush: float = 0.4
    """N_flush: the fraction of the memory that a flush frees."""
    slide: DurationLike | None = None
    """τ: how often everything is joined and expired rows are purged; by default a tenth of both windows together."""
    decay: float = 0.4
    """α: the factor by which arrival counts decay after each of their epochs."""
    count_epoch: DurationLike | None = None
    idle_gap: DurationLike | None = None
    """The least time between two reactive stages: 15 seconds, or none if the time column has no seconds."""
    high_mark: int = 100
    """From this many blocks of arrivals at once on, they are processed block by block …"""
    low_mark: int = 2
    """… until fewer than this many arrive at once: these are processed directly."""
    read_memory: int = 1 << 20
    """M_read: the buffer for disk reads, in bytes."""
    access_time: float = 8.29e-3
    """t_A: seconds for a disk seek."""
    read_rate: float = 20e6
    """1 / C_R: bytes that the disk reads per second."""

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
        """Rows are purged once every slide."""
        if self.slide is not None:
            return max(1, Duration.of(self.slide).on(unit, "slide"))
        first, last = within.reach(unit).of(LEFT, np.zeros(1, np.int64))
        return max(1, (int(last[0]) - int(first[0])) // 10)


Deferring = Ewj | AhEwj | Rpwj
"""The parameters of the methods that defer joins with pages on disk."""


def read_method(method: JoinMethodLike) -> JoinMethodLike:
    """Read ``method=``: a name, in any spelling, or the parameters of a method.

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
