"""Finds the first row of each value, where rows that may be equal lie together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.rows import Indices
from penstock.kernels.equal import same

Mask = npt.NDArray[np.bool_]


def firsts(labels: Indices, columns: Sequence[pa.Array]) -> Mask:
    """Which rows are the first of their values in `columns`; equal rows have equal labels, which lie together.

    Labels may be hashes: rows of one label need not be equal. Nulls are the same as nulls.

    >>> firsts(np.array([0, 0, 0, 1]), [pa.array(["a", "b", "a", "a"])]).tolist()
    [True, True, False, True]
    """
    first = np.zeros(labels.size, np.bool_)
    left = np.arange(labels.size)
    while left.size:
        starts = run_starts(labels[left])
        first[left[starts]] = True
        if starts.size == left.size:
            break
        # One round, but for labels that rows of several values share: these leave their other values to the next.
        leader = np.repeat(left[starts], np.diff(starts, append=left.size))
        left = left[~same_rows(columns, left, columns, leader)]
    return first


def run_starts(labels: Indices) -> Indices:
    """Where each run of equal labels starts.

    >>> run_starts(np.array([4, 4, 7])).tolist()
    [0, 2]
    """
    return np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]])) if labels.size else np.empty(0, np.int64)


def same_rows(ours: Sequence[pa.Array], i: Indices, theirs: Sequence[pa.Array], j: Indices) -> Mask:
    """Whether row ``i[n]`` of `ours` has the values of row ``j[n]`` of `theirs`.

    >>> same_rows([pa.array([1, 2])], np.array([0, 1]), [pa.array([2, 3])], np.array([0, 0])).tolist()
    [False, True]
    """
    equal = np.ones(i.size, np.bool_)
    for mine, others in zip(ours, theirs, strict=True):
        equal &= same(mine.take(pa.array(i)), others.take(pa.array(j)))
    return equal
