"""A discrete-event simulation of Gigascope's low level: packets in a ring, a table of counts, and what it puts out.

A packet takes a while to be counted, and everything that leaves the table takes a while, too. Meanwhile packets wait in
the ring; one that finds it full is lost. What is asked is the highest rate at which none is.

At scale f there are f times as many packets, groups, slots and places in the ring, and all costs are 1/f as high.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from lab.feeding import Counted, totals
from lab.measures import Measure, Point
from lab.operators.low_level import LowLevel
from lab.simulation import Watch
from penstock.core.delays import Counts, Seconds
from penstock.kernels.segments import Mask

RATE = Measure("rate", "highest rate without loss", "packets/s")
BUSY = Measure("busy", "CPU busy at that rate", "%")

PER_PACKET = PER_OUTPUT = 1e-6
"""Seconds: the thesis gives none. Out-of-order processing of 260 K groups in twice as many slots then keeps up with
about 800,000 packets/s, as the thesis has it."""

RING = 80_000
"""Packets: the thesis does not give it. In-order processing of 260 K groups then keeps up with about 400,000/s."""

STEP = 5_000
"""Rates are tried in steps of so many packets/s."""

_MINUTE, _MINUTES = 60, 4
_MOST_STEPS = 250
_EMPTY = -1


@dataclass(frozen=True, slots=True)
class Surge(Counted):
    """Counts by group and minute in a table of `table` times as many slots as there are `groups`."""

    flush: Literal["iop-slow", "lazy", "oop-slow"]
    table: float
    groups: float = 66_000

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """The highest rate without loss, by bisection, and how busy the CPU is there."""
        low, high, busy = 0, _MOST_STEPS, 0.0
        while high - low > 1:
            middle = (low + high) // 2
            lossless, load = self.try_rate(middle * STEP, scale, seed)
            if lossless:
                low, busy = middle, load
            else:
                high = middle
        return totals({RATE: low * STEP, BUSY: 100 * busy})

    def try_rate(self, rate: float, scale: float, seed: int) -> tuple[bool, float]:
        """Whether no packet is lost in some minutes, and which part of the time the CPU is busy."""
        random = np.random.default_rng(seed)
        count = max(2, round(self.groups * scale))
        groups = random.choice(1 << 30, count, replace=False)[random.integers(0, count, int(rate * scale) * self._span)]
        arrivals = np.arange(groups.size) / max(1, int(rate * scale))
        settings = LowLevel(max(1, round(self.table * count)), self.flush)
        outputs = outputs_at(settings, groups, (arrivals // _MINUTE).astype(np.int64))
        work: Seconds = np.asarray((PER_PACKET + PER_OUTPUT * outputs) / scale, np.float64)
        done = finished(arrivals, work)
        ring = max(1, round(RING * scale))
        return bool((done[:-ring] <= arrivals[ring:]).all()), float(work.sum()) / max(float(done[-1]), self._span)

    @property
    def _span(self) -> int:
        return _MINUTE * _MINUTES

    def __str__(self) -> str:
        return f"{self.flush}, {self.groups:g} groups, table {self.table:g}"


def finished(arrivals: Seconds, work: Seconds) -> Seconds:
    """When each packet is done, one after the other: not before it is there, nor before the one ahead of it is done.

    >>> finished(np.array([0.0, 1.0, 9.0]), np.array([5.0, 1.0, 1.0]))
    array([ 5.,  6., 10.])
    """
    total = np.cumsum(work)
    done: Seconds = total + np.maximum.accumulate(arrivals - (total - work))
    return done


def outputs_at(settings: LowLevel, groups: Counts, wids: Counts) -> Counts:
    """How many counts leave the table at each packet: what `evictions` gives row by row, a window at a time.

    Windows come in order. What is left at the end does not count.

    >>> outputs_at(LowLevel(slots=1), np.array([1, 1, 2]), np.array([0, 0, 0]))
    array([0, 0, 1])
    """
    counts = np.zeros(groups.size, np.int64)
    table = np.full(settings.slots, _EMPTY, np.int64)
    starts = np.flatnonzero(np.diff(wids, prepend=wids[:1] - 1))
    for first, last in zip(starts, np.append(starts[1:], groups.size), strict=True):
        wid, before = int(wids[first]), int(wids[first - 1]) if first else int(wids[first])
        gone = (table != _EMPTY) & (table < (before if settings.flush == "iop-slow" else wid - settings.behind))
        counts[first] += np.count_nonzero(gone)
        table[gone] = _EMPTY
        _one_window(settings, groups[first:last], counts[first:last], table, int(first))
        table[groups[first:last] % settings.slots] = wid
    return counts


def _one_window(settings: LowLevel, groups: Counts, counts: Counts, table: Counts, first: int) -> None:
    """Add what leaves at each packet of a window, and empty the slots of old windows that are flushed."""
    places = groups % settings.slots
    order = np.argsort(places, kind="stable")
    again = places[order][1:] == places[order][:-1]
    collisions = order[1:][again & (groups[order][1:] != groups[order][:-1])]
    counts[collisions] += 1
    hit = np.full(settings.slots, groups.size)
    starts = order[np.append(True, ~again)]
    hit[places[starts]] = starts
    old = table != _EMPTY
    surge = int(collisions.min()) if settings.flush == "iop-slow" and collisions.size else groups.size
    if settings.flush != "lazy":
        pace = 1 if settings.flush == "iop-slow" else settings.every
        for place, row in _walk(old, hit, range(-(first + 1) % pace, min(groups.size, surge + 1), pace)):
            counts[row] += 1
            table[place] = _EMPTY
            old[place] = False
    if surge < groups.size:
        forced = old & (hit > surge)
        counts[surge] += np.count_nonzero(forced)
        table[forced] = _EMPTY
        old &= ~forced
    counts[hit[old & (hit < groups.size)]] += 1


def _walk(old: Mask, hit: Counts, rows: range) -> list[tuple[int, int]]:
    """Which old slot the slow flush puts out at each of `rows`: the next that no packet has taken until then."""
    flushed = []
    waiting = iter(np.flatnonzero(old).tolist())
    for row in rows:
        place = next((place for place in waiting if hit[place] >= row), None)
        if place is None:
            break
        flushed.append((place, row))
    return flushed
