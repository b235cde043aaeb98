"""Boxes read from WKB as it lies in a column: those that shapely finds, and nothing for what is left to it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import shapely

from penstock.kernels.wkb import plain_boxes

RNG = np.random.default_rng(3)
LINES = [shapely.LineString(RNG.normal(size=(n, 2))) for n in (2, 3, 500, 20_000)]
HOLED = shapely.Polygon([(0, 0), (9, 0), (9, 9), (0, 9)], [[(1, 1), (2, 1), (2, 2)]])
PLAIN = [*shapely.points(RNG.normal(size=(5, 2))), *LINES, HOLED, *(line.convex_hull for line in LINES[1:])]
OTHERS = [
    None,
    b"",
    b"\x01",
    bytes(40),
    b"\x01\x02\x00\x00\x00\xff\xff\xff\xff" + bytes(64),
    shapely.to_wkb(HOLED)[:-100][:60],
    shapely.to_wkb(shapely.Point()),
    shapely.to_wkb(shapely.Polygon()),
    shapely.to_wkb(shapely.LineString()),
    shapely.to_wkb(shapely.Point(1, 2, 3)),
    shapely.to_wkb(shapely.MultiPoint([(1, 2)])),
    shapely.to_wkb(HOLED, byte_order=0),
    shapely.to_wkb(shapely.set_srid(shapely.Point(1, 2), 4326), include_srid=True),
]
"""What is no geometry, is cut off or empty, or is left to shapely."""


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_plain_geometries_have_the_boxes_that_shapely_finds(kind):
    mixed = [value for pair in zip(map(shapely.to_wkb, PLAIN), [*OTHERS] * 2, strict=False) for value in pair]
    for column in (pa.array(mixed, kind), pa.array([b"??", *mixed, *mixed], kind).slice(1 + len(mixed), len(mixed))):
        boxes, plain = plain_boxes(column)
        known = np.arange(len(mixed)) % 2 == 0
        nowhere = np.isnan(boxes[0])
        # An empty point is one without numbers: it is found nowhere.
        assert (plain & ~nowhere == known).all()
        assert (np.array(boxes).T[known] == shapely.bounds(PLAIN)).all()


def test_no_rows_and_rows_of_nothing():
    for column in (pa.array([], pa.binary()), pa.array([None, None], pa.binary())):
        boxes, plain = plain_boxes(column)
        assert not plain.any()
        assert [side.size for side in boxes] == [len(column)] * 4
