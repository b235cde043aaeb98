"""The definition of a window join, row by row: what every implementation must equal as a multiset."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
Near = Callable[[int, int], bool]


def band(first: int, last: int) -> Near:
    """``first <= r.time - l.time <= last``."""
    return lambda left, right: first <= right - left <= last


def tumbling(size: int, origin: int = 0) -> Near:
    """Both in the same window of `size`."""
    return lambda left, right: (left - origin) // size == (right - origin) // size


def widjoin(left_range: int, right_range: int) -> Near:
    """Eq 5.19–5.22 at a slide of one unit: a pair matches iff some window id holds both rows.

    A tuple of stream i at t lies in the windows t … t + RANGE_i - 1 of its stream; ids pair with themselves.
    """

    def near(left: int, right: int) -> bool:
        return bool(set(range(left, left + left_range)) & set(range(right, right + right_range)))

    return near


def window_join(left: Sequence[Row], right: Sequence[Row], near: Near, how: str, key: str = "k") -> Counter[tuple]:
    """Pairs as (left id, right id), with None for a side that is not there."""
    pairs = [
        (ours["id"], theirs["id"])
        for ours in left
        for theirs in right
        if same_key(ours[key], theirs[key]) and near(ours["t"], theirs["t"])
    ]
    met_left, met_right = {ours for ours, _ in pairs}, {theirs for _, theirs in pairs}
    if how == "semi":
        return Counter((ours["id"], None) for ours in left if ours["id"] in met_left)
    if how == "anti":
        return Counter((ours["id"], None) for ours in left if ours["id"] not in met_left)
    out = Counter(pairs)
    if how in ("left", "full"):
        out.update((ours["id"], None) for ours in left if ours["id"] not in met_left)
    if how in ("right", "full"):
        out.update((None, theirs["id"]) for theirs in right if theirs["id"] not in met_right)
    return out


def same_key(a: Any, b: Any) -> bool:
    """As Spark compares join keys: null equals nothing, NaN equals NaN."""
    if a is None or b is None:
        return False
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return a == b
