"""What progress means, item by item: the definitions that the operators of progress must keep to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

LEAST = -(2**63)


def effective(linear: int, own: dict[Any, int], group: Any) -> int:
    """How far a group has got: the further of what was said of all and of it alone."""
    return max(linear, own.get(group, LEAST))


def is_violator(punctuations: Iterable[tuple[Any, int]], group: Any, time: int) -> bool:
    """Whether a row matches a punctuation before it: (None, bound) speaks of all, (group, bound) of one."""
    return any((of is None or of == group) and time < bound for of, bound in punctuations)


def first_of_each(rows: Sequence[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """The distinct rows, in order of first arrival."""
    return list(dict.fromkeys(rows))


def top(rows: Sequence[dict[str, Any]], by: Sequence[str], n: int, of: str, size: int) -> list[dict[str, Any]]:
    """The rows that have fewer than `n` rows with a greater value in their window and group; none without a value."""

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return (row["t"] // size, *(row[name] for name in by))

    def rank(row: dict[str, Any]) -> tuple[int, Any]:
        return (1, 0) if row[of] != row[of] else (0, row[of])  # NaN is the greatest number

    there = [row for row in rows if row[of] is not None]
    return [row for row in there if sum(place(other) == place(row) and rank(other) > rank(row) for other in there) < n]


def distinct(rows: Iterable[tuple[Any, int]], within: int) -> list[tuple[Any, int]]:
    """Keys and times of the rows that are kept: none of a key less than `within` after the last one kept of it."""
    last: dict[Any, int] = {}
    kept = []
    for key, time in sorted(rows, key=lambda row: row[1]):
        if key not in last or time - last[key] >= within:
            last[key] = time
            kept.append((key, time))
    return kept
