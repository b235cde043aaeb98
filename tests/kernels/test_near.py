"""Pairs of vectors that are near each other: against the definition, whatever the room, the places and the numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.kernels.grid import BITS, Grid
from penstock.kernels.near import Radius, near_pairs
from penstock.kernels.vectors import Points
from tests.oracle.near import near_pairs as definition


def found(ours: np.ndarray, theirs: np.ndarray, distance: float, room: int, places: int = 1) -> np.ndarray:
    """Which pairs are found, each once; rows go to some places by turns."""
    grid = Grid(tuple(range(min(8, ours.shape[1]))), distance, distance * 1.001)
    sides, orders = [], []
    for rows in (ours, theirs):
        codes = grid.codes(rows) | (np.arange(len(rows)) % places).astype(np.uint64) << np.uint64(BITS)
        order = np.argsort(codes, kind="stable")
        sides.append((codes[order], Points([pa.array(list(rows[order]))], unit=False)))
        orders.append(order)
    near = np.zeros((len(ours), len(theirs)), np.int64)
    for i, j in near_pairs(sides[0], sides[1], grid, Radius(distance * distance), room):
        np.add.at(near, (orders[0][i], orders[1][j]), 1)
    return near


def clusters(dimensions: int, rows: int, spread: float, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    middles = rng.normal(size=(30, dimensions))
    return [middles[rng.integers(0, 30, rows)] + spread * rng.normal(size=(rows, dimensions)) for _ in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("room", [1, 100_000, 50_000_000])
@pytest.mark.parametrize(("dimensions", "rows"), [(2, 300), (9, 800), (40, 900), (128, 1500)])
def test_all_pairs_are_found_once_whatever_the_room(dimensions, rows, room):
    """Those of many dimensions by balls, and by some of the dimensions first."""
    ours, theirs = clusters(dimensions, rows, 0.1)
    distance = 0.13 * dimensions**0.5
    near = definition(ours, theirs, distance)
    assert rows < near.sum() < near.size / 10
    assert (found(ours, theirs, distance, room) == near).all()


@pytest.mark.parametrize("places", [1, 3])
def test_only_rows_of_one_place_meet(places):
    ours, theirs = clusters(3, 200, 0.2)
    same = np.arange(200)[:, None] % places == np.arange(200) % places
    assert (found(ours, theirs, 0.3, 10_000_000, places) == (definition(ours, theirs, 0.3) & same)).all()


@pytest.mark.parametrize("scale", [1e-120, 1e-9, 1e9, 1e120])
@pytest.mark.parametrize("offset", [0, 1e3, 1e7])
def test_numbers_far_from_zero_and_pairs_exactly_the_distance_apart(scale, offset):
    """Where products in float32 say nothing, nothing is lost, and nothing is found that is not near."""
    rng = np.random.default_rng(1)
    ours = (rng.integers(0, 9, (150, 16)) + offset) * scale
    theirs = ours + np.eye(16)[rng.integers(0, 16, 150)] * scale * rng.choice([1, 2, 3], (150, 1))
    near = definition(ours, theirs, 2 * scale)
    assert near.sum() >= 40
    assert (found(ours, theirs, 2 * scale, 10_000_000) == near).all()
