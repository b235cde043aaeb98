"""Load shedding: which rows are put aside under overload, and when they return. Nothing is lost or duplicated.

Overload is judged from the join's own rates, without a clock: a host says how often the table may be read in an epoch
(`LookupJoin.quota`), and the last iteration shows how many rows one read finishes. Once there is room, rows that were
put aside return as if they arrived again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from penstock.core.errors import ConfigError
from penstock.core.rows import Indices

Shed = Literal["none", "keep", "considering"]
Judge = Literal["all", "alg2"]


@dataclass(frozen=True, slots=True)
class Shedding:
    """What to do with rows that arrive faster than they can be answered.

    - ``"none"``: they wait, in files if they outgrow memory; the source should slow down.
    - ``"keep"``: some are put aside before they enter, chosen uniformly.
    - ``"considering"``: all enter; the oldest that still wait, which need the rarest parts of the table, are put
      aside. So the rows that are answered are those that share reads, and more rows are answered. A method without a
      queue of rows that wait for parts of the table sheds like ``"keep"``.

    In the literature `keep` drops rows; here every policy answers later the rows that it has put aside.

    `position` says which waiting row decides what is read while rows are shed: 1 the oldest, 0 the newest, or
    ``"tune"`` to find the best. `to` is a folder, a path or URI, for rows that are put aside; by default they are in
    the checkpoint. `judge` says which rows count as finished by an iteration: all, or only those that were not in the
    cache (``"alg2"``, as in the published listing, which sheds too early if many were).

    >>> Shedding("considering", position=0.15).on
    True
    """

    policy: Shed = "none"
    position: float | Literal["tune"] = 0.15
    to: str | None = None
    judge: Judge = "all"
    trial: int = 256
    """Number of reads for which a position is tried before the next one."""

    def __post_init__(self) -> None:
        if self.policy not in get_args(Shed):
            raise ConfigError(
                f"shed={self.policy!r} is not a way to shed load. Write 'considering', 'keep', or 'none' to let rows "
                f"wait."
            )
        if self.judge not in get_args(Judge):
            raise ConfigError(f"judge={self.judge!r} is not one of {', '.join(get_args(Judge))}.")
        if self.position != "tune" and not (isinstance(self.position, int | float) and 0 <= self.position <= 1):
            raise ConfigError(
                f"position={self.position!r} must be a number from 0 (the newest waiting row) to 1 (the oldest), or "
                f"'tune'."
            )
        if self.trial < 1:
            raise ConfigError(f"trial={self.trial} must be a number of reads, 1 or more.")

    @property
    def on(self) -> bool:
        """Whether rows may be put aside at all."""
        return self.policy != "none"


@dataclass(slots=True)
class Load:
    """The load of a shard: how many reads are left in this epoch, and how many rows a read finishes.

    >>> load = Load(Shedding("considering"), left=1)
    >>> load.read(hits=60, finished=40)
    >>> load.left = 1
    >>> load.excess(queued=200, free=40), load.excess(queued=230, free=40)
    (0, 30)
    """

    settings: Shedding
    left: int | None = None
    """Reads that are left in this epoch; None if there is no limit."""
    served: int | None = None
    """Rows that the last iteration finished, w; before the first iteration, as many as may wait."""
    usual: float = 0.0
    """Average of `served` over the last iterations."""
    shedding: bool = False
    tuner: Tuner | None = None

    def __post_init__(self) -> None:
        if self.settings.position == "tune" and self.tuner is None:
            self.tuner = Tuner(trial=self.settings.trial)

    @property
    def may_read(self) -> bool:
        """Whether the table may be read once more."""
        return self.left is None or self.left > 0

    @property
    def position(self) -> float:
        """Which waiting row chooses what is read: the oldest while nothing is shed."""
        if not self.shedding or self.settings.policy != "considering":
            return 1.0
        return self.tuner.position if self.tuner is not None else float(self.settings.position)

    def expect(self, slots: int) -> None:
        """Before the first iteration, assume that it finishes as many rows as may wait."""
        if self.served is None:
            self.served = slots

    def excess(self, queued: int, free: int) -> int:
        """How many queued rows are too many: those that neither the reads left in this epoch nor one more read serve.

        With one read left these are the rows beyond 2w. Rows that find a free slot are never too many, however few
        the last iteration finished.
        """
        if self.left is None:
            return 0
        return max(0, queued - (max(1, self.left) + 1) * max(self.served or 0, free))

    def shed_now(self, excess: int) -> int:
        """How many excess rows to put aside in this iteration: the same number in each iteration that is left."""
        return -(-excess // max(1, self.left or 1))

    def room(self, queued: int, free: int) -> int:
        """How many rows that were put aside may return now, so that up to 2w rows are queued.

        One read finishes far more rows than another. So that rows that return after a good read are not put aside
        after the next, w is at most `usual` here, unless no other rows are queued.
        """
        served = max(self.served or 0, free)
        if queued:
            served = min(served, round(self.usual))
        return max(1, 2 * served) - queued

    def judged(self, excess: int, room: int) -> None:
        """Update `shedding`: rows are shed while too many are queued, and then until some may return."""
        self.shedding = self.settings.on and (excess > 0 or (self.shedding and room <= 0))

    def read(self, hits: int, finished: int) -> None:
        """Record an iteration: how many rows the cache answered since the last one, and how many the read finished."""
        if self.left is not None:
            self.left = max(0, self.left - 1)
        self.served = finished if self.settings.judge == "alg2" else hits + finished
        self.usual += (self.served - self.usual) / (_USUAL if self.usual else 1)
        if self.shedding and self.tuner is not None:
            self.tuner.saw(finished)

    def to_json(self) -> dict[str, Any]:
        """The state that the next epoch needs."""
        tuner = None if self.tuner is None else asdict(self.tuner)
        return {"served": self.served, "usual": self.usual, "shedding": self.shedding, "tuner": tuner}

    def restore(self, record: dict[str, Any]) -> None:
        """Restore the state of the last epoch."""
        self.served = record.get("served")
        self.usual = float(record.get("usual", 0.0))
        self.shedding = bool(record.get("shedding", False))
        if self.tuner is not None and record.get("tuner"):
            self.tuner = Tuner(**{**record["tuner"], "trial": self.settings.trial})


_USUAL = 16
"""Number of iterations that `Load.usual` averages over."""

POSITIONS = (0.0, 0.15, 0.3, 0.45, 0.6, 0.8, 1.0)
"""The positions that a tuner tries."""

_START = 1
_REMEMBERED = 64
"""Number of trials that count: older ones fade, because streams change."""


@dataclass(slots=True)
class Tuner:
    """Finds the position at which a read finishes the most rows, by hill climbing: it tries the neighbours of the best.

    A position is held for a trial of reads. Their first half does not count, because the set of waiting rows first has
    to settle. The number of rows per read varies much more than positions differ, so all trials of a position count
    together; the best is held as often as its two neighbours together.

    >>> tuner = Tuner(trial=1)
    >>> for _ in range(20):
    ...     tuner.saw(round(1000 * (1 - (tuner.position - 0.4) ** 2)))
    >>> tuner.best
    0.45
    """

    trial: int = 256
    at: int = _START
    tried: list[float] = field(default_factory=lambda: [0.0] * len(POSITIONS))
    """Number of reads that count, by position."""
    found: list[float] = field(default_factory=lambda: [0.0] * len(POSITIONS))
    """Number of rows that those reads finished, by position."""
    reads: int = 0

    @property
    def position(self) -> float:
        """The position of the row that chooses now."""
        return POSITIONS[self.at]

    @property
    def best(self) -> float:
        """The best position so far."""
        return POSITIONS[self._best()]

    def saw(self, finished: int) -> None:
        """Record how many rows a read at the current position finished."""
        self.reads += 1
        if 2 * self.reads > self.trial:
            self.tried[self.at] += 1
            self.found[self.at] += finished
        if self.reads >= self.trial:
            self.reads = 0
            fade = 1 - 1 / _REMEMBERED
            self.tried = [reads * fade for reads in self.tried]
            self.found = [rows * fade for rows in self.found]
            self.at = self._next()

    def _best(self) -> int:
        means = [rows / reads if reads else -1.0 for rows, reads in zip(self.found, self.tried, strict=True)]
        return max(range(len(POSITIONS)), key=means.__getitem__)

    def _next(self) -> int:
        best = self._best()
        beside = [place for place in (best - 1, best + 1) if 0 <= place < len(POSITIONS)]
        least = min(beside, key=self.tried.__getitem__)
        return least if 2 * self.tried[least] < self.tried[best] else best


def lottery(first: int, rows: int, count: int) -> Indices:
    """Which `count` of `rows` rows to put aside, chosen uniformly; `first` is the number of the first row.

    The choice depends only on the numbers of the rows.

    >>> lottery(first=0, rows=4, count=4).tolist()
    [0, 1, 2, 3]
    """
    numbers = np.arange(first, first + rows).astype(np.uint64)
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.sort(np.argsort(mixed ^ (mixed >> np.uint64(31)), kind="stable")[:count])
