"""Finds the settings of a lookup join: the partition size b, the cache's part x of the memory, and α.

Either the most rows a second in the memory there is, or the least memory that keeps up with a rate. In b and in x the
rate has one hump (Figs 9a, 9c), so each is searched by halving in turn, the other held; α follows from the equations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from lab.lookup_equations import (
    FUDGE,
    NODE,
    Cycle,
    Operations,
    Setting,
    Sizes,
    hybrid_cycle,
    mesh_cycle,
)
from penstock.core.errors import ConfigError
from penstock.planner.lookup.reads import ReadCosts
from penstock.planner.lookup.skew import Skew

Tunable = Literal["mesh", "hybrid"]

_GOLDEN = (math.sqrt(5) - 1) / 2
_LARGEST_CACHE = 0.95
_TURNS = 3
_STEPS = 14
_CLOSE = 0.002
"""Memory is told to this part of itself."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """Settings, the memory they are for, and what they give."""

    setting: Setting
    sizes: Sizes
    cycle: Cycle

    @property
    def rate(self) -> float:
        """μ."""
        return self.cycle.rate


def tune(
    method: Tunable,
    sizes: Sizes,
    skew: Skew,
    reads: ReadCosts,
    operations: Operations | None = None,
    start: Setting | None = None,
) -> Tuned:
    """The settings by which most rows a second are answered in the memory of `sizes`.

    >>> from penstock.planner.machine import Disk
    >>> disk = ReadCosts.of_disk(Disk(), row=120, request=0.001)
    >>> best = tune("mesh", Sizes(100_000, 120, 20, 1_200_000), Skew(100_000, 1.0), disk)
    >>> 0.05 < best.setting.cache < 0.3
    True
    """
    cycle = mesh_cycle if method == "mesh" else hybrid_cycle
    unit = max(1.0, reads.block / sizes.table_row)

    def rate(log: float, cache: float) -> float:
        return cycle(sizes, Setting(_whole(log, unit), cache), skew, reads, operations).rate

    most = math.log(max(2.0, min(sizes.table_rows, sizes.memory / sizes.table_row) / unit))
    rows, cache = (most / 2, 0.15) if start is None else (math.log(start.partition_rows / unit), start.cache)
    for _ in range(_TURNS if start is None else 1):
        rows = _highest(partial(_first, rate, cache), 0.0, most)
        cache = _highest(partial(rate, rows), 0.0, _LARGEST_CACHE)
    plain = _highest(partial(_first, rate, 0.0), 0.0, most)
    if rate(plain, 0.0) >= rate(rows, cache):
        rows, cache = plain, 0.0
    setting = Setting(_whole(rows, unit), cache, _alpha(sizes) if method == "hybrid" else None)
    return Tuned(setting, sizes, cycle(sizes, setting, skew, reads, operations))


def least_memory(
    method: Tunable,
    rate: float,
    sizes: Sizes,
    skew: Skew,
    reads: ReadCosts,
    operations: Operations | None = None,
) -> Tuned:
    """The least memory, and its settings, by which `rate` rows a second are answered; up to that of `sizes`.

    >>> from penstock.planner.machine import Disk
    >>> disk = ReadCosts.of_disk(Disk(), row=120, request=0.001)
    >>> sizes = Sizes(100_000, 120, 20, 12_000_000)
    >>> least = least_memory("mesh", 20_000, sizes, Skew(100_000, 1.0), disk)
    >>> least.rate >= 20_000, least.sizes.memory < sizes.memory / 10
    (True, True)
    """
    best = tune(method, sizes, skew, reads, operations)
    if best.rate < rate:
        raise ConfigError(
            f"rate={rate:g} is more than {best.rate:,.0f} rows a second, which is what memory={sizes.memory:g} gives. "
            f"Give it more memory, or a faster table."
        )
    low, high = 0.0, sizes.memory
    while high - low > _CLOSE * high:
        memory = (low + high) / 2 if low else high / 2
        tried = tune(method, replace(sizes, memory=memory), skew, reads, operations, best.setting)
        if tried.rate >= rate:
            best, high = tried, memory
        else:
            low = memory
    return best


def _whole(log: float, unit: float) -> int:
    """Rows that fill whole blocks: what is left of one would be read for nothing."""
    return max(1, int(round(math.exp(log)) * unit))


def _first(of: Callable[[float, float], float], second: float, first: float) -> float:
    return of(first, second)


def _alpha(sizes: Sizes) -> float:
    """The part of the hash map by which it is full when the queue is."""
    entry = FUDGE * sizes.stream_row
    return entry / (entry + NODE)


def _highest(of: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that rises and then falls is highest, its ends included."""
    ends = low, high
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = of(left), of(right)
    for _ in range(_STEPS):
        if at_left > at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = of(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = of(right)
    return max((*ends, left, right), key=of)
