"""Joins by distance as they are defined, pair by pair."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def is_somewhere(vector: Sequence[float | None] | None, metric: str = "euclidean") -> bool:
    """Whether a vector can be near anything."""
    if vector is None or not 2 <= len(vector) <= 1024:
        return False
    finite = all(number is not None and math.isfinite(number) for number in vector)
    return finite and (metric == "euclidean" or any(vector))


def are_near(a: Sequence[float], b: Sequence[float], distance: float, metric: str = "euclidean") -> bool:
    """Whether two vectors are near each other."""
    if not is_somewhere(a, metric) or not is_somewhere(b, metric) or len(a) != len(b):
        return False
    if metric == "cosine":
        a, b = _unit(a), _unit(b)
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total += (float(x) - float(y)) * (float(x) - float(y))
    return total <= (2.0 * distance if metric == "cosine" else distance * distance)


def near_pairs(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]], distance: float) -> np.ndarray:
    """Which of our vectors are near which of theirs, all of one length: the same sums, for all pairs at once."""
    a, b = np.array(ours, np.float64), np.array(theirs, np.float64)
    total = np.zeros((len(a), len(b)))
    for x, y in zip(a.T, b.T, strict=True):
        difference = x[:, None] - y
        total += difference * difference
    return total <= distance * distance


def _unit(vector: Sequence[float]) -> list[float]:
    scale = math.frexp(max(map(abs, vector)))[1]
    scaled = [math.ldexp(float(number), -scale) for number in vector]
    total = 0.0
    for number in scaled:
        total += number * number
    return [number / math.sqrt(total) for number in scaled]
