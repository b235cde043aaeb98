"""Describe: which bounds a consumer can use.

A consumer whose windows slide by 5 s does nothing at a bound between two of its boundaries: to the consumer, such a
bound equals the boundary below it.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.durations import Duration, DurationLike, TimeUnit
from penstock.core.errors import ConfigError
from penstock.core.time import TIME_MAX, TIME_MIN, Time, clamp


@dataclass(frozen=True, slots=True)
class Describe:
    """The bounds that consumers can use: multiples of any of their `slides`, counted from `origin` (F23).

    >>> describe = Describe(slides=("5 s",), unit="microseconds")
    >>> describe.boundary(12_000_000)
    10000000
    >>> print(describe)
    every 5 s
    """

    slides: tuple[DurationLike, ...]
    origin: DurationLike = 0
    unit: TimeUnit = "ticks"

    def __post_init__(self) -> None:
        if not self.slides:
            raise ConfigError("slides=() is empty. Write the slide of each consumer's windows.")
        for slide in self.slides:
            if Duration.of(slide, "slides").on(self.unit, "slides") <= 0:
                raise ConfigError(f"slides={slide!r} must be positive: by how much a consumer's windows move.")

    def __str__(self) -> str:
        slides = " and ".join(f"every {Duration.of(slide)}" for slide in self.slides)
        origin = Duration.of(self.origin)
        return f"{slides} from {origin} on" if origin.amount else slides

    def boundary(self, bound: Time) -> Time:
        """The latest boundary at or below `bound`."""
        if bound in (TIME_MIN, TIME_MAX):
            return bound
        origin = Duration.of(self.origin, "origin").on(self.unit, "origin")
        steps = (Duration.of(slide, "slides").on(self.unit, "slides") for slide in self.slides)
        return clamp(bound - min((bound - origin) % step for step in steps))
