"""Sort integers and keep the order of equals, and rows the way pages keep them: by hash, then time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.core.rows import Hashes, Indices
from penstock.core.time import Times

Integers = npt.NDArray[np.integer]

_BITS = 64


def page_order(hashes: Hashes, times: Times) -> Indices:
    """The indices that sort rows by hash, then time.

    >>> page_order(np.array([2, 1, 2], np.uint64), np.array([5, 9, 4])).tolist()
    [1, 2, 0]
    """
    return order_by([hashes, times])


def in_page_order(hashes: Hashes, times: Times) -> bool:
    """Whether rows are sorted by hash, then time.

    >>> in_page_order(np.array([1, 2, 2], np.uint64), np.array([9, 4, 5]))
    True
    """
    same = hashes[1:] == hashes[:-1]
    return not ((hashes[1:] < hashes[:-1]) | (same & (times[1:] < times[:-1]))).any()


def order_by(columns: Sequence[Integers]) -> Indices:
    """The indices that sort rows by several columns, the most significant first; equals stay in order.

    >>> order_by([np.array([2, 1, 2]), np.array([5, 9, 4])]).tolist()
    [1, 2, 0]
    """
    *others, last = columns
    order = stable_order(last)
    for column in reversed(others):
        order = order[stable_order(column[order])]
    return order


def stable_order(numbers: Integers) -> Indices:
    """The indices that sort numbers; equals stay in order.

    Each number gets its index as its last bits. Such keys are sorted four times as fast as indices are,
    and what comes out are the indices. Where both do not fit 64 bits, the last bits of the numbers give way: hashes
    differ in the first. Numbers that do not are sorted in the ordinary way.

    >>> stable_order(np.array([7, -1, 7, 3])).tolist()
    [1, 3, 0, 2]
    """
    if _ascends(numbers):
        return np.arange(numbers.size)
    wide = numbers if numbers.dtype == np.uint64 else numbers.astype(np.int64, copy=False)
    # The difference of two int64 may need all 64 bits: taken without a sign, it has them.
    keys = (wide - wide.min()).view(np.uint64)
    of_rows = (keys.size - 1).bit_length()
    lost = max(0, int(keys.max()).bit_length() + of_rows - _BITS)
    keys >>= np.uint64(lost)
    keys <<= np.uint64(of_rows)
    keys |= np.arange(keys.size, dtype=np.uint64)
    keys.sort()
    keys &= np.uint64((1 << of_rows) - 1)
    order: Indices = keys.view(np.int64)
    if lost and not _ascends(numbers[order]):
        return np.argsort(numbers, kind="stable")
    return order


def _ascends(numbers: Integers) -> bool:
    return not (numbers[1:] < numbers[:-1]).any()
