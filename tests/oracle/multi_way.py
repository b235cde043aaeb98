"""The definition of a multi-way join on one key: one row of each stream, all keys equal, every two near in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

Row = dict[str, Any]
Near = Callable[[int, int], bool]
"""Whether a left and a right time are near; the stream that is named first is the left one."""


def multi_join(streams: Sequence[Sequence[Row]], near: Near) -> Counter[tuple[int, ...]]:
    """The ids of the rows of every result."""
    results: Counter[tuple[int, ...]] = Counter()
    for key in {row["k"] for row in streams[0] if row["k"] is not None}:
        ours = [[row for row in rows if row["k"] == key] for rows in streams]
        for rows in product(*ours):
            if all(near(left["t"], right["t"]) for left, right in combinations(rows, 2)):
                results[tuple(row["id"] for row in rows)] += 1
    return results


def always(left: int, right: int) -> bool:
    """All rows are near."""
    return True
