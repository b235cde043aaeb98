"""The config of a spatial join: boxes or geometries that meet, ``on=pk.intersects("box", "zone")``.

Inner joins with a `cell` send a copy of each row to every site that one of its cells belongs to, and emit a pair at the
site with the top left corner of the intersection of its boxes (spec §2.5). Without one, and if a side's unmatched rows
are kept, that side's rows are spread and the other's are copied to all sites.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.checks import is_number
from penstock.core.errors import ConfigError
from penstock.core.routes import KEYED, SITE_BITS, Anywhere, Cells, Everywhere, Route
from penstock.core.rows import Hashes, Indices, RowType
from penstock.core.within import LEFT, RIGHT
from penstock.kernels import boxes as bx
from penstock.kernels.boxes import Boxes, Placed, Tiles
from penstock.kernels.equal import Mask
from penstock.operators.window_join.matching import Looked, Matching, listed
from penstock.operators.window_join.shapes import Shapes, check_columns

Relation = Literal["intersects", "contains", "dwithin"]

Columns = str | Sequence[str]
"""One column of boxes or geometries, or the columns of the corners of boxes, or of the coordinates of points."""

_SITES = 64
"""Places that cells are dealt out to: a row has no more copies than these, and no more tasks have work."""

_SITED = 10
"""Bytes that the number of a row's site takes while it is looked at."""

_CODE = (1 << SITE_BITS) - 1

_LEAST = 64
"""Rows of either side that are looked at together, at least."""

_TINIEST, _LARGEST = 1e-140, 1e140


def intersects(left: Columns, right: Columns | None = None, *, cell: float | None = None) -> Spatial:
    """Join rows whose boxes or geometries have a point in common: ``on=pk.intersects("box", "zone")``.

    A column holds boxes, as structs of x1, y1, x2, y2 (or xmin, ymin, xmax, ymax), or geometries as WKB, as in
    GeoParquet files; or four columns hold the corners of boxes, or two the coordinates of points. `right` names the
    columns of the other stream if their names differ. Borders belong to boxes and geometries: shapes that touch match.
    Numbers are compared as float64. A box or geometry that is null, empty (x1 > x2), invalid, or has a coordinate that
    is null or not finite matches nothing.

    `cell` is the width of the cells that distribute the rows of an inner join over tasks: many times as wide as most
    boxes is best. Without it, left rows are spread over the tasks, and right rows go to all of them.

    >>> import pyarrow as pa
    >>> import penstock as pk
    >>> flow = pk.LocalFlow()
    >>> cars = flow.source(pa.table({"car": [1, 2], "x": [1.0, 9.0], "y": [1.0, 9.0], "t": [1, 2]}), time="t")
    >>> zones = flow.source(
    ...     pa.table({"zone": ["a"], "box": [{"x1": 0.0, "y1": 0.0, "x2": 1.0, "y2": 5.0}], "at": [5]}), time="at"
    ... )
    >>> rows = cars.join(zones, on=pk.intersects(["x", "y"], "box")).to_memory()
    >>> _ = flow.run()
    >>> rows.table().select(["car", "zone"]).to_pylist()
    [{'car': 1, 'zone': 'a'}]
    """
    return Spatial("intersects", *_sides(left, right), cell=cell)


def contains(left: Columns, right: Columns | None = None, *, cell: float | None = None) -> Spatial:
    """Join rows whose left box or geometry covers the right one; arguments as for `intersects`.

    Points on the border are inside, as with ``ST_Covers``.

    >>> contains("zone", ["x", "y"])
    contains(zone, [x, y])
    """
    return Spatial("contains", *_sides(left, right), cell=cell)


def dwithin(left: Columns, right: Columns | None = None, *, distance: float, cell: float | None = None) -> Spatial:
    """Join rows whose boxes or geometries are at most `distance` apart; other arguments as for `intersects`.

    Distances are planar, in the unit of the coordinates. Two boxes whose distances along the axes are dx and dy, in
    float64, match iff dx·dx + dy·dy is at most `distance` squared; at distance 0, iff both are 0.

    >>> dwithin("box", distance=2.5)
    dwithin(box, distance=2.5)
    """
    return Spatial("dwithin", *_sides(left, right), distance=distance, cell=cell)


@dataclass(frozen=True, slots=True, repr=False)
class Spatial(Matching):
    """Pairs of boxes or geometries."""

    relation: Relation
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    distance: float = 0.0
    cell: float | None = None

    def __post_init__(self) -> None:
        if not is_number(self.distance) or not (self.distance == 0 or _TINIEST < self.distance < _LARGEST):
            raise ConfigError(
                f"distance={self.distance!r} must be 0, or a number between {_TINIEST:g} and {_LARGEST:g}, in the unit "
                f"of the coordinates."
            )
        if self.cell is not None and (not is_number(self.cell) or not _TINIEST < self.cell < _LARGEST):
            raise ConfigError(
                f"cell={self.cell!r} must be a number between {_TINIEST:g} and {_LARGEST:g}, many times the width of "
                f"most boxes. Leave it out for the default."
            )
        for side in (self.ours, self.theirs):
            if len(side) not in (1, 2, 4) or not all(isinstance(name, str) for name in side):
                raise ConfigError(
                    f"{self.relation}({list(side)!r}) names no boxes. Write one column of boxes or geometries, as in "
                    f"pk.{self.relation}('box', …), four columns, as in ['x1', 'y1', 'x2', 'y2'], or two for points, "
                    f"as in ['x', 'y']."
                )

    def __str__(self) -> str:
        ours, theirs = (side[0] if len(side) == 1 else f"[{', '.join(side)}]" for side in (self.ours, self.theirs))
        columns = ours if ours == theirs else f"{ours}, {theirs}"
        return f"{self.relation}({columns}{f', distance={self.distance:g}' if self.relation == 'dwithin' else ''})"

    __repr__ = __str__

    @property
    def identity(self) -> str:
        """All that it asks for, and the cells: rows are kept by them."""
        return f"{self}, distance={self.distance!r}, cell={self.cell!r}"

    def columns(self, port: int) -> tuple[str, ...]:
        """The columns of either side's boxes."""
        return self.theirs if port == RIGHT else self.ours

    def check(self, left: pa.Schema, right: pa.Schema) -> None:
        """Columns must be boxes, geometries or numbers."""
        for schema, names in ((left, self.ours), (right, self.theirs)):
            check_columns(self.relation, schema, names)

    def route(self, port: int, keeps: tuple[bool, bool]) -> Route:
        """By cells, if there are some; else one side is spread, one that is kept, and the other is everywhere."""
        if all(keeps):
            return KEYED
        if any(keeps) or self.cell is None:
            spread = RIGHT if keeps[RIGHT] else LEFT
            return Anywhere(self.columns(port)) if port == spread else Everywhere()
        return SpatialCells(self, port)

    @property
    def tiles(self) -> Tiles:
        """The cells, and the sites that they belong to."""
        return Tiles(self.cell or 1.0, _SITES)

    def reaching(self, port: int, boxes: Boxes) -> Boxes:
        """Boxes that meet those of the other side if they match: the left ones are larger by the distance."""
        return bx.grown(boxes, self.distance) if port == LEFT else boxes

    def crosses(self, cells: Cells | None) -> bool:
        """Copies in cells meet others of their site, and all of these have one hash."""
        return cells is None

    def known(self, columns: Sequence[pa.Array]) -> tuple[Mask, Hashes]:
        """Rows whose boxes are somewhere, and about where."""
        shapes = Shapes(columns)
        boxes = shapes.boxes()
        good = shapes.usable(boxes)
        return good, bx.sort_codes(boxes if good.all() else bx.taken(boxes, good), self.cell)

    def pairs(
        self, port: int, mine: Looked, theirs: Looked, cells: Cells | None, budget: Budget
    ) -> Iterator[tuple[Indices, Indices]]:
        """Boxes that meet, then what they are the boxes of; as many rows at a time as there is room for."""
        each = max(Shapes(side.columns).copied for side in (mine, theirs)) + (64 if self.distance else 0) + _SITED
        # As many as are compared at a time, so that few are looked at with others of other sites.
        rows = max(_LEAST, min(budget.room // 8 // each, bx.at_once(_work(budget))))
        for ours, others in _groups(mine.hashes, theirs.hashes, rows):
            some, those = mine.slice(*ours), theirs.slice(*others)
            with budget.hold(each * (some.hashes.size + those.hashes.size), "boxes to compare"):
                for i, j in self._met(port, some, those, cells, budget):
                    yield i + ours[0], j + others[0]

    def _met(
        self, port: int, mine: Looked, theirs: Looked, cells: Cells | None, budget: Budget
    ) -> Iterator[tuple[Indices, Indices]]:
        left, right = (mine, theirs) if port == LEFT else (theirs, mine)
        compare = _Comparison.of(self, Shapes(left.columns), Shapes(right.columns))
        reach, boxes = self.reaching(LEFT, compare.left_boxes), compare.right_boxes
        ours, others = (side.hashes >> np.uint64(SITE_BITS) for side in (left, right))
        work = _work(budget)
        with budget.hold(work, "comparing boxes"):
            for i, j in bx.meeting(Placed(reach, ours), Placed(boxes, others), work - work // 4):
                if cells is not None:
                    owned = _as_sites(self.tiles.owner(reach, i, boxes, j)) == ours[i]
                    i, j = i[owned], j[owned]
                for some, those in compare.matching(i, j, work // 4):
                    yield (some, those) if port == LEFT else (those, some)


@dataclass(frozen=True, slots=True)
class SpatialCells(Cells):
    """The sites of the cells that a row's box touches, of one side."""

    by: Spatial
    port: int

    def touched(self, types: RowType, rows: pa.RecordBatch) -> tuple[Indices, Hashes]:
        """Rows that are nowhere have no copy: nobody would meet them."""
        shapes = Shapes([types.column(rows, name) for name in self.by.columns(self.port)])
        boxes = shapes.boxes()
        good = np.flatnonzero(shapes.usable(boxes))
        which, sites = self.by.tiles.touched(self.by.reaching(self.port, bx.taken(boxes, good)))
        return good[which], _as_sites(sites)


@dataclass(frozen=True, slots=True, eq=False)
class _Comparison:
    """Candidates, whose boxes meet, compared as asked."""

    by: Spatial
    left: Shapes
    left_boxes: Boxes
    right: Shapes
    right_boxes: Boxes

    @classmethod
    def of(cls, by: Spatial, left: Shapes, right: Shapes) -> _Comparison:
        """Of the rows of two batches."""
        return cls(by, left, left.usable_boxes(), right, right.usable_boxes())

    def matching(self, i: Indices, j: Indices, room: int) -> Iterator[tuple[Indices, Indices]]:
        """The pairs that match."""
        if not (self.left.geometries or self.right.geometries):
            match = self._boxes(i, j)
            yield (i, j) if match.all() else (i[match], j[match])
            return
        each = self.left.width + self.right.width
        limit = max(1, room // each)
        for start in range(0, i.size, limit):
            some, those = i[start : start + limit], j[start : start + limit]
            match = self.left.compared(self.by.relation, some, self.right, those, self.by.distance)
            yield some[match], those[match]

    def _boxes(self, i: Indices, j: Indices) -> Mask:
        if self.by.relation == "contains":
            return bx.cover(self.left_boxes, i, self.right_boxes, j)
        if self.by.relation == "dwithin":
            return bx.within(self.left_boxes, i, self.right_boxes, j, self.by.distance)
        return np.ones(i.size, np.bool_)


def _work(budget: Budget) -> int:
    """Bytes for comparing, of those there are."""
    return budget.room * 3 // 4


def _groups(ours: Hashes, theirs: Hashes, rows: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Rows of the same sites on both sides: where those of some sites begin, and how many they are, up to about `rows`.

    Both are ascending. Nothing is copied.
    """
    site = 0
    while True:
        starts = [int(side.searchsorted(np.uint64(site << SITE_BITS))) for side in (ours, theirs)]
        if starts[0] == ours.size or starts[1] == theirs.size:
            return
        # From the first site that both may have until before the one in which either gets too many rows.
        site = max(int(side[at]) for side, at in zip((ours, theirs), starts, strict=True)) >> SITE_BITS
        starts = [int(side.searchsorted(np.uint64(site << SITE_BITS))) for side in (ours, theirs)]
        full = [int(side[at + rows]) for side, at in zip((ours, theirs), starts, strict=True) if at + rows < side.size]
        last = max(site, (min(full) >> SITE_BITS) - 1) if full else (1 << SITE_BITS) - 1
        ends = [int(side.searchsorted(np.uint64((last << SITE_BITS) | _CODE), "right")) for side in (ours, theirs)]
        counts = [end - at for at, end in zip(starts, ends, strict=True)]
        for first in range(0, counts[0], rows):
            for other in range(0, counts[1], rows):
                mine, others = min(rows, counts[0] - first), min(rows, counts[1] - other)
                yield (starts[0] + first, mine), (starts[1] + other, others)
        if last == _CODE:
            return
        site = last + 1


def _as_sites(numbers: Hashes) -> Hashes:
    """Numbers of sites, below 64, spread over 32 bits."""
    return numbers * np.uint64((1 << SITE_BITS) // _SITES)


def _sides(left: Columns, right: Columns | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    ours = listed(left)
    return ours, ours if right is None else listed(right)
