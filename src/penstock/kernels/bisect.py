"""Bisect many sorted stretches of one column at once, each for another value."""

from __future__ import annotations

import numpy as np

from penstock.core.rows import Hashes, Indices


def bisect_within(values: Hashes, wanted: Hashes, begin: Indices, end: Indices) -> Indices:
    """For each wanted value the first place from `begin` on that has it or a greater one; `end` if there is none.

    ``values[begin[i]:end[i]]`` is ascending. The column is only searched, never copied: it may be a mapped file.

    >>> values = np.array([5, 9, 1, 2, 3], np.uint64)
    >>> bisect_within(values, np.array([9, 2, 4], np.uint64), np.array([0, 2, 2]), np.array([2, 5, 5])).tolist()
    [1, 3, 5]
    """
    low, length = begin.copy(), end - begin
    for _ in range(int(length.max(initial=0)).bit_length()):
        half = length >> 1
        # An empty stretch looks at the place after it, clipped into the column, and stays as it is.
        less = (values.take(low + half, mode="clip") < wanted) & (length > 0)
        low += (half + 1) * less
        length = np.where(less, length - half - 1, half)
    return low


def runs_within(values: Hashes, wanted: Hashes, begin: Indices, end: Indices) -> tuple[Indices, Indices]:
    """Where each wanted value begins in its stretch, and how often it is there.

    >>> values = np.array([5, 9, 9, 1], np.uint64)
    >>> first, count = runs_within(values, np.array([9, 2], np.uint64), np.array([0, 3]), np.array([3, 4]))
    >>> first[0], count.tolist()
    (np.int64(1), [2, 0])
    """
    return run_lengths(values, wanted, bisect_within(values, wanted, begin, end), end)


def run_lengths(values: Hashes, wanted: Hashes, first: Indices, end: Indices) -> tuple[Indices, Indices]:
    """The same where it is known where each value would begin.

    >>> run_lengths(np.array([5, 9], np.uint64), np.array([9], np.uint64), np.array([1]), np.array([2]))[1].tolist()
    [1]
    """
    if not values.size:
        return first, np.zeros(wanted.size, np.int64)
    count = ((first < end) & (values.take(first, mode="clip") == wanted)).astype(np.int64)
    # Mostly a hash is there once: only those that are there again are bisected for their last.
    more = np.flatnonzero((count > 0) & (first + 1 < end))
    more = more[values.take(first[more] + 1) == wanted[more]]
    if more.size:
        last = np.uint64(np.iinfo(np.uint64).max)
        above = np.where(wanted[more] == last, last, wanted[more] + np.uint64(1))
        after = bisect_within(values, above, first[more], end[more])
        count[more] = np.where(wanted[more] == last, end[more], after) - first[more]
    return first, count


def spread(first: Indices, count: Indices) -> Indices:
    """All places of some runs, one run after the other.

    >>> spread(np.array([7, 2]), np.array([1, 3])).tolist()
    [7, 2, 3, 4]
    """
    stop = np.cumsum(count)
    return np.repeat(first - (stop - count), count) + np.arange(int(count.sum()))
