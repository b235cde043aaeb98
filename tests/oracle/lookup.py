"""What a lookup join is: every row of the stream with every row of the table that has its key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def lookup(
    stream: Iterable[Row], table: Iterable[Row], on: Sequence[str], others: Sequence[str], how: str = "inner"
) -> Counter[tuple]:
    """The results as a multiset: the values of the stream's row, then those of `others` of the table's."""
    by_key: dict[tuple, list[Row]] = {}
    for row in table:
        by_key.setdefault(tuple(row[name] for name in on), []).append(row)
    out: Counter[tuple] = Counter()
    for row in stream:
        key = tuple(row[name] for name in on)
        found = [] if None in key else by_key.get(key, [])
        for match in found:
            out[(*row.values(), *(match[name] for name in others))] += 1
        if not found and how == "left":
            out[(*row.values(), *(None for _ in others))] += 1
    return out
