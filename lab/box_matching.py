"""Boxes as arrays of (x1, y1, x2, y2): which of them meet, and what covers them. Boxes that touch meet."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.core.rows import Indices

Boxes = npt.NDArray[np.float64]
"""A row for each box: lower left and upper right corner."""

_CANDIDATES = 2_000_000
"""Pairs that are looked at together."""


def meeting(left: Boxes, right: Boxes) -> tuple[Indices, Indices]:
    """The places of all pairs that meet, by those of the left.

    Sorted by where they begin, only boxes that begin no further away than the widest is wide are looked at.

    >>> boxes = np.array([[0, 0, 1, 1], [1, 1, 2, 2], [5, 5, 6, 6]], float)
    >>> meeting(boxes, boxes[1:])
    (array([0, 1, 2]), array([0, 0, 1]))
    """
    none = np.zeros(0, np.int64)
    if not len(left) or not len(right):
        return none, none
    order = np.argsort(right[:, 0], kind="stable")
    sorted_right = right[order]
    widest = float((right[:, 2] - right[:, 0]).max())
    # Rounding must not lose a box that touches.
    first = np.searchsorted(sorted_right[:, 0], np.nextafter(left[:, 0] - widest, -np.inf))
    last = np.searchsorted(sorted_right[:, 0], left[:, 2], side="right")
    count = np.maximum(last - first, 0)
    found: list[tuple[Indices, Indices]] = []
    ends = np.cumsum(count)
    start = 0
    while start < len(left):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _CANDIDATES, side="right")))
        counts = count[start:stop]
        mine = np.repeat(np.arange(start, stop), counts)
        shift = np.repeat(first[start:stop] - (np.cumsum(counts) - counts), counts)
        theirs = np.arange(mine.size) + shift
        meet = intersects(left[mine], sorted_right[theirs])
        found.append((mine[meet], order[theirs[meet]]))
        start = stop
    mine, theirs = (np.concatenate(parts) for parts in zip(*found, strict=True))
    ordered = np.lexsort((theirs, mine))
    return mine[ordered], theirs[ordered]


def intersects(left: Boxes, right: Boxes) -> npt.NDArray[np.bool_]:
    """Whether boxes meet, one by one or by broadcasting.

    >>> intersects(np.array([0.0, 0, 1, 1]), np.array([[1.0, 0, 2, 1], [2, 2, 3, 3]])).tolist()
    [True, False]
    """
    met: npt.NDArray[np.bool_] = (
        (left[..., 0] <= right[..., 2])
        & (left[..., 2] >= right[..., 0])
        & (left[..., 1] <= right[..., 3])
        & (left[..., 3] >= right[..., 1])
    )
    return met


def covers(boxes: Boxes, size: int) -> Boxes:
    """What covers each `size` boxes that follow each other.

    >>> covers(np.array([[0.0, 0, 1, 1], [4, 4, 5, 5], [2, 2, 3, 3]]), 2).tolist()
    [[0.0, 0.0, 5.0, 5.0], [2.0, 2.0, 3.0, 3.0]]
    """
    starts = np.arange(0, len(boxes), size)
    low = np.minimum.reduceat(boxes[:, :2], starts)
    return np.hstack([low, np.maximum.reduceat(boxes[:, 2:], starts)])
