"""Runs of joins by cells from memory: boxes (progressive-joins §2.5) and points near each other (§2.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from lab.cell_simulation import BoxCopies, Copies, PointCopies, count_from_memory
from lab.measures import SAMPLES, Measure, Point
from lab.progressive_runs import IN_MEMORY
from lab.simulation import Watch
from lab.workloads.boxes import Border, Cells
from lab.workloads.vectors import Images, Kind, Order, Vectors
from penstock.operators.window_join.progressive.baselines.policies import ArrivalRate, ByChance
from penstock.operators.window_join.progressive.policies import Policy, ResultRate, RowRate, Scores

HALF = Measure("half", "results from memory at half of the input", "tuples")

BOXES, BOX_MEMORY = 2_000_000, 102_000
"""Of both streams; copies in memory, a thousand pages."""
POINTS, POINT_MEMORY = 500_000, 85_000
FLUSH = 0.1
PERCENT = 100.0
ADDED = 10
"""Average rows that each cell has more where results are smoothed."""

BoxPolicy = Literal["RRPJ", "RPJ", "RRPJ-F", "Random"]
NearPolicy = Literal["RRPJ", "RRPJ, σ = 0", "RRPJ, smoothed", "neRPJ", "Random", "Foreseen"]

_POLICIES = "penstock.operators.window_join.progressive"


class OppositeShare(Policy):
    """neRPJ: the share of the opposite cell in its side's arrivals, without regard to which stream is faster now.

    >>> policy = OppositeShare(2)
    >>> policy.arrive(0, np.array([0, 1, 1, 1]))
    >>> policy.scores()[1].tolist()
    [0.25, 0.75]
    """

    def scores(self) -> Scores:
        """A cell is worth what the opposite one has had."""
        shares: Scores = self.arrived / np.maximum(self.arrived.sum(axis=1, keepdims=True), 1)
        return shares[::-1]


class Smoothed(ResultRate):
    """RRPJ, but each cell has `ADDED` rows more, with as many results as rows have on average.

    A row that is alone in its cell and has met nobody yet is not taken for the worst of all.

    >>> policy = Smoothed(3)
    >>> policy.arrive(0, np.array([0, 0, 0, 0, 0, 0, 0, 1]))
    >>> policy.credit(0, np.array([16, 0, 0]))
    >>> policy.scores()[0].round(2).tolist()
    [2.12, 1.82, 2.0]
    """

    def scores(self) -> Scores:
        """Results for each row."""
        mean = self.results.sum() / max(float(self.arrived.sum()), 1.0)
        rates: Scores = (self.results + ADDED * mean) / (self.arrived + ADDED)
        return rates


class Foreseen(Policy):
    """A cell is worth the results that its rows have in all, those of the future among them: no policy knows that."""

    def __init__(self, copies: Copies) -> None:
        super().__init__(copies.cells)
        sides = [np.flatnonzero(copies.side == port) for port in (0, 1)]
        rows = np.array([np.bincount(copies.cell[some], minlength=copies.cells) for some in sides])
        hits = [copies.hits(sides[port], sides[1 - port]) for port in (0, 1)]
        found = [np.bincount(copies.cell[some], hit, copies.cells) for some, hit in zip(sides, hits, strict=True)]
        self.rates = np.array(found) / np.maximum(rows, 1)

    def scores(self) -> Scores:
        """Results for each row."""
        rates: Scores = self.rates
        return rates


@dataclass(frozen=True, slots=True)
class OfBoxes:
    """A policy on two streams of boxes over ten times ten cells."""

    policy: BoxPolicy = "RRPJ"
    apart: float = 0.0
    stretched: float = 0.0
    over: int = 2
    border: Border = "back"

    @property
    def stem(self) -> str:
        """The name of the source."""
        return "progressive-boxes"

    @property
    def code(self) -> tuple[str, ...]:
        """The policies, and the lab's own modules."""
        return (_POLICIES, "lab.cell_simulation", "lab.workloads.boxes", type(self).__module__)

    @property
    def span(self) -> float:
        """Per cent of the input."""
        return PERCENT

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Count; with fewer rows and less memory a row has fewer partners, so that results shrink by the square."""
        rows = Cells(self.apart, self.stretched, self.over, self.border).draw(round(BOXES * scale), seed)
        copies = BoxCopies(rows)
        return _counted(self._chooses(copies.cells, seed), copies, round(BOX_MEMORY * scale), scale)

    def _chooses(self, cells: int, seed: int) -> Policy:
        if self.policy == "RRPJ":
            return ResultRate(cells)
        if self.policy == "RPJ":
            return ArrivalRate(cells)
        return RowRate(cells) if self.policy == "RRPJ-F" else ByChance(cells, seed)


@dataclass(frozen=True, slots=True)
class OfPoints:
    """A policy on two streams of points; of `images`, both have the same ones, in nine dimensions."""

    policy: NearPolicy = "RRPJ"
    kind: Kind | Literal["images"] = "uniform"
    dimensions: int = 3
    distance: float = 0.1
    order: Order = "draws"

    @property
    def stem(self) -> str:
        """The name of the source."""
        return "progressive-points"

    @property
    def code(self) -> tuple[str, ...]:
        """The policies, and the lab's own modules."""
        return (_POLICIES, "lab.cell_simulation", "lab.workloads.vectors", type(self).__module__)

    @property
    def span(self) -> float:
        """Per cent of the input."""
        return PERCENT

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Count; with fewer rows and less memory a row has fewer partners, so that results shrink by the square."""
        if self.kind == "images":
            side, points = Images().draw(scale, seed)
        else:
            side, points = Vectors(self.kind, self.dimensions, self.order).draw(round(POINTS * scale), seed)
        copies = PointCopies(side, points, self.distance)
        return _counted(self._chooses(copies, seed), copies, round(POINT_MEMORY * scale), scale)

    def _chooses(self, copies: Copies, seed: int) -> Policy:
        if self.policy == "Foreseen":
            return Foreseen(copies)
        if self.policy == "Random":
            return ByChance(copies.cells, seed)
        if self.policy == "neRPJ":
            return OppositeShare(copies.cells)
        if self.policy == "RRPJ, smoothed":
            return Smoothed(copies.cells)
        return ResultRate(copies.cells, sigma=0.0 if self.policy == "RRPJ, σ = 0" else 1.0)


def _counted(policy: Policy, copies: Copies, memory: int, scale: float) -> Point:
    counted = count_from_memory(policy, copies, memory, FLUSH)
    arrived = np.linspace(0, PERCENT, SAMPLES + 1)
    # Of batches it is known what they gave in all: a line between is what they gave row by row, nearly.
    path = (
        np.interp(arrived / PERCENT * copies.rows, np.append(0, counted.arrivals), np.append(0, counted.results))
        / scale**2
    )
    totals = {IN_MEMORY.name: float(path[-1]), HALF.name: float(path[SAMPLES // 2])}
    return Point(totals, arrived, {IN_MEMORY.name: path})
