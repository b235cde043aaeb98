"""The b-model: volume that gathers in bursts, and keys that gather in few values, by one bias.

An interval is halved; one half, on a random side, gets the fraction `bias` of what the whole has and the other the
rest; and so on in each half. A bias of 0.5 spreads evenly; the nearer to 1, the burstier.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.errors import ConfigError
from penstock.kernels.hashing import hash_keys

Counts = npt.NDArray[np.int64]
"""How much is in each cell."""

Keys = npt.NDArray[np.int64]
"""One key per row."""

Seed = int | Sequence[int]
"""What a generator starts from: equal seeds give equal results."""

_MOST_LEVELS = 30
"""Beyond a billion cells, the cells themselves would not fit."""

_LEVEL_BITS = 6
"""A domain of int64 has at most 63 levels."""


def split(volume: int, *, bias: float, levels: int, seed: Seed) -> Counts:
    """`volume` over 2 ** `levels` equal cells: whole numbers that sum to `volume` exactly.

    At each halving the favoured half gets ``bias * v`` rounded to the nearest whole number (a half upwards) and the
    other what is left. So the largest cell is ``volume * bias ** levels`` but for less than ``0.5 / (1 - bias)``, and
    with a bias of 0.5 no two cells differ by more than 1.

    >>> split(1000, bias=0.7, levels=2, seed=1).tolist()
    [210, 490, 90, 210]
    >>> split(10, bias=0.5, levels=2, seed=1).tolist()
    [2, 3, 2, 3]
    """
    _check(volume, bias)
    if not 0 <= levels <= _MOST_LEVELS:
        raise ConfigError(f"levels={levels} makes 2 ** {levels} cells. Write 0 to {_MOST_LEVELS}.")
    random = np.random.default_rng(seed)
    cells = np.array([volume], np.int64)
    for _ in range(levels):
        favoured = _favoured(cells, bias)
        first = np.where(random.integers(0, 2, cells.size) == 0, favoured, cells - favoured)
        cells = np.stack([first, cells - first], axis=1).ravel()
    return cells


def largest(volume: int, *, bias: float, levels: int) -> int:
    """The largest cell of `split`, whatever the seed: the one that was favoured at every level.

    >>> largest(1000, bias=0.7, levels=2)
    490
    """
    _check(volume, bias)
    cell = np.array([volume], np.int64)
    for _ in range(levels):
        cell = _favoured(cell, bias)
    return int(cell[0])


def levels_within(volume: int, *, bias: float, cap: int) -> int:
    """The fewest levels at which no cell of `split` exceeds `cap`.

    >>> levels_within(2_880_000, bias=0.6, cap=70_000)
    8
    """
    _check(volume, bias)
    for levels in range(_MOST_LEVELS + 1):
        if largest(volume, bias=bias, levels=levels) <= cap:
            return levels
    raise ConfigError(
        f"cap={cap} cannot be kept: with bias={bias}, a cell of {volume} rows is still larger after {_MOST_LEVELS} "
        f"halvings. Write a larger cap or a smaller bias."
    )


def skewed_keys(count: int, *, domain: int, bias: float, seed: Seed, sides: int = 0) -> Keys:
    """`count` independent keys of 0 … `domain` - 1: of the keys in any part, `bias` fall in its favoured half.

    A part is halved in the middle down to single keys; one of odd size gives its first half the odd key. `sides`
    decides which halves are favoured, and `seed` which keys are drawn, so that two streams with the same `sides`
    have the same hot keys.

    >>> keys = skewed_keys(10_000, domain=1000, bias=0.7, seed=1)
    >>> bool(0.68 < max((keys < 500).mean(), (keys >= 500).mean()) < 0.72)
    True
    """
    _check(count, bias)
    if domain < 1:
        raise ConfigError(f"domain={domain} has no key. Write how many keys there are.")
    random = np.random.default_rng(seed)
    low, size = np.zeros(count, np.int64), np.full(count, domain, np.int64)
    for level in range((domain - 1).bit_length()):
        upper = _upper_is_favoured(low, level, sides) ^ (random.random(count) >= bias)
        low, size = descend(low, size, upper)
    return low


def descend(low: Keys, size: Keys, upper: npt.NDArray[np.bool_]) -> tuple[Keys, Keys]:
    """From each part [low, low + size) to its upper or its first half; a part of one value stays what it is.

    >>> descend(np.array([0, 0, 4]), np.array([5, 5, 1]), np.array([False, True, True]))
    (array([0, 3, 4]), array([3, 2, 1]))
    """
    second = size >> 1
    first = size - second
    moved = upper & (second > 0)
    return low + np.where(moved, first, 0), np.where(moved, second, first)


def _favoured(cells: Counts, bias: float) -> Counts:
    favoured: Counts = np.floor(cells * bias + 0.5).astype(np.int64)
    return favoured


def _upper_is_favoured(low: Keys, level: int, sides: int) -> npt.NDArray[np.bool_]:
    """A coin per part, the same for whoever comes by: a part is known by its level and where it starts."""
    part = (low << _LEVEL_BITS) | level
    apart = hash_keys([pa.array([sides], pa.int64())]).view(np.int64)
    coins: npt.NDArray[np.bool_] = hash_keys([pa.array(part ^ apart)]) >> np.uint64(63) == 1
    return coins


def _check(volume: int, bias: float) -> None:
    if volume < 0:
        raise ConfigError(f"{volume} rows are fewer than none. Write 0 or more.")
    if not 0.5 <= bias <= 1:
        raise ConfigError(f"bias={bias} is no share of a favoured half. Write 0.5 (even) to 1 (all in one place).")
