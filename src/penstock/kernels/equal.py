"""Compare the values of two columns row by row, for every type Spark can compare.

Equal as Spark's join keys are: NaN equals NaN, 0.0 equals -0.0. A null field or element inside a nested key equals
another null there; nulls of whole keys never get here, because a null key matches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]


def same(left: pa.Array, right: pa.Array) -> Mask:
    """Whether each row of `left` holds the same value as that of `right`; nulls are the same as nulls.

    A dictionary holds what it stands for.

    >>> same(pa.array([1.0, float("nan"), None]), pa.array([2.0, float("nan"), None])).tolist()
    [False, True, True]
    """
    left, right = _plain(left), _plain(right)
    values = _same_values(left, right)
    if not left.null_count and not right.null_count:
        return values
    missing = _mask(left.is_null()), _mask(right.is_null())
    return (values & ~missing[0] & ~missing[1]) | (missing[0] & missing[1])


def null_keys(keys: Sequence[pa.Array]) -> Mask:
    """Which rows have a null in their key: they match nothing.

    >>> null_keys([pa.array([1, None, 3]), pa.array(["a", "b", None])]).tolist()
    [False, True, True]
    """
    missing = np.zeros(len(keys[0]), np.bool_)
    for key in keys:
        if key.null_count:
            missing |= _mask(key.is_null())
    return missing


def _same_values(left: pa.Array, right: pa.Array) -> Mask:
    kind = left.type
    if pa.types.is_struct(kind):
        mask = np.ones(len(left), np.bool_)
        for place in range(kind.num_fields):
            mask &= same(pc.struct_field(left, place), pc.struct_field(right, place))
        return mask
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _same_lists(left, right)
    if pa.types.is_floating(kind):
        ours, theirs = _floats(left), _floats(right)
        return (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))  # type: ignore[no-any-return]
    if pa.types.is_null(kind):
        return np.ones(len(left), np.bool_)
    equal: pa.BooleanArray = pc.equal(left, right)
    return _mask(pc.fill_null(equal, fill_value=False) if equal.null_count else equal)


def _same_lists(left: pa.Array, right: pa.Array) -> Mask:
    sizes, others = _lengths(left), _lengths(right)
    mask: Mask = np.equal(sizes, others)
    kept = np.flatnonzero(mask & (sizes > 0))
    if kept.size:
        inner = same(left.take(pa.array(kept)).flatten(), right.take(pa.array(kept)).flatten())
        starts = np.concatenate([[0], np.cumsum(sizes[kept])[:-1]])
        mask[kept] = np.logical_and.reduceat(inner, starts)
    return mask


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _lengths(lists: pa.Array) -> npt.NDArray[np.int64]:
    lengths = pc.fill_null(pc.list_value_length(lists), fill_value=0).cast(pa.int64())
    return lengths.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _floats(column: pa.Array) -> npt.NDArray[np.float64]:
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _mask(column: pa.BooleanArray) -> Mask:
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
