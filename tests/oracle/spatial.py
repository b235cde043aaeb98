"""Spatial joins as they are defined, pair by pair. Boxes are (x1, y1, x2, y2)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

Box = Sequence[float | None] | None
Matches = Callable[[Any, Any], bool]


def is_somewhere(box: Box) -> bool:
    """Whether a box can match anything."""
    if box is None or any(number is None or not math.isfinite(number) for number in box):
        return False
    x1, y1, x2, y2 = box
    return x1 <= x2 and y1 <= y2


def intersect(a: Box, b: Box) -> bool:
    """Whether two boxes have a point in common."""
    if not is_somewhere(a) or not is_somewhere(b):
        return False
    return a[0] <= b[2] and b[0] <= a[2] and a[1] <= b[3] and b[1] <= a[3]


def contain(a: Box, b: Box) -> bool:
    """Whether no point of the second box is outside the first."""
    if not is_somewhere(a) or not is_somewhere(b):
        return False
    return a[0] <= b[0] and b[2] <= a[2] and a[1] <= b[1] and b[3] <= a[3]


def apart_at_most(distance: float) -> Matches:
    """Whether two boxes are so far apart at most."""

    def matches(a: Box, b: Box) -> bool:
        if not is_somewhere(a) or not is_somewhere(b):
            return False
        dx, dy = max(0.0, a[0] - b[2], b[0] - a[2]), max(0.0, a[1] - b[3], b[1] - a[3])
        return dx * dx + dy * dy <= distance * distance if distance else dx == dy == 0

    return matches


def join(
    ours: Sequence[Any], theirs: Sequence[Any], matches: Matches, how: str, near: Matches | None = None
) -> Counter[tuple[int | None, int | None]]:
    """Pairs of row numbers, and rows alone, as a join of some kind gives them; `near` compares the numbers."""
    pairs = Counter(
        (i, j)
        for i, a in enumerate(ours)
        for j, b in enumerate(theirs)
        if matches(a, b) and (near is None or near(i, j))
    )
    left, right = {i for i, _ in pairs}, {j for _, j in pairs}
    wanted: Counter[tuple[int | None, int | None]] = Counter()
    if how in ("inner", "left", "right", "full"):
        wanted.update(pairs)
    if how in ("left", "full", "anti"):
        wanted.update((i, None) for i in range(len(ours)) if i not in left)
    if how in ("right", "full"):
        wanted.update((None, j) for j in range(len(theirs)) if j not in right)
    if how == "semi":
        wanted.update((i, None) for i in left)
    return wanted
