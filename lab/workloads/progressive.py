"""Streams for joins without a window: skew that two streams share or not, ranges that never meet, and drift.

Keys are 0 … `domain` - 1, and a key's partition is the key modulo `partitions`. Both streams are one sequence of
tuples, each of either stream with equal chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.core.errors import ConfigError
from penstock.core.rows import Indices

Pattern = Literal["harmony", "reverse"]
"""Partitions are as frequent in one stream as in the other, or the most frequent is the other's least frequent."""


@dataclass(frozen=True, slots=True)
class Skewed:
    """Partitions by Zipf's law, in the same or the reverse order in the two streams; keys even inside a partition.

    In a `disjoint` part of the partitions, spread over all ranks, the two streams have no key in common: each has a
    half of its own (spec §6.5). The most frequent partition is one of them, unless `most_meet`.

    >>> side, keys = Skewed("harmony", partitions=10, domain=100).draw(1000, seed=1)
    >>> side.shape == keys.shape == (1000,), int(keys.max()) < 100
    (True, True)
    """

    pattern: Pattern = "harmony"
    partitions: int = 100
    domain: int = 10_000
    skew: float = 1.0
    disjoint: float = 0.0
    most_meet: bool = False

    def __post_init__(self) -> None:
        _check(self.partitions, self.domain)
        if not 0 <= self.disjoint <= 1:
            raise ConfigError(f"disjoint={self.disjoint} is not a fraction. Write a number from 0 to 1.")

    def draw(self, count: int, seed: int) -> tuple[Indices, Indices]:
        """The stream, 0 or 1, and the key of each tuple."""
        rng = np.random.default_rng(seed)
        side = rng.integers(0, 2, count)
        partition = _ranks(rng, count, self.partitions, self.skew)
        if self.pattern == "reverse":
            partition = np.where(side == 0, partition, self.partitions - 1 - partition)
        place = rng.integers(0, self.domain // self.partitions, count)
        half = self.domain // self.partitions // 2
        # The golden ratio spreads them over all ranks, whatever part they are.
        spread = (partition * 0.6180339887) % 1
        apart = spread >= 1 - self.disjoint if self.most_meet else spread < self.disjoint
        return side, partition + self.partitions * np.where(apart, place % half + side * half, place)


@dataclass(frozen=True, slots=True)
class Drifting:
    """Partitions by Zipf's law, and every `period` tuples another permutation says which is the frequent one.

    With a period of 0 it does so at every tuple, so that statistics predict nothing.

    >>> _, keys = Drifting(period=500, partitions=10, domain=100).draw(5000, seed=1)
    >>> len({int(np.bincount(part % 10).argmax()) for part in np.split(keys, 10)}) > 1
    True
    """

    period: int
    partitions: int = 100
    domain: int = 10_000
    skew: float = 2.0

    def __post_init__(self) -> None:
        _check(self.partitions, self.domain)
        if self.period < 0:
            raise ConfigError(f"period={self.period} is negative. Write how many tuples a permutation lasts.")

    def draw(self, count: int, seed: int) -> tuple[Indices, Indices]:
        """The stream, 0 or 1, and the key of each tuple."""
        rng = np.random.default_rng(seed)
        side = rng.integers(0, 2, count)
        place = rng.integers(0, self.domain // self.partitions, count)
        if not self.period:
            return side, rng.integers(0, self.partitions, count) + self.partitions * place
        ranks = _ranks(rng, count, self.partitions, self.skew)
        turns = -(-count // self.period)
        orders = np.array([rng.permutation(self.partitions) for _ in range(turns)])
        return side, orders[np.arange(count) // self.period, ranks] + self.partitions * place


def _check(partitions: int, domain: int) -> None:
    if partitions < 1 or domain < 2 * partitions:
        raise ConfigError(f"domain={domain} has less than two keys for each of {partitions} partitions.")


def _ranks(rng: np.random.Generator, count: int, partitions: int, skew: float) -> Indices:
    weights = np.arange(1, partitions + 1) ** -float(skew)
    return np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(count)).clip(0, partitions - 1)
