"""The boxes of geometries, read from WKB as it lies in an Arrow column: nothing is parsed, whatever it would take.

That covers points, lines and polygons with two coordinates, little-endian, as files have them; others are left to a
library.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.rows import Indices
from penstock.kernels.boxes import Boxes
from penstock.kernels.equal import Mask

_POINT, _LINE, _POLYGON = 1, 2, 3

_HEADERS = np.array([0, 5, 9, 13])
"""Bytes before the first coordinate, by type: byte order and type, how many points, before these how many rings."""

_AT_ONCE = 1 << 13
"""Points that are looked at together."""

Bytes = npt.NDArray[np.uint8]


def plain_boxes(column: pa.Array) -> tuple[Boxes, Mask]:
    """The box around each geometry, and of which it is known: valid ones that are not empty, of the kinds above.

    >>> point = bytes.fromhex("0101000000000000000000f03f0000000000000040")
    >>> boxes, plain = plain_boxes(pa.array([point, b"?"]))
    >>> [side[plain].tolist() for side in boxes], plain.tolist()
    ([[1.0], [2.0], [1.0], [2.0]], [True, False])
    """
    data, starts, sizes = _laid_out(column)
    plain = sizes >= _HEADERS[_POINT] + 16
    plain[plain] &= (data[starts[plain]] == 1) & np.isin(_number(data, starts[plain] + 1), (_POINT, _LINE, _POLYGON))
    which = np.flatnonzero(plain)
    kinds = _number(data, starts[which] + 1)
    first = starts[which] + _HEADERS[kinds]
    counts = np.ones(which.size, np.int64)
    several = np.flatnonzero(kinds != _POINT)
    counts[several] = _number(data, first[several] - 4)
    whole = (counts > 0) & (first + 16 * counts <= starts[which] + sizes[which])
    plain[which[~whole]] = False
    boxes = np.full((4, len(column)), np.nan)
    _fill(boxes, data, which[whole], first[whole], counts[whole])
    return list(boxes), plain


def _fill(boxes: npt.NDArray[np.float64], data: Bytes, which: Indices, first: Indices, counts: Indices) -> None:
    """Write the boxes of some rows, by where their coordinates begin and how many points they have."""
    shifts = first % 8  # numbers can be read where they lie eight bytes apart
    for shift in np.unique(shifts).tolist():
        numbers = data[shift : shift + (data.size - shift) // 8 * 8].view("<f8")
        some = np.flatnonzero(shifts == shift)
        ends = np.cumsum(counts[some])
        begin = 0
        while begin < some.size:
            done = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, done + _AT_ONCE, "right")))
            rows = some[begin:end]
            many = counts[rows]
            starts = np.cumsum(many) - many
            places = np.arange(int(many.sum())) * 2 + np.repeat(first[rows] // 8 - 2 * starts, many)
            for axis in (0, 1):
                along = numbers[places + axis]
                boxes[axis, which[rows]] = np.minimum.reduceat(along, starts)
                boxes[axis + 2, which[rows]] = np.maximum.reduceat(along, starts)
            begin = end


def _laid_out(column: pa.Array) -> tuple[Bytes, Indices, Indices]:
    """The bytes of a column, where each value begins in them, and how many it has; none where it is null."""
    _, offsets, values = column.buffers()
    kind = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    ends = np.frombuffer(offsets, kind)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    sizes = np.diff(ends)
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = 0
    data = np.frombuffer(values, np.uint8) if values is not None else np.zeros(0, np.uint8)
    return data, ends[:-1], sizes


def _number(data: Bytes, at: Indices) -> Indices:
    """Little-endian numbers of four bytes."""
    number = np.zeros(at.size, np.int64)
    for place in range(4):
        number |= data[at + place].astype(np.int64) << (8 * place)
    return number
