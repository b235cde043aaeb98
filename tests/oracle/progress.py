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


def distinct(rows: Iterable[tuple[Any, int]], within: int) -> list[tuple[Any, int]]:
    """Keys and times of the rows that are kept: none of a key less than `within` after the last one kept of it."""
    last: dict[Any, int] = {}
    kept = []
    for key, time in sorted(rows, key=lambda row: row[1]):
        if key not in last or time - last[key] >= within:
            last[key] = time
            kept.append((key, time))
    return kept
