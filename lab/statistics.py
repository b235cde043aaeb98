"""How runs are judged: where their warm-up ends, and between which ends the mean of several seeds lies (F36)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.errors import ConfigError

FEWEST_SEEDS = 5
"""Of fewer runs no interval is given."""

_BATCH = 5
_LATEST = 0.5
"""The warm-up is over by this part of a run, or the run was too short to tell."""


class Interval(NamedTuple):
    """A mean, and how far the true one may lie from it, with 95 % confidence.

    >>> Interval(10.0, 0.5).low, Interval(10.0, 0.5).high
    (9.5, 10.5)
    """

    mean: float
    half: float

    @property
    def low(self) -> float:
        """The lower end."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """The upper end."""
        return self.mean + self.half

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.half:.2g}"


def confidence(values: Sequence[float]) -> Interval:
    """The 95 % confidence interval of the mean of independent runs, one per seed, by Student's t.

    >>> print(confidence([10.0, 11.0, 9.0, 10.5, 9.5]))
    10 ± 0.98
    """
    if len(values) < FEWEST_SEEDS:
        raise ConfigError(f"{len(values)} runs say too little of their spread. Run {FEWEST_SEEDS} seeds or more.")
    spread = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Interval(float(np.mean(values)), student(len(values) - 1) * spread)


def warm_up(series: Sequence[float] | npt.NDArray[np.float64]) -> int:
    """How many of the first values of a series to leave out: as many as makes the mean of the rest surest (MSER-5).

    Values are looked at in batches of five. Of a cut anywhere in the first half, the one is taken after which the
    standard error of the mean of what is left is least.

    >>> warm_up([9.0, 5.0, 3.0, 2.0, 1.5] + [1.0, 1.2, 0.8, 1.1, 0.9] * 20)
    5
    """
    values = np.asarray(series, np.float64)
    batches = values[: values.size // _BATCH * _BATCH].reshape(-1, _BATCH).mean(axis=1)
    if batches.size < 2:
        return 0
    cuts = range(max(1, int(_LATEST * batches.size)))
    errors = [float(np.var(batches[cut:])) / (batches.size - cut) for cut in cuts]
    return int(np.argmin(errors)) * _BATCH


def student(freedom: int) -> float:
    """The quantile of Student's t that 97.5 % lie below.

    >>> round(student(4), 3), round(student(40), 3)
    (2.776, 2.021)
    """
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    z = _NORMAL
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


_NORMAL = 1.959964
_STUDENT = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
)
