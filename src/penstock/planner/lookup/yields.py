"""The hit rate of a cache and the yield of a read, by the skew of the keys."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from penstock.kernels.zipf import Shares
from penstock.planner.lookup.skew import Skew

_SCATTERED = 32
"""So many keys for each partition are put into partitions one by one."""
_MOST_SCATTERED = 1 << 19
_BINS = 512
_LOOKS = 6
"""In so many looks at its frequency a key gets in or does not: fewer and the cache is still filling."""
_SURE = 30.0
"""Keys that are seen so often are never mistaken."""
_SETTLING = 10
_ROUNDING = 1e-6


def read_yield(waiting: int, partitions: int, skew: Skew, beyond: int = 0) -> float:
    """w_B of HYBRIDJOIN: how many rows leave with a read, if `waiting` wait for any of `partitions` partitions.

    A partition that gets a share q of the rows is read once in 1/q + T rows: until one comes, and until that is the
    oldest, T rows later. Then 1 + qT rows leave. T is what makes as many wait as may. With all partitions alike and
    many rows for each, that is ``2 h_S b / |R|``.

    >>> round(read_yield(40_000, 100, Skew(100_000)))
    800
    """
    if waiting < 1:
        return 0.0
    shares, weights = partition_shares(skew, beyond, partitions)
    return yield_of(waiting, shares, weights)


@lru_cache(maxsize=4096)
def steady_share(skew: Skew, cached: int, window: int) -> float:
    """The hit share that a cache reaches which judges a key by how many of the last `window` misses asked for it.

    Keys come by chance: with frequencies that are small numbers, some that are not among the most frequent look as if
    they were, and stay. A key gets in that was once seen more often than a cut, in so many looks as it takes a cache to
    settle; the cut is where as many get in as there is room for. With many misses it is the ideal share.

    >>> skew = Skew(20_000, 0.75)
    >>> round(skew.share(937), 3), round(steady_share(skew, 937, 3500), 3), round(steady_share(skew, 937, 10**6), 3)
    (0.424, 0.387, 0.424)
    """
    hit = skew.share(cached)
    if not 0 < cached < skew.keys or window < 1:
        return hit
    counts, shares = skew.groups()
    cut = float(shares[np.searchsorted(np.cumsum(counts), cached)])
    if window * cut / (1 - hit) > _SURE:
        return hit
    for _ in range(_SETTLING):
        inside = _seen(window * shares / (1 - hit), counts, cached)
        hit = (hit + float((inside * counts * shares).sum())) / 2
    return hit


def _seen(expected: Shares, counts: Shares, room: int) -> Shares:
    """How likely each key was once seen more often than the cut, for keys that are `expected` so often."""
    before, inside = np.ones(expected.size), np.ones(expected.size)
    likely, below, cut = np.exp(-expected), np.zeros(expected.size), 0
    while float((inside * counts).sum()) > room:
        below += likely
        cut += 1
        likely = likely * expected / cut
        before, inside = inside, 1 - np.clip(below, 0, 1) ** _LOOKS
    more, less = float((before * counts).sum()), float((inside * counts).sum())
    part = (room - less) / (more - less) if more > less else 0.0
    return np.asarray(part * before + (1 - part) * inside)


@lru_cache(maxsize=512)
def partition_shares(skew: Skew, beyond: int, partitions: int) -> tuple[Shares, Shares]:
    """The shares of the rows that partitions get, keys lying anywhere: some values, and how many partitions have each.

    Frequent keys are put into partitions by a fixed lottery, the others are shared out evenly.

    >>> shares, weights = partition_shares(Skew(100_000, 1.0), 0, 500)
    >>> round(float((shares * weights).sum()), 6), round(float(weights.sum()))
    (1.0, 500)
    """
    counts, each = skew.groups(beyond)
    scattered = min(_SCATTERED * partitions, _MOST_SCATTERED)
    singles = int(np.searchsorted(np.cumsum(counts), scattered, "right"))
    copies = counts[:singles].astype(np.int64)
    keys = np.repeat(each[:singles], copies)
    places = np.random.default_rng(0).integers(0, partitions, keys.size)
    shares = np.bincount(places, keys, minlength=partitions) + max(0.0, 1 - float(keys.sum())) / partitions
    return _binned(shares.astype(np.float64))


def yield_of(waiting: int, shares: Shares, weights: Shares) -> float:
    """How many rows leave with a read, if so many partitions have each share of the rows."""
    total = float((shares * weights).sum())
    if not total:
        return float(waiting)
    shares = shares / total
    low, high = 0.0, 4.0 * waiting
    for _ in range(60):
        age = (low + high) / 2
        ripe = shares * age
        held = float((weights * ripe * (1 + ripe / 2) / (1 + ripe)).sum())
        low, high = (age, high) if held < waiting else (low, age)
    return 1 / float((weights * shares / (1 + shares * low)).sum())


def hottest(shares: Shares, weights: Shares, kept: int) -> tuple[float, Shares, Shares]:
    """What the `kept` most frequent partitions have together, and what is left of the others."""
    order = np.argsort(-shares)
    shares, weights = shares[order], weights[order]
    taken = np.clip(kept - (np.cumsum(weights) - weights), 0, weights)
    left = weights - taken
    return float((shares * taken).sum()), shares[left > 0], left[left > 0]


def _binned(shares: Shares) -> tuple[Shares, Shares]:
    """Values that are nearly the same as one."""
    if shares.size <= _BINS:
        return shares, np.ones(shares.size)
    logs = np.log(np.maximum(shares, 1e-300))
    low, high = float(logs.min()), float(logs.max())
    if high - low < _ROUNDING:
        return np.array([shares.mean()]), np.array([float(shares.size)])
    places = np.minimum(((logs - low) / (high - low) * _BINS).astype(np.int64), _BINS - 1)
    weights = np.bincount(places, minlength=_BINS).astype(np.float64)
    sums = np.bincount(places, shares, minlength=_BINS)
    used = weights > 0
    return sums[used] / weights[used], weights[used]
