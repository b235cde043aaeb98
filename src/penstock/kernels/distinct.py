"""Finds the first row of each value, where rows that may be equal lie together; and rows some time apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.rows import Hashes, Indices
from penstock.core.time import TIME_MAX, Times
from penstock.kernels.equal import same
from penstock.kernels.match import ranges
from penstock.kernels.segments import starts_of

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


def leaders(labels: Indices, columns: Sequence[pa.Array]) -> Indices:
    """The first row of each row's values in `columns`; equal rows have equal labels, which lie together.

    >>> leaders(np.array([0, 0, 0, 1]), [pa.array(["a", "b", "a", "a"])]).tolist()
    [0, 1, 0, 3]
    """
    leader = np.empty(labels.size, np.int64)
    left = np.arange(labels.size)
    while left.size:
        starts = run_starts(labels[left])
        first = np.repeat(left[starts], np.diff(starts, append=left.size))
        equal = same_rows(columns, left, columns, first)
        leader[left[equal]] = first[equal]
        left = left[~equal]
    return leader


def spaced(groups: Hashes, times: Times, step: int, since: Times) -> Mask:
    """Which rows to keep so that those of a group are at least `step` apart: the earliest ones.

    Of each group the first row at or after `since` is kept, and then always the first that is `step` or more after the
    last one kept. Rows ascend by group, then time; `since` has the same value for all rows of a group.

    >>> spaced(np.zeros(5, np.uint64), np.array([1, 2, 4, 5, 9]), 3, np.full(5, 2)).tolist()
    [False, True, False, True, True]
    """
    rows = groups.size
    end = np.full(rows, TIME_MAX)
    heads = starts_of(groups)
    first, stop = ranges(groups, times, groups[heads], since[heads], end[heads])
    kept = np.zeros(rows + 1, np.bool_)
    kept[np.where(first < stop, first, rows)] = True
    begin, stop = ranges(groups, times, groups, _later(times, step), end)
    # Follow the links from kept row to kept row by doubling them: a chain of n rows takes log n rounds.
    link = np.append(np.where(begin < stop, begin, rows), rows)
    while (link[:-1] < rows).any():
        kept[link[kept]] = True
        link = link[link]
    return kept[:-1]


def _later(times: Times, step: int) -> Times:
    """Times moved by `step`, kept on the axis."""
    return np.where(times > TIME_MAX - step, TIME_MAX, times + step)
