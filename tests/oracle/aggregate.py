"""The definition of a window aggregation, window by window and row by row: what every implementation must equal.

Windows are found by trying all numbers against `extent`; aggregates are computed from the list of rows.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
Extent = Callable[[int], tuple[int, int]]
Groups = dict[tuple, list[Row]]


def sliding(rows: Sequence[Row], extent: Extent, wids: range) -> dict[tuple[int, int], list[Row]]:
    """Rows of every window that has some, by where it starts and ends."""
    windows = {}
    for wid in wids:
        start, end = extent(wid)
        held = [row for row in rows if start <= row["t"] < end]
        if held:
            windows[start, end] = held
    return windows


def landmark(rows: Sequence[Row], extent: Extent, wids: range) -> dict[tuple[int | None, int], list[Row]]:
    """Everything before the end of each window."""
    windows = {}
    for wid in wids:
        _, end = extent(wid)
        held = [row for row in rows if row["t"] < end]
        if held:
            windows[None, end] = held
    return windows


def sessions(rows: Sequence[Row], gap: int) -> dict[tuple[int, int], list[Row]]:
    """Rows of one group, cut where the silence is longer than the gap."""
    windows: dict[tuple[int, int], list[Row]] = {}
    held: list[Row] = []
    for row in sorted(rows, key=lambda row: row["t"]):
        if held and row["t"] - held[-1]["t"] > gap:
            windows[held[0]["t"], held[-1]["t"] + gap] = held
            held = []
        held = [*held, row]
    if held:
        windows[held[0]["t"], held[-1]["t"] + gap] = held
    return windows


def slide_by_tuple(rows: Sequence[Row], range_: int, slides: Sequence[int]) -> list[tuple[tuple[int, int], list[Row]]]:
    """Rows of one group in the windows that end at the times in `slides`: open-closed."""
    return [((w - range_ + 1, w + 1), [row for row in rows if w - range_ < row["t"] <= w]) for w in slides]


def by_group(rows: Sequence[Row], by: Sequence[str]) -> Groups:
    """Rows of each group; null is a group, NaN is one, -0.0 is 0.0."""
    groups: Groups = defaultdict(list)
    for row in rows:
        groups[tuple(plain(row[name]) for name in by)].append(row)
    return groups


def plain(value: Any) -> Any:
    """A value that can be compared and hashed: NaN as text, floats without their last digits, lists as tuples."""
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        return float(f"{value:.9g}") + 0.0
    if isinstance(value, list):
        return tuple(plain(item) for item in value)
    if isinstance(value, dict):
        return tuple(plain(item) for item in value.values())
    return value


def order(value: Any) -> tuple:
    """Spark's order: NaN after all numbers."""
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


def variance(values: list[float], freedom: int) -> float | None:
    if freedom < 1:
        return None
    if any(math.isnan(v) or math.isinf(v) for v in values):
        return math.nan
    mean = sum(values) / len(values)
    return sum((v - mean) ** 2 for v in values) / freedom


def quantile(values: list[float], share: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values, key=order)
    place = share * (len(values) - 1)
    low, high = math.floor(place), math.ceil(place)
    if low == high:
        return float(ordered[low])
    return (high - place) * ordered[low] + (place - low) * ordered[high]


def heavy(values: list[Any], share: float) -> list[tuple]:
    counts = Counter(plain(v) for v in values)
    kept = [(v, n) for v, n in counts.items() if n / len(values) >= share]
    return [(v, n) for v, n in sorted(kept, key=lambda pair: (-pair[1], _plain_order(pair[0])))]


def _plain_order(value: Any) -> tuple:
    return (1, 0) if value == "nan" else (0, value)


def distinct(values: list[Any]) -> list[Any]:
    return sorted({plain(v) for v in values}, key=_plain_order)


def mode(values: list[Any]) -> Any:
    counts = Counter(plain(v) for v in values)
    return min(counts, key=lambda v: (-counts[v], _plain_order(v))) if counts else None


def earliest(rows: list[Row], column: str, sign: int) -> Any:
    there = [row for row in rows if row[column] is not None]
    return min(there, key=lambda row: (sign * row["t"], order(row[column])))[column] if there else None


def marked(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["b"]]


FUNCTIONS: dict[str, Callable[[list[Row], str, list[Any]], Any]] = {
    "rows": lambda rows, column, values: len(rows),
    "count": lambda rows, column, values: len(values),
    "sum": lambda rows, column, values: sum(values) if values else None,
    "min": lambda rows, column, values: min(values, key=order) if values else None,
    "max": lambda rows, column, values: max(values, key=order) if values else None,
    "mean": lambda rows, column, values: sum(values) / len(values) if values else None,
    "var": lambda rows, column, values: variance(values, len(values) - 1),
    "stddev": lambda rows, column, values: math.sqrt(v) if (v := variance(values, len(values))) is not None else None,
    "first": lambda rows, column, values: earliest(rows, column, 1),
    "last": lambda rows, column, values: earliest(rows, column, -1),
    "distinct": lambda rows, column, values: len({plain(v) for v in values}),
    "median": lambda rows, column, values: quantile(values, 0.5),
    "p90": lambda rows, column, values: quantile(values, 0.9),
    "mode": lambda rows, column, values: mode(values),
    "heavy": lambda rows, column, values: heavy(values, 0.3),
    "set": lambda rows, column, values: distinct(values),
    "list": lambda rows, column, values: [
        row[column]
        for row in sorted(rows, key=lambda row: (row["t"], order(row[column]) if row[column] is not None else ()))
        if row[column] is not None
    ],
    "marked_rows": lambda rows, column, values: len(marked(rows)),
    "marked_count": lambda rows, column, values: len([r for r in marked(rows) if r[column] is not None]),
    "marked_distinct": lambda rows, column, values: len(
        {plain(r[column]) for r in marked(rows) if r[column] is not None}
    ),
    "doubled": lambda rows, column, values: 2 * sum(values) if values else None,
}
"""What each aggregate that tests ask for means."""


def aggregate(rows: list[Row], name: str, column: str) -> Any:
    """One aggregate of some rows."""
    values = [row[column] for row in rows if row[column] is not None]
    return plain(FUNCTIONS[name](rows, column, values))
