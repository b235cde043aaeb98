"""Zipf's law over finitely many ranks: rank i of n has a share of ``i ** -s / H(n, s)``. No table of ranks is made.

Sums over many ranks are integrals but for errors far below the rounding of a double (Euler and Maclaurin), so shares
of the frequent keys of a table with a billion rows take no longer than those of one with a thousand.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from penstock.core.rows import Indices

Shares = npt.NDArray[np.float64]

_HEAD = 1 << 12
"""So many ranks are summed one by one; the others are integrated."""


@lru_cache(maxsize=4096)
def harmonic(count: int, exponent: float) -> float:
    """H(n, s): the sum of ``i ** -s`` for i = 1 … n.

    >>> harmonic(4, 1.0), harmonic(7, 0.0)
    (2.083333333333333, 7.0)
    >>> round(harmonic(10**9, 1.0), 9)
    21.300481502
    """
    if count <= _HEAD:
        return float(_head(exponent)[max(0, count)])
    return float(_head(exponent)[-1]) + _tail(_HEAD, count, exponent)


def top_share(top: int, count: int, exponent: float) -> float:
    """The share of the `top` most frequent of `count` keys: ``H(top, s) / H(count, s)``.

    >>> round(top_share(10, 1000, 1.0), 3), top_share(10, 1000, 0.0)
    (0.391, 0.01)
    """
    if count < 1:
        return 0.0
    return harmonic(min(top, count), exponent) / harmonic(count, exponent)


def ranks_at(places: Shares, count: int, exponent: float) -> Indices:
    """The inverse of the cumulated shares: the rank, from 0, that each place in [0, 1) falls into.

    >>> ranks_at(np.array([0.0, 0.47, 0.49, 0.99]), 4, 1.0).tolist()
    [0, 0, 1, 3]
    """
    sums = places * harmonic(count, exponent)
    head = _head(exponent)[1 : min(count, _HEAD) + 1]
    ranks = head.searchsorted(sums, "right")
    beyond = np.flatnonzero(ranks >= head.size)
    if count > _HEAD:
        # Rank i has what lies under the curve between i - 1/2 and i + 1/2, but for a part in 24 i²: 2.5e-9 at most.
        reached = _inverse(sums[beyond] - head[-1], _HEAD + 0.5, exponent)
        ranks[beyond] = np.ceil(reached - 0.5).astype(np.int64) - 1
    return np.minimum(ranks, count - 1).astype(np.int64)


def collisions(count: int, exponent: float) -> float:
    """How likely two rows have the same key: the sum of the squared shares.

    >>> collisions(100, 0.0)
    0.01
    """
    return harmonic(count, 2 * exponent) / harmonic(count, exponent) ** 2


@lru_cache(maxsize=64)
def _head(exponent: float) -> Shares:
    """The sums over 0, 1, 2, … ranks."""
    sums = np.append(0.0, np.cumsum(np.arange(1, _HEAD + 1) ** -exponent))
    sums.setflags(write=False)
    return sums


def _tail(below: int, count: int, exponent: float) -> float:
    """The sum over ranks `below` + 1 … `count`."""
    first, last = below + 0.5, count + 0.5
    slopes = -exponent * (last ** (-exponent - 1) - first ** (-exponent - 1))
    return float(_integral(first, last, exponent) - slopes / 24)


def _integral(first: float, last: float, exponent: float) -> float:
    power = 1 - exponent
    if abs(power) < _LOGARITHMIC:
        return float(np.log(last / first))
    return float((last**power - first**power) / power)


def _inverse(area: Shares, first: float, exponent: float) -> Shares:
    """Where the area under the curve from `first` on is `area`."""
    power = 1 - exponent
    if abs(power) < _LOGARITHMIC:
        return np.asarray(first * np.exp(area))
    return np.asarray((area * power + first**power) ** (1 / power))


_LOGARITHMIC = 1e-9
"""An exponent as near to 1 as this is 1."""
