"""What an epoch has shown about an operator: hosts pass it to the operator's pilot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.core.durations import TimeUnit
from penstock.core.pages import Page
from penstock.core.time import Time

SECONDS: dict[TimeUnit, float] = {"microseconds": 1e-6, "days": 86_400.0, "ticks": 1.0}
"""What a step of each unit of time is; a mere number is taken to count seconds."""


@dataclass(frozen=True, slots=True)
class Flown:
    """An epoch of an operator, over all its shards: the bounds of its ports, and what went in and out."""

    before: tuple[Time, ...]
    after: tuple[Time, ...]
    rows: tuple[int, ...]
    """Rows that arrived, by port."""
    results: int
    lifted: tuple[int, int]
    """Rows of an aggregation, and the partials that they became."""
    seconds: float
    """Seconds of its tasks, at work and settling their state."""
    counts: Mapping[str, int]
    pages: Iterable[Page]
    """The state that it left."""
