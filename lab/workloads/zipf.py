"""Keys by Zipf's law, of any number and at any exponent, and where the frequent ones lie among the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from lab.workloads.bmodel import Keys, Seed
from penstock.core.errors import ConfigError
from penstock.core.rows import Indices
from penstock.kernels.hashing import hash_keys
from penstock.kernels.zipf import ranks_at

Placement = Literal["random", "local"]
"""Frequent keys lie anywhere among the others, or all together at the beginning."""

_ROUNDS = 4
"""So many times the halves of a number are mixed: after three no pattern is left, the fourth is to be sure."""


@dataclass(frozen=True, slots=True)
class Zipf:
    """Keys `first` … `first` + `keys` - 1, of which the i-th most frequent has a share of ``i ** -exponent / H``.

    An exponent of 0 makes all keys as frequent as each other. By `placement`, the i-th most frequent key is anywhere,
    as `seed` says, or is the i-th key. Keys are drawn exactly, and no table of them is made, however many there are.

    >>> keys = Zipf(1000, exponent=1.0, placement="local").draw(10_000, seed=7)
    >>> bool(0.12 < (keys == 0).mean() < 0.15), bool(keys.max() < 1000)
    (True, True)
    """

    keys: int
    exponent: float = 1.0
    placement: Placement = "random"
    first: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.keys < 1:
            raise ConfigError(f"keys={self.keys} leaves no key to draw. Write how many there are.")
        if not 0 <= self.exponent <= _STEEPEST:
            raise ConfigError(f"exponent={self.exponent} is not one of these laws. Write 0 (even) to {_STEEPEST:g}.")
        if self.placement not in ("random", "local"):
            raise ConfigError(f"placement={self.placement!r} is no place for frequent keys. Write 'random' or 'local'.")

    def draw(self, count: int, seed: Seed) -> Keys:
        """`count` independent keys."""
        return self.at(self.ranks(count, seed))

    def ranks(self, count: int, seed: Seed) -> Indices:
        """The ranks of as many independent keys, the most frequent being 0."""
        return ranks_at(np.random.default_rng(seed).random(count), self.keys, self.exponent)

    def at(self, ranks: Indices) -> Keys:
        """The keys of ranks."""
        placed = scattered(ranks, self.keys, self.seed) if self.placement == "random" else ranks
        return self.first + placed


def scattered(numbers: Indices, size: int, seed: int) -> Indices:
    """Numbers of 0 … `size` - 1 in other places, each in its own: a random permutation of which no table is made.

    >>> sorted(scattered(np.arange(10), 10, seed=3).tolist()) == list(range(10))
    True
    """
    bits = max(1, -(-(size - 1).bit_length() // 2))
    moved = _mixed(numbers, bits, seed)
    # The halves have room for up to four times as many: what falls beyond is moved on until it is back.
    while (beyond := np.flatnonzero(moved >= size)).size:
        moved[beyond] = _mixed(moved[beyond], bits, seed)
    return moved


def _mixed(numbers: Indices, bits: int, seed: int) -> Indices:
    """A Feistel network: one half changes by a hash of the other, then they change places."""
    high, low = numbers >> bits, numbers & ((1 << bits) - 1)
    for turn in range(_ROUNDS):
        salt = pa.repeat(pa.scalar(seed * _ROUNDS + turn, pa.int64()), low.size)
        drawn = hash_keys([pa.array(low, pa.int64()), salt]) >> np.uint64(64 - bits)
        high, low = low, high ^ drawn.astype(np.int64)
    return (high << bits) | low


_STEEPEST = 1.5
