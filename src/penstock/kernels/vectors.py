"""Vectors in Arrow columns: a list of numbers in each row, or one number in each of several columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.rows import Indices
from penstock.kernels.equal import Mask

Matrix = npt.NDArray[np.float64]
"""A vector in each row."""

LEAST, MOST = 2, 1024
"""How many dimensions vectors may have."""


def is_list(kind: pa.DataType) -> bool:
    """Whether values of a type are lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_numeric(kind: pa.DataType) -> bool:
    """Whether values of a type are numbers that a distance can be computed from, as float64."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def lengths_of(columns: Sequence[pa.Array]) -> Indices:
    """How many numbers the vector of each row has; 0 where it is null.

    >>> lengths_of([pa.array([[1.0, 2.0], None, [3.0]])]).tolist()
    [2, 0, 1]
    """
    if not is_list(columns[0].type):
        return np.full(len(columns[0]), len(columns), np.int64)
    lengths = pc.fill_null(pc.list_value_length(columns[0]), fill_value=0).cast(pa.int64())
    return lengths.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def usable(columns: Sequence[pa.Array], *, directed: bool) -> Mask:
    """Which rows have a vector that is somewhere: of 2 to 1,024 finite numbers; `directed`, not all of them zero.

    >>> usable([pa.array([[1.0, 2.0], None, [3.0, None], [0.0, 0.0]])], directed=True).tolist()
    [True, False, False, False]
    """
    lengths = lengths_of(columns)
    good: Mask = (lengths >= LEAST) & (lengths <= MOST)
    if not is_list(columns[0].type):
        numbers = [_floats(column) for column in columns]
        for value in numbers:
            good &= np.isfinite(value)
        if directed:
            good &= np.logical_or.reduce([value != 0 for value in numbers])
        return good
    filled = np.flatnonzero(lengths)
    if filled.size:
        values = _floats(columns[0].flatten())
        starts = np.concatenate([[0], np.cumsum(lengths[filled])[:-1]])
        good[filled] &= np.logical_and.reduceat(np.isfinite(values), starts)
        if directed:
            good[filled] &= np.logical_or.reduceat(values != 0, starts)
    return good


class Points:
    """The vectors of some rows, all usable and of one length, read as they are needed.

    >>> Points([pa.array([[3, 4], [0, 2]])], unit=True).take(np.array([0])).tolist()
    [[0.6, 0.8]]
    """

    def __init__(self, columns: Sequence[pa.Array], *, unit: bool) -> None:
        self._unit = unit
        self._columns: list[npt.NDArray[np.floating]] = []
        self._matrix: npt.NDArray[np.floating] | None = None
        self.rows = len(columns[0])
        if is_list(columns[0].type):
            values = _floats(columns[0].flatten())
            self.dimensions = values.size // max(1, self.rows)
            self._matrix = values.reshape(self.rows, self.dimensions)
        else:
            self._columns = [_floats(column) for column in columns]
            self.dimensions = len(columns)

    def take(self, which: Indices | slice) -> Matrix:
        """Some of the vectors as float64; of length 1 each if only directions count."""
        if self._matrix is not None:
            taken = self._matrix[which].astype(np.float64, copy=False)
        else:
            taken = np.stack([column[which].astype(np.float64, copy=False) for column in self._columns], axis=1)
        return unit(taken) if self._unit else taken


def unit(vectors: Matrix) -> Matrix:
    """Vectors divided by their length, which must not be 0; in float64, the largest element scaled by a power of two.

    >>> unit(np.array([[5e200, 0.0]])).tolist()
    [[1.0, 0.0]]
    """
    _, exponents = np.frexp(np.abs(vectors).max(axis=1, keepdims=True))
    scaled = np.ldexp(vectors, -exponents)
    lengths = np.sqrt(np.add.accumulate(scaled * scaled, axis=1)[:, -1:])
    return scaled / lengths  # type: ignore[no-any-return]


def squared_distances(ours: Matrix, theirs: Matrix) -> npt.NDArray[np.float64]:
    """The squared distance of each of our vectors from one of theirs: the definition that all joins by distance keep.

    Squared differences in float64, added up dimension after dimension.

    >>> squared_distances(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]])).tolist()
    [25.0]
    """
    with np.errstate(over="ignore"):  # as far apart as can be
        difference = ours - theirs
        return np.add.accumulate(difference * difference, axis=1)[:, -1]


def _floats(column: pa.Array) -> npt.NDArray[np.floating]:
    """The numbers of a column, NaN for null; a view where they are float32 or float64."""
    if column.type not in (pa.float32(), pa.float64()):
        column = column.cast(pa.float64(), safe=False)
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
