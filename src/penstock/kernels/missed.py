"""Which windows a late row missed: from the start of the first to the end of the last that its time puts it in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.time import TIME_MAX, TIME_MIN, Times, from_times
from penstock.core.windows import Sessions, Slides


def missed(windows: Slides | Sessions | None, times: pa.Int64Array, axis: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Where the first window of each row starts and its last ends, as values of `axis`.

    Null where there is no time, no window, or an end that the axis has no value for; everywhere if a row's time does
    not tell its windows.

    >>> [edge.to_pylist() for edge in missed(Slides(10, 5, 0), pa.array([7, None]), pa.int64())]
    [[0, None], [15, None]]
    """
    if windows is None:
        return pa.nulls(len(times), axis), pa.nulls(len(times), axis)
    first, last, held = _edges(windows, pc.fill_null(times, 0).to_numpy(zero_copy_only=False))
    held &= pc.is_valid(times).to_numpy(zero_copy_only=False)
    return _moments(first, held & (first > TIME_MIN), axis), _moments(last, held & (last < TIME_MAX), axis)


def _edges(windows: Slides | Sessions, times: Times) -> tuple[Times, Times, npt.NDArray[np.bool_]]:
    if isinstance(windows, Sessions):
        return *windows.wids(times), np.ones(times.size, np.bool_)
    # The same windows, counted from near 0: no number of one that holds a row is beyond the axis then.
    windows = Slides(windows.range, windows.slide, windows.origin % windows.slide)
    first, after = windows.wids(times)
    return windows.starts(first), windows.ends(after - 1), after > first


def _moments(times: Times, there: npt.NDArray[np.bool_], axis: pa.DataType) -> pa.Array:
    width = pa.int32() if pa.types.is_date(axis) else axis if pa.types.is_integer(axis) else pa.int64()
    moments = pa.array(times, pa.int64(), mask=~there)
    fits = pc.equal(moments.cast(width, safe=False).cast(pa.int64()), moments)
    return from_times(pc.if_else(fits, moments, None), axis)
