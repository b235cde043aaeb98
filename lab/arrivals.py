"""A lookup join in virtual time, row by row as a trace has them arrive: what it does when, and how late results are.

The clock is that of the disk that the table is on. Rows that arrive while the join works queue up. A result is stamped
when the rows that it is made of have met, work included. The run ends when the trace does, with rows still waiting:
a join that gathers rows is slower the fewer there are, and draining it would hide that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lab.measures import (
    BUFFERED,
    CPU,
    DELAY,
    DISK,
    OUTPUTS,
    PEAK,
    PROCESSED,
    SAMPLES,
    TOTAL,
    WALL,
    Measure,
    Point,
    between,
)
from lab.simulated_disk import DiskModel, VirtualClock
from lab.simulated_table import SimulatedTable
from lab.simulation import Pace, Progress, Watch
from lab.workloads.traces import COLUMNS
from penstock.core.budget import Budget
from penstock.core.delays import Seconds, average_production_delay, buffered, cumulative_outputs
from penstock.core.meter import Granularity
from penstock.core.operator import Out, State
from penstock.core.rows import TIME, Indices, RowType, times_of
from penstock.core.time import as_times
from penstock.kernels.hashing import hash_keys
from penstock.operators.lookup import LookupJoin
from penstock.storage.memory import MemoryPages

ROWS = RowType(COLUMNS, keys=("key",), time="t")
"""The rows of a trace, as a join takes them."""

DONE = Measure("done", "tuples processed", "tuples")

TOTALS = (DELAY, CPU, DISK, TOTAL, PEAK, DONE, WALL)
"""One number per run."""

_SECOND = 1_000_000
_AMPLE = 1 << 50
"""Bytes that never run out: the memory an experiment grants is in the method's parameters."""


@dataclass(frozen=True, slots=True)
class PairMachine:
    """What work takes: a disk, and for each stream row and master row that meet `pair` seconds of the CPU."""

    disk: DiskModel
    pair: float
    row_bytes: int


class History(NamedTuple):
    """All that happened until the end of a trace, in seconds since it began."""

    arrived: Seconds
    taken: Seconds
    progress: Progress
    emitted: Seconds
    times: Seconds
    """When the stream rows of the results arrived."""
    wall: Seconds
    """Seconds that this machine had taken by each of the moments of `progress`."""


def simulate_arrivals(
    config: LookupJoin,
    trace: pa.Table,
    machine: PairMachine,
    pace: Pace,
    until: float,
    watch: Watch = lambda _: None,
) -> History:
    """Run `config` over a trace, by time, for `until` seconds.

    Here the first segment that is read has none of the keys, and two rows meet the second one when the third arrives:

    >>> from lab.segmented import SegmentedTable
    >>> from penstock.operators.lookup import MeshJoin, Stages
    >>> rows = pa.table({"t": [0, 1_000_000, 2_000_000], "key": [7, 7, 8], "id": [0, 1, 2]}).cast(COLUMNS)
    >>> table = SegmentedTable(pa.table({"key": [7, 8]}), "scan", theta=1)
    >>> join = LookupJoin(table, (("key", "key"),), method=Stages(MeshJoin(slots=2)))
    >>> free = PairMachine(DiskModel(latency=0, seek=0, bandwidth=1e9), pair=0.1, row_bytes=4096)
    >>> simulate_arrivals(join, rows, free, Pace(tick=0.5), until=60).emitted.round(3).tolist()
    [2.7, 2.7]
    """
    return _Run(config, trace, machine, pace, watch).history(until)


def measure_history(history: History, since: float, until: float, scale: float) -> Point:
    """All measures of what came out and was done between `since`, the end of the warm-up, and `until`."""
    progress = history.progress
    cpu, disk = (between(progress, work, since, until) for work in (progress.cpu, progress.disk))
    times = np.linspace(0, until, SAMPLES + 1)
    waiting, outputs = buffered(history.arrived, history.taken), cumulative_outputs(history.emitted)
    counted = (history.emitted >= since) & (history.emitted <= until)
    processed = np.searchsorted(history.taken, times, side="right")
    done = np.diff(np.searchsorted(history.taken, [since, until], side="right"))[0]
    passed = np.interp(times, np.append(0.0, progress.moments), np.append(0.0, history.wall))
    totals = {
        DELAY: average_production_delay(history.emitted[counted], history.times[counted]),
        CPU: cpu,
        DISK: disk,
        TOTAL: cpu + disk,
        PEAK: waiting.peak / scale,
        DONE: done / scale,
        WALL: done / between(progress, history.wall, since, until),
    }
    paths = {
        BUFFERED: waiting.at(times) / scale,
        OUTPUTS: outputs.at(times) / scale,
        PROCESSED: processed / scale,
        WALL: processed / np.maximum(passed, 1e-9),
    }
    return Point({m.name: float(v) for m, v in totals.items()}, times, {m.name: v for m, v in paths.items()})


class _Meetings:
    """A meter that is told of stream rows and master rows that meet, and charges every pair of them."""

    def __init__(self, clock: VirtualClock, pair: float) -> None:
        self._clock = clock
        self._pair = pair
        self.unstamped: list[int] = []
        self.emitted: list[Seconds] = []

    def compute(self, comparisons: int = 0, chain_nodes: int = 0) -> None:
        """So many stream rows met so many master rows; what came out of it comes out now."""
        self._clock.work(comparisons * chain_nodes * self._pair)
        self.stamp()

    def probe(self, pending: Indices, stored: Indices, by: Granularity) -> None:
        """Is not done."""

    def stamp(self) -> None:
        """What came out since the last time came out now."""
        self.emitted += [np.full(count, self._clock.now) for count in self.unstamped]
        self.unstamped.clear()

    def defer(self, results: int) -> None:
        """Costs nothing."""

    def aggregate(self, updates: int = 0, panes: int = 0, partials: int = 0) -> None:
        """Is not done."""

    def lift(self, rows: int, partials: int) -> None:
        """Is not done."""


class _Run:
    def __init__(self, config: LookupJoin, trace: pa.Table, machine: PairMachine, pace: Pace, watch: Watch) -> None:
        self._clock = VirtualClock()
        self._meter = _Meetings(self._clock, machine.pair)
        table = SimulatedTable(config.table, machine.disk, self._clock, machine.row_bytes, arm="leaves")
        store, budget = MemoryPages(Budget(_AMPLE)), Budget(_AMPLE)
        self._logic = replace(config, table=table).logic((ROWS,), store, budget, State(), self._meter)
        timed = trace.append_column(TIME, as_times(trace.column("t")))
        self._rows = ROWS.enter(timed, hash_keys([trace.column("key").combine_chunks()]))
        self._arrived: Seconds = times_of(self._rows) / _SECOND
        self._pace = pace
        self._watch = watch
        self._taken: list[Seconds] = []
        self._times: list[Seconds] = []
        self._progress: list[tuple[float, float, float, float]] = []
        self._started = time.perf_counter()
        self._wall: list[float] = []

    def history(self, until: float) -> History:
        place = 0
        while place < self._arrived.size:
            self._clock.wait_until(float(self._arrived[place]) + self._pace.tick)
            if self._clock.now > until:
                break
            place = self._hand_over(place)
        self._note(until)
        return History(
            arrived=self._arrived,
            taken=_joined(self._taken),
            progress=Progress(*np.array(self._progress).T),
            emitted=_joined(self._meter.emitted),
            times=_joined(self._times),
            wall=np.array(self._wall),
        )

    def _hand_over(self, place: int) -> int:
        """What has arrived, but no more than a batch; where the rest begins."""
        arrived = int(np.searchsorted(self._arrived, self._clock.now, side="right"))
        end = min(arrived, place + self._pace.batch)
        self._taken.append(np.full(end - place, self._clock.now))
        self._collect(self._logic.rows(0, self._rows.slice(place, end - place)))
        self._note(float(self._arrived[end - 1]))
        self._watch(self._clock.now)
        return end

    def _collect(self, outs: Iterator[Out]) -> None:
        for out in outs:
            self._meter.unstamped.append(out.rows.num_rows)
            self._times.append(as_times(out.rows.column("t")).to_numpy() / _SECOND)
        self._meter.stamp()

    def _note(self, reached: float) -> None:
        self._progress.append((self._clock.now, reached, self._clock.cpu, self._clock.disk))
        self._wall.append(time.perf_counter() - self._started)


def _joined(pieces: list[Seconds]) -> Seconds:
    return np.concatenate([np.empty(0), *pieces])
