"""Joins by distance (H1): equal to the definition, pair by pair, in process."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.operators.window_join import WindowJoin
from tests.oracle.near import are_near, is_somewhere, near_pairs


def vectors(seed: int, rows: int, dimensions: int, distance: float) -> list[list[list[float]]]:
    """Two sets: at random, equal ones, and some that are exactly `distance` apart."""
    rng = np.random.default_rng(seed)
    ours, theirs = rng.random((rows, dimensions)), rng.random((rows, dimensions))
    theirs[: rows // 4] = ours[: rows // 4] = np.round(ours[: rows // 4] * 8) / 8
    theirs[: rows // 4, 0] += distance
    theirs[rows // 4 : rows // 2] = ours[rows // 4 : rows // 2] + rng.normal(
        0, distance / dimensions**0.5, (rows // 2 - rows // 4, dimensions)
    )
    return [ours.tolist(), theirs.tolist()]


def joined(ours, theirs, *, epochs=3, how="inner", within=None, method="auto", memory="64 MB", shards=1, **near):
    """The join's pairs of row numbers, of streams that come in so many epochs."""
    flow = pk.LocalFlow(memory=memory, shards=shards)
    streams = []
    for name, rows in (("a", ours), ("b", theirs)):
        table = rows if isinstance(rows, pa.Table) else pa.table({"v": pa.array(rows, pa.list_(pa.float64()))})
        count = table.num_rows
        table = table.append_column(name, pa.array(range(count), pa.int64()))
        table = table.append_column("t", pa.array([7 * row % 50 for row in range(count)], pa.int64()))
        step = max(1, -(-count // epochs))
        pieces = [table.slice(start, step) for start in range(0, count, step)] or [table]
        streams.append(flow.source(pieces, time="t", name=name))
    on = pk.near(**{"left": "v", **near})
    out = streams[0].join(streams[1], on=on, within=within, how=how, method=method).to_memory()
    flow.run()
    found = out.table()
    pairs = found.column("b") if "b" in found.column_names else [None] * found.num_rows
    return Counter(zip(found.column("a").to_pylist(), map(_plain, pairs), strict=True))


def _plain(value):
    return value.as_py() if isinstance(value, pa.Scalar) else value


def expected(ours, theirs, distance, metric="euclidean"):
    return Counter((i, j) for i, a in enumerate(ours) for j, b in enumerate(theirs) if are_near(a, b, distance, metric))


@pytest.mark.parametrize("dimensions", [2, 3, 5, 9, 128])
@pytest.mark.parametrize("distance", [0.125, 0.5])
@pytest.mark.parametrize("method", ["oa", "rrpj", "nerpj", "random"])
def test_h1_all_pairs_within_the_distance_once(dimensions, distance, method):
    ours, theirs = vectors(dimensions, 60, dimensions, distance)
    wanted = expected(ours, theirs, distance)
    assert len(wanted) >= 10
    assert joined(ours, theirs, distance=distance, method=method, epochs=4) == wanted


@pytest.mark.parametrize("cell", [0.05, 0.25, 3.0])
def test_h1_results_do_not_depend_on_cells(cell):
    """Reach above and below one cell (ε = 0.3 > w = 0.25 needs two)."""
    ours, theirs = vectors(1, 80, 3, 0.3)
    assert joined(ours, theirs, distance=0.3, cell=cell) == expected(ours, theirs, 0.3)


@pytest.mark.parametrize("shards", [1, 3])
def test_little_memory(shards):
    ours, theirs = vectors(2, 150, 8, 0.4)
    method = pk.Rrpj(partitions=4)
    wanted = expected(ours, theirs, 0.4)
    for epochs in (1, 4):
        found = joined(ours, theirs, distance=0.4, method=method, memory=40_000 * shards, epochs=epochs, shards=shards)
        assert found == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "dimensions", "memory", "epochs"), [(500, 16, 20_000, 1), (1200, 5, 30_000, 3), (400, 128, 400_000, 4)]
)
@pytest.mark.parametrize(("method", "how"), [("oa", "full"), ("rrpj", "inner"), ("rrpj", "full"), ("rrpj_f", "inner")])
def test_memory_for_a_few_rows_only(rows, dimensions, memory, epochs, method, how):
    """Found: of pages with one row each, each met each of the other side, and 500 rows did not end in a minute."""
    distance = 0.1 * dimensions**0.5
    ours, theirs = vectors(4, rows, dimensions, distance)
    near = near_pairs(ours, theirs, distance)
    wanted = Counter(zip(*(side.tolist() for side in np.nonzero(near)), strict=True))
    assert len(wanted) > rows // 4
    if how == "full":
        wanted += Counter((i, None) for i in np.flatnonzero(~near.any(axis=1)).tolist())
        wanted += Counter((None, j) for j in np.flatnonzero(~near.any(axis=0)).tolist())
    assert joined(ours, theirs, distance=distance, method=method, memory=memory, epochs=epochs, how=how) == wanted


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("method", ["oa", "rrpj"])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_vectors_that_are_nowhere_match_nothing_and_are_not_lost(how, method, metric):
    odd = [None, [], [1.0], [1.0, None], [float("nan"), 0.0], [float("inf"), 0.0], [0.0, 0.0], [1.0, 2.0, 3.0]]
    ours, theirs = [[1.0, 0.0], *odd], [*odd, [1.0, 0.1]]
    pairs = expected(ours, theirs, 0.1, metric)
    left, right = {i for i, _ in pairs}, {j for _, j in pairs}
    wanted = Counter()
    if how in ("inner", "left", "right", "full"):
        wanted += pairs
    if how in ("left", "full", "anti"):
        wanted += Counter((i, None) for i in range(len(ours)) if i not in left)
    if how in ("right", "full"):
        wanted += Counter((None, j) for j in range(len(theirs)) if j not in right)
    if how == "semi":
        wanted += Counter((i, None) for i in left)
    assert joined(ours, theirs, distance=0.1, metric=metric, how=how, method=method) == wanted
    assert any(not is_somewhere(vector, metric) for vector in ours)


def wanted_of(near: np.ndarray, how: str) -> Counter:
    """What a join gives by which of our rows are near which of theirs."""
    wanted: Counter = Counter()
    if how in ("inner", "left", "right", "full"):
        wanted += Counter(zip(*(side.tolist() for side in np.nonzero(near)), strict=True))
    if how in ("left", "full", "anti"):
        wanted += Counter((i, None) for i in np.flatnonzero(~near.any(axis=1)).tolist())
    if how in ("right", "full"):
        wanted += Counter((None, j) for j in np.flatnonzero(~near.any(axis=0)).tolist())
    if how == "semi":
        wanted += Counter((i, None) for i in np.flatnonzero(near.any(axis=1)).tolist())
    return wanted


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize(
    ("dimensions", "spelling"), [(2, "columns"), (3, "columns"), (3, "list and columns"), (16, "list")]
)
def test_rows_near_the_borders_of_cells_meet_once_whatever_the_shards(how, dimensions, spelling):
    """Few dimensions are cut into cells (here of 8 × 0.25); of others one side is spread over the shards."""
    rng = np.random.default_rng(dimensions)
    distance = 0.25
    ours = np.round(rng.uniform(-6, 6, (300, dimensions)) * 8) / 8
    theirs = (
        rng.permutation(ours) + rng.choice([-distance, 0, distance / 2, distance], (300, 1)) * np.eye(dimensions)[0]
    )
    names = [f"x{n}" for n in range(dimensions)]
    lists = [pa.table({"v": pa.array(side.tolist(), pa.list_(pa.float64()))}) for side in (ours, theirs)]
    columns = [pa.table(dict(zip(names, side.T, strict=True))) for side in (ours, theirs)]
    left = columns[0] if spelling == "columns" else lists[0]
    right = lists[1] if spelling == "list" else columns[1]
    on = {"left": "v" if left is lists[0] else names, "right": "v" if right is lists[1] else names}
    near = near_pairs(ours, theirs, distance)
    assert 100 < near.sum() < 1000
    for shards, method in ((1, "oa"), (5, "rrpj"), (4, "oa")):
        found = joined(left, right, distance=distance, how=how, method=method, shards=shards, **on)
        assert found == wanted_of(near, how)


def test_rows_are_spread_over_the_shards():
    points = np.random.default_rng(0).random((400, 2)) * 100
    for columns, copies in (({"x": points[:, 0], "y": points[:, 1]}, 1.6), ({"v": list(points)}, 4.0)):
        flow = pk.LocalFlow(shards=4)
        table = pa.table({**columns, "t": range(400)})
        a, b = (flow.source(table, time="t", name=name) for name in "ab")
        names = list(columns) if len(columns) > 1 else "v"
        a.join(b, on=pk.near(names, distance=1.0)).foreach_epoch(lambda rows, epoch: None)
        query = flow.run(end=False)
        assert query.progress().epochs[-1].operators["join0"].state_rows == pytest.approx(400 * (1 + copies), rel=0.1)


@pytest.mark.parametrize("on", [pk.near("v", distance=0.2), pk.intersects(["x", "y"], cell=4)])
def test_explain_says_that_a_full_join_by_a_predicate_is_one_task(on):
    def told(how: str) -> str:
        flow = pk.LocalFlow()
        rows = pa.table({"v": [[0.0, 1.0]], "x": [0.0], "y": [1.0], "t": [1]})
        ours, theirs = (flow.source(rows, time="t", name=name) for name in ("a", "b"))
        ours.join(theirs, on=on, how=how).to_memory()
        return str(flow.run().explain())

    assert "time of results: latest, all rows in one task\n" in told("full")
    assert "all rows in one task" not in told("left") + told("inner")


def test_two_joins_that_are_spread_give_what_a_full_join_does():
    """As docs/progressive.md says."""
    ours, theirs = vectors(2, 80, 5, 0.2)
    pairs = joined(ours, theirs, distance=0.2, how="left", shards=3)
    alone = Counter((None, j) for j, _ in joined(theirs, ours, distance=0.2, how="anti", shards=3).elements())
    assert alone
    assert pairs + alone == joined(ours, theirs, distance=0.2, how="full", shards=3)


def test_arrivals_are_sorted_by_site_only_where_there_are_many():
    """Those of one site meet all of its pages, in any order."""
    few, many = (
        WindowJoin(on=(), within=pk.always(), how="inner", matching=on)
        for on in (pk.near("v", distance=1), pk.near(["x", "y"], distance=1))
    )
    assert (few.arrivals(10**9, share=1), many.arrivals(10**9, share=1)) == ("streamed", "sorted")


def test_arrivals_are_sorted_sooner_where_no_page_is_passed_by_for_its_time():
    always, band = (WindowJoin(on=("k",), within=within, how="inner") for within in (pk.always(), pk.band(1, 1)))
    assert [always.arrivals(held, share=100) for held in (100, 101)] == ["streamed", "sorted"]
    assert band.arrivals(101, share=100) == "streamed"


def test_near_in_time_as_well():
    ours, theirs = vectors(3, 60, 2, 0.3)
    wanted = Counter(
        {(i, j): n for (i, j), n in expected(ours, theirs, 0.3).items() if abs(7 * i % 50 - 7 * j % 50) <= 5}
    )
    assert joined(ours, theirs, distance=0.3, within=pk.band(before=5, after=5), epochs=1) == wanted


def test_several_columns_of_other_names_and_types():
    rng = np.random.default_rng(5)
    ours, theirs = rng.integers(0, 9, (40, 3)), rng.integers(0, 9, (40, 3))
    left = pa.table({"x": ours[:, 0], "y": ours[:, 1].astype(np.float32), "z": ours[:, 2].astype(np.int16)})
    right = pa.table({"p": theirs[:, 0].astype(np.float64), "q": theirs[:, 1], "r": theirs[:, 2]})
    found = joined(left, right, left=["x", "y", "z"], right=["p", "q", "r"], distance=3)
    assert found == expected(ours.tolist(), theirs.tolist(), 3.0)


def test_orthogonal_vectors_are_1_apart():
    assert joined([[2.0, 0.0]], [[0.0, 5.0]], distance=1.0, metric="cosine") == Counter([(0, 0)])
    assert joined([[2.0, 0.0]], [[0.0, 5.0]], distance=0.999, metric="cosine") == Counter()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"distance": 0}, "distance=0 is not a number above 0"),
        ({"distance": -1.0}, "distance=-1.0 is not a number above 0"),
        ({"distance": float("nan")}, "is not a number above 0"),
        ({"distance": 1e-200}, "cannot be squared in float64"),
        ({"distance": 0.3, "metric": "manhattan"}, "not one of euclidean, cosine"),
        ({"distance": 3, "metric": "cosine"}, "Write a number up to 2"),
        ({"distance": 1, "cell": 0}, "cell=0 must be a number above 0"),
        ({"distance": 1, "left": []}, "names no vector"),
        ({"distance": 1, "left": 5}, "names no vector"),
        ({"distance": 1, "left": ["x", "y"], "right": ["x", "y", "z"]}, "Name the same number of columns"),
        ({"distance": 1, "left": "w"}, "'w'"),
        ({"distance": 1, "left": "a"}, "not a list of numbers"),
    ],
)
def test_what_cannot_be_asked_for(wrong, says):
    with pytest.raises(pk.ConfigError, match=says):
        joined([[1.0, 2.0]], [[1.0, 2.0]], **wrong)


@pytest.mark.parametrize("within", [None, pk.band(before=1000, after=1000)])
@pytest.mark.parametrize("seed", [6, 7])
def test_vectors_of_several_lengths_fit_little_memory(seed, within):
    rng = np.random.default_rng(seed)
    ours, theirs = (
        [[*rng.normal(size=200), *([0.0] * (rng.random() < 0.04))] for _ in range(count)] for count in (208, 375)
    )
    theirs[:50] = ours[:50]
    found = joined(ours, theirs, distance=2.0, how="left", within=within, memory="1 MB", epochs=1)
    assert found == Counter([(n, n if n < 50 else None) for n in range(208)])


def test_lengths_that_types_tell():
    sides = [pa.table({"v": pa.array([[1.0] * n], pa.list_(pa.float64(), n))}) for n in (2, 3)]
    with pytest.raises(pk.ConfigError, match="the left vectors have 2 numbers, the right ones 3"):
        joined(*sides, distance=1)


def test_methods_of_equal_keys():
    with pytest.raises(pk.ConfigError, match="Write method='oa'"):
        joined([[1.0, 2.0]], [[1.0, 2.0]], distance=1, within=pk.band(before=5, after=5), method="ewj")
