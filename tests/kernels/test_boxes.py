"""Boxes that meet: the grid finds all pairs once, for sets of any size and shape, in little room."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.kernels import boxes as bx

KINDS = ("uniform", "points", "clusters", "lattice", "huge")


def boxes(rng: np.random.Generator, rows: int, kind: str) -> bx.Boxes:
    corner = rng.random((2, rows))
    size = rng.random((2, rows)) * rng.choice([0, 0.001, 0.01, 2.0], rows, p=[0.3, 0.3, 0.35, 0.05])
    if kind == "points":
        corner, size = np.round(corner * 8) / 8, np.zeros((2, rows))
    elif kind == "clusters":
        corner = rng.normal(size=(2, rows)) * rng.choice([1e-6, 1, 1e5], rows)
    elif kind == "lattice":
        corner, size = np.round(corner * 16) / 16, np.round(size * 16) / 16
    elif kind == "huge":
        corner, size = corner - 1e300, size * 1e300
    return [*corner, *(corner + size)]


def placed(boxes: bx.Boxes, sites: int = 1) -> bx.Placed:
    return bx.Placed(boxes, np.sort(np.arange(boxes[0].size) * 7 % sites).astype(np.uint64))


def brute(ours: bx.Boxes, theirs: bx.Boxes, sites: int = 1) -> list[tuple[int, int]]:
    i, j = np.divmod(np.arange(ours[0].size * theirs[0].size), theirs[0].size)
    met = bx.meet(ours, i, theirs, j) & (placed(ours, sites).sites[i] == placed(theirs, sites).sites[j])
    return list(zip(i[met].tolist(), j[met].tolist(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(1, 1), (5, 300), (300, 200), (900, 700), (1, 5000), (5000, 1)])
@pytest.mark.parametrize("sites", [1, 5])
def test_all_pairs_of_a_site_that_meet_once(kind, sizes, sites):
    rng = np.random.default_rng(sum(sizes))
    ours, theirs = (boxes(rng, rows, kind) for rows in sizes)
    for room in (10_000, 1_000_000):
        met = bx.meeting(placed(ours, sites), placed(theirs, sites), room)
        found = [pair for i, j in met for pair in zip(i.tolist(), j.tolist(), strict=True)]
        assert sorted(found) == brute(ours, theirs, sites)


def test_no_boxes_meet_nothing():
    nothing, one = list(np.zeros((4, 0))), list(np.zeros((4, 1)))
    assert not [i for i, _ in bx.meeting(placed(nothing), placed(one), 1000) if i.size]
    assert not [i for i, _ in bx.meeting(placed(one), placed(nothing), 1000) if i.size]


def test_a_chunk_of_pairs_is_no_larger_than_room_allows():
    side = list(np.zeros((4, 300)))
    sizes = [i.size for i, _ in bx.meeting(placed(side), placed(side), 100_000)]
    assert sum(sizes) == 300 * 300
    assert max(sizes) <= max(4096, 100_000 // 96)


@pytest.mark.parametrize("distance", [0.0, 1e-9, 0.1, 1.0, 1e17])
def test_boxes_within_a_distance_meet_once_they_are_grown_by_it(distance):
    """Also where a sum is rounded that a difference is not."""
    rng = np.random.default_rng(9)
    far = np.array([[1.0, 1.0, 1.0, 1.0], [-1e17, 1.0, -1e17, 1.0], [0.1, 0.2, 0.3, 0.3], [1e308, 0, 1e308, 0]]).T
    ours, theirs = (list(np.concatenate([boxes(rng, 80, "lattice"), far], axis=1)) for _ in range(2))
    i, j = np.divmod(np.arange(84 * 84), 84)
    near = bx.within(ours, i, theirs, j, distance)
    assert near.any()
    assert not (near & ~bx.meet(bx.grown(ours, distance), i, theirs, j)).any()


@pytest.mark.parametrize("across", [None, 5])
def test_the_place_of_a_pair_is_one_that_both_boxes_are_in(across):
    rng = np.random.default_rng(4)
    tiles = bx.Tiles(0.05, sites=16, across=across)
    ours, theirs = (boxes(rng, 150, "lattice") for _ in range(2))
    sites = [set(zip(*(part.tolist() for part in tiles.touched(side)), strict=True)) for side in (ours, theirs)]
    for i, j in brute(ours, theirs):
        (owner,) = tiles.owner(ours, np.array([i]), theirs, np.array([j])).tolist()
        assert (i, owner) in sites[0]
        assert (j, owner) in sites[1]
