"""Spatial joins (S1, S2, S4): equal to the definition, pair by pair, in process."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import example, given
from hypothesis import strategies as st

import penstock as pk
from lab.workloads import boxes as workload
from penstock.core.routes import Anywhere, Cells, Everywhere, Keyed
from penstock.core.rows import TIME, RowType
from penstock.kernels import boxes as bx
from penstock.kernels.boxes import Tiles
from penstock.kernels.route import shard_of
from penstock.operators.window_join import spatial
from penstock.operators.window_join.progressive.baselines.parameters import Random, Rpj
from penstock.runtime.entering import Entry
from tests.oracle.spatial import apart_at_most, contain, intersect, is_somewhere, join

BOX = pa.struct({name: pa.float64() for name in ("x1", "y1", "x2", "y2")})
CORNERS = ("x1", "y1", "x2", "y2")
HOWS = ("inner", "left", "right", "full", "semi", "anti")


def as_structs(boxes) -> pa.Table:
    rows = [None if box is None else dict(zip(("x1", "y1", "x2", "y2"), box, strict=True)) for box in boxes]
    return pa.table({"b": pa.array(rows, BOX)})


def as_wkb(geometries) -> pa.Table:
    return pa.table({"g": pa.array([shapely.to_wkb(each) for each in geometries], pa.binary())})


def joined(ours, theirs, on, *, epochs=3, how="inner", within=None, method="auto", memory="64 MB", shards=1):
    """The join's pairs of row numbers, of streams that come in so many epochs."""
    flow = pk.LocalFlow(memory=memory, shards=shards)
    streams = []
    for name, rows in (("i", ours), ("j", theirs)):
        table = rows if isinstance(rows, pa.Table) else as_structs(rows)
        count = table.num_rows
        table = table.append_column(name, pa.array(range(count), pa.int64()))
        table = table.append_column("t", pa.array([7 * row % 50 for row in range(count)], pa.int64()))
        step = max(1, -(-count // epochs))
        pieces = [table.slice(start, step) for start in range(0, count, step)] or [table]
        streams.append(flow.source(pieces, time="t", name=name))
    out = streams[0].join(streams[1], on=on, within=within, how=how, method=method).to_memory()
    flow.run()
    found = out.table()
    right = found["j"].to_pylist() if "j" in found.column_names else [None] * found.num_rows
    return Counter(zip(found["i"].to_pylist(), right, strict=True))


def drawn(seed: int, rows: int, grid: float = 8) -> list[tuple[float, ...]]:
    """Boxes on a lattice, so that borders touch: points, lines, small ones, some over many cells, a few huge ones."""
    rng = np.random.default_rng(seed)
    corner = np.round(rng.normal(0, 2, (rows, 2)) * grid) / grid
    sizes = rng.choice([0, 0.125, 0.5, 1.0, 6.0, 1000.0], (rows, 2), p=[0.25, 0.25, 0.25, 0.15, 0.07, 0.03])
    return [tuple(map(float, box)) for box in np.concatenate([corner, corner + sizes], axis=1)]


OURS, THEIRS = drawn(1, 90), drawn(2, 80)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("cell", [None, 0.3, 1.0, 50.0])
@pytest.mark.parametrize("method", ["oa", "rrpj", "rpj", "random"])
def test_s1_all_boxes_that_meet_come_out_once_whatever_the_cells(cell, method, shards):
    wanted = join(OURS, THEIRS, intersect, "inner")
    assert len(wanted) > 300
    on = pk.intersects("b", cell=cell)
    assert joined(OURS, THEIRS, on, method=method, shards=shards) == wanted


@pytest.mark.parametrize("within", [None, pk.band(before=5, after=9)])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("on", ["intersects", "contains", "dwithin"])
def test_every_kind_of_join_and_predicate_with_and_without_a_window(on, how, within):
    options = {"intersects": ({}, intersect), "contains": ({}, contain)}
    asked, matches = options.get(on, ({"distance": 0.75}, apart_at_most(0.75)))
    near = None if within is None else lambda i, j: -5 <= 7 * j % 50 - 7 * i % 50 <= 9
    wanted = join(OURS, THEIRS, matches, how, near)
    epochs = 1 if within is not None else 3
    for cell in (None, 0.5):
        found = joined(
            OURS, THEIRS, getattr(pk, on)("b", cell=cell, **asked), how=how, within=within, shards=3, epochs=epochs
        )
        assert found == wanted


@pytest.mark.parametrize("method", ["oa", "rrpj"])
@pytest.mark.parametrize("how", HOWS)
def test_boxes_that_are_nowhere_match_nothing_and_are_not_lost(how, method):
    odd = [
        None,
        (None, 0.0, 1.0, 1.0),
        (0.0, 0.0, float("nan"), 1.0),
        (0.0, 0.0, float("inf"), 1.0),
        (1.0, 0.0, 0.0, 1.0),
        (0.0, 1.0, 1.0, 0.0),
    ]
    ours, theirs = [(0.0, 0.0, 1.0, 1.0), *odd, (5.0, 5.0, 5.0, 5.0)], [*odd, (1.0, 1.0, 2.0, 2.0)]
    assert not any(map(is_somewhere, odd))
    for cell in (None, 1.0):
        found = joined(ours, theirs, pk.intersects("b", cell=cell), how=how, method=method, shards=2)
        assert found == join(ours, theirs, intersect, how)


coordinate = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.0, 0.5, 1e300, -1e300, 5e-324, 0.1, 0.2, 0.30000000000000004]),
    st.floats(-4, 4),
)
box = st.tuples(
    coordinate, coordinate, st.sampled_from([0.0, 0.5, 1.0, 3.0, 1e9]), st.sampled_from([0.0, 1.0, 7.0])
).map(lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3]))


@given(
    st.lists(box, max_size=24),
    st.lists(box, max_size=24),
    st.sampled_from(HOWS),
    st.sampled_from([None, 0.1, 1.0, 7.5, 1e6]),
    st.sampled_from(["oa", "rrpj"]),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from(["intersects", "contains", 0.0, 0.1, 2.0]),
)
@example([(-1.0, 0.0, 0.0, 0.0)], [(-0.0, 0.0, 1.0, 1.0)], "inner", 1.0, "oa", 3, 1, "intersects")
@example([(0.0, 0.0, 1.0, 1.0)], [(1.0, 1.0, 1.0, 1.0)], "inner", 1.0, "oa", 3, 1, "intersects")
@example([(1e300, 0.0, 1e300, 0.0)], [(1e300, 0.0, 1e300, 0.0)], "inner", 0.1, "rrpj", 2, 1, 0.1)
def test_any_boxes(ours, theirs, how, cell, method, shards, epochs, asked):
    on, matches = {
        "intersects": (pk.intersects("b", cell=cell), intersect),
        "contains": (pk.contains("b", cell=cell), contain),
    }.get(asked) or (pk.dwithin("b", distance=asked, cell=cell), apart_at_most(asked))
    found = joined(ours, theirs, on, how=how, method=method, shards=shards, epochs=epochs)
    assert found == join(ours, theirs, matches, how)


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 3])
def test_little_memory(shards):
    """State of many times the memory, all kinds of boxes in one site or in many."""
    ours, theirs = drawn(3, 400), drawn(4, 400)
    wanted = join(ours, theirs, intersect, "inner")
    for cell in (None, 2.0):
        on = pk.intersects("b", cell=cell)
        found = joined(ours, theirs, on, method=pk.Rrpj(partitions=4), memory=60_000 * shards, shards=shards)
        assert found == wanted


def test_a_hot_cell():
    """All boxes but one in one cell."""
    ours = [(x / 100, 0.5, x / 100 + 0.004, 0.6) for x in range(99)] + [(70.0, 70.0, 71.0, 71.0)]
    on = pk.intersects("b", cell=1.0)
    for method in ("oa", "rrpj"):
        assert joined(ours, ours, on, shards=3, method=method) == join(ours, ours, intersect, "inner")


def rows_by_shard(boxes: list[tuple[float, ...]], cell: float, shards: int) -> list[int]:
    """How many copies of rows each shard gets."""
    types = RowType(as_structs(boxes).schema.append(pa.field("t", pa.int64())), (), "t")
    rows = (
        as_structs(boxes).append_column("t", pa.array([0] * len(boxes))).append_column(TIME, pa.array([0] * len(boxes)))
    )
    by_cell = pk.intersects("b", cell=cell)
    entry = Entry("join", types, "group", by_cell.route(0, (False, False)), sites=shards)
    hashes = np.concatenate([batch.column(0).to_numpy() for batch in entry.enter(rows, "xxhash64")])
    return np.bincount(shard_of(hashes, shards), minlength=shards).tolist()


def test_a_hot_region_of_many_cells_is_spread_over_the_shards_and_one_hot_cell_is_not():
    """Nine of ten boxes are in a hundredth of the plane: 32 × 32 cells there are dealt out evenly, 1 is not."""
    rng = np.random.default_rng(3)
    corner = np.where(np.arange(20_000)[:, None] % 10 > 0, rng.random((20_000, 2)) * 32, rng.random((20_000, 2)) * 320)
    boxes = [(x, y, x, y) for x, y in corner.tolist()]
    for shards in (2, 4, 8):
        small, large = rows_by_shard(boxes, 1.0, shards), rows_by_shard(boxes, 32.0, shards)
        assert sum(small) == sum(large) == len(boxes)
        assert max(small) < 1.4 * sum(small) / shards
        assert max(large) > 0.9 * sum(large)


def test_points_columns_of_numbers_and_boxes_of_other_names_and_types():
    rng = np.random.default_rng(5)
    points, boxes = rng.integers(0, 9, (40, 2)), rng.integers(0, 9, (30, 2))
    left = pa.table({"x": points[:, 0], "y": points[:, 1].astype(np.float32)})
    corners = dict(zip("abcd", [*boxes.T, *(boxes.T + 2)], strict=True))
    right = pa.table(
        {
            **corners,
            "bbox": pa.StructArray.from_arrays(
                [pa.array(corners[n].astype(np.float32)) for n in "abcd"], ["xmin", "ymin", "xmax", "ymax"]
            ),
        }
    )
    wanted = join(
        [(x, y, x, y) for x, y in points.tolist()],
        [(x, y, x + 2, y + 2) for x, y in boxes.tolist()],
        intersect,
        "inner",
    )
    assert wanted
    for named in (list("abcd"), "bbox"):
        assert joined(left, right, pk.intersects(["x", "y"], named)) == wanted
    swapped = Counter((j, i) for i, j in wanted)
    assert joined(right, left, pk.contains("bbox", ["x", "y"], cell=3)) == swapped


def test_s2_nine_tiles_of_four_partitions_and_other_tilings_give_the_same_results(monkeypatch):
    tiles = Tiles(1.0, sites=4, across=3)
    x, y = np.meshgrid(np.arange(3), np.arange(3))
    assert tiles.site(x, y).tolist() == [[0, 1, 2], [3, 0, 1], [2, 3, 0]]
    wanted = join(OURS, THEIRS, intersect, "inner")
    for dealt in (Tiles(1.0, sites=64, across=10), Tiles(1.0, sites=7), Tiles(1.0, sites=4, across=3)):
        monkeypatch.setattr(spatial.Spatial, "tiles", dealt)
        assert joined(OURS, THEIRS, pk.intersects("b", cell=1.0), shards=3) == wanted


def test_s1_a_pair_belongs_to_the_cell_of_the_top_left_corner_of_what_it_has_in_common():
    """Fig 5.3: r in cells 0..2 × 0..2, s in 1..3 × 1..3: only (1, 2)."""
    r, s = (np.array([[n], [n], [n + 2.0], [n + 2.0]]) + 0.5 for n in (0, 1))
    tiles, one = Tiles(1.0, sites=1 << 20), np.array([0])
    assert tiles.owner(r, one, s, one) == tiles.site(np.array([1]), np.array([2]))
    both = set(tiles.touched(r)[1].tolist()) & set(tiles.touched(s)[1].tolist())
    assert len(both) == 4


def from_memory(method, **drawn) -> int:
    """Results before the end of two streams of boxes over ten times ten cells, of which a twentieth fit memory."""
    rows = workload.Cells(**drawn).draw(8_000, seed=3)
    flow = pk.LocalFlow(memory="64 MB")
    streams = []
    for side in (0, 1):
        boxes = rows.boxes[rows.side == side]
        table = pa.table({**dict(zip(CORNERS, boxes.T, strict=True)), "t": np.arange(len(boxes))})
        streams.append(flow.source([table.slice(n, 400) for n in range(0, len(boxes), 400)], time="t", name=f"s{side}"))
    count = []
    joined = streams[0].join(streams[1], on=pk.intersects(CORNERS, cell=0.1), method=method)
    joined.foreach_epoch(lambda rows, epoch: count.append(rows.num_rows))
    flow.run(end=False)
    return sum(count)


@pytest.mark.slow
def test_s3_what_is_kept_by_results_gives_more_of_them_from_memory():
    """Fig 5.4: RRPJ > RPJ where cells never meet. Fig 5.5: by row > by cell where half of the boxes are stretched."""
    said = {"memory": 400, "row": 1}
    rrpj, rpj, random = (from_memory(kind(**said), apart=0.8) for kind in (pk.Rrpj, Rpj, Random))
    assert rrpj > 1.2 * max(rpj, random) > 0
    cell, row = (from_memory(pk.Rrpj(by=by, **said), stretched=0.5) for by in ("partition", "row"))
    assert row > cell


@pytest.mark.slow
@pytest.mark.parametrize("beta", [1, 2, 4, 8])
def test_s4_stretched_boxes_have_a_copy_in_each_cell_and_results_are_exact(beta):
    wide, high = {1: (0, 0), 2: (0, 1), 4: (1, 1), 8: (1, 3)}[beta]
    rng = np.random.default_rng(beta)
    corner = rng.integers(0, 10, (60, 2)) + 0.3
    boxes = [(x, y, x + wide + 0.1, y + high + 0.1) for x, y in corner.tolist()]
    copies, _ = Tiles(1.0, sites=1 << 30).touched(np.array(boxes).T)
    assert Counter(copies.tolist()) == dict.fromkeys(range(60), beta)
    for method in ("rrpj", "oa", pk.Rrpj(by="row")):
        found = joined(boxes, boxes, pk.intersects("b", cell=1.0), method=method, shards=2)
        assert found == join(boxes, boxes, intersect, "inner")


def test_a_huge_box_has_no_more_copies_than_there_are_places():
    boxes = np.array([[-1e300, -1e300, 1e300, 1e300], [0, 0, 300, 300], [0, 0, 15.5, 15.5]]).T
    which, sites = Tiles(1.0, sites=64).touched(boxes)
    counts = Counter(which.tolist())
    assert counts[0] == counts[1] == 64
    assert 32 < counts[2] <= 64
    assert sites.max() == 63


def test_rows_find_their_shards_by_cell_or_one_side_is_spread_and_the_other_everywhere():
    routes = {
        how: [type(pk.intersects("b", cell=2).route(port, keeps)) for port in (0, 1)]
        for how, keeps in {
            "inner": (False, False),
            "left": (True, False),
            "right": (False, True),
            "full": (True, True),
        }.items()
    }
    assert routes["left"] == [Anywhere, Everywhere]
    assert routes["right"] == [Everywhere, Anywhere]
    assert routes["full"] == [Keyed, Keyed]
    assert all(issubclass(kind, Cells) for kind in routes["inner"])
    assert [type(pk.intersects("b").route(port, (False, False))) for port in (0, 1)] == [Anywhere, Everywhere]


# Geometries


def shapes(seed: int, rows: int) -> list[shapely.Geometry]:
    """Points, lines, circles, polygons with holes and collections, some on a lattice."""
    rng = np.random.default_rng(seed)
    made = []
    for kind, (x, y) in zip(
        rng.integers(0, 6, rows).tolist(), (np.round(rng.random((rows, 2)) * 16) / 4).tolist(), strict=True
    ):
        size = float(rng.choice([0.25, 0.5, 1.0]))
        square = shapely.box(x, y, x + size, y + size)
        made.append(
            [
                shapely.Point(x, y),
                shapely.LineString([(x, y), (x + size, y + 2 * size)]),
                shapely.Point(x, y).buffer(size),
                square,
                shapely.Polygon(
                    square.exterior, [shapely.box(x + size / 4, y + size / 4, x + size / 2, y + size / 2).exterior]
                ),
                shapely.GeometryCollection([shapely.Point(x, y), square]),
            ][kind]
        )
    return made


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("on", ["intersects", "contains", "dwithin"])
def test_geometries_in_wkb(on, how):
    ours, theirs = shapes(1, 50), shapes(2, 50)
    matches = {
        "intersects": lambda a, b: a.intersects(b),
        "contains": lambda a, b: a.covers(b),
        "dwithin": lambda a, b: a.distance(b) <= 0.3,
    }[on]
    wanted = join(ours, theirs, matches, how)
    asked = {"distance": 0.3} if on == "dwithin" else {}
    for cell, method in ((None, "oa"), (1.0, "rrpj")):
        asks = getattr(pk, on)("g", cell=cell, **asked)
        assert joined(as_wkb(ours), as_wkb(theirs), asks, how=how, method=method, shards=2) == wanted
    if how == "inner":
        assert len(wanted) > 10


class Wkb(pa.ExtensionType):
    """Geometries as libraries for GeoParquet register them with Arrow."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "geoarrow.wkb")

    def __arrow_ext_serialize__(self) -> bytes:
        return b"{}"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Wkb:
        return cls(storage)


@pytest.mark.parametrize(
    "kind",
    [pa.large_binary(), pa.binary_view(), Wkb(pa.binary()), Wkb(pa.large_binary()), Wkb(pa.binary_view())],
    ids=str,
)
def test_geometries_in_any_column_of_bytes(kind):
    ours, theirs = shapes(7, 40), [None, *shapes(8, 39)]
    tables = [as_wkb(ours), pa.table({"g": pa.array([g and shapely.to_wkb(g) for g in theirs], pa.binary())})]
    storage = kind.storage_type if isinstance(kind, Wkb) else kind
    columns = [table["g"].combine_chunks().cast(storage) for table in tables]
    if isinstance(kind, Wkb):
        columns = [pa.ExtensionArray.from_storage(kind, column) for column in columns]
    wanted = join(ours, theirs, lambda a, b: b is not None and a.intersects(b), "left")
    found = joined(*(pa.table({"g": column}) for column in columns), pk.intersects("g"), how="left", shards=2)
    assert found == wanted


def test_other_types_are_no_geometries_and_the_error_says_what_is():
    made = as_wkb(shapes(7, 2))["g"].combine_chunks()
    uuids = pa.array([bytes(16)] * 2, pa.binary(16)).cast(pa.uuid())
    for column, kind in ((made.dictionary_encode(), "dictionary<.*>"), (uuids, "extension<arrow.uuid>")):
        said = rf"intersects\('g'\) is {kind}\. Name a column of structs of .*, of geometries as WKB"
        with pytest.raises(pk.ConfigError, match=said):
            joined(pa.table({"g": column}), pa.table({"g": column}), pk.intersects("g"))


def test_boxes_meet_geometries():
    boxes = [
        (x / 2, y / 2, x / 2 + w, y / 2 + h)
        for x in range(6)
        for y in range(6)
        for w, h in ((0, 0), (0, 1), (0.5, 0.5))
    ]
    theirs = shapes(3, 40)
    plain = [
        shapely.Point(b[:2])
        if b[:2] == b[2:]
        else shapely.LineString([b[:2], b[2:]])
        if b[0] == b[2]
        else shapely.box(*b)
        for b in boxes
    ]
    wanted = join(plain, theirs, lambda a, b: a.intersects(b), "inner")
    assert wanted
    assert joined(boxes, as_wkb(theirs), pk.intersects("b", "g", cell=1.0), shards=2) == wanted
    turned = joined(as_wkb(theirs), boxes, pk.intersects("g", "b"), shards=2)
    assert turned == Counter((j, i) for i, j in wanted)


@pytest.mark.parametrize("how", HOWS)
def test_geometries_that_are_none_match_nothing_and_are_not_lost(how):
    bow = shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])
    assert not bow.is_valid
    odd = [
        None,
        b"",
        b"\x01\x02",
        shapely.to_wkb(shapely.Point()),
        shapely.to_wkb(bow),
        shapely.to_wkb(shapely.Point(float("nan"), 1)),
    ]
    square = shapely.to_wkb(shapely.box(0, 0, 1, 1))
    sides = [pa.table({"g": pa.array(rows, pa.binary())}) for rows in ([square, *odd], [*odd, square, square])]
    wanted = join([1, *[0] * 6], [*[0] * 6, 1, 1], lambda a, b: a and b, how)
    for cell in (None, 1.0):
        assert joined(*sides, pk.intersects("g", cell=cell), how=how, shards=2) == wanted


# Errors


@pytest.mark.parametrize(
    ("on", "said"),
    [
        (lambda: pk.dwithin("b", distance=-1), r"distance=-1 must be 0, or a number between"),
        (lambda: pk.dwithin("b", distance=float("nan")), "distance=nan must be 0, or a number"),
        (lambda: pk.intersects("b", cell=0), r"cell=0 must be a number between"),
        (lambda: pk.intersects(["x", "y", "z"]), r"names no boxes\. Write one column of boxes or geometries"),
        (lambda: pk.intersects("nothing"), "nothing"),
        (lambda: pk.intersects("i"), r"intersects\('i'\) is int64\. Name a column of structs of x1, y1, x2 and y2"),
        (lambda: pk.intersects(["i", "b"]), "'b' is struct<.*>, not a number"),
        (lambda: pk.contains("odd", "b"), r"A box has no corners in the fields p, q\. Call them x1, y1, x2 and y2"),
    ],
)
def test_what_cannot_be_joined_is_said_while_the_flow_is_built(on, said):
    table = as_structs(OURS[:1]).append_column("odd", pa.array([{"p": 1.0, "q": 2.0}]))
    with pytest.raises(pk.ConfigError, match=said):
        joined(table, OURS[:1], on())


def test_geometries_need_shapely_and_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(pk.ConfigError, match=r"pip install 'penstock\[spatial\]'"):
        joined(as_wkb(shapes(1, 2)), as_wkb(shapes(1, 2)), pk.intersects("g"))


def test_other_cells_are_another_join_to_a_checkpoint():
    assert pk.intersects("b", cell=1).identity != pk.intersects("b", cell=2).identity
    assert "cell" not in str(pk.intersects("b", cell=1))


# Mutations: what must not survive


def broken(monkeypatch, **changed) -> bool:
    """Whether results differ once some rules are broken."""
    for name, rule in changed.items():
        owner, attribute = name.split("__")
        monkeypatch.setattr({"tiles": Tiles, "bx": bx, "spatial": spatial.Spatial}[owner], attribute, rule)
    wanted = join(OURS, THEIRS, intersect, "inner")
    return joined(OURS, THEIRS, pk.intersects("b", cell=0.5), shards=3) != wanted


def test_results_depend_on_the_reference_point(monkeypatch):
    def everywhere(self, ours, i, theirs, j):
        return self.site(*(self.along(ours[a][i]) for a in (0, 3)))

    assert broken(monkeypatch, tiles__owner=everywhere)


def test_results_depend_on_the_top_left_corner_being_in_both_boxes(monkeypatch):
    def wrong(self, ours, i, theirs, j):
        return self.site(
            self.along(np.maximum(ours[0][i], theirs[0][j])), self.along(np.maximum(ours[3][i], theirs[3][j]))
        )

    assert broken(monkeypatch, tiles__owner=wrong)


def test_results_depend_on_borders_belonging_to_boxes(monkeypatch):
    met = bx.meet

    def open_(a, i, b, j):
        return met(a, i, b, j) & (a[0][i] < b[2][j])

    assert broken(monkeypatch, bx__meet=open_)


def test_results_depend_on_one_rule_for_cells_and_corners(monkeypatch):
    """Cells that round the other way at a border than the corner does."""
    touched = Tiles.touched

    def shrunk(self, boxes):
        return touched(self, [*boxes[:2], *(np.nextafter(side, -np.inf) for side in boxes[2:])])

    assert broken(monkeypatch, tiles__touched=shrunk)


def test_results_depend_on_copies_in_all_places_of_a_huge_box(monkeypatch):
    touched = Tiles.touched

    def first_half(self, boxes):
        which, sites = touched(self, boxes)
        kept = sites < 32
        return which[kept], sites[kept]

    assert broken(monkeypatch, tiles__touched=first_half)


def test_results_depend_on_left_boxes_reaching_as_far_as_the_distance(monkeypatch):
    monkeypatch.setattr(spatial.Spatial, "reaching", lambda self, port, boxes: boxes)
    found = joined(OURS, THEIRS, pk.dwithin("b", distance=0.75))
    assert found != join(OURS, THEIRS, apart_at_most(0.75), "inner")


def test_a_curve_among_geometries_matches_nothing_and_is_not_lost():
    curve = b"\x01\x08\x00\x00\x00\x03\x00\x00\x00" + np.array([0, 0, 1, 1, 2, 0.0]).tobytes()
    point = shapely.to_wkb(shapely.Point(1, 1))
    flow = pk.LocalFlow()
    shapes = pa.table({"n": [0, 1, 2], "g": [point, curve, point], "t": [1, 1, 1]})
    left = flow.source(shapes, time="t", name="l")
    right = flow.source(pa.table({"x": [1.0], "y": [1.0], "u": [1]}), time="u", name="r")
    rows = left.join(right, on=pk.intersects("g", ["x", "y"]), how="left").to_memory()
    flow.run()
    assert sorted((row["n"], row["x"]) for row in rows.table().to_pylist()) == [(0, 1.0), (1, None), (2, 1.0)]
