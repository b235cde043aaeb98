"""PQRS: points in time × key that gather in some hours and some keys together, as real traffic does.

The rectangle of all times and keys is cut into four quadrants; a point falls into one of them with the
probabilities p, q, r, s, then into one of its quadrants, and so on down to a single time and key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lab.workloads.bmodel import Keys, Seed, descend
from penstock.core.errors import ConfigError
from penstock.core.time import Times


class Points(NamedTuple):
    """When, and with what key; by time."""

    times: Times
    keys: Keys


@dataclass(frozen=True, slots=True)
class Pqrs:
    """How likely each quadrant is at every level: `p` early and low, `q` early and high, `r` late and low, `s` neither.

    So p + q of the points lie in the earlier half of the time, and p + r in the lower half of the keys.

    >>> Pqrs().points(4, times=range(0, 60), keys=range(100, 110), seed=5)
    Points(times=array([ 4, 14, 30, 42]), keys=array([101, 108, 101, 104]))
    >>> Pqrs(p=1, q=0, r=0, s=0).points(2, times=range(60), keys=range(10), seed=5)
    Points(times=array([0, 0]), keys=array([0, 0]))
    """

    p: float = 0.38
    q: float = 0.22
    r: float = 0.22
    s: float = 0.18

    def __post_init__(self) -> None:
        shares = (self.p, self.q, self.r, self.s)
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
            raise ConfigError(
                f"p, q, r, s = {shares} are not the shares of a whole. Write four that sum to 1, none below 0."
            )

    def points(self, count: int, *, times: range, keys: range, seed: Seed) -> Points:
        """`count` independent points of `times` × `keys` (ranges of step 1, of any size), by time.

        Both ranges are halved at each level, one of odd size so that its first half has the odd value. A range that
        is down to one value stays there while the other is halved on. Points of the same time keep the order in which
        they were drawn.
        """
        if count and not (len(times) and len(keys)):
            raise ConfigError(f"times={times} × keys={keys} has no place for {count} points. Write ranges with values.")
        random = np.random.default_rng(seed)
        time, width = np.full(count, times.start, np.int64), np.full(count, len(times), np.int64)
        key, height = np.full(count, keys.start, np.int64), np.full(count, len(keys), np.int64)
        for _ in range((max(len(times), len(keys), 1) - 1).bit_length()):
            drawn = random.random(count)
            late = drawn >= self.p + self.q
            high = drawn >= np.where(late, self.p + self.q + self.r, self.p)
            time, width = descend(time, width, late)
            key, height = descend(key, height, high)
        order = np.argsort(time, kind="stable")
        return Points(time[order], key[order])
