"""Boxes on a plane: which pairs of two sets meet, in which cells of an endless grid they lie, how far they are apart.

Boxes are closed: those that touch meet. A box is a column of (x1, y1, x2, y2), lower left and upper right corner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.rows import Hashes, Indices
from penstock.kernels.equal import Mask
from penstock.kernels.hashing import mix
from penstock.kernels.match import expand

Side = npt.NDArray[np.float64]
Boxes = Sequence[Side]
"""Four arrays: x1, y1, x2 and y2 of each box."""

Cells = npt.NDArray[np.int64] | npt.NDArray[np.int32]

_FARTHEST = 2.0**31
"""Cells farther from the origin along an axis are taken for that one."""

_TURN = np.uint64(0x9E3779B97F4A7C15)

_FEW = 1 << 12
"""Pairs that are all looked at."""

_ROW = 160
"""Bytes that sorting a box, and its copies, by cell takes;"""

_SWEPT = 64
"""sorting it from left to right takes those,"""

_PAIR = 96
"""and those of a pair that is looked at."""

_OVERLAPS = 16
"""Boxes may overlap so many others from left to right, on average, before they are better sorted by cell."""

_MOST_PAIRS = 1 << 17
"""Pairs looked at together: more would not stay in the cache."""

_SAMPLE = 1 << 12
"""Boxes that say where cells begin."""

_SCANNED = 1 << 14
"""Boxes that are looked through at a time for those near to some others."""

_COPIES = 2
"""A grid is made coarser until boxes have fewer copies than this, on average."""


def meet(ours: Boxes, i: Indices, theirs: Boxes, j: Indices) -> Mask:
    """Whether pairs of boxes meet.

    >>> a, b = np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([[1.0, 2.0], [1.0, 2.0], [3.0, 3.0], [3.0, 3.0]])
    >>> meet(a, np.array([0, 0]), b, np.array([0, 1])).tolist()
    [True, False]
    """
    met: Mask = (ours[0][i] <= theirs[2][j]) & (theirs[0][j] <= ours[2][i])
    met &= (ours[1][i] <= theirs[3][j]) & (theirs[1][j] <= ours[3][i])
    return met


def cover(ours: Boxes, i: Indices, theirs: Boxes, j: Indices) -> Mask:
    """Whether the first box of a pair has the whole second one in it, its border included."""
    inside: Mask = (ours[0][i] <= theirs[0][j]) & (theirs[2][j] <= ours[2][i])
    inside &= (ours[1][i] <= theirs[1][j]) & (theirs[3][j] <= ours[3][i])
    return inside


def within(ours: Boxes, i: Indices, theirs: Boxes, j: Indices, distance: float) -> Mask:
    """Whether the two boxes of a pair are at most `distance` apart.

    >>> a, b = np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([[4.0], [5.0], [6.0], [6.0]])
    >>> [within(a, np.array([0]), b, np.array([0]), d).tolist() for d in (5.0, 4.99)]
    [[True], [False]]
    """
    with np.errstate(over="ignore"):
        across = np.maximum(0.0, np.maximum(ours[0][i] - theirs[2][j], theirs[0][j] - ours[2][i]))
        up = np.maximum(0.0, np.maximum(ours[1][i] - theirs[3][j], theirs[1][j] - ours[3][i]))
        if not distance:
            return (across == 0.0) & (up == 0.0)  # type: ignore[no-any-return]
        return across * across + up * up <= distance * distance  # type: ignore[no-any-return]


def grown(boxes: Boxes, distance: float) -> Boxes:
    """Boxes so much larger on each side, and a bit more: those within the distance of others meet them for certain."""
    if not distance:
        return boxes
    largest = np.finfo(np.float64).max
    larger = []
    with np.errstate(over="ignore"):
        for corner, side in enumerate(boxes):
            by = distance * (1 + 2.0**-40) + (np.abs(side) + distance) * 2.0**-48
            larger.append((side - by if corner < 2 else side + by).clip(-largest, largest))
    return larger


def usable(boxes: Boxes) -> Mask:
    """Which boxes are somewhere: all numbers finite, and x1 ≤ x2, y1 ≤ y2."""
    with np.errstate(invalid="ignore"):
        good: Mask = (boxes[0] <= boxes[2]) & (boxes[1] <= boxes[3])
    for side in boxes:
        good &= np.isfinite(side)
    return good


def taken(boxes: Boxes, which: Indices | slice | Mask) -> Boxes:
    """Some of the boxes."""
    return [side[which] for side in boxes]


@dataclass(frozen=True, slots=True)
class Tiles:
    """An endless grid of square cells, `width` wide, dealt out to some `sites`: what is in a cell is in its site.

    With `across`, cells are dealt out in turn, as those of a grid with so many in a row are; else by a hash.

    >>> tiles = Tiles(1.0, sites=4, across=3)
    >>> x, y = np.meshgrid(np.arange(3), np.arange(3))
    >>> tiles.site(x, y).tolist()
    [[0, 1, 2], [3, 0, 1], [2, 3, 0]]
    """

    width: float
    sites: int = 64
    across: int | None = None
    most: int = 256
    """A box that is in more cells than this is taken to be in all sites."""

    def along(self, values: npt.NDArray[np.float64]) -> Cells:
        """The cells of coordinates along an axis. It never falls as they rise: so a box has the cells between."""
        with np.errstate(over="ignore"):
            return np.clip(np.floor(values / self.width), -_FARTHEST, _FARTHEST).astype(np.int64)

    def site(self, x: Cells, y: Cells) -> Hashes:
        """The sites of cells, from 0 on."""
        if self.across is not None:
            return ((x + self.across * y) % self.sites).astype(np.uint64)
        mixed = mix(mix(x.astype(np.uint64)) + y.astype(np.uint64))
        return ((mixed >> np.uint64(32)) * np.uint64(self.sites)) >> np.uint64(32)

    def owner(self, ours: Boxes, i: Indices, theirs: Boxes, j: Indices) -> Hashes:
        """The one site of pairs of boxes that meet: that of the top left corner of what they have in common."""
        x = self.along(np.maximum(ours[0][i], theirs[0][j]))
        return self.site(x, self.along(np.minimum(ours[3][i], theirs[3][j])))

    def touched(self, boxes: Boxes) -> tuple[Indices, Hashes]:
        """For each box and each site that it is in, once, the number of the box, ascending, and the site."""
        corners = [self.along(side) for side in boxes]
        wide, high = corners[2] - corners[0] + 1, corners[3] - corners[1] + 1
        counts = np.where(wide.astype(np.float64) * high > self.most, 0, wide * high)
        which = np.repeat(np.arange(counts.size), counts)
        step = np.arange(which.size) - np.repeat(np.cumsum(counts) - counts, counts)
        x, y = corners[0][which] + step % wide[which], corners[1][which] + step // wide[which]
        found = which.astype(np.uint64) * np.uint64(self.sites) + self.site(x, y)
        huge = np.flatnonzero(counts == 0).astype(np.uint64)
        all_of = (huge[:, None] * np.uint64(self.sites) + np.arange(self.sites, dtype=np.uint64)).ravel()
        once = np.unique(np.concatenate([found, all_of]))
        box, site = np.divmod(once, np.uint64(self.sites))
        return box.astype(np.int64), site


def sort_codes(boxes: Boxes, width: float | None) -> Hashes:
    """32 bits that boxes near each other have much of in common: the bits of the cell of their middle in turns.

    Without a `width`, cells are as wide as their distance from the axes allows: a sixteenth of a power of two.
    """
    code = np.zeros(boxes[0].size, np.uint64)
    for axis in (0, 1):
        middle = boxes[axis] / 2 + boxes[axis + 2] / 2
        if width is not None:
            cells = Tiles(width).along(middle).view(np.uint64)
        else:
            bits = (middle + 0.0).view(np.uint64) >> np.uint64(48)
            cells = np.where(middle < 0, ~bits, bits)
        for bit in range(16):
            code |= ((cells >> np.uint64(bit)) & np.uint64(1)) << np.uint64(2 * bit + axis)
    return code


class Placed(NamedTuple):
    """Boxes, and for each the number of its site: only those of one site meet."""

    boxes: Boxes
    sites: Hashes

    def take(self, which: Indices | slice) -> Placed:
        """Some of them."""
        return Placed(taken(self.boxes, which), self.sites[which])

    @property
    def rows(self) -> int:
        """How many boxes."""
        return int(self.sites.size)


def meeting(ours: Placed, theirs: Placed, room: int) -> Iterator[tuple[Indices, Indices]]:
    """All pairs of boxes of one site that meet, each once, in chunks; takes about `room` bytes.

    >>> sides = [np.array([0.0, 1, 5]), np.array([0.0, 1, 5]), np.array([1.0, 2, 6]), np.array([1.0, 2, 6])]
    >>> boxes = Placed(sides, np.zeros(3, np.uint64))
    >>> sorted((int(i), int(j)) for some, those in meeting(boxes, boxes, 10**6) for i, j in zip(some, those))
    [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2)]
    """
    rows = at_once(room)
    for start in range(0, ours.rows, rows):
        some = ours.take(slice(start, start + rows))
        for other in range(0, theirs.rows, rows):
            for i, j in _swept(some, theirs.take(slice(other, other + rows)), room):
                yield i + start, j + other


def at_once(room: int) -> int:
    """How many boxes of either side are compared with each other at a time."""
    return max(64, room * 3 // 8 // _SWEPT)


def _swept(ours: Placed, theirs: Placed, room: int) -> Iterator[tuple[Indices, Indices]]:
    """The pairs of two sets: both sorted from left to right, where that leaves few to look at; else by a grid."""
    mine, others = (np.argsort(side.boxes[0], kind="stable") for side in (ours, theirs))
    left, their_left = ours.boxes[0][mine], theirs.boxes[0][others]
    # Of two boxes that overlap from left to right, one begins where the other is: theirs does, or ours, a bit later.
    ranges = (
        (their_left.searchsorted(left), their_left.searchsorted(ours.boxes[2][mine], "right")),
        (left.searchsorted(their_left, "right"), left.searchsorted(theirs.boxes[2][others], "right")),
    )
    found = sum(int((end - begin).sum()) for begin, end in ranges)
    if found > max(_FEW, _OVERLAPS * (ours.rows + theirs.rows)):
        yield from _by_grid(ours, theirs, room)
        return
    limit = max(1, min(_MOST_PAIRS, room // 4 // _PAIR))
    held: list[tuple[Indices, Indices]] = []
    for turned, (begin, end) in enumerate(ranges):
        for needles, rows in expand(begin, end, limit):
            i, j = (mine[rows], others[needles]) if turned else (mine[needles], others[rows])
            met = (ours.boxes[1][i] <= theirs.boxes[3][j]) & (theirs.boxes[1][j] <= ours.boxes[3][i])
            met &= ours.sites[i] == theirs.sites[j]
            held.append((i[met], j[met]))
            if needles.size == limit:
                yield from _joined(held)
    yield from _joined(held)


def _joined(held: list[tuple[Indices, Indices]]) -> Iterator[tuple[Indices, Indices]]:
    """Pairs that were held, in one piece; they are held no more."""
    if held:
        i, j = (np.concatenate(parts) for parts in zip(*held, strict=True))
        held.clear()
        if i.size:
            yield i, j


def _by_grid(ours: Placed, theirs: Placed, room: int) -> Iterator[tuple[Indices, Indices]]:
    """The pairs of two sets: some of the smaller at a time, with those of the other that are near them."""
    if ours.rows > theirs.rows:
        for j, i in _by_grid(theirs, ours, room):
            yield i, j
        return
    rows = max(64, room * 3 // 8 // _ROW)
    for start in range(0, ours.rows, rows):
        some = ours.take(slice(start, start + rows))
        for others in _near(some.boxes, theirs.boxes, rows):
            for i, j in _block(some, theirs.take(others), room // 4):
                yield i + start, others[j]


def _near(some: Boxes, others: Boxes, rows: int) -> Iterator[Indices]:
    """Which of the others meet the box around some: about so many at a time."""
    if not some[0].size:
        return
    left, low, right, high = some[0].min(), some[1].min(), some[2].max(), some[3].max()
    held: list[Indices] = []
    for start in range(0, others[0].size, _SCANNED):
        x1, y1, x2, y2 = taken(others, slice(start, start + _SCANNED))
        found = np.flatnonzero((x1 <= right) & (x2 >= left) & (y1 <= high) & (y2 >= low)) + start
        held.append(found)
        if sum(each.size for each in held) >= rows or start + _SCANNED >= others[0].size:
            which = np.concatenate(held)
            yield from (which[first : first + rows] for first in range(0, which.size, rows))
            held = []


def _block(few: Placed, many: Placed, room: int) -> Iterator[tuple[Indices, Indices]]:
    """The pairs of two sets that fit memory: the smaller is sorted by the cells of a grid that suits both."""
    if few.rows > many.rows:
        for j, i in _block(many, few, room):
            yield i, j
        return
    if few.rows * many.rows <= _FEW:
        i, j = np.divmod(np.arange(few.rows * many.rows), many.rows)
        met = meet(few.boxes, i, many.boxes, j) & (few.sites[i] == many.sites[j])
        yield i[met], j[met]
        return
    grid = _Grid.fitted(few, many)
    mine, others = grid.cells(few), grid.cells(many)
    while grid.size > 1 and _copies(mine) + _copies(others) > _COPIES * (few.rows + many.rows):
        grid, mine, others = grid.coarser(), mine >> 1, others >> 1
    a, held = grid.copies(mine, few.sites)
    b, codes = grid.copies(others, many.sites)
    order = np.argsort(held, kind="stable")
    a, held = a[order], held[order]
    starts = np.searchsorted(held, np.arange(grid.size * grid.size + 1))
    limit = max(1, min(_MOST_PAIRS, room // _PAIR))
    for those, some in expand(starts[codes], starts[codes + 1], limit):
        i, j = a[some], b[those]
        # Of a pair with several cells in common, the one of the top left corner counts.
        x, y = np.maximum(mine[0][i], others[0][j]), np.minimum(mine[3][i], others[3][j])
        once = (few.sites[i] == many.sites[j]) & (grid.code(x, y, many.sites[j]) == codes[those])
        i, j = i[once], j[once]
        once = meet(few.boxes, i, many.boxes, j)
        yield i[once], j[once]


def _copies(cells: Cells) -> int:
    return int(((cells[2] - cells[0] + 1) * (cells[3] - cells[1] + 1)).sum())


@dataclass(frozen=True, slots=True, eq=False)
class _Grid:
    """Cells between lines that about as many boxes lie between: `size`, a power of two, along each axis."""

    across: npt.NDArray[np.float64]
    up: npt.NDArray[np.float64]
    size: int

    @classmethod
    def fitted(cls, few: Placed, many: Placed) -> _Grid:
        """By a sample of both."""
        size = 1 << int(np.ceil(np.log2(many.rows) / 2))
        lines = []
        for axis in (0, 1):
            some = [side.boxes[axis][:: -(-side.rows // _SAMPLE)] for side in (few, many)]
            sample = np.sort(np.concatenate(some))
            lines.append(sample[np.linspace(0, sample.size - 1, size + 1).astype(np.int64)[1:-1]])
        return cls(lines[0], lines[1], size)

    def cells(self, placed: Placed) -> Cells:
        """The cells of the corners."""
        lines = (self.across, self.up, self.across, self.up)
        found = [at.searchsorted(side, "right") for at, side in zip(lines, placed.boxes, strict=True)]
        return np.stack([cells.astype(np.int32) for cells in found])

    def coarser(self) -> _Grid:
        """Half as many cells along each axis: numbers of cells are halved."""
        return _Grid(self.across[1::2], self.up[1::2], self.size // 2)

    def code(self, x: Cells, y: Cells, sites: Hashes) -> Cells:
        """The numbers of cells, turned about by site: two cells of a site have never the same, those of others may."""
        turned = (sites * _TURN >> np.uint64(32)) & np.uint64(self.size * self.size - 1)
        return (x * self.size + y) ^ turned.astype(np.int32)

    def copies(self, cells: Cells, sites: Hashes) -> tuple[Indices, Cells]:
        """For each cell that each box is in, the number of the box and that of the cell."""
        wide, high = cells[2] - cells[0] + 1, cells[3] - cells[1] + 1
        counts = wide * high
        if (counts == 1).all():
            return np.arange(counts.size), self.code(cells[0], cells[1], sites)
        which = np.repeat(np.arange(counts.size), counts)
        step = np.arange(which.size) - np.repeat(np.cumsum(counts) - counts, counts)
        high = high[which]
        return which, self.code(cells[0][which] + step // high, cells[1][which] + step % high, sites[which])
