"""The config of a join by distance: pairs of vectors that are near each other, ``on=pk.near("embedding", …)``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.checks import is_number
from penstock.core.errors import ConfigError
from penstock.core.routes import KEYED, Anywhere, Cells, Everywhere, Route
from penstock.core.rows import Hashes, Indices, RowType
from penstock.core.within import LEFT, RIGHT
from penstock.kernels.equal import Mask
from penstock.kernels.grid import AXES, Grid
from penstock.kernels.near import Radius, near_pairs
from penstock.kernels.vectors import LEAST, MOST, Points, is_list, is_numeric, lengths_of, usable
from penstock.operators.window_join.matching import Looked, Matching, listed

Metric = Literal["euclidean", "cosine"]
"""The distance of two vectors: the length of their difference, or 1 less the cosine of the angle between them."""

_WIDER = 1e-5
"""Cells are wider than the distance by this part, so that nothing is near to a cell beyond the next."""

_TINIEST, _LARGEST = 1e-140, 1e140

_FEW = (2, 3)
"""Dimensions in which rows are sent to cells."""

_CELLS = 8
"""How many times the distance these cells are wide: few rows are then near to a border."""

_MARGIN = 1e-6
"""By which part of the distance rows are sent farther than that, for what rounding may hide."""

_FARTHEST = 2.0**40
"""Cells farther from the origin are taken for that one."""

_COPIED = 6
"""The part of the room that vectors of one length may take on either side where there are others."""

_AT_ONCE = 1 << 15
"""Numbers of vectors whose cells are found at a time."""


def near(
    left: str | Sequence[str],
    right: str | Sequence[str] | None = None,
    *,
    distance: float,
    metric: Metric = "euclidean",
    cell: float | None = None,
) -> NearVectors:
    """Join rows whose vectors are at most `distance` apart: ``on=pk.near("embedding", distance=0.3)``.

    A vector is a column of lists of numbers, or several columns of numbers, 2 to 1,024 of them; `right` names the
    columns of the other stream if their names differ. A pair matches iff the sum of squared differences, in float64 and
    one dimension after the other, is at most `distance` squared. With `metric` ``"cosine"`` the distance is 1 - cos:
    vectors are divided by their lengths, and half of that sum must be at most `distance`. Vectors of different lengths
    never match, nor does one that is null, has an element that is null or not finite or, for ``"cosine"``, is all
    zeros. `cell` is the width of the grid cells that rows are sorted by.

    >>> import pyarrow as pa
    >>> import penstock as pk
    >>> flow = pk.LocalFlow()
    >>> cars = flow.source(pa.table({"car": [1, 2], "x": [0.0, 9.0], "y": [0.0, 9.0], "t": [1, 2]}), time="t")
    >>> stops = flow.source(pa.table({"stop": [7], "lon": [3.0], "lat": [4.0], "at": [5]}), time="at")
    >>> rows = cars.join(stops, on=pk.near(["x", "y"], ["lon", "lat"], distance=5)).to_memory()
    >>> _ = flow.run()
    >>> rows.table().select(["car", "stop"]).to_pylist()
    [{'car': 1, 'stop': 7}]
    """
    ours = listed(left)
    theirs = ours if right is None else listed(right)
    return NearVectors(ours, theirs, distance, metric, cell)


@dataclass(frozen=True, slots=True)
class NearVectors(Matching):
    """Pairs of vectors that are at most `distance` apart."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    distance: float
    metric: Metric = "euclidean"
    cell: float | None = None

    def __post_init__(self) -> None:
        if self.metric not in get_args(Metric):
            raise ConfigError(f"metric={self.metric!r} is not one of {', '.join(get_args(Metric))}.")
        if not is_number(self.distance) or not self.distance > 0:
            raise ConfigError(
                f"distance={self.distance!r} is not a number above 0. Write how far apart two vectors may be, as in "
                f"distance=0.3; to find equal ones, join on their columns."
            )
        if self.cell is not None and (not is_number(self.cell) or not self.cell > 0):
            raise ConfigError(f"cell={self.cell!r} must be a number above 0. Leave it out for the default.")
        for name, value in (("distance", self.distance), ("cell", self.cell or 1.0)):
            if not _TINIEST < value < _LARGEST:
                raise ConfigError(
                    f"{name}={value!r} cannot be squared in float64. Scale the vectors so that it is between "
                    f"{_TINIEST:g} and {_LARGEST:g}."
                )
        if self.metric == "cosine" and self.distance > 2:
            raise ConfigError(
                f"distance={self.distance!r} is more than any cosine distance, 1 - cos, which is at most 2. "
                f"Write a number up to 2."
            )
        for side in (self.ours, self.theirs):
            if not side or not all(isinstance(name, str) for name in side):
                raise ConfigError(
                    f"near({side!r}) names no vector. Write a column of lists, as in pk.near('embedding', …), or "
                    f"columns of numbers, as in pk.near(['x', 'y'], …)."
                )
        if len(self.ours) != len(self.theirs) and 1 not in (len(self.ours), len(self.theirs)):
            raise ConfigError(
                f"near({list(self.ours)}, {list(self.theirs)}) compares vectors of {len(self.ours)} and "
                f"{len(self.theirs)} numbers. Name the same number of columns on both sides."
            )

    def __str__(self) -> str:
        ours, theirs = (", ".join(side) for side in (self.ours, self.theirs))
        other = "" if ours == theirs else f" = {theirs}"
        return f"near({ours}{other}, distance={self.distance:g}, {self.metric})"

    @property
    def identity(self) -> str:
        """All that it asks for; how wide cells are is a matter of speed, but state is sorted by them."""
        return f"{self}, cell={self.cell}"

    def columns(self, port: int) -> tuple[str, ...]:
        """The columns of either side's vectors."""
        return self.theirs if port == RIGHT else self.ours

    def check(self, left: pa.Schema, right: pa.Schema) -> None:
        """Columns must hold numbers; vectors whose types say how long they are must be as long as the others."""
        sizes = [_dimensions(columns, self.columns(port)) for port, columns in enumerate((left, right))]
        if None not in sizes and sizes[0] != sizes[1]:
            raise ConfigError(
                f"on={self}: the left vectors have {sizes[0]} numbers, the right ones {sizes[1]}, so they cannot be "
                f"compared. Name vectors of the same length."
            )

    @property
    def directed(self) -> bool:
        """Whether only the directions of vectors count."""
        return self.metric == "cosine"

    @property
    def radius(self) -> Radius:
        """What squared distances are compared with; those of directions are twice 1 less the cosine."""
        return Radius(2.0 * self.distance if self.directed else self.distance * self.distance)

    def grid(self, dimensions: int) -> Grid:
        """The cells that rows of so many dimensions are sorted by."""
        length = self.radius.length
        return Grid(tuple(range(min(dimensions, AXES))), length, self.cell or length * (1 + _WIDER))

    def route(self, port: int, keeps: tuple[bool, bool]) -> Route:
        """In few dimensions by cells, one side with copies; else it is everywhere, and the other is spread.

        A side that is kept has no copies. Where both are, all rows go to one site.
        """
        if all(keeps):
            return KEYED
        single = RIGHT if keeps[RIGHT] else LEFT
        if self.dimensions in _FEW and not self.directed:
            return NearCells(self, port, copied=port != single, kept=keeps[port])
        return Anywhere(self.columns(port)) if port == single else Everywhere()

    @property
    def dimensions(self) -> int | None:
        """How many numbers vectors have, if they are named one by one."""
        most = max(len(self.ours), len(self.theirs))
        return most if most > 1 else None

    def points(self, columns: Sequence[pa.Array]) -> Points:
        """Vectors as they are compared."""
        return Points(columns, unit=self.directed)

    def known(self, columns: Sequence[pa.Array]) -> tuple[Mask, Hashes]:
        """Rows whose vectors are somewhere, and the cells they are in."""
        good = usable(columns, directed=self.directed)
        return good, self._codes(columns if good.all() else [column.filter(pa.array(good)) for column in columns])

    def _codes(self, vectors: Sequence[pa.Array]) -> Hashes:
        lengths = lengths_of(vectors)
        codes = np.zeros(lengths.size, np.uint64)
        several = lengths.size > 0 and lengths.min() < lengths.max()
        for length in np.unique(lengths).tolist():
            grid, rows = self.grid(length), np.flatnonzero(lengths == length)
            points = self.points([column.take(pa.array(rows)) for column in vectors] if several else vectors)
            step = max(1, _AT_ONCE // length)
            for start in range(0, rows.size, step):
                codes[rows[start : start + step]] = grid.codes(points.take(slice(start, start + step)))
        return codes

    def pairs(
        self, port: int, mine: Looked, theirs: Looked, cells: Cells | None, budget: Budget
    ) -> Iterator[tuple[Indices, Indices]]:
        """Vectors of one length, compared."""
        lengths, others = lengths_of(mine.columns), lengths_of(theirs.columns)
        if lengths.min() == lengths.max() == others.min() == others.max():
            yield from self._compared(mine, theirs, budget)
            return
        # Those of one length are copied, as many at a time as leave most of the room to compare them.
        room = budget.room // _COPIED
        widths = _size(mine.columns) // lengths.size + 8, _size(theirs.columns) // others.size + 8
        for length in np.intersect1d(lengths, others).tolist():
            of_mine, of_theirs = np.flatnonzero(lengths == length), np.flatnonzero(others == length)
            for some in _blocks(of_mine, room // widths[0]):
                for those in _blocks(of_theirs, room // widths[1]):
                    size = widths[0] * some.size + widths[1] * those.size
                    with budget.hold(size, "vectors of one length"):
                        for i, j in self._compared(_taken(mine, some), _taken(theirs, those), budget):
                            yield some[i], those[j]

    def _compared(self, mine: Looked, theirs: Looked, budget: Budget) -> Iterator[tuple[Indices, Indices]]:
        copied = _copied(mine.columns) + _copied(theirs.columns)
        with budget.hold(copied, "vectors to compare"):
            a, b = self.points(mine.columns), self.points(theirs.columns)
            work = budget.room // 4
            with budget.hold(work + work // 2, "comparing vectors"):
                grid = self.grid(a.dimensions)
                yield from near_pairs((mine.hashes, a), (theirs.hashes, b), grid, self.radius, work)


@dataclass(frozen=True, slots=True)
class NearCells(Cells):
    """Rows go to the cell that they are in; copies of those of one side to all cells within the distance, too.

    So a pair meets once, in the cell of the row that has no copies.
    """

    by: NearVectors
    port: int
    copied: bool
    kept: bool
    """Whether rows whose vectors are nowhere are to come out: they go to any site."""

    def touched(self, types: RowType, rows: pa.RecordBatch) -> tuple[Indices, Hashes]:
        """The sites of these cells, each once for a row."""
        columns = [types.column(rows, name) for name in self.by.columns(self.port)]
        good = usable(columns, directed=False) & (lengths_of(columns) == self.by.dimensions)
        nowhere = np.flatnonzero(~good) if self.kept else np.zeros(0, np.int64)
        which, sites = self._sites(np.flatnonzero(good), columns)
        which, sites = np.concatenate([which, nowhere]), np.concatenate([sites, np.zeros(nowhere.size, np.uint64)])
        order = np.argsort(which, kind="stable")
        return which[order], sites[order]

    def _sites(self, rows: Indices, columns: Sequence[pa.Array]) -> tuple[Indices, Hashes]:
        if not rows.size:
            return rows, np.zeros(0, np.uint64)
        points = self.by.points([column.take(pa.array(rows)) for column in columns]).take(slice(None))
        length = self.by.radius.length
        width = max(_CELLS * length, self.by.cell or 0.0)
        margin = length * (1 + _MARGIN) if self.copied else 0.0
        # Rounding keeps the order of numbers, so that whoever is near lies in a cell from the first to the last.
        edges = (np.clip(edge / width, -_FARTHEST, _FARTHEST) for edge in (points - margin, points + margin))
        first, last = map(np.floor, edges)
        cells, extent = first.astype(np.int64), last - first
        copies = []
        for corner in product((0, 1), repeat=points.shape[1] if self.copied else 0):
            some = np.flatnonzero((extent >= corner).all(axis=1)) if corner else np.arange(rows.size)
            copies.append((rows[some], _site(cells[some] + np.array(corner or 0))))
        which, sites = (np.concatenate(parts) for parts in zip(*copies, strict=True))
        order = np.lexsort((sites, which))
        which, sites = which[order], sites[order]
        again = (which[1:] == which[:-1]) & (sites[1:] == sites[:-1])
        kept = np.concatenate([[True], ~again])  # cells may share a site
        return which[kept], sites[kept]


def _site(cells: Indices) -> Hashes:
    """The number of each cell's site, below 2**32, spread evenly."""
    mixed = np.zeros(len(cells), np.uint64)
    for along in cells.T:
        mixed = (mixed ^ along.astype(np.int64).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return (mixed * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(32)


def _blocks(rows: Indices, most: int) -> Iterator[Indices]:
    """The rows, at most so many at a time, but at least one."""
    step = max(1, most)
    for start in range(0, rows.size, step):
        yield rows[start : start + step]


def _taken(rows: Looked, which: Indices) -> Looked:
    return Looked(rows.hashes[which], [column.take(pa.array(which)) for column in rows.columns])


def _size(columns: Sequence[pa.Array]) -> int:
    return sum(column.nbytes for column in columns)


def _copied(columns: Sequence[pa.Array]) -> int:
    """Bytes that numbers take in float64 which are neither float32 nor float64 where they are."""
    kinds = [column.type.value_type if is_list(column.type) else column.type for column in columns]
    if all(kind in (pa.float32(), pa.float64()) for kind in kinds):
        return 0
    return 8 * int(lengths_of(columns).sum())


def _dimensions(schema: pa.Schema, names: Sequence[str]) -> int | None:
    """How many numbers the vectors in some columns have, if their types tell; an error if they cannot be vectors."""
    for name in names:
        if name not in schema.names:
            raise ConfigError.unknown_column("on", name, schema.names)
    kinds = [schema.field(name).type for name in names]
    if len(kinds) == 1:
        (kind,) = kinds
        if not is_list(kind) or not is_numeric(kind.value_type):
            raise ConfigError(
                f"near({names[0]!r}) is {kind}, not a list of numbers. Write a column of lists, or several columns of "
                f"numbers, as in pk.near(['x', 'y'], …)."
            )
        count = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    else:
        wrong = next((name for name, kind in zip(names, kinds, strict=True) if not is_numeric(kind)), None)
        if wrong is not None:
            raise ConfigError(
                f"near({list(names)}): {wrong!r} is {schema.field(wrong).type}, not a number. Name columns of numbers, "
                f"or one column of lists."
            )
        count = len(kinds)
    if count is not None and not LEAST <= count <= MOST:
        raise ConfigError(f"near({list(names)}) has {count} dimensions. Vectors may have {LEAST} to {MOST:,}.")
    return count
