"""Runs of the early spatial joins on the simulated disk, and the trees that they build (progressive-joins §2.10)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from lab.box_matching import Boxes, covers
from lab.early_spatial import JOINS, LEFT, Room, Step, Streams
from lab.measures import Measure, Point
from lab.page_buffer import PageBuffer, PageCounts
from lab.paged_rtree import PagedTree
from lab.simulation import Watch
from lab.workloads.boxes import Clusters, Lines, Order
from penstock.core.delays import Seconds

RESPONSE = Measure("response", "response time", "s")
CPU = Measure("cpu", "CPU time", "s")
IO = Measure("io", "pages read and written", "pages")
BUILD = Measure("build", "pages read and written to insert or store", "pages")
JOIN = Measure("join", "pages read and written to join", "pages")
COMPARED = Measure("compared", "pairs of pages compared", "pairs")
RESULTS = Measure("results", "results", "pairs")

CENTRE = Measure("centre", "centre of a page or node, upwards", "of the square")
LEVELS = Measure("levels", "levels of the tree", "levels")
INSIDE = Measure("inside", "inside one cluster", "yes or no")

PERCENT = np.linspace(0, 100, 101)
"""Of the results, where a run is looked at."""

Method = Literal["static", "fully dynamic", "block dynamic", "SBNL", "SIBNL", "joining trees", "marking records"]
Country = Literal["Greece", "Germany"]

COUNTRIES = {"Greece": Lines(24_650, 23_268), "Germany": Lines(36_334, 30_674)}
"""Rivers and roads; rails and roads: lines of our own, as many as the source's."""

_MODULES = (
    "lab.early_spatial",
    "lab.page_buffer",
    "lab.paged_rtree",
    "lab.box_matching",
    "lab.simulated_disk",
    "lab.workloads.boxes",
)


def room_at(scale: float) -> Room:
    """Pages and the buffer shrink by the root, so that trees keep their height and sets their blocks.

    >>> room_at(1.0), room_at(1 / 16)
    (Room(frames=128, records=204), Room(frames=32, records=51))
    """
    return Room(max(12, round(128 * math.sqrt(scale))), max(6, round(204 * math.sqrt(scale))))


@dataclass(frozen=True, slots=True)
class Early:
    """A join of two sets: clusters of so many `rows` each, or the lines of a country.

    With a `wait`, records arrive by chance, so many seconds apart on average in either stream; else all are there when
    they are wanted.
    """

    method: Method
    rows: int = 100_000
    clusters: int = 5
    order: Order = "clustered"
    country: Country | None = None
    wait: float | None = None

    @property
    def stem(self) -> str:
        """The name of the source."""
        return "progressive-early"

    @property
    def code(self) -> tuple[str, ...]:
        """The lab's own modules."""
        return (*_MODULES, type(self).__module__)

    @property
    def span(self) -> float:
        """Per cent of the results."""
        return 100.0

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Join, and look at the run whenever another hundredth of the results was out; nothing is scaled back."""
        join = JOINS[self.method](room_at(scale))
        joined = join.run(self._streams(scale, seed), waits=self.wait is not None)
        out = np.array([step.results for step in joined.steps])
        wanted = np.ceil(PERCENT / 100 * joined.last.results)
        steps = [joined.steps[place] for place in np.searchsorted(out, wanted).tolist()]
        paths = {name: np.array([_of(step)[name] for step in steps]) for name in _of(joined.last)}
        return Point(_of(joined.last) | {RESULTS.name: float(joined.last.results)}, PERCENT, paths)

    def _streams(self, scale: float, seed: int) -> Streams:
        if self.country is not None:
            left, right = COUNTRIES[self.country].draw(scale, seed)
        else:
            left, right = Clusters(self.clusters, self.order).draw(round(self.rows * scale), seed)
        streams = Streams.steady(left, right)
        if self.wait is None:
            return streams
        rng = np.random.default_rng([seed, 1])
        return Streams(streams.boxes, (self._arrivals(rng, left), self._arrivals(rng, right)))

    def _arrivals(self, rng: np.random.Generator, boxes: Boxes) -> Seconds:
        assert self.wait is not None
        moments: Seconds = np.cumsum(rng.exponential(self.wait, len(boxes)))
        return moments


@dataclass(frozen=True, slots=True)
class Shape:
    """The R-tree of one set of clusters: of all its records, or of a `summary`, one box for each page.

    Looked at are what its leaves cover, or its pages, and one level above that; by the place of their centres.
    """

    summary: bool
    above: bool
    rows: int = 100_000
    clusters: int = 5

    @property
    def stem(self) -> str:
        """The name of the source."""
        return "progressive-tree"

    @property
    def code(self) -> tuple[str, ...]:
        """The lab's own modules."""
        return (*_MODULES, type(self).__module__)

    @property
    def span(self) -> float:
        """The width of the square."""
        return 1.0

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Build it."""
        room = room_at(scale)
        boxes = Clusters(self.clusters).draw(round(self.rows * scale), seed)[LEFT]
        entries = covers(boxes, room.records) if self.summary else boxes
        tree = PagedTree("tree", PageBuffer(room.frames, PageCounts()), room.records)
        for number, box in enumerate(entries):
            tree.insert(number, box)
        levels = [entries, *tree.levels()] if self.summary else tree.levels()
        shown = levels[int(self.above)]
        shown = shown[np.argsort(shown[:, 0] + shown[:, 2], kind="stable")]
        paths = {
            CENTRE.name: (shown[:, 1] + shown[:, 3]) / 2,
            LEVELS.name: np.full(len(shown), float(tree.height)),
            INSIDE.name: _inside(shown, boxes, self.clusters).astype(np.float64),
        }
        return Point({LEVELS.name: float(tree.height)}, (shown[:, 0] + shown[:, 2]) / 2, paths)


def _inside(shown: Boxes, boxes: Boxes, clusters: int) -> npt.NDArray[np.bool_]:
    """Whether each lies in one cluster, as the records of a cluster, one behind the other, lie."""
    each = len(boxes) // clusters
    areas = covers(boxes[: each * clusters], each)
    low, high = shown[:, None, :2] >= areas[None, :, :2], shown[:, None, 2:] <= areas[None, :, 2:]
    within: npt.NDArray[np.bool_] = np.any(np.all(low & high, axis=2), axis=1)
    return within


def _of(step: Step) -> dict[str, float]:
    return {
        RESPONSE.name: step.now,
        CPU.name: step.cpu,
        IO.name: float(step.build + step.join),
        BUILD.name: float(step.build),
        JOIN.name: float(step.join),
        COMPARED.name: float(step.compared),
    }
