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
    pairs = [(l["id"], r["id"]) for l in left for r in right if same_key(l[key], r[key]) and near(l["t"], r["t"])]
    met_left, met_right = {l for l, _ in pairs}, {r for _, r in pairs}
    if how == "semi":
        return Counter((l["id"], None) for l in left if l["id"] in met_left)
    if how == "anti":
        return Counter((l["id"], None) for l in left if l["id"] not in met_left)
    out = Counter(pairs)
    if how in ("left", "full"):
        out.update((l["id"], None) for l in left if l["id"] not in met_left)
    if how in ("right", "full"):
        out.update((None, r["id"]) for r in right if r["id"] not in met_right)
    return out


def same_key(a: Any, b: Any) -> bool:
    """As Spark compares join keys: null equals nothing, NaN equals NaN."""
    if a is None or b is None:
        return False
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return a == b
