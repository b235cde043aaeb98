"""Joins by predicates at random: relation × spelling of either side × how × window × method × memory × epochs.

What they give is defined pair by pair, over a few boxes, geometries or vectors that each side's rows have.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import shapely

import penstock as pk
from penstock.core.within import Always, Tumbling, Within
from penstock.operators.window_join.matching import Matching
from tests.draws.joins import STEP, Clock, JoinCase, JoinRun, Row, draw_clock, draw_join, draw_progressive, late
from tests.draws.joins import as_source as times_of
from tests.oracle.near import are_near
from tests.oracle.spatial import apart_at_most, contain, intersect

HOWS = ["inner", "inner", "inner", "left", "right", "full", "semi", "anti"]

NAN, INF = float("nan"), float("inf")

BROKEN = [b"", b"\x01\x02", b"\x01\x01\x00\x00\x00\x00", shapely.to_wkb(shapely.Point())]
"""Bytes that are no geometry, and one that is empty."""


@dataclass(frozen=True)
class Written:
    """The values that rows of a side have, as the definition sees them, and in columns."""

    values: Sequence[Any]
    columns: pa.Table

    @property
    def names(self) -> str | list[str]:
        """What a predicate is told."""
        names: list[str] = self.columns.column_names
        return names if len(names) > 1 else names[0]


Matches = Callable[[Any, Any], bool]


@dataclass(frozen=True)
class PredicateRun:
    """A join by a predicate, the values of each side, and what is drawn as for joins by keys."""

    on: Matching
    sides: tuple[Written, Written]
    matches: Matches
    run: JoinRun
    spare: float | None
    """Seconds that a silent epoch has for what was put off."""

    def as_source(self, rows: Sequence[Row], side: int) -> pa.Table:
        """Rows as a source of this case has them; `k` numbers their value."""
        columns = times_of(rows, replace(self.run.case, keys=()), side)
        for name, column in zip(self.sides[side].columns.column_names, self.sides[side].columns.columns, strict=True):
            columns = columns.append_column(
                name, column.combine_chunks().take(pa.array([r["k"] for r in rows], pa.int64()))
            )
        return columns

    @cached_property
    def late(self) -> tuple[set[int], set[int]]:
        """The ids of rows that come too late, or have no time."""
        return late(self.run.case, 0), late(self.run.case, 1)

    @cached_property
    def in_time(self) -> tuple[list[Row], list[Row]]:
        """The rows of either side that are not late."""
        left, right = ([row for row in self.run.case.rows(n) if row["id"] not in self.late[n]] for n in (0, 1))
        return left, right

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """The ids of all pairs that match, by the definition."""
        known = [[self.matches(a, b) for b in self.sides[1].values] for a in self.sides[0].values]
        near = together(self.run.case.within, STEP[self.run.case.clock][0])
        ours, theirs = self.in_time
        return [(a["id"], b["id"]) for a in ours for b in theirs if known[a["k"]][b["k"]] and near(a["t"], b["t"])]

    @cached_property
    def expected(self) -> Counter[tuple[int | None, int | None]]:
        """The ids of rows as they come out, together or alone."""
        case, pairs, (ours, theirs) = self.run.case, self.pairs, self.in_time
        left, right = {i for i, _ in pairs}, {j for _, j in pairs}
        wanted: Counter[tuple[int | None, int | None]] = Counter()
        if case.how in ("inner", "left", "right", "full"):
            wanted.update(pairs)
        if case.how in ("left", "full", "anti"):
            wanted.update((row["id"], None) for row in ours if row["id"] not in left)
        if case.how in ("right", "full"):
            wanted.update((None, row["id"]) for row in theirs if row["id"] not in right)
        if case.how == "semi":
            wanted.update((i, None) for i in left)
        return wanted

    def difference(self, found: Counter[tuple[int | None, int | None]], found_late: Counter[int] | int) -> str:
        """What came out too much and too little; nothing if all is right. `found_late`: ids, or how many."""
        said, too_late = [], self.late[0] | self.late[1]
        if isinstance(found_late, int) and found_late != len(too_late):
            said.append(f"{found_late} late rows instead of {sorted(too_late)}")
        elif isinstance(found_late, Counter) and found_late != Counter(too_late):
            said.append(f"late: {sorted(found_late.elements())} instead of {sorted(too_late)}")
        if found != self.expected:
            said.append(f"missing {dict(self.expected - found)}, too many {dict(found - self.expected)}")
        return "; ".join(said)


def together(within: Within, step: int) -> Callable[[int, int], bool]:
    """Whether two times, in steps of a clock, may meet."""
    if isinstance(within, Always):
        return lambda left, right: True
    if isinstance(within, Tumbling):
        size, origin = within.size.amount // step, within.origin.amount // step
        return lambda left, right: (left - origin) // size == (right - origin) // size
    first, last = -within.before.amount // step, within.after.amount // step
    opens, closes = within.ends

    def near(left: int, right: int) -> bool:
        apart = right - left
        above = apart > first if opens == "(" else apart >= first
        return above and (apart < last if closes == ")" else apart <= last)

    return near


def draw_run(seed: str) -> PredicateRun:
    """The run of a seed: equal seeds give equal runs."""
    rng = random.Random(seed)
    epochs = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 3)))
    shards = tuple(rng.randint(1, 5) for _ in epochs)
    return _draw(rng, draw_clock(rng), epochs, shards, rng.choice([400_000, 1_000_000, 32_000_000]))


def draw_runs(seed: str, count: int) -> list[PredicateRun]:
    """So many joins that one flow can run: all have the same clock, epochs, shards and memory."""
    rng = random.Random(seed)
    clock, epochs = draw_clock(rng), rng.choice([(2,), (1, 1), (2, 1), (1, 2)])
    shards, memory = tuple(rng.choice([1, 2, 2, 3]) for _ in epochs), rng.choice([1_000_000, 32_000_000])
    return [_draw(random.Random(f"{seed}/{n}"), clock, epochs, shards, memory) for n in range(count)]


def _draw(
    rng: random.Random, clock: Clock, epochs: tuple[int, ...], shards: tuple[int, ...], memory: int
) -> PredicateRun:
    case = _repeated(draw_join(rng, sum(epochs), len(epochs), clock), rng.choice([1, 1, 3, 8]))
    within = Always() if rng.random() < 0.6 else case.within
    always = isinstance(within, Always)
    methods = tuple(_method(rng, always) for _ in epochs)
    on, sides, matches = rng.choice([_boxes, _boxes, _geometries, _vectors, _vectors])(rng)
    frequent = rng.random() / 2
    for number, side in enumerate(sides):
        for row in case.rows(number):
            row["k"] = 0 if rng.random() < frequent else rng.randrange(len(side.values))
    how = rng.choice(HOWS)
    case = replace(case, how=how, within=within, methods=methods, keys=())
    return PredicateRun(on, sides, matches, JoinRun(case, epochs, shards, memory), rng.choice([None, None, 0.0, 0.001]))


def _repeated(case: JoinCase, times: int) -> JoinCase:
    """Each row so many times, under other ids."""
    epochs = tuple(
        tuple([{**row, "id": row["id"] + 100_000 * n} for row in rows for n in range(times)] for rows in epoch)
        for epoch in case.epochs
    )
    return replace(case, epochs=epochs)


def _method(rng: random.Random, always: bool) -> Any:
    if not always:
        return rng.choice(["auto", "oa"])
    return rng.choice(["oa", "rrpj", "xjoin", "nerpj", *[draw_progressive(rng) for _ in range(6)]])


# Boxes


def _corner(rng: random.Random) -> float:
    return rng.choice([rng.randint(-16, 16), rng.randint(-4, 4), rng.randint(-4, 4)]) / 4


def _box(rng: random.Random) -> tuple[float, ...]:
    x, y = _corner(rng), _corner(rng)
    width, height = (rng.choice([0.0, 0.0, 0.25, 0.5, 1.0, 1.0, 5.0, 1000.0]) for _ in "xy")
    return x, y, x + width, y + height


def _odd_box(rng: random.Random) -> tuple[float | None, ...] | None:
    """One that is nowhere, or empty."""
    box: list[float | None] = list(_box(rng))
    place = rng.randrange(4)
    box[place] = rng.choice([None, NAN, INF, -INF, (1e6 if place < 2 else -1e6)])
    return rng.choice([None, tuple(box), tuple(box)])


def _cell(rng: random.Random) -> float | None:
    return rng.choice([None, None, 0.3, 1.0, 1.0, 5.0])


def _written_boxes(rng: random.Random, name: str) -> Written:
    """As structs of either names and in either width, in four columns, or points in two."""
    boxes: list[Any] = [_odd_box(rng) if rng.random() < 0.12 else _box(rng) for _ in range(rng.choice([3, 12, 40]))]
    kind = rng.choice([pa.float64(), pa.float64(), pa.float32()])
    spelling = rng.choice(["struct", "named", "corners", "points"])
    if spelling in ("struct", "named"):
        fields = ("x1", "y1", "x2", "y2") if spelling == "struct" else ("xmin", "ymin", "xmax", "ymax")
        rows = [None if box is None else dict(zip(fields, box, strict=True)) for box in boxes]
        return Written(boxes, pa.table({name: pa.array(rows, pa.struct(dict.fromkeys(fields, kind)))}))
    boxes = [box or (None,) * 4 for box in boxes]
    if spelling == "points":
        boxes = [(x, y, x, y) for x, y, *_ in boxes]
    count = 2 if spelling == "points" else 4
    columns = {f"{name}{n}": pa.array([box[n] for box in boxes], kind) for n in range(count)}
    return Written(boxes, pa.table(columns))


def _relation(rng: random.Random, sides: tuple[Written, Written]) -> tuple[Matching, str, float]:
    relation, distance = (
        rng.choice(["intersects", "intersects", "contains", "dwithin"]),
        rng.choice([0, 0.25, 0.75, 2.0]),
    )
    asked = {"distance": distance} if relation == "dwithin" else {}
    on = getattr(pk, relation)(sides[0].names, sides[1].names, cell=_cell(rng), **asked)
    return on, relation, distance


def _boxes(rng: random.Random) -> tuple[Matching, tuple[Written, Written], Matches]:
    sides = _written_boxes(rng, "a"), _written_boxes(rng, "b")
    on, relation, distance = _relation(rng, sides)
    return on, sides, {"intersects": intersect, "contains": contain}.get(relation, apart_at_most(distance))


# Geometries


def _geometry(rng: random.Random) -> shapely.Geometry:
    x, y, size = _corner(rng), _corner(rng), rng.choice([0.25, 0.5, 1.0, 8.0])
    square = shapely.box(x, y, x + size, y + size)
    hole = shapely.box(x + size / 4, y + size / 4, x + size / 2, y + size / 2)
    return rng.choice(
        [
            lambda: shapely.Point(x, y),
            lambda: shapely.Point(x, y, 3.0),
            lambda: shapely.LineString([(x, y), (x + size, y + 2 * size)]),
            lambda: shapely.Point(x, y).buffer(size),
            lambda: square,
            lambda: shapely.Polygon(square.exterior, [hole.exterior]),
            lambda: shapely.MultiPoint([(x, y), (x + size, y)]),
            lambda: shapely.MultiPolygon([square, shapely.box(x + 2 * size, y, x + 3 * size, y + size)]),
            lambda: shapely.GeometryCollection([shapely.Point(x, y), square]),
        ]
    )()


def _written_geometries(rng: random.Random, name: str) -> Written:
    """As WKB in either byte order; some bytes are no geometry, or an invalid one."""
    bow = shapely.to_wkb(shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)]))
    values, written = [], []
    for _ in range(rng.choice([3, 12, 30])):
        odd = rng.random() < 0.12
        shape = None if odd else _geometry(rng)
        nowhere = shapely.to_wkb(shapely.Point(NAN, 1.0))
        values.append(shape)
        written.append(
            rng.choice([None, bow, nowhere, *BROKEN])
            if shape is None
            else shapely.to_wkb(shape, byte_order=rng.choice([0, 1]), include_srid=rng.random() < 0.5)
        )
    return Written(values, pa.table({name: pa.array(written, rng.choice([pa.binary(), pa.large_binary()]))}))


def _as_geometry(box: Any) -> shapely.Geometry | None:
    if not intersect(box, box):
        return None
    x1, y1, x2, y2 = box
    if (x1, y1) == (x2, y2):
        return shapely.Point(x1, y1)
    return shapely.LineString([(x1, y1), (x2, y2)]) if x1 == x2 or y1 == y2 else shapely.box(*box)


def _geometries(rng: random.Random) -> tuple[Matching, tuple[Written, Written], Matches]:
    sides = [_written_geometries(rng, "a"), _written_geometries(rng, "b")]
    if rng.random() < 0.3:
        side = rng.randrange(2)
        boxes = _written_boxes(rng, "ab"[side])
        sides[side] = replace(boxes, values=[_as_geometry(box) for box in boxes.values])
    on, relation, distance = _relation(rng, (sides[0], sides[1]))
    compare: Matches = {
        "intersects": lambda a, b: bool(a.intersects(b)),
        "contains": lambda a, b: bool(a.covers(b)),
        "dwithin": lambda a, b: bool(a.distance(b) <= distance),
    }[relation]
    return on, (sides[0], sides[1]), lambda a, b: a is not None and b is not None and compare(a, b)


# Vectors


def _written_vectors(rng: random.Random, name: str, points: np.ndarray, whole: bool) -> Written:
    """In columns, or in lists of one kind or another; of lists, some are of another length."""
    dimensions = points.shape[1]
    few = dimensions <= 5
    spelling = rng.choice(["columns", "columns", "list"] if few else ["list"])
    number = rng.choice([pa.int32(), pa.int64()] if whole else [pa.float64(), pa.float64(), pa.float32()])
    kind = rng.choice(["list", "list", "large", "fixed"])
    values: list[Any] = points.tolist()
    for row in range(len(values)):
        if rng.random() >= 0.12:
            continue
        vector = [None if rng.random() < 0.5 or whole else rng.choice([NAN, INF]), *values[row][1:]]
        shapes = [vector, None, [0.0] * dimensions]
        if spelling == "list" and kind != "fixed":
            shapes += [[], values[row][:1], [*values[row], 1.0], [*values[row], 0.0]]
        values[row] = rng.choice(shapes)
    if whole:
        values = [value and [one if one is None else int(one) for one in value] for value in values]
    if spelling == "columns":
        values = [value if value is not None else [None] * dimensions for value in values]
        columns = {f"{name}{axis}": pa.array([value[axis] for value in values], number) for axis in range(dimensions)}
        return Written(values, pa.table(columns))
    types = {"list": pa.list_(number), "large": pa.large_list(number), "fixed": pa.list_(number, dimensions)}
    return Written(values, pa.table({name: pa.array(values, types[kind])}))


def _vectors(rng: random.Random) -> tuple[Matching, tuple[Written, Written], Matches]:
    """On a lattice, so that many are exactly as far apart as may be, about some centres."""
    dimensions, metric = rng.choice([2, 2, 3, 3, 5, 17, 130]), rng.choice(["euclidean", "euclidean", "cosine"])
    whole = rng.random() < 0.2
    step = 1.0 if whole else 0.125
    draws = np.random.default_rng(rng.getrandbits(32))
    centres = draws.integers(-8, 8, (rng.choice([1, 4]), dimensions))
    sides = []
    for name in "ab":
        rows = rng.choice([3, 12, 40])
        moved = draws.integers(-2, 3, (rows, dimensions)) * (
            draws.random((rows, dimensions)) < min(1.0, 3 / dimensions)
        )
        points = (centres[draws.integers(0, len(centres), rows)] + moved) * step
        sides.append(_written_vectors(rng, name, points, whole))
    distance = (
        rng.choice([0.01, 0.1, 0.5, 1.0, 2.0]) if metric == "cosine" else step * rng.choice([1, 1, 2, 5, math.sqrt(2)])
    )
    cell = rng.choice([None, None, None, step, 10 * step])
    on = pk.near(sides[0].names, sides[1].names, distance=distance, metric=metric, cell=cell)
    return on, (sides[0], sides[1]), lambda a, b: are_near(a, b, distance, metric)
