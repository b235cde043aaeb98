"""Boxes in the unit square: cells where two streams never meet, boxes over several cells, clusters, and lines.

Both streams of `Cells` are one sequence, each box of either with equal chance. `Clusters` and `Lines` give two sets,
each in the order in which it arrives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.errors import ConfigError
from penstock.core.rows import Indices

Boxes = npt.NDArray[np.float64]

SIDE = 10
"""Cells of the grid, across and up."""

_REACH = {1: (1, 1), 2: (2, 1), 4: (2, 2), 8: (4, 2)}
"""By the number of cells that a box is stretched over: across and up (progressive-joins §6.23)."""


Border = Literal["inside", "back"]
"""What becomes of a box that would be stretched out of the square: it is drawn where it has room, or is stretched back.
Stretched back, boxes meet in the last two columns and rows, which have twice as many then."""


class Placed(NamedTuple):
    """The stream, 0 or 1, and the box of each row; the cells it touches are those from `low` to `high`, both ways."""

    side: Indices
    boxes: Boxes
    low: Indices
    high: Indices


@dataclass(frozen=True, slots=True)
class Cells:
    """A cell by chance, and two corners in it.

    In an `apart` part of the cells (α) the two streams have opposite halves and never meet. A `stretched` part of the
    boxes (ρ) reaches over so many cells (β), towards higher numbers; `border` says what happens where there are none.

    >>> rows = Cells(apart=0.2, stretched=0.5, over=4).draw(1000, seed=1)
    >>> sorted({int(n) for n in np.prod(rows.high - rows.low + 1, axis=1)})
    [1, 4]
    """

    apart: float = 0.0
    stretched: float = 0.0
    over: int = 2
    border: Border = "back"

    def __post_init__(self) -> None:
        for name in ("apart", "stretched"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name}={getattr(self, name)} is not a fraction. Write a number from 0 to 1.")
        if self.over not in _REACH:
            raise ConfigError(f"over={self.over} cells is no rectangle there is. Write 1, 2, 4 or 8.")

    def draw(self, count: int, seed: int) -> Placed:
        """So many rows of both streams."""
        rng = np.random.default_rng(seed)
        side = rng.integers(0, 2, count)
        long = rng.random(count) < self.stretched
        reach = np.where(long[:, None], np.array(_REACH[self.over]) - 1, 0)
        place = rng.integers(0, SIDE - (reach if self.border == "inside" else 0), (count, 2))
        corners = np.sort(rng.random((2, count, 2)), axis=0)
        alone = np.zeros(SIDE * SIDE, np.bool_)
        alone[rng.permutation(SIDE * SIDE)[: round(self.apart * SIDE * SIDE)]] = True
        halved = alone[place[:, 0] + SIDE * place[:, 1]]
        corners[:, halved, 0] = (corners[:, halved, 0] + side[halved]) / 2
        inside = place + reach < SIDE
        low, high = place - np.where(inside, 0, reach), place + np.where(inside, reach, 0)
        boxes = np.hstack([low + corners[0], high + corners[1]]) / SIDE
        return Placed(side, boxes, low, high)


Order = Literal["clustered", "shuffled"]
"""Whether the boxes of a cluster arrive one behind the other, or all are mixed."""


@dataclass(frozen=True, slots=True)
class Clusters:
    """So many clusters of a fifth of the square each way; each of the right set has a quarter in common with one.

    Boxes are small: their sides are up to `largest` long.

    >>> left, right = Clusters(5).draw(1003, seed=1)
    >>> left.shape, bool((right[:, :2] <= right[:, 2:]).all())
    ((1003, 4), True)
    """

    clusters: int = 5
    order: Order = "clustered"
    largest: float = 0.002

    def draw(self, count: int, seed: int) -> tuple[Boxes, Boxes]:
        """Two sets of `count` boxes."""
        rng = np.random.default_rng(seed)
        extent = 0.2
        corners = rng.random((self.clusters, 2)) * (1 - extent)
        # Shifted by half of a cluster both ways, a quarter is left; never out of the square.
        shifted = corners + np.where(corners < 0.5 - extent / 2, extent / 2, -extent / 2)
        each = count // self.clusters
        sets = []
        for origins in (corners, shifted):
            places = np.repeat(origins, each, axis=0) + extent * rng.random((each * self.clusters, 2))
            places = np.vstack([places, rng.random((count - len(places), 2))])
            if self.order == "shuffled":
                places = places[rng.permutation(count)]
            sets.append(np.hstack([places, places + self.largest * rng.random((count, 2))]))
        return sets[0], sets[1]


@dataclass(frozen=True, slots=True)
class Lines:
    """Like rivers, roads and rails of a country: each line a walk, each box a step of it, in the order of the line.

    The lines of both sets begin in the same places, more often in some than in others.
    """

    left: int
    right: int
    steps: int = 40
    length: float = 0.004

    def draw(self, part: float, seed: int) -> tuple[Boxes, Boxes]:
        """A part of the boxes of either set.

        >>> [len(some) for some in Lines(1000, 900).draw(0.5, seed=1)]
        [500, 450]
        """
        rng = np.random.default_rng(seed)
        towns = rng.random((30, 2))
        return self._walk(rng, towns, round(self.left * part)), self._walk(rng, towns, round(self.right * part))

    def _walk(self, rng: np.random.Generator, towns: Boxes, count: int) -> Boxes:
        lines = -(-count // self.steps)
        weights = 1 / np.arange(1, len(towns) + 1)
        begin = towns[rng.choice(len(towns), lines, p=weights / weights.sum())] + rng.normal(0, 0.08, (lines, 2))
        turns = rng.normal(0, 0.4, (lines, self.steps))
        heading = rng.uniform(0, 2 * np.pi, (lines, 1)) + np.cumsum(turns, axis=1)
        moves = self.length * rng.uniform(0.3, 1, (lines, self.steps, 1))
        ends = begin[:, None] + np.cumsum(moves * np.stack([np.cos(heading), np.sin(heading)], axis=2), axis=1)
        starts = np.concatenate([begin[:, None], ends[:, :-1]], axis=1)
        # Lines of one region lie near each other in a map's file: by where they begin, row by row.
        near = np.lexsort((begin[:, 0], np.floor(begin[:, 1] * SIDE)))
        boxes = np.concatenate([np.minimum(starts, ends), np.maximum(starts, ends)], axis=2)[near]
        walked: Boxes = np.clip(boxes.reshape(-1, 4)[:count], 0, 1)
        return walked
