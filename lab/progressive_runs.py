"""Runs of joins without a window, by counts: the parameters of the source (progressive-joins §2.4, Tab 4.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lab.measures import SAMPLES, Measure, Point
from lab.progressive_simulation import complete, count_results
from lab.simulation import Watch
from lab.workloads.progressive import Drifting, Pattern, Skewed
from penstock.operators.window_join.progressive.baselines.policies import ArrivalRate, ByChance, Largest, LastSeen
from penstock.operators.window_join.progressive.policies import Policy, ResultRate

PolicyName = Literal["RRPJ", "RPJ", "XJoin", "Random", "LA"]

IN_MEMORY = Measure("in_memory", "results from memory", "tuples")
SHARE = Measure("share", "results from memory", "part of all")
THROUGHPUT = Measure("throughput", "results from memory", "1/s")
CLEANUP = Measure("cleanup", "clean-up", "s")
RUNS = Measure("runs", "runs on disk", "runs")

TUPLES, PAGE, MEMORY, DOMAIN, PARTITIONS = 2_000_000, 85, 85_000, 10_000, 100
"""Both streams; tuples in a page and in memory; keys; and partitions, which the source does not give (§6.4)."""

SECOND = 1000
"""Tuples of both streams in a second."""


@dataclass(frozen=True, slots=True)
class Run:
    """One policy on one pair of streams: with a `period` they drift, else partitions are skewed by a pattern.

    `flush` is the part of memory that a flush frees; 0 is one tuple. Streams are disjoint in a part of the partitions,
    the most frequent one among them unless `most_meet`.
    """

    policy: PolicyName = "RRPJ"
    sigma: float = 1.0
    pattern: Pattern = "harmony"
    disjoint: float = 0.0
    period: float | None = None
    skew: float = 1.0
    flush: float = 0.1
    memory: float = float(MEMORY)
    partitions: int = PARTITIONS
    most_meet: bool = False

    @property
    def stem(self) -> str:
        """The name of the source."""
        return "progressive-run"

    @property
    def code(self) -> tuple[str, ...]:
        """The policies, and the lab's own modules."""
        policies = "penstock.operators.window_join.progressive"
        return (policies, "lab.progressive_simulation", "lab.workloads.progressive", type(self).__module__)

    @property
    def span(self) -> float:
        """Seconds of stream."""
        return TUPLES / SECOND

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Count; results are scaled back.

        Memory, keys and pages shrink with the streams, so that rows have as many partners and flushes fill as many
        pages: runs, pages and the clean-up are about those of the full size, but for flushes of one tuple. What would
        be a started page of a few tuples at full size is none at all if it comes to less than one: the smaller the
        scale, the less flushes of many partitions seem to cost.
        """
        tuples, domain = round(TUPLES * scale), max(2 * self.partitions, round(DOMAIN * scale))
        side, keys = self._streams(domain, scale).draw(tuples, seed)
        memory, page = max(1, round(self.memory * scale)), max(1, round(PAGE * scale))
        counted = count_results(self._chooses(seed), side, keys, memory, self.flush, page)
        counted = replace(counted, comparisons=counted.comparisons / scale)
        seconds = tuples / SECOND
        totals = {
            IN_MEMORY: counted.total / scale,
            SHARE: counted.total / complete(side, keys),
            THROUGHPUT: counted.total / seconds,
            CLEANUP: counted.cleanup,
            RUNS: counted.runs,
        }
        times = np.linspace(0, seconds, SAMPLES + 1)
        path = np.interp(times * SECOND, counted.arrivals, counted.results) / scale
        return Point(
            {measure.name: float(value) for measure, value in totals.items()}, times / scale, {IN_MEMORY.name: path}
        )

    def _streams(self, domain: int, scale: float) -> Skewed | Drifting:
        if self.period is not None:
            return Drifting(round(self.period * scale), self.partitions, domain, self.skew)
        return Skewed(self.pattern, self.partitions, domain, self.skew, self.disjoint, self.most_meet)

    def _chooses(self, seed: int) -> Policy:
        if self.policy == "RRPJ":
            return ResultRate(self.partitions, self.sigma)
        if self.policy == "RPJ":
            return ArrivalRate(self.partitions, self.sigma)
        if self.policy == "LA":
            return LastSeen(self.partitions, self.sigma)
        return Largest(self.partitions) if self.policy == "XJoin" else ByChance(self.partitions, seed)
