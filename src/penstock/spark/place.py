"""Where an epoch of files runs: where the driver is, in tasks, or in tasks that hand rows to Spark.

Without tasks there is nothing to start and nothing to shuffle, but one core and the memory of one task. So small
epochs run there, and large ones in tasks as soon as they are faster or do not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Place = Literal["driver", "tasks", "spark"]

PLACES: Mapping[Place, str] = {
    "driver": "where the driver is",
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


@dataclass(slots=True)
class Placement:
    """Chooses a place for each epoch by the bytes of its files, from what earlier ones took."""

    why_not: str | None = None
    """Why Spark itself must take the rows, if it must."""
    blobs: bool = True
    """Whether tasks can do without Spark's own operators."""
    tasks: int = 2
    _most: float = float("inf")
    """Bytes that fit where the driver is, as far as is known."""
    _here: float | None = None
    """Seconds per byte where the driver is,"""
    _there: float | None = None
    """and in tasks."""

    @property
    def elsewhere(self) -> Place:
        """Where an epoch runs that does not run where the driver is."""
        return "tasks" if self.blobs and self.why_not is None else "spark"

    def at_most(self, place: Place) -> Place:
        """A place that was planned, or the next one if the flow as it is now cannot run there."""
        return place if place == "spark" or (place == "driver" and self.why_not is None) else self.elsewhere

    def choose(self, nbytes: int) -> tuple[Place, str]:
        """Where an epoch with so many bytes of files is to run, and why."""
        if self.why_not is not None:
            return "spark", self.why_not
        if nbytes > self._most:
            return self.elsewhere, f"{nbytes:,} bytes of files do not fit the memory of one task"
        if self._here is None:
            return "driver", "no epoch has been measured yet"
        here, there = nbytes * self._here, self._predicted(nbytes)
        if here <= there:
            return "driver", f"{here:.2f} s are predicted there, {there:.2f} s in tasks"
        return self.elsewhere, f"{there:.2f} s are predicted there, {here:.2f} s where the driver is"

    def learn(self, place: Place, nbytes: int, seconds: float) -> None:
        """An epoch took so long."""
        if not nbytes:
            return
        if place == "driver":
            self._here = _mixed(self._here, seconds / nbytes)
        elif place == "tasks":
            self._there = _mixed(self._there, max(0.0, seconds - _FIXED) / nbytes)

    def did_not_fit(self, nbytes: int) -> None:
        """An epoch with so many bytes of files needed more memory than there is where the driver is."""
        self._most = min(self._most, nbytes * _FITS)

    def _predicted(self, nbytes: int) -> float:
        each = self._there if self._there is not None else (self._here or 0.0) / (1 + _SPEED_UP * (self.tasks - 1))
        return _FIXED + nbytes * each


def _mixed(before: float | None, now: float) -> float:
    return now if before is None else (1 - _LATEST) * before + _LATEST * now
