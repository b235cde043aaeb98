"""The methods of aggregating sliding windows that have parameters of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.core.durations import Duration, DurationLike
from penstock.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class AdaptWid:
    """Per group eager or lazy, whichever is expected to hold less: partials of open windows, or rows.

    A group turns eager once its rows in open windows exceed `threshold`, by default that of Eq 6.9, and lazy again
    below `relapse` times that. `partial` and `row` are bytes, by default those of the columns; `behind` lists for
    each slower source its rows per step of time and by how many steps it lags (Eq 6.8).

    >>> AdaptWid(partial=16, row=64).turning_point(window=600.0, slide=60)
    2.5
    """

    partial: int | None = None
    row: int | None = None
    threshold: float | None = None
    relapse: float = 0.8
    behind: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.relapse <= 1:
            raise ConfigError(f"relapse={self.relapse} is not a share of the threshold. Write a number from 0 to 1.")

    def turning_point(self, window: float, slide: int) -> float:
        """How many rows a group must have in a window of measured length for eager to be smaller (Eq 6.9)."""
        if self.threshold is not None:
            return self.threshold
        assert self.partial is not None
        assert self.row is not None
        return self.partial * window / (self.row * slide) + sum(rate * lag for rate, lag in self.behind)

    def eager_bytes(self, window: float, slide: int) -> float:
        """What an eager group holds (Eq 6.5)."""
        assert self.partial is not None
        return self.partial * window / slide

    def lazy_bytes(self, rate: float, window: float) -> float:
        """What a lazy group holds: a window's rows, less those that slower sources have yet to send (Eq 6.6–6.8)."""
        assert self.row is not None
        return self.row * (rate * window - sum(each * lag for each, lag in self.behind))


@dataclass(frozen=True, slots=True)
class Buffering:
    """The baseline: rows wait in a buffer, and a window closes when a row arrives `slack` past its end.

    Bounds play no part, so results give none either. A row that comes after one of its windows has closed is lost to
    all of them ('consistent') or to the closed ones only ('generous'). A slack of at least the disorder
    loses nothing.

    >>> Buffering("5 s").late
    'consistent'
    """

    slack: DurationLike = 0
    late: Literal["consistent", "generous"] = "consistent"

    def __post_init__(self) -> None:
        if Duration.of(self.slack, "slack").amount < 0:
            raise ConfigError(f"slack={self.slack!r} is negative. Write how far rows may be out of order, as in '5 s'.")
        if self.late not in ("consistent", "generous"):
            raise ConfigError(f"late={self.late!r} is not one of 'consistent', 'generous'.")
