"""Pairs of vectors that are near each other, exactly: found by blocks of matrix products, verified by the definition.

A product in float32 says of nearly all pairs whether they are near enough, whatever its rounding errors were; those
for which it cannot tell are compared in float64 as the definition says (`vectors.squared_distances`). Of vectors with
many dimensions those are multiplied first in which they differ most, if that leaves few pairs to compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.rows import Hashes, Indices
from penstock.kernels.equal import Mask
from penstock.kernels.grid import BITS, Grid, near_blocks
from penstock.kernels.match import gathered
from penstock.kernels.route import shared_sites
from penstock.kernels.vectors import Matrix, Points, squared_distances

_BLOCK = 1 << 19
"""Pairs in one product at most: more would not stay in the cache until they are looked through."""

_LEAST, _LEAST_NUMBERS = 1 << 13, 1 << 14
"""Pairs in one product and numbers of either side that are never cut further, however little room there is."""

_WORTH = 1 << 19
"""Pairs in many dimensions that are multiplied sooner than the cells that they are in are halved."""

_PAIR = 16
"""Bytes that a pair takes in a block: its product, whether it may be near, and what is needed for those that may."""

_LIKELY = 8
"""Of a block's pairs, one in so many are looked at together that may be near: where they are, and how sure that is."""

_CONVERTED, _LEAST_CONVERTED = 1 << 16, 1 << 11
"""Numbers that are brought to float32 at a time, and about as many in float64 are compared at a time; and the fewest,
where there is little room."""

_NUMBER = 40
"""Bytes that such a number takes meanwhile: what was read, what that is compared with, and what comes of it."""

_GATHERED = 1 << 12
"""Pairs that are given at a time, at least, but for the last."""

_FEW_NUMBERS = 1 << 13
"""So many numbers at most are compared at once, without looking for what is near: what that takes is fixed."""

_ROUNDING = 1e-6
"""By which part of it the limit is moved for what does not grow with the vectors: underflow, and the definition's own
rounding."""

_LARGEST = 2.0**40
"""Squared lengths, in squares of the radius, up to which float32 is used."""

_SAMPLE = 128
"""Vectors of either side that say which dimensions are multiplied first, and whether that is enough."""

_MANY = 32
"""Dimensions beyond which some may be multiplied before the others, and vectors are looked at once for all blocks."""

_PRECISE = 2.0**10
"""Squared lengths, in squares of the radius, up to which one middle for all blocks is precise enough."""

_ROW = 64
"""Bytes that a row takes besides its factor: its square, where it is, and what is compared of it."""

_FEW = 1e-3
"""The part of the pairs that may be left after the first dimensions."""

_BALLS = 256
"""Balls that vectors are put into, at most: those too far from a ball meet nobody in it. They must be worth it:"""

_IN_BALL, _TO_BALL = 16, 8
"""so many of theirs for each ball, and so many of ours."""

_PER_BALL = 1 << 21
"""and so many products of numbers: a ball costs as much as they do."""

_ROUNDS = 4
"""Vectors far from all centres get new ones, so many times."""

_CODE = np.uint64((1 << BITS) - 1)

Floats = npt.NDArray[np.float32] | npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Radius:
    """Pairs are near each other if their squared distance is at most `limit`."""

    limit: float

    @property
    def length(self) -> float:
        """The distance itself."""
        return float(np.sqrt(self.limit))


def near_pairs(
    ours: tuple[Hashes, Points], theirs: tuple[Hashes, Points], grid: Grid, radius: Radius, room: int
) -> Iterator[tuple[Indices, Indices]]:
    """All pairs of rows of one site that are near each other, once each; takes `room` bytes, and half of it again.

    Rows are sorted by their hashes. The first 32 bits of a hash are a site, the others the code of a cell.

    >>> import pyarrow as pa
    >>> grid, radius = Grid((0, 1), 1.0, 1.0), Radius(1.0)
    >>> mine, others = (Points([pa.array(some)], unit=False) for some in ([[0.0, 0.0]], [[1.0, 0.0], [1.0, 1.0]]))
    >>> codes = [grid.codes(points.take(slice(None))) for points in (mine, others)]
    >>> [(i.tolist(), j.tolist()) for i, j in near_pairs((codes[0], mine), (codes[1], others), grid, radius, 10**6)]
    [([0], [0])]
    """
    if ours[0].size * theirs[0].size * ours[1].dimensions <= _FEW_NUMBERS:
        yield from _compared(ours, theirs, radius)
        return
    yield from gathered(_in_blocks(ours, theirs, grid, radius, room), _GATHERED)


def _in_blocks(
    ours: tuple[Hashes, Points], theirs: tuple[Hashes, Points], grid: Grid, radius: Radius, room: int
) -> Iterator[tuple[Indices, Indices]]:
    for first, other in shared_sites(ours[0], theirs[0]):
        i, j = np.arange(first.start, first.stop), np.arange(other.start, other.stop)
        scale = _Scale.of(ours[1], i, theirs[1], j, radius, room) if ours[1].dimensions > _MANY else None
        if scale is not None and scale.precise:
            yield from _in_one_scale(ours, i, theirs, j, grid, radius, scale, room)
            continue
        for some, those in near_blocks(grid, ours[0][first] & _CODE, theirs[0][other] & _CODE, Sizes.pairs_in(room)):
            yield from _all_pairs(ours[1], i[some], theirs[1], j[those], radius, room)


def _in_one_scale(
    ours: tuple[Hashes, Points],
    i: Indices,
    theirs: tuple[Hashes, Points],
    j: Indices,
    grid: Grid,
    radius: Radius,
    scale: _Scale,
    room: int,
) -> Iterator[tuple[Indices, Indices]]:
    """As blocks are many times smaller than a page, what they have in common is made once."""
    sizes = Sizes.of(scale, room)
    for others in _cut(j, sizes.rows):
        right = _Taken(theirs[1], others, _Factor.right(scale, theirs[1], others))
        balls: tuple[list[_Balls], Indices] | None = None
        for mine in _cut(i, sizes.rows):
            left = _Taken(ours[1], mine, _Factor.left(scale, ours[1], mine))
            compare = _Comparison(radius, scale, sizes, left, right)
            codes = ours[0][mine] & _CODE, theirs[0][others] & _CODE
            for some, those in near_blocks(grid, *codes, max(sizes.pairs, _WORTH)):
                if those.size < others.size:
                    yield from compare.near(some, _balls(scale, right.factor, those, some.size))
                    continue
                if balls is None:
                    balls = _balls(scale, right.factor, those, some.size)
                yield from compare.near(some, balls)


def _compared(
    ours: tuple[Hashes, Points], theirs: tuple[Hashes, Points], radius: Radius
) -> Iterator[tuple[Indices, Indices]]:
    """The pairs of few rows, each compared as the definition says."""
    places = [hashes >> np.uint64(BITS) for hashes, _ in (ours, theirs)]
    i, j = np.nonzero(places[0][:, None] == places[1])
    near = squared_distances(ours[1].take(i), theirs[1].take(j)) <= radius.limit
    if near.any():
        yield i[near], j[near]


class Sizes(NamedTuple):
    """How many pairs fit one product, and how many rows may be taken at a time."""

    pairs: int
    rows: int

    @classmethod
    def of(cls, scale: _Scale, room: int) -> Sizes:
        """What fits `room`: half of it for pairs, a quarter for the rows of either side."""
        numbers = scale.order.size + 2
        each = np.dtype(scale.kind).itemsize * numbers + _ROW
        rows = room / 4 / (each + _BALLS)
        if rows < _BALLS * _IN_BALL:  # they have fewer balls
            rows = min(_BALLS * _IN_BALL, room / 4 / (each + max(1, room / 4 / each / _IN_BALL)))
        return cls(cls.pairs_in(room), int(max(1, _LEAST_NUMBERS // numbers, min(1 << 14, rows))))

    @staticmethod
    def pairs_in(room: int) -> int:
        """How many pairs fit one product."""
        return int(max(_LEAST, min(_BLOCK, room / 2 / _PAIR)))


def _cut(rows: Indices, most: int) -> Iterator[Indices]:
    if rows.size <= most:
        yield rows
        return
    for start in range(0, rows.size, most):
        yield rows[start : start + most]


def _all_pairs(
    ours: Points, i: Indices, theirs: Points, j: Indices, radius: Radius, room: int
) -> Iterator[tuple[Indices, Indices]]:
    """The pairs of some rows with some others."""
    scale = _Scale.of(ours, i, theirs, j, radius, room)
    sizes = Sizes.of(scale, room)
    for others in _cut(j, sizes.rows):
        right = _Taken(theirs, others, _Factor.right(scale, theirs, others))
        balls = _balls(scale, right.factor, np.arange(others.size), min(i.size, sizes.rows))
        for mine in _cut(i, sizes.rows):
            left = _Taken(ours, mine, _Factor.left(scale, ours, mine))
            yield from _Comparison(radius, scale, sizes, left, right).near(np.arange(mine.size), balls)


class _Taken(NamedTuple):
    """Some of the rows of a side, and their vectors as a factor."""

    points: Points
    rows: Indices
    factor: _Factor


@dataclass(frozen=True, slots=True, eq=False)
class _Comparison:
    """Rows of both sides, brought to one scale."""

    radius: Radius
    scale: _Scale
    sizes: Sizes
    ours: _Taken
    theirs: _Taken

    def near(self, mine: Indices, balls: tuple[list[_Balls], Indices]) -> Iterator[tuple[Indices, Indices]]:
        """The pairs of some of ours, by their places among those taken, with those of theirs in `balls`."""
        left, right, pairs = self.ours.factor, self.theirs.factor, self.sizes.pairs
        for some, those in _groups(self.scale, left, mine, right, balls):
            across = max(1, min(those.size, pairs // min(some.size, 512)))
            down = max(1, min(some.size, pairs // across))
            for a in _cut(some, down):
                for b in _cut(those, across):
                    for found in self.scale.candidates(left, a, right, b, max(1, pairs // _LIKELY)):
                        yield from self._verified(*found)

    def _verified(self, a: Indices, b: Indices, sure: Mask) -> Iterator[tuple[Indices, Indices]]:
        """Candidates that the definition calls near."""
        i, j = self.ours.rows[a], self.theirs.rows[b]
        ours, theirs = self.ours.points, self.theirs.points
        unsure = np.flatnonzero(~sure)
        for some in _cut(unsure, self.scale.at_once) if unsure.size else ():
            sure[some] = squared_distances(ours.take(i[some]), theirs.take(j[some])) <= self.radius.limit
        if sure.any():
            yield (i, j) if sure.all() else (i[sure], j[sure])


@dataclass(frozen=True, slots=True, eq=False)
class _Scale:
    """How vectors are brought to where a product of them is precise: from their middle, in units of about the radius.

    The product of a left row with a right one is the squared distance of their vectors, less what rounding may have
    made it too large by: |a|² + |b|² - 2ab, with both squares made smaller by the relative error of the whole.
    """

    middle: Matrix
    unit: float
    """By what they are multiplied: a power of two, so that nothing is rounded."""
    kind: type[np.floating]
    order: Indices
    """The dimensions that are multiplied."""
    limit: float
    whole: bool
    """Whether these are all: then a product can tell that a pair is near."""
    blind: bool
    """Whether products would say nothing: squares are no numbers."""
    precise: bool
    """Whether vectors lie near enough to each other for products to tell which are near."""
    at_once: int
    """Vectors that are read at a time."""

    @classmethod
    def of(cls, ours: Points, i: Indices, theirs: Points, j: Indices, radius: Radius, room: int) -> _Scale:
        """By a sample of both. What is read at a time takes half of `room` besides."""
        dimensions = ours.dimensions
        at_once = max(1, max(_LEAST_CONVERTED, min(_CONVERTED, room // 2 // _NUMBER)) // dimensions)
        sample = min(_SAMPLE, at_once)
        a, b = (points.take(rows[:: -(-rows.size // sample)]) for points, rows in ((ours, i), (theirs, j)))
        unit = float(np.ldexp(1.0, -int(np.frexp(radius.length)[1])))
        with np.errstate(over="ignore", invalid="ignore"):
            middle = b.mean(axis=0)
            largest = max(
                float(_squares((points.take(some) - middle) * unit).max())
                for points, rows in ((ours, i), (theirs, j))
                for some in _cut(rows, at_once)
            )
            kind = np.float32 if largest < _LARGEST else np.float64
            limit = radius.limit * unit * unit * (1 + _ROUNDING)
            order = np.arange(dimensions)
            if largest < _LARGEST and dimensions > _MANY:
                order = _first_dimensions((a - middle) * unit, (b - middle) * unit, limit)
        whole, blind = order.size == dimensions, not largest < 1e300
        return cls(middle, unit, kind, order, limit, whole, blind, largest < _PRECISE, at_once)

    @property
    def error(self) -> float:
        """Relative to the sum of two squares, what a product may be wrong by."""
        return 3 * (self.order.size + 18) * float(np.finfo(self.kind).eps)

    def candidates(
        self, left: _Factor, a: Indices, right: _Factor, b: Indices, most: int
    ) -> Iterator[tuple[Indices, Indices, Mask]]:
        """The pairs of some rows that may be near, at `most` so many at a time, and which of them certainly are."""
        if self.blind:
            for some in _cut(np.arange(a.size * b.size), most):
                yield a[some // b.size], b[some % b.size], np.zeros(some.size, np.bool_)
            return
        products = left.rows[a] @ right.rows[b].T
        for found in _cut(np.flatnonzero(products <= self.limit), most):
            row, column = np.divmod(found, b.size)
            i, j = a[row], b[column]
            if self.whole:
                spread = 2 * self.error * (left.squares[i] + right.squares[j])
                yield i, j, products.ravel()[found] + spread <= self.limit * (1 - 4 * _ROUNDING)
            else:
                yield i, j, np.zeros(i.size, np.bool_)


class _Factor(NamedTuple):
    """Vectors as one factor of a product, and their squares."""

    rows: Floats
    squares: npt.NDArray[np.float64]

    @classmethod
    def left(cls, scale: _Scale, points: Points, which: Indices) -> _Factor:
        """-2a, |a|², 1."""
        made = cls._of(scale, points, which, -2)
        made.rows[:, -2], made.rows[:, -1] = made.squares * (1 - scale.error), 1
        return made

    @classmethod
    def right(cls, scale: _Scale, points: Points, which: Indices) -> _Factor:
        """b, 1, |b|²."""
        made = cls._of(scale, points, which, 1)
        made.rows[:, -2], made.rows[:, -1] = 1, made.squares * (1 - scale.error)
        return made

    @classmethod
    def _of(cls, scale: _Scale, points: Points, which: Indices, times: int) -> _Factor:
        rows = np.empty((which.size, scale.order.size + 2), scale.kind)
        squares = np.empty(which.size)
        step = scale.at_once
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, which.size, step):
                part = slice(start, start + step)
                scaled = (points.take(which[part]) - scale.middle) * scale.unit
                scaled = scaled if scale.whole else scaled[:, scale.order]
                squares[part] = _squares(scaled)
                rows[part, :-2] = times * scaled
        return cls(rows, squares)

    def as_left(self, scale: _Scale, which: Indices) -> Floats:
        """Rows of a right factor as those of a left one."""
        rows = self.rows[which]
        rows[:, :-2] *= -2
        rows[:, -2:] = rows[:, [-1, -2]]
        return rows


def _squares(vectors: Matrix) -> npt.NDArray[np.float64]:
    return np.einsum("ij,ij->i", vectors, vectors)  # type: ignore[no-any-return]


def _first_dimensions(a: Matrix, b: Matrix, limit: float) -> Indices:
    """Those in which vectors differ most, as many as leave few pairs of a sample; all, if that takes most of them."""
    order = np.argsort(-np.concatenate([a, b]).var(axis=0), kind="stable")
    count = 16
    while 2 * count <= order.size:
        first = order[:count]
        left, right = a[:, first], b[:, first]
        apart = _squares(left)[:, None] + _squares(right) - 2 * left @ right.T
        if np.count_nonzero(apart <= limit) <= _FEW * apart.size:
            return np.sort(first)
        count *= 2
    return np.arange(order.size)


class _Balls(NamedTuple):
    """Some of their rows in balls around some of them: their centres, how wide they are, and who is in which."""

    centres: Indices
    extents: npt.NDArray[np.float64]
    rows: Indices
    starts: Indices
    """Where the rows of each ball begin among `rows`."""

    @classmethod
    def of(cls, scale: _Scale, right: _Factor, rest: Indices, count: int) -> tuple[_Balls, Indices]:
        """Balls for some rows, and those that lie far from all centres."""
        centres = rest[:: -(-rest.size // count)]
        ball, distances = _nearest(scale, right, rest, centres)
        outside = distances > 1.5 * np.median(distances)
        extents = np.zeros(centres.size)
        np.maximum.at(extents, ball[~outside], distances[~outside])
        order = np.argsort(ball[~outside], kind="stable")
        starts = np.searchsorted(ball[~outside][order], np.arange(centres.size + 1))
        return cls(centres, extents, rest[~outside][order], starts), rest[outside]


def _balls(scale: _Scale, right: _Factor, rest: Indices, lefts: int) -> tuple[list[_Balls], Indices]:
    """Some of their rows in balls, for so many of ours, and those in none. Those far from all centres get others."""
    rounds: list[_Balls] = []
    for _ in range(_ROUNDS):
        worth = lefts * rest.size * right.rows.shape[1] // _PER_BALL
        count = min(_BALLS, rest.size // _IN_BALL, lefts // _TO_BALL, worth)
        if count < 4 or scale.blind or right.rows.shape[1] < _IN_BALL:
            break
        balls, rest = _Balls.of(scale, right, rest, count)
        rounds.append(balls)
    return rounds, rest


def _groups(
    scale: _Scale, left: _Factor, mine: Indices, right: _Factor, balls: tuple[list[_Balls], Indices]
) -> Iterator[tuple[Indices, Indices]]:
    """Ours that may be near to some of theirs, and these, such that each pair that may be near is in one of them.

    Ours that are farther from its centre than a ball is wide meet nobody in it.
    """
    rounds, rest = balls
    for some in rounds:
        near = _near_balls(scale, left, mine, right, some.centres, some.extents)
        if np.count_nonzero(near) > 0.8 * near.size:
            rest = np.concatenate([some.rows, rest])
        else:
            yield from _members(near, mine, some)
    if rest.size:
        yield mine, rest


def _members(near: Mask, mine: Indices, balls: _Balls) -> Iterator[tuple[Indices, Indices]]:
    ends = balls.starts[1:].tolist()
    counts = near.sum(axis=0)
    for number in np.flatnonzero((counts > 0) & (np.diff(balls.starts) > 0)).tolist():
        yield mine[near[:, number]], balls.rows[balls.starts[number] : ends[number]]


def _nearest(scale: _Scale, right: _Factor, rows: Indices, centres: Indices) -> tuple[Indices, npt.NDArray[np.float64]]:
    """The nearest centre of each of some rows, and how far away it may be at most."""
    ball, distances = np.empty(rows.size, np.int64), np.empty(rows.size)
    columns = right.rows[centres].T
    for start in range(0, rows.size, 512):
        some = rows[start : start + 512]
        squared = right.as_left(scale, some) @ columns
        nearest = squared.argmin(axis=1)
        spread = 2 * scale.error * (right.squares[some] + right.squares[centres[nearest]])
        part = slice(start, start + some.size)
        ball[part] = nearest
        distances[part] = np.sqrt(np.maximum(0, squared[np.arange(some.size), nearest] + spread))
    return ball, distances


def _near_balls(
    scale: _Scale, left: _Factor, mine: Indices, right: _Factor, centres: Indices, extents: npt.NDArray[np.float64]
) -> Mask:
    """Which of our rows may be near to someone in which ball."""
    near = np.empty((mine.size, centres.size), np.bool_)
    columns = right.rows[centres].T
    reach = (extents + np.sqrt(scale.limit)) * (1 + _ROUNDING)
    for start in range(0, len(near), 512):
        part = slice(start, start + 512)
        near[part] = np.sqrt(np.maximum(0, left.rows[mine[part]] @ columns)) <= reach
    return near
