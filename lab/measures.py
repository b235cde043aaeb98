"""What a run is measured by, at the size of the thesis: counts and bytes are scaled back, seconds are as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from lab.simulation import Progress, Recording, Watch
from penstock.core.delays import (
    Seconds,
    Steps,
    average_production_delay,
    buffered,
    cumulative_outputs,
    last_finished,
    percent_delayed,
    total_window_size,
)

if TYPE_CHECKING:
    from lab.setups import Setup

MB = 1 << 20
"""A megabyte of the thesis: 20 of them are 5,120 pages of 4 KB."""

SAMPLES = 240
"""How often a run is looked at for what changes over time."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing that is measured: what it is called in files, what on an axis, and how the axis is drawn.

    >>> DELAY.label
    'average production delay [s]'
    """

    name: str
    title: str
    unit: str
    axis: Literal["linear", "log"] = "linear"
    panel: str = ""
    """What several measures drawn in one panel are together; one without has its own."""

    @property
    def label(self) -> str:
        """The title with the unit."""
        return f"{self.title} [{self.unit}]"


DELAY = Measure("delay", "average production delay", "s")
DELAYED = Measure("delayed", "delayed tuples", "%")
WINDOW = Measure("window", "maximum total window size", "MB")
CPU = Measure("cpu", "CPU time", "s")
DISK = Measure("disk", "disk time", "s")
TOTAL = Measure("total", "CPU and disk time", "s")
PEAK = Measure("peak", "most buffered tuples", "tuples")
WALL = Measure("wall", "this machine's rate, wall clock", "rows/s")

BUFFERED = Measure("buffered", "buffered tuples", "tuples")
OUTPUTS = Measure("outputs", "results so far", "tuples")
PROCESSED = Measure("processed", "tuples processed so far", "tuples")

TOTALS = (DELAY, DELAYED, WINDOW, CPU, DISK, TOTAL, PEAK)
"""One number per run."""
PATHS = (BUFFERED, OUTPUTS, PROCESSED)
"""What changes over the run."""


@dataclass(frozen=True, slots=True)
class Point:
    """A run, measured: its `totals` by name, and its `paths` by name at `times`, in seconds."""

    totals: Mapping[str, float]
    times: Seconds
    paths: Mapping[str, Seconds]


class Trial(Protocol):
    """One run of an experiment: hashable, and its repr tells it from any other."""

    @property
    def stem(self) -> str:
        """How the names of its files begin."""
        ...

    @property
    def code(self) -> tuple[str, ...]:
        """The folders and modules of the package that its numbers depend on."""
        ...

    @property
    def span(self) -> float:
        """How many seconds of stream it runs over."""
        ...

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Run it, at a part of the thesis' size, and measure it."""
        ...


def measure(recording: Recording, setup: Setup, scale: float) -> Point:
    """All measures of a run.

    The work is that between warm-up and the end of the traces. Delays are those of all results whose later row came
    after the warm-up, also of those that come out while the backlog is worked off after the traces' end.
    """
    since, until = setup.workload.warm_up, setup.workload.span
    progress = recording.progress
    cpu, disk = (between(progress, work, since, until) for work in (progress.cpu, progress.disk))
    times = np.linspace(0, until, SAMPLES + 1)
    arrived, taken = np.concatenate(recording.arrived), np.concatenate(recording.taken)
    waiting, outputs = buffered(arrived, taken), cumulative_outputs(recording.results.emitted)
    totals = {
        DELAY: _delay(recording, since),
        DELAYED: _delayed(recording, setup.window, since),
        WINDOW: _windows(recording, setup).peak / scale / MB,
        CPU: cpu,
        DISK: disk,
        TOTAL: cpu + disk,
        PEAK: waiting.peak / scale,
    }
    paths = {
        BUFFERED: waiting.at(times) / scale,
        OUTPUTS: outputs.at(times) / scale,
        PROCESSED: np.searchsorted(np.sort(taken), times, side="right") / scale,
    }
    return Point({m.name: float(v) for m, v in totals.items()}, times, {m.name: v for m, v in paths.items()})


def between(progress: Progress, work: Seconds, since: float, until: float) -> float:
    """Seconds of `work` done in a part of the run."""
    begin, end = np.interp([since, until], np.append(0.0, progress.moments), np.append(0.0, work))
    return float(end - begin)


def _delay(recording: Recording, since: float) -> float:
    emitted, times, _ = recording.results
    counted = np.maximum(*times) >= since
    return average_production_delay(emitted[counted], times[0][counted], times[1][counted])


def _delayed(recording: Recording, window: float, since: float) -> float:
    """Rows whose last result came out when their window was over, in a hundred of all rows after the warm-up.

    A join is seen only by its result: a row without one counts as in time, whenever its joins were done.
    """
    finished = [
        last_finished(ids, recording.results.emitted, arrived.size)
        for ids, arrived in zip(recording.results.ids, recording.arrived, strict=True)
    ]
    times, last = np.concatenate(recording.arrived), np.concatenate(finished)
    counted = times >= since
    return percent_delayed(times[counted], last[counted], window)


def _windows(recording: Recording, setup: Setup) -> Steps:
    """Bytes in both windows: a row enters when it is taken, and leaves when rows of a window later are processed."""
    times = np.concatenate(recording.arrived)
    progress = recording.progress
    expired = np.searchsorted(progress.reached, times + setup.window, side="right")
    left = np.append(progress.moments, np.inf)[expired]
    return total_window_size(np.concatenate(recording.taken), left, np.full(times.size, setup.row))
