"""Where an epoch runs: in the driver, in tasks that read files, or in tasks that get their rows from Spark.

The driver has nothing to start and nothing to shuffle, but only the memory of one task, and although it reads several
files at a time, it runs one operator after the other. So small epochs run there, and large ones in tasks as soon as
that is faster or they do not fit. Rows of files that only one operator takes need not fit: each of its shards can read
them for itself, piece by piece. That takes longer, but often less than tasks take to start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Place = Literal["driver", "pieces", "tasks", "spark"]

PLACES: Mapping[Place, str] = {
    "driver": "in the driver",
    "pieces": "in the driver, piece by piece",
    "tasks": "in tasks that read its files",
    "spark": "in tasks that get their rows from Spark",
}
"""In words."""

_FIXED = 0.25
"""Seconds that an epoch in tasks takes before its first row, until that is measured."""

_SPEED_UP = 0.7
"""How much of a core each further task adds, where it has not been measured."""

_FITS = 0.8
"""After an epoch that did not fit, one of this part of its size may."""

_LATEST = 0.3
"""The weight of the latest epoch in what is measured."""

_WORTH = 0.75
"""Epochs go to tasks that none was measured in only if they are predicted to take less than this part of the time: the
first two there take far longer than others, and the prediction leaves out what the shuffle takes."""

_LONG = 0.3
"""Seconds of an epoch in tasks from which on it is tried in the driver, if it never ran there."""

_STEADY = 4
"""Epochs in tasks until pieces are compared with them: the first ones count for too much before."""

_WARM = 2
"""Epochs at a place until what they take is believed: the first loads and compiles what the others use."""


@dataclass(slots=True)
class Placement:
    """Chooses a place for each epoch by its size, from the times of earlier ones.

    The size is the bytes of its files or, with DataFrames, whose rows are only counted once read, the rows of the last
    epoch.
    """

    why_not: str | None = None
    """Why Spark itself must take the rows, if it must."""
    blobs: bool = True
    """Whether tasks can do without Spark's own operators."""
    tasks: int = 2
    pieces: bool = False
    """Whether an epoch can run in the driver piece by piece."""
    unit: Literal["bytes of files", "rows"] = "bytes of files"
    first: Literal["driver", "elsewhere"] = "driver"
    """Where epochs run until some were measured."""
    _most: float = float("inf")
    """The size that fits in the driver, as far as is known."""
    _seconds: dict[Place, float] = field(default_factory=dict)
    """Seconds per unit of size at each place; in tasks, beyond `_FIXED`."""
    _gained: float = 0.0
    """Seconds per unit of size that tasks are taken to save of the driver's, until that is measured."""
    _ran: dict[Place, int] = field(default_factory=dict)
    """How many epochs were measured at each."""
    _last: Place | None = None
    _did_not_fit: bool = False
    """Whether the running epoch turned out to be too large for the driver at once."""

    @property
    def elsewhere(self) -> Place:
        """Where an epoch runs that does not run in the driver."""
        return "tasks" if self.blobs and self.why_not is None else "spark"

    def at_most(self, place: Place) -> Place:
        """A place that was planned, or the next one if the flow as it is now cannot run there."""
        here = place == "driver" or (place == "pieces" and self.pieces)
        return place if place == "spark" or (here and self.why_not is None) else self.elsewhere

    def choose(self, size: int) -> tuple[Place, str]:
        """Where an epoch of some size is to run, and why."""
        if self.why_not is not None:
            return "spark", self.why_not
        if size > self._most:
            place: Place = "pieces" if self._sooner_in_pieces(size) else self.elsewhere
            return place, f"{size:,} {self.unit} do not fit the memory of one task"
        first = "driver" if self.first == "driver" else self.elsewhere
        if not self._ran:
            return first, "no epoch has been measured yet"
        if self._last is not None and self._ran[self._last] < _WARM:
            return self._last, "too little has been measured there yet"
        if self.first == "driver" and "driver" not in self._ran:
            return "driver", "none has been measured there yet"
        here, there = self._here(size), self._there(size)
        untried = self.elsewhere not in self._ran
        if here <= there or (untried and there > _WORTH * here):
            none = ", where none has run" if untried and there < here else ""
            return "driver", f"predicted to take {here:.2f} s there, {there:.2f} s in tasks{none}"
        return self.elsewhere, f"predicted to take {there:.2f} s there, {here:.2f} s in the driver"

    def learn(self, place: Place, size: int, seconds: float, alone: float | None = None) -> None:
        """An epoch of some size took so long; in the driver, `alone` of it on one core, if not all."""
        if self._did_not_fit:
            self._most, self._did_not_fit = min(self._most, size * _FITS), False
        if not size or (place == "spark" and self.elsewhere != "spark"):
            return
        each = (seconds if place in ("driver", "pieces") else max(0.0, seconds - _FIXED)) / size
        known = self._ran.get(place, 0)
        self._seconds[place] = each if known < _WARM else (1 - _LATEST) * self._seconds[place] + _LATEST * each
        if place == "driver":
            alone = seconds if alone is None else min(alone, seconds)
            self._gained = alone / size * (1 - 1 / (1 + _SPEED_UP * (self.tasks - 1)))
        self._ran[place] = known + 1
        self._last = place

    def did_not_fit(self, place: Place = "driver") -> None:
        """The running epoch needs more memory than the driver has; piece by piece, no later one is tried so."""
        if place == "pieces":
            self.pieces = False
        else:
            self._did_not_fit = True

    def _sooner_in_pieces(self, size: int) -> bool:
        """Whether an epoch too large for the driver at once is faster there than in tasks, which are tried first."""
        if not self.pieces or self._ran.get(self.elsewhere, 0) < _STEADY:
            return False
        if self._last == "pieces" and self._ran["pieces"] < _WARM:
            return True
        there = self._there(size)
        if "pieces" in self._seconds:
            return size * self._seconds["pieces"] < there
        return size * self._seconds[self.elsewhere] * (1 + _SPEED_UP * (self.tasks - 1)) < _WORTH * there

    def _here(self, size: int) -> float:
        if "driver" in self._seconds:
            return size * self._seconds["driver"]
        there = self._there(size)
        return there / 2 if self._ran[self.elsewhere] >= _WARM and there > _LONG else float("inf")

    def _there(self, size: int) -> float:
        if self.elsewhere in self._seconds:
            return _FIXED + size * self._seconds[self.elsewhere]
        return _FIXED + size * max(0.0, self._seconds["driver"] - self._gained)
