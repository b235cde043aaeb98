"""A grid over space whose cells wrap around, and which rows of two sets lie in cells near enough to each other.

Cells are known by codes of 32 bits: some bits of each of up to eight axes. Cells whose numbers differ by a multiple of
what these bits can say share a code. That does no harm: the distance of two codes is the least that points of such
cells can have, and whoever asks here verifies what it is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.rows import Hashes, Indices
from penstock.kernels.vectors import Matrix

AXES = 8
"""Along so many axes a space is cut at most."""

BITS = 32
"""Bits of a code."""

_FARTHEST = 2.0**31
"""Cells farther from the origin are taken for that one: so a cell's number is exact to a millionth."""

_SLACK = 1e-6
"""What the number of a cell may be wrong by before it is rounded down, in cells."""

_USELESS = 1.8
"""A cut that leaves the two halves so many times as much to compare with as there was helps nothing."""

Coordinates = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells of `width` along some `axes` of a space; points up to `radius` apart are to be found.

    A code has the last bits of all axes in its last bits, the last but one before them, and so on: shifted by as many
    bits as there are axes it is that of a cell twice as wide.

    >>> Grid((0, 1), 0.25, 0.5).codes(np.array([[0.1, 0.1], [0.6, 0.1], [1.1, 0.1]])).tolist()
    [0, 2, 8]
    """

    axes: tuple[int, ...]
    radius: float
    width: float
    shift: int = 0
    """Codes are turned by so many bits: the last ones are then those of cells that are so much wider."""

    @property
    def bits(self) -> int:
        """How many bits say where a cell is along an axis."""
        return BITS // len(self.axes)

    @property
    def reach(self) -> int:
        """How many cells apart, along one axis, two points may be."""
        return int(np.ceil(self.radius / self.width + 4 * _SLACK))

    def codes(self, points: Matrix) -> Hashes:
        """The code of each point's cell."""
        codes = np.zeros(len(points), np.uint64)
        for place, axis in enumerate(reversed(self.axes)):
            with np.errstate(over="ignore"):
                along = np.clip(points[:, axis] / self.width, -_FARTHEST, _FARTHEST)
            cell = np.floor(along).astype(np.int64).view(np.uint64)
            for bit in range(self.bits):
                digit = (cell >> np.uint64(bit)) & np.uint64(1)
                codes |= digit << np.uint64(bit * len(self.axes) + place)
        return self._turned(codes, self.shift)

    def _turned(self, codes: Hashes, by: int) -> Hashes:
        used = self.bits * len(self.axes)
        mask = np.uint64((1 << used) - 1)
        return ((codes >> np.uint64(by)) | (codes << np.uint64(used - by))) & mask if by else codes

    def coordinates(self, codes: Hashes) -> Coordinates:
        """Where cells are along each axis, from their codes."""
        codes = self._turned(codes, self.bits * len(self.axes) - self.shift) if self.shift else codes
        used, axes = self.bits * len(self.axes), len(self.axes)
        digits = np.unpackbits(codes.astype(">u4").view(np.uint8)).reshape(codes.size, BITS)[:, BITS - used :]
        cells = np.zeros((codes.size, axes), np.int64)
        for first in range(0, used, axes):
            cells += cells
            cells += digits[:, first : first + axes]
        return cells

    def from_box(self, box: Coordinates, cells: Coordinates) -> npt.NDArray[np.float64]:
        """The least squared distance, in cells, of points in each of some cells from points in any of a box of them."""
        ring = 1 << self.bits
        first, extent = box.min(axis=0), np.ptp(box, axis=0)
        beyond = (cells - first) % ring - extent
        apart = np.maximum(np.minimum(beyond, ring - extent - beyond) - 1 - _SLACK, 0)
        return np.einsum("ij,ij->i", apart, apart)  # type: ignore[no-any-return]

    @property
    def far(self) -> float:
        """From which squared distance in cells on no two points are near enough."""
        return (self.radius / self.width) ** 2 * (1 + _SLACK)


class Occupied:
    """The cells that some rows are in: sorted by code, the rows of each lie together."""

    def __init__(self, grid: Grid, codes: Hashes) -> None:
        first = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
        self.starts: Indices = first
        self.counts: Indices = np.diff(np.concatenate([first, [codes.size]]))
        self.coordinates = grid.coordinates(codes[first])

    def rows(self, cells: Indices) -> Indices:
        """The rows in some cells."""
        counts = self.counts[cells]
        ends = np.cumsum(counts)
        rows = np.arange(ends[-1] if ends.size else 0)
        rows += np.repeat(self.starts[cells] - (ends - counts), counts)
        return rows


def near_blocks(grid: Grid, ours: Hashes, theirs: Hashes, most: int) -> Iterator[tuple[Indices, Indices]]:
    """Rows of ours and rows of theirs, block by block, such that all pairs within the radius are in one block each.

    Both are codes of cells, ascending. Only occupied cells are ever looked at: ours are halved along the axis in which
    they lie farthest apart, and of theirs those are left that are within reach, until a block has at most `most` pairs.

    >>> grid = Grid((0, 1), 1.0, 1.0)
    >>> mine, others = (grid.codes(np.array(points)) for points in ([[0.5, 0.5]], [[0.5, 1.5], [7.5, 0.5]]))
    >>> [(i.tolist(), j.tolist()) for i, j in near_blocks(grid, mine, others, most=1)]
    [([0], [0])]
    """
    if not ours.size or not theirs.size:
        return
    mine, others = Occupied(grid, ours), Occupied(grid, theirs)
    waiting = [(np.arange(mine.starts.size), np.arange(others.starts.size))]
    while waiting:
        a, b = waiting.pop()
        b = b[grid.from_box(mine.coordinates[a], others.coordinates[b]) <= grid.far]
        if not b.size:
            continue
        halves = None
        if int(mine.counts[a].sum()) * int(others.counts[b].sum()) > most:
            halves = _halves(grid, mine, a, others, b)
        if halves is None:
            yield mine.rows(a), others.rows(b)
        else:
            waiting.extend(reversed(halves))


def _halves(
    grid: Grid, mine: Occupied, a: Indices, others: Occupied, b: Indices
) -> list[tuple[Indices, Indices]] | None:
    """My cells in two halves, each with those of theirs within its reach; None if no cut saves anything."""
    cells, counts = mine.coordinates[a], others.counts[b]
    extents = cells.max(axis=0) - cells.min(axis=0)
    for axis in np.argsort(-extents, kind="stable").tolist():
        if not extents[axis]:
            break
        along = cells[:, axis]
        middle = min(int(np.median(along)), int(along.max()) - 1)
        halves = []
        left = 0
        for half in (along <= middle, along > middle):
            there = _within_reach(grid, along[half], others.coordinates[b, axis])
            halves.append((a[half], b[there]))
            left += int(counts[there].sum())
        if left <= _USELESS * int(counts.sum()):
            return halves
    return None


def _within_reach(grid: Grid, along: Indices, theirs: Indices) -> npt.NDArray[np.bool_]:
    """Which of their cells are near enough, along one axis, to any from the first to the last of mine."""
    first, last = int(along.min()), int(along.max())
    mask = (1 << grid.bits) - 1
    return (theirs - first + grid.reach & mask) <= last - first + 2 * grid.reach
