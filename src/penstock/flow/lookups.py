"""What hosts share about lookups: who steers one whose method was left open, and what they tell it."""

from __future__ import annotations

import pyarrow as pa

from penstock.core.durations import TimeUnit
from penstock.core.master import MasterTable
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.flow.graph import LookupNode
from penstock.planner import STORES, LookupLoad, LookupPilot, PlannedLookup
from penstock.planner.lookup_pilot import table_as_seen

_RATE = 50_000.0
"""Rows a second of one task, until they are counted."""

_SECONDS: dict[TimeUnit, float] = {"microseconds": 1e-6, "days": 86_400.0, "ticks": 1.0}
"""What a step of each unit of time is; of a plain number it is taken to be one."""

_TEXT = 32
"""Bytes that a value of no fixed width is taken to have."""


def lookup_pilot(
    node: LookupNode, table: MasterTable, store: str, share: int, slots: int, current: PlannedLookup | None = None
) -> LookupPilot:
    """Steers a lookup; `store` is the kind of place the table is in."""
    age = node.config.max_age
    load = LookupLoad(
        rows_per_second=_RATE,
        stream_row=float(sum(_width(kind) for kind in node.types[0].inside.types)),
        memory=share,
        max_age=None if age is None else age.on(node.unit, "max_age") * _SECONDS[node.unit],
        shards=slots,
        **table_as_seen(table),
    )
    return LookupPilot(load, STORES[store], current)


def stream_seconds(before: Time, after: Time, unit: TimeUnit) -> float:
    """How much of the stream's time passed between two bounds, as seconds; one if that is not known.

    >>> stream_seconds(0, 2_000_000, "microseconds")
    2.0
    """
    if before in (TIME_MIN, TIME_MAX) or after in (TIME_MIN, TIME_MAX) or after <= before:
        return 1.0
    return (after - before) * _SECONDS[unit]


def _width(kind: pa.DataType) -> int:
    try:
        return int(kind.bit_width + 7) // 8
    except ValueError:
        return _TEXT
