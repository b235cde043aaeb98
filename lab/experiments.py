"""What an experiment is: a record of what is run, what is swept, what is measured, and what shape must come out."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from lab.measures import Measure, Point, Trial
from lab.setups import Setup
from lab.statistics import student
from penstock.core.delays import Seconds


@dataclass(frozen=True, slots=True)
class Sweep:
    """An x-axis: the `values` of one parameter, and how a setup gets one of them."""

    label: str
    values: tuple[float, ...]
    turn: Callable[[Any, float], Trial]
    axis: Literal["linear", "log"] = "linear"


@dataclass(frozen=True, slots=True)
class OverTime:
    """An x-axis that is the time of a run, or the place in a stream."""

    label: str = "time [min]"
    seconds: float = 60.0
    """How many seconds one step of the axis is."""
    mark: Literal["line", "dots"] = "line"


@dataclass(frozen=True, slots=True)
class Series:
    """A curve: what the legend calls it, and what is run."""

    label: str
    setup: Trial


class Curve(NamedTuple):
    """A measured curve: the mean over seeds at each `x`, and half the width of its 95 % interval (nan for one seed)."""

    x: Seconds
    mean: Seconds
    margin: Seconds

    def at(self, x: float) -> float:
        """The mean where x was measured."""
        return self.interval(x)[0]

    def interval(self, x: float) -> tuple[float, float]:
        """The mean where x was measured, and its margin."""
        place = int(np.flatnonzero(np.isclose(self.x, x))[0])
        return float(self.mean[place]), float(self.margin[place])


@dataclass(frozen=True, slots=True)
class Table:
    """What an experiment measured: a curve for each series and measure."""

    curves: Mapping[tuple[str, str], Curve]
    seeds: int

    def curve(self, series: str, measure: Measure) -> Curve:
        """The curve of a series."""
        return self.curves[series, measure.name]

    def write(self, path: Path, x: str) -> None:
        """As CSV, a row for each series, measure and x."""
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["series", "measure", x, "mean", "margin_95", "seeds"])
            for (series, measure), curve in self.curves.items():
                for row in zip(*curve, strict=True):
                    rows.writerow([series, measure, *(f"{value:.10g}" for value in row), self.seeds])


class Finding(NamedTuple):
    """What a test of a shape found: whether it is there, and the numbers that say so."""

    passed: bool
    measured: Mapping[str, float]


Test = Callable[[Table], Finding]


Kind = Literal["claim", "anchor", "reason"]
"""What a check is about: a claim of the source, which is judged; an anchor, a number that a constant was calibrated on
and that comes out by construction; a reason that we give for what does not come out."""


@dataclass(frozen=True, slots=True)
class Check:
    """A part of the expected shape: what the spec `says`, a test of it, and the numbers that the thesis gives."""

    name: str
    says: str
    test: Test
    thesis: Mapping[str, float] = field(default_factory=dict)
    kind: Kind = "claim"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A figure of a thesis.

    Each series is run at each value of the sweep, or once if x is time. All `measures` are drawn, a panel each.
    `scale` is the part of the thesis' size at which it is run unless another is asked for, and `seeds` how many pairs
    of traces. A `remark` says what a reader of the verdict must know: a parameter that the thesis does not give, or why
    a shape does not come out. `streams` says what is run on where that is not two composite traces. What is `measured`
    takes the time of this machine and comes out otherwise in every run.
    """

    id: str
    title: str
    series: tuple[Series, ...]
    x: Sweep | OverTime
    measures: tuple[Measure, ...]
    expected: tuple[Check, ...]
    scale: float
    seeds: int = 1
    remark: str = ""
    streams: str = ""
    ran: Literal["simulated", "measured"] = "simulated"

    @property
    def chapter(self) -> str:
        """The chapter of the thesis that has it.

        >>> Experiment("5.8", "", (), OverTime(), (), (), 1).chapter
        '5'
        >>> Experiment("window-t6-2", "", (), OverTime(), (), (), 1).chapter
        'window-6'
        """
        source, dash, number = self.id.rpartition("window-")
        return source + dash + number.lstrip("t").partition("-" if dash else ".")[0]

    @property
    def workload(self) -> str:
        """What the streams are, where the sweep says nothing else."""
        if self.streams:
            return self.streams
        workloads = [series.setup.workload for series in self.series if isinstance(series.setup, Setup)]
        rates, biases, hours = (
            ", ".join(f"{value:g}" for value in dict.fromkeys(values))
            for values in zip(*((each.rate, each.bias, each.span / 3600) for each in workloads), strict=True)
        )
        return f"two composite traces of {rates} tuples/s each, b = {biases}, {hours} h"

    def setups(self) -> tuple[Trial, ...]:
        """All that must be run, once per seed."""
        return tuple(setup for series in self.series for setup in self._runs(series.setup))

    def table(self, points: Callable[[Trial], tuple[Point, ...]]) -> Table:
        """The measured curves, where `points` has those of a setup, one per seed."""
        curves: dict[tuple[str, str], Curve] = {}
        seeds = 1
        for series in self.series:
            runs = [points(setup) for setup in self._runs(series.setup)]
            seeds = len(runs[0])
            for measure in self.measures:
                curves[series.label, measure.name] = self._curve(measure, runs)
        return Table(curves, seeds)

    def _runs(self, setup: Trial) -> Iterator[Trial]:
        if isinstance(self.x, OverTime):
            yield setup
        else:
            yield from (self.x.turn(setup, value) for value in self.x.values)

    def _curve(self, measure: Measure, runs: list[tuple[Point, ...]]) -> Curve:
        if isinstance(self.x, OverTime):
            values = np.array([point.paths[measure.name] for point in runs[0]])
            return _over_seeds(runs[0][0].times / self.x.seconds, values)
        return _over_seeds(
            np.array(self.x.values), np.array([[point.totals[measure.name] for point in run] for run in runs]).T
        )


def caption(name: str) -> str:
    """What an experiment of this id is in its source.

    >>> caption("3.4"), caption("window-6-10"), caption("window-t6-2"), caption("lookup-5a")
    ('Fig 3.4', 'Window queries, Fig 6-10', 'Window queries, Table 6-2', 'Lookup joins, Fig 5a')
    >>> caption("multi-drops")
    'Multi-way joins, drops'
    """
    source, _, number = name.partition("-")
    if source not in _SOURCES:
        return f"Fig {name}"
    if not any(letter.isdigit() for letter in number):
        return f"{_SOURCES[source]}, {number}"
    figure = f"Table {number[1:]}" if number.startswith("t") else f"Fig {number}"
    return f"{_SOURCES[source]}, {figure}"


_SOURCES = {
    "window": "Window queries",
    "lookup": "Lookup joins",
    "multi": "Multi-way joins",
    "progressive": "Progressive joins",
}


def _over_seeds(x: Seconds, values: Seconds) -> Curve:
    """Mean and margin of `values`, a row per seed."""
    count = values.shape[0]
    mean = values.mean(axis=0)
    if count == 1:
        return Curve(x, mean, np.full(x.size, np.nan))
    return Curve(x, mean, student(count - 1) * values.std(axis=0, ddof=1) / np.sqrt(count))
