"""Points of many dimensions in the unit cube, for joins by distance: even, skewed, checkered, non-uniform, like images.

The cube is cut into four cells each way; a cell's number has the digits of its place, the last dimension counting
singles. Both streams are one sequence, each point of either with equal chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from penstock.core.errors import ConfigError
from penstock.core.rows import Indices

Points = npt.NDArray[np.float64]

ACROSS = 4
"""Cells each way."""

Kind = Literal["uniform", "harmony", "reverse", "checkered", "non-uniform"]
Order = Literal["draws", "cells"]
"""Whether each row is drawn for itself, or the rows of a cell arrive one behind the other, by number."""

IMAGES = 68_040
"""Of the collection that Corel's colour moments are of."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """Points of a cell by chance, in it anywhere.

    - *harmony*, *reverse*: cells by Zipf's law in the order of their numbers, or for the right stream in reverse.
    - *checkered*: cells whose place has an even sum are the left stream's alone, the others the right one's.
    - *non-uniform*: in a `share` of the cells, the left stream has the lower half of a cell in half of the dimensions
      and the right stream what is above 0.6 of it (progressive-joins §6.14).

    >>> side, points = Vectors("checkered", 3).draw(1000, seed=1)
    >>> np.unique(np.floor(points[side == 0] * 4).sum(axis=1) % 2).tolist()
    [0.0]
    """

    kind: Kind = "uniform"
    dimensions: int = 3
    order: Order = "draws"
    skew: float = 1.0
    share: float = 0.5

    def __post_init__(self) -> None:
        if self.dimensions < 1:
            raise ConfigError(f"dimensions={self.dimensions}: a point has one at least.")
        if not 0 <= self.share <= 1:
            raise ConfigError(f"share={self.share} is not a fraction. Write a number from 0 to 1.")

    def draw(self, count: int, seed: int) -> tuple[Indices, Points]:
        """The stream, 0 or 1, and the point of each row."""
        rng = np.random.default_rng(seed)
        side = rng.integers(0, 2, count)
        number = self._cells(rng, side)
        if self.order == "cells":
            for port in (0, 1):
                number[side == port] = np.sort(number[side == port])
        place = rng.random((count, self.dimensions))
        if self.kind == "non-uniform":
            apart = rng.random(ACROSS**self.dimensions) < self.share
            rows = apart[number]
            half = np.arange(self.dimensions) < self.dimensions // 2
            narrow = np.where(side[:, None] == 0, 0.5 * place, 0.6 + 0.4 * place)
            place = np.where(rows[:, None] & half, narrow, place)
        return side, (digits(number, self.dimensions) + place) / ACROSS

    def _cells(self, rng: np.random.Generator, side: Indices) -> Indices:
        cells, count = ACROSS**self.dimensions, side.size
        if self.kind in ("harmony", "reverse"):
            weights = np.cumsum(np.arange(1, cells + 1) ** -self.skew)
            rank = np.searchsorted(weights, rng.random(count) * weights[-1]).clip(0, cells - 1)
            number: Indices = np.where((side == 1) & (self.kind == "reverse"), cells - 1 - rank, rank)
            return number
        number = rng.integers(0, cells, count)
        if self.kind == "checkered":
            # The next cell of the last dimension has the other colour.
            wrong = digits(number, self.dimensions).sum(axis=1) % 2 != side
            number = np.where(wrong, number ^ 1, number)
        return number


@dataclass(frozen=True, slots=True)
class Images:
    """Like the nine colour moments of photographs: groups of pictures alike, a few groups large, in [0, 1] each way.

    Both streams have the same pictures, each in an order of its own. Not the collection itself, which is not here.
    """

    dimensions: int = 9
    groups: int = 200

    def draw(self, part: float, seed: int) -> tuple[Indices, Points]:
        """The stream, 0 or 1, and the point of each row, for a part of the pictures.

        >>> side, points = Images().draw(0.01, seed=1)
        >>> points.shape, float(points.min()), float(points.max())
        ((1360, 9), 0.0, 1.0)
        """
        rng = np.random.default_rng(seed)
        count = round(IMAGES * part)
        weights = np.arange(1, self.groups + 1) ** -1.0
        group = rng.choice(self.groups, count, p=weights / weights.sum())
        centres = rng.beta(2, 3, (self.groups, self.dimensions))
        spread = rng.uniform(0.01, 0.12, (self.groups, 1))
        pictures = centres[group] + rng.normal(0, 1, (count, self.dimensions)) * spread[group]
        low, high = pictures.min(axis=0), pictures.max(axis=0)
        pictures = (pictures - low) / (high - low)
        side = rng.permutation(np.repeat([0, 1], count))
        points = np.empty((2 * count, self.dimensions))
        for port in (0, 1):
            points[side == port] = pictures[rng.permutation(count)]
        return side, points


def digits(numbers: Indices, dimensions: int) -> Indices:
    """The place of each cell, by its number.

    >>> digits(np.array([0, 5, 16]), 3).tolist()
    [[0, 0, 0], [0, 1, 1], [1, 0, 0]]
    """
    powers = ACROSS ** np.arange(dimensions - 1, -1, -1)
    return numbers[:, None] // powers % ACROSS


def numbers(points: Points) -> Indices:
    """The cell of each point; the far border is in the last.

    >>> numbers(np.array([[0.0, 0.3, 1.0]])).tolist()
    [7]
    """
    place = np.clip(np.floor(points * ACROSS).astype(np.int64), 0, ACROSS - 1)
    found: Indices = place @ (ACROSS ** np.arange(points.shape[1] - 1, -1, -1))
    return found
