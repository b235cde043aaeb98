"""Reduce runs of sorted rows: find where runs begin, and take a sum, an extreme or a place from each.

A segment is a run of rows; `starts` holds the first row of each, ascending, the first being 0. No segment is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.rows import Indices
from penstock.kernels.sort import order_by

Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int64] | npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.int64] | npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.generic]
Parts = tuple[Numbers, ...]
"""The partials of many rows, a column each."""

_SIGN = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_PACKED = 1 << 62
"""So many values fit one code that is put together from several."""

_SHORT = 16
"""Rows that a segment must have, on average, to be summed on its own."""

_WORD, _LOW = 32, 0xFFFF_FFFF
"""The bits of a low word: how many, and all of them."""


def starts_of(*codes: npt.NDArray[np.generic]) -> Indices:
    """Where any of the columns changes.

    >>> starts_of(np.array([1, 1, 2, 2]), np.array([5, 6, 6, 6])).tolist()
    [0, 1, 2]
    """
    size = codes[0].size
    if not size:
        return np.empty(0, np.int64)
    new = np.zeros(size, np.bool_)
    new[0] = True
    for column in codes:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


def sizes_of(starts: Indices, rows: int) -> Indices:
    """How many rows each segment has.

    >>> sizes_of(np.array([0, 3]), 5).tolist()
    [3, 2]
    """
    return np.diff(starts, append=rows)


def segment_of(starts: Indices, rows: int) -> Indices:
    """The segment of each row.

    >>> segment_of(np.array([0, 3]), 5).tolist()
    [0, 0, 0, 1, 1]
    """
    return np.repeat(np.arange(starts.size), sizes_of(starts, rows))


def codes_of(column: pa.Array) -> list[Codes]:
    """Integers that compare as the values of the column do, most significant first; nulls after all values.

    NaN is larger than any number and equal to itself, -0.0 equals 0.0. Codes of two columns compare only if they
    were made from one concatenated column.

    >>> [codes.tolist() for codes in codes_of(pa.array(["b", None, "a"]))]
    [[0, 1, 0], [2, 0, 1]]
    """
    if not column.null_count:
        return [_codes(column)]
    missing = is_null(column)
    return [missing.astype(np.int64), np.where(missing, 0, _codes(column))]


def is_null(column: pa.Array) -> Mask:
    """Which values are null."""
    if not column.null_count:
        return np.zeros(len(column), np.bool_)
    return column.is_null().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def numbers_of(column: pa.Array) -> Numbers:
    """The column as NumPy numbers, 0 where it is null: booleans as bytes, times and dates as what they count.

    >>> numbers_of(pa.array([1, None])).tolist()
    [1, 0]
    """
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        column = column.view(pa.int32())
    elif pa.types.is_temporal(kind):
        column = column.view(pa.int64())
    if column.null_count:
        column = pc.fill_null(column, fill_value=0)
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def is_number(kind: pa.DataType) -> bool:
    """Whether `numbers_of` can read it."""
    whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind)
    return bool(whole or pa.types.is_float32(kind) or pa.types.is_float64(kind))


def as_column(numbers: Numbers, kind: pa.DataType, missing: Mask | None = None) -> pa.Array:
    """The inverse of `numbers_of`.

    >>> as_column(np.array([1, 0]), pa.bool_(), np.array([False, True])).to_pylist()
    [True, None]
    """
    mask = missing if missing is not None and missing.any() else None
    if pa.types.is_boolean(kind):
        return pa.array(numbers.astype(np.bool_), mask=mask)
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.array(numbers.astype(np.int32, copy=False), mask=mask).view(kind)
    if pa.types.is_temporal(kind):
        return pa.array(numbers.astype(np.int64, copy=False), mask=mask).view(kind)
    return pa.array(numbers, kind, mask=mask)


def totals(numbers: npt.NDArray[np.integer] | Mask, starts: Indices) -> Longs:
    """The sum of each segment of whole numbers, or how many are marked, in 64 bits; what does not fit wraps around.

    Where segments are short, differences of running totals are found faster than sums are.

    >>> totals(np.array([True, False, True]), np.array([0, 2])).tolist()
    [1, 1]
    """
    if starts.size * _SHORT <= numbers.size:
        return np.add.reduceat(numbers.astype(np.int64, copy=False), starts)
    running = np.cumsum(numbers, dtype=np.int64)
    sums: Longs = np.diff(running[np.append(starts[1:], numbers.size) - 1], prepend=0)
    return sums


def all_of(mask: Mask, starts: Indices) -> Mask:
    """Whether all rows of each segment are marked."""
    if not mask.any():
        return np.zeros(starts.size, np.bool_)
    return np.logical_and.reduceat(mask, starts)


def least_of(starts: Indices, *codes: Codes) -> Indices:
    """The row of each segment that is least by `codes`, the most significant first; the first of equals.

    >>> least_of(np.array([0, 2]), np.array([4, 3, 9, 9])).tolist()
    [1, 2]
    """
    rows = codes[0].size
    if starts.size == rows:
        return starts
    return sorted_by([segment_of(starts, rows), *codes])[starts]


def reduce_pairs(parts: Parts, starts: Indices, combine: Callable[[Parts, Parts], Parts]) -> Parts:
    """Combine the rows of each segment two by two until one is left; neighbours only, so order is kept.

    >>> total, = reduce_pairs((np.array([1, 2, 3, 9]),), np.array([0, 3]), lambda a, b: (a[0] + b[0],))
    >>> total.tolist()
    [6, 9]
    """
    rows = parts[0].size
    while rows > starts.size:
        place = np.arange(rows) - np.repeat(starts, sizes := sizes_of(starts, rows))
        even = np.flatnonzero(place % 2 == 0)
        paired = even[place[even] + 1 < np.repeat(sizes, sizes)[even]]
        kept = [part[even].copy() for part in parts]
        both = combine(tuple(part[paired] for part in parts), tuple(part[paired + 1] for part in parts))
        target = np.searchsorted(even, paired)
        for column, combined in zip(kept, both, strict=True):
            column[target] = combined
        parts, rows = tuple(kept), even.size
        starts = np.concatenate([[0], np.cumsum((sizes + 1) // 2)[:-1]])
    return parts


def sum_words(numbers: Words, starts: Indices) -> tuple[Longs, Longs]:
    """The exact sum of each segment of 64-bit integers in two words: 2³² times the first, plus the second.

    >>> high, low = sum_words(np.array([2**63 - 1, 2**63 - 1, 3]), np.array([0, 2]))
    >>> [(int(h) << 32) + int(l) for h, l in zip(high, low)] == [2**64 - 2, 3]
    True
    """
    largest = max(-int(numbers.min(initial=0)), int(numbers.max(initial=0)))
    if largest * numbers.size < 1 << 63:
        whole = totals(numbers, starts)
        return carried(np.zeros_like(whole), whole)
    shift, mask = numbers.dtype.type(_WORD), numbers.dtype.type(_LOW)
    high, low = (totals(word, starts) for word in (numbers >> shift, numbers & mask))
    return carried(high, low)


def carried(high: Longs, low: Longs) -> tuple[Longs, Longs]:
    """The same numbers in two words, the second of which is at least 0 and below 2³²."""
    return high + (low >> _WORD), low & _LOW


def join_words(high: Longs, low: Longs, signed: bool) -> tuple[Words, Mask]:
    """Two words as an int64 or a uint64, and which numbers are too large for it.

    >>> join_words(np.array([1, 2**31]), np.array([5, 0]), signed=True)[1].tolist()
    [False, True]
    """
    high, low = carried(high, low)
    least, most = (-(1 << 31), 1 << 31) if signed else (0, 1 << 32)
    whole = (high << _WORD) | low
    return whole if signed else whole.view(np.uint64), (high < least) | (high >= most)


def sum_decimals(column: pa.Array, starts: Indices, kind: pa.DataType) -> pa.Array:
    """The sum of each segment of decimals; null where all are. It is added up in 256 bits if `kind` has them."""
    column = column.cast(kind) if pa.types.is_decimal256(kind) else column
    table = pa.table({"segment": segment_of(starts, len(column)), "value": column})
    return (
        table.group_by("segment", use_threads=False)
        .aggregate([("value", "sum")])
        .column("value_sum")
        .combine_chunks()
        .cast(kind)
    )


def sorted_by(codes: Sequence[Codes]) -> Indices:
    """The order of rows by `codes`, the most significant first; equals stay in order.

    >>> sorted_by([np.array([2, 1, 1]), np.array([0, 9, 3])]).tolist()
    [2, 1, 0]
    """
    return order_by(_packed(codes)) if codes[0].size else np.empty(0, np.int64)


def _packed(codes: Sequence[Codes]) -> list[Codes]:
    """The same order by fewer codes: rows are sorted once by each."""
    packed: list[Codes] = []
    below = 1
    for code in reversed(codes):
        least = code.min()
        span = int(code.max()) - int(least) + 1
        if packed and below * span <= _PACKED:
            packed[-1] = packed[-1] + (code - least).astype(np.int64) * np.int64(below)
            below *= span
            continue
        narrow = span <= _PACKED
        packed.append((code - least).astype(np.int64) if narrow else code)
        below = span if narrow else _PACKED + 1
    return packed[::-1]


def _codes(column: pa.Array) -> Codes:
    kind = column.type
    if pa.types.is_floating(kind):
        floats = pc.fill_null(column.cast(pa.float64()), fill_value=0.0).to_numpy(zero_copy_only=False)
        bits = np.where(np.isnan(floats), np.float64("nan"), floats + 0.0).view(np.int64)
        return bits ^ ((bits >> np.int64(63)) & _SIGN)
    if kind == pa.uint64():
        return numbers_of(column)  # type: ignore[return-value]
    if is_number(kind):
        return numbers_of(column).astype(np.int64)
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="dense")
    return ranks.to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]
