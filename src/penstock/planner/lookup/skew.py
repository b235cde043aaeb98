"""The skew of a stream's keys: Zipf's law, fitted to what was seen, or the counts themselves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt

from penstock.core.errors import ConfigError
from penstock.kernels.zipf import Shares, collisions, harmonic, top_share

Counts = npt.NDArray[np.int64]
"""How often each key was seen, in any order; keys that were not seen are left out."""

STEEPEST = 2.0
"""Exponents up to this are told apart."""

_SINGLE = 512
"""So many ranks are looked at one by one, the others in groups …"""
_GROWTH = 1.02
"""… each so many times as large as the one before."""


@dataclass(frozen=True, slots=True)
class Skew:
    """`keys` keys of which the i-th most frequent has a share of ``i ** -exponent / H``; 0 is even.

    >>> round(Skew(keys=100_000, exponent=1.0).share(1000), 3)
    0.619
    """

    keys: int
    exponent: float = 0.0

    def __post_init__(self) -> None:
        if self.keys < 1:
            raise ConfigError(f"keys={self.keys} must be at least 1: how many the table has.")
        if not 0 <= self.exponent <= STEEPEST:
            raise ConfigError(f"exponent={self.exponent} must be from 0 (even) to {STEEPEST:g}.")

    @classmethod
    def fitted(cls, counts: Counts, keys: int) -> Self:
        """The law that fits the counts of a sample."""
        return cls(keys, fit_exponent(counts, keys))

    def share(self, top: int) -> float:
        """The part of the stream that asks for the `top` most frequent keys: the hit share of an ideal cache."""
        return top_share(top, self.keys, self.exponent)

    def distinct(self, rows: float, beyond: int = 0) -> float:
        """How many different keys `rows` rows ask for, if none asks for the `beyond` most frequent.

        >>> round(Skew(1000).distinct(1000)), round(Skew(1000, 1.0).distinct(1000))
        (632, 334)
        """
        counts, shares = self.groups(beyond)
        return float((counts * -np.expm1(-rows * shares)).sum())

    def groups(self, beyond: int = 0) -> tuple[Shares, Shares]:
        """The keys but for the `beyond` most frequent, in groups of near ranks: how many, and each one's share.

        The shares are those of the stream that asks for none of the `beyond`; they sum to 1 over all keys.
        """
        return _groups(self.keys, self.exponent, min(beyond, self.keys - 1))


def fit_exponent(counts: Counts, keys: int) -> float:
    """The exponent by which as many pairs of rows would have the same key as have, of `keys` keys.

    It needs no ranks, which a sample gets wrong where keys are rare; but it is not sharp near 0, where pairs are few:
    s² of a law with exponent s is by how much they are more than with none.

    >>> from penstock.kernels.zipf import ranks_at
    >>> ranks = ranks_at(np.random.default_rng(1).random(100_000), 50_000, 0.8)
    >>> round(fit_exponent(np.bincount(ranks), 50_000), 2)
    0.8
    """
    total = int(counts.sum())
    if total < 2 or keys < 2:
        return 0.0
    paired = float((counts * (counts - 1.0)).sum()) / (total * (total - 1.0))
    low, high = 0.0, STEEPEST
    while high - low > 1e-5:
        middle = (low + high) / 2
        low, high = (middle, high) if collisions(keys, middle) < paired else (low, middle)
    return (low + high) / 2


@lru_cache(maxsize=256)
def _groups(keys: int, exponent: float, beyond: int) -> tuple[Shares, Shares]:
    single = np.arange(beyond, min(beyond + _SINGLE, keys) + 1)
    steps = int(np.ceil(np.log(max(1.0, keys / max(1, single[-1]))) / np.log(_GROWTH)))
    grown = single[-1] * (keys / max(1, single[-1])) ** np.linspace(0, 1, steps + 1)
    edges = np.unique(np.concatenate([single, np.round(grown).astype(np.int64), [keys]]))
    sums = np.array([harmonic(int(edge), exponent) for edge in edges])
    counts = np.diff(edges).astype(np.float64)
    return counts, np.diff(sums) / counts / (sums[-1] - sums[0])
