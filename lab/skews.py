"""Runs of joins and of whole plans over links: what they hold, in order or out of order, and how late results are.

Rows arrive when they happened, those of a late link so much later. Each link says every so often how far it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from lab.feeding import SECOND, Counted, Fed, totals
from lab.measures import Measure, Point
from lab.plans import plan
from lab.simulation import Watch
from lab.workloads.netflow import PACKETS, REVERSED, Packets
from penstock.core.rows import RowType
from penstock.core.time import Times, as_times
from penstock.core.within import windows
from penstock.operators.window_join.config import WindowJoin

HELD = Measure("held", "most tuples held", "tuples")
LATENCY = Measure("latency", "median latency of results", "s")

_FLOWS, _HOSTS = 20_000, 4_096
_REPLIES = ("C", "D", "Main2")
"""The links that see replies to what the others see."""


@dataclass(frozen=True, slots=True)
class Joining(Counted):
    """Q7-2: two links in step, `rate` tuples a second each, joined on the reversed 4-tuple within `n` seconds.

    The count by minute that follows the join is the same for all methods and not counted.
    """

    method: Literal["oa", "opob", "opib"]
    n: float = 1
    rate: float = 4_000
    tick: float = 0.25

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Rows and results held at once, and how long after both its rows a result comes out."""
        flows, hosts = (max(1, round(size * scale)) for size in (_FLOWS, _HOSTS))
        links = [
            Packets(
                self.rate * scale, f"{3 * self.n + 6:g} s", flows, hosts, reverse=bool(place), seed=2 * seed + place
            ).table()
            for place in (0, 1)
        ]
        on = tuple(REVERSED.items())
        join = WindowJoin(
            on, windows(f"{self.n:g} s", f"{self.n:g} s"), unit="microseconds", method=self.method, suffix="_2"
        )
        fed, most, late = Fed(join, *(RowType(PACKETS, keys, "ts") for keys in zip(*on, strict=True))), 0, []
        for moment, arrivals in _ticks(links, [0, 0], round(self.tick * SECOND)):
            results = [fed.rows(rows, port) for port, rows in enumerate(arrivals)]
            most = max(most, fed.held("rows"))
            if moment % SECOND == 0:
                results += [fed.advance(moment, port) for port in (0, 1)]
            late += [moment - _later(each) for each in results]
        return totals({HELD: most / scale, LATENCY: np.median(np.concatenate(late)) / SECOND})

    def __str__(self) -> str:
        return f"{self.method}, n = {self.n:g} s"


@dataclass(frozen=True, slots=True)
class Skewed(Counted):
    """A query of chapter 8 as an in-order or an out-of-order plan, with some of its links `skew` seconds late."""

    query: Literal["8-2", "8-3", "8-4", "8-5"]
    kind: Literal["iop", "oop"]
    skew: float = 0
    rate: float = 4_000
    seconds: float = 180
    every: float = 1
    flows: int = 20_000

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """The most tuples that all operators of the plan hold at once."""
        whole = plan(self.query, self.kind)
        late = [round(self.skew * SECOND) * (name in ("B", "D", "Control")) for name in whole.sources]
        links = [
            Packets(
                1 if name == "Control" else self.rate * scale,
                f"{self.seconds:g} s",
                max(1, round(self.flows * scale)),
                max(1, round(_HOSTS * scale)),
                reverse=name in _REPLIES,
                seed=4 * seed + place,
            ).table()
            for place, name in enumerate(whole.sources)
        ]
        step = round(self.every * SECOND)
        for moment, arrivals in _ticks(links, late, step):
            for name, rows, behind in zip(whole.sources, arrivals, late, strict=True):
                if rows.num_rows:
                    whole.rows(name, rows)
                whole.bound(name, moment - behind)
        whole.end()
        return totals({HELD: whole.held / scale})

    @property
    def code(self) -> tuple[str, ...]:
        """Plans and what describes queries, too."""
        return (*super(Skewed, self).code, "penstock.sql", "penstock.flow.sql", "lab.plans")

    def __str__(self) -> str:
        return f"query {self.query}, {self.kind}, skew {self.skew:g} s"


def _ticks(links: list[pa.Table], late: list[int], tick: int) -> Iterator[tuple[int, list[pa.Table]]]:
    """Moments, and what has arrived on each link since the one before."""
    arrivals = [as_times(link.column("ts")).to_numpy() + by for link, by in zip(links, late, strict=True)]
    end = max(int(each[-1]) for each in arrivals if each.size)
    before = [0] * len(links)
    for moment in range(tick, end + 2 * tick, tick):
        until = [int(np.searchsorted(each, moment)) for each in arrivals]
        yield moment, [link.slice(a, b - a) for link, a, b in zip(links, before, until, strict=True)]
        before = until


def _later(results: pa.Table) -> Times:
    """The later of the two times of each result."""
    left, right = (as_times(results.column(name)).to_numpy() for name in ("ts", "ts_2"))
    later: Times = np.maximum(left, right)
    return later
