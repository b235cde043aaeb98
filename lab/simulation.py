"""A window join in virtual time: rows arrive when their trace says, work takes what a simulated machine takes.

The clock is the join's meter and the disk's clock at once. While the join works, arrivals queue up; a result is
stamped with the moment at which it comes out. What the queue itself would cost on disk is not charged (spec §2.0),
nor is what a join notes about its rows: in the thesis that is part of a block.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lab.simulated_disk import CpuModel, DiskModel, SimulatedDisk, VirtualClock
from lab.workloads.traces import COLUMNS
from penstock.core.budget import Budget
from penstock.core.delays import Counts, Seconds
from penstock.core.operator import Out, State
from penstock.core.rows import HASH, TIME, RowType, times_of
from penstock.core.time import TIME_MAX, Times, as_times
from penstock.core.within import LEFT, RIGHT
from penstock.kernels.hashing import hash_keys
from penstock.operators.window_join.config import WindowJoin
from penstock.storage.memory import MemoryPages

ROWS = RowType(COLUMNS, keys=("key",), time="t")
"""The rows of a trace, as a join takes them."""

_SECOND = 1_000_000
_AMPLE = 1 << 50
"""Bytes that never run out: the memory an experiment grants is in the method's parameters."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What work takes: a disk, a CPU, and how many bytes a row counts on disk."""

    disk: DiskModel
    cpu: CpuModel
    row_bytes: int


@dataclass(frozen=True, slots=True)
class Pace:
    """How arrivals are handed over: once the oldest has waited `tick` seconds, at most `batch` rows of a port at once.

    A tick above 0 is the resolution of the simulation: a join that keeps up gets its rows up to so much later.
    """

    tick: float = 0.0
    batch: int = 1


class Results(NamedTuple):
    """What came out: when, and for each port the moments and places in the trace of the rows that met."""

    emitted: Seconds
    times: tuple[Seconds, Seconds]
    ids: tuple[Counts, Counts]


class Progress(NamedTuple):
    """After each hand-over: the moment, the time up to which rows were processed, seconds of CPU and disk so far."""

    moments: Seconds
    reached: Seconds
    cpu: Seconds
    disk: Seconds


class Recording(NamedTuple):
    """All that happened in one run, in seconds since the traces began; `arrived` and `taken` are by port, then row."""

    arrived: tuple[Seconds, Seconds]
    taken: tuple[Seconds, Seconds]
    progress: Progress
    results: Results


Watch = Callable[[float], None]
"""Told, as a run goes on, up to which moment of the traces rows were processed."""


def simulate(
    config: WindowJoin, traces: tuple[pa.Table, pa.Table], machine: Machine, pace: Pace, watch: Watch = lambda _: None
) -> Recording:
    """Run `config` over two traces, by time each, to the end of both and of all that waits.

    Rows are taken oldest first over both ports. All rows up to a moment are handed over before progress up to there
    is told, so that expiry goes by the rows' own times whatever the backlog.

    >>> from penstock.core.within import windows
    >>> rows = pa.table({"t": [1_000_000, 2_000_000], "key": [7, 7], "id": [0, 1]}).cast(COLUMNS)
    >>> join = WindowJoin(on=(("key", "key"),), within=windows("5 s", "5 s"), unit="microseconds")
    >>> free = Machine(DiskModel(latency=0, seek=0, bandwidth=1e9), CpuModel(comparison=0), row_bytes=128)
    >>> simulate(join, (rows, rows.slice(1)), free, Pace(tick=0.5)).results.ids
    (array([0, 1]), array([1, 1]))
    """
    return _Simulation(config, traces, machine, pace, watch).run()


@dataclass(frozen=True, slots=True)
class _Until:
    """An allowance that lasts until a moment of the clock."""

    clock: VirtualClock
    moment: float

    def left(self) -> bool:
        return self.clock.now < self.moment


class _RowsOnDisk:
    """A store whose pages of rows are on a simulated disk; notes about rows are kept beside them at no cost."""

    def __init__(self, machine: Machine, clock: VirtualClock) -> None:
        self._disk = SimulatedDisk(MemoryPages(Budget(_AMPLE)), machine.disk, clock, machine.row_bytes)
        self._notes: dict[str, pa.RecordBatch] = {}
        self._numbers = itertools.count()

    def put(self, rows: pa.RecordBatch, segment: str = "main") -> str:
        if rows.schema.names[0] == HASH:
            return self._disk.put(rows, segment)
        name = f"note-{next(self._numbers)}"
        self._notes[name] = rows
        return name

    def get(self, name: str) -> pa.RecordBatch:
        return self._notes[name] if name in self._notes else self._disk.get(name)

    def drop(self, name: str) -> None:
        if self._notes.pop(name, None) is None:
            self._disk.drop(name)


@dataclass
class _Collected:
    """What a run leaves behind, piece by piece."""

    taken: tuple[list[Seconds], list[Seconds]] = field(default_factory=lambda: ([], []))
    progress: list[tuple[float, float, float, float]] = field(default_factory=list)
    emitted: list[Seconds] = field(default_factory=list)
    results: list[pa.RecordBatch] = field(default_factory=list)


class _Simulation:
    def __init__(
        self, config: WindowJoin, traces: tuple[pa.Table, pa.Table], machine: Machine, pace: Pace, watch: Watch
    ) -> None:
        self._clock = VirtualClock(machine.cpu)
        store = _RowsOnDisk(machine, self._clock)
        self._logic = config.logic((ROWS, ROWS), store, Budget(_AMPLE), State(), meter=self._clock)
        self._schema = config.output((ROWS, ROWS))
        self._rows = tuple(_entered(trace) for trace in traces)
        self._times = tuple(times_of(rows) for rows in self._rows)
        self._places = [0, 0]
        self._pace = pace
        self._watch = watch
        self._collected = _Collected()

    def run(self) -> Recording:
        while (oldest := self._oldest()) < math.inf:
            ready = oldest + self._pace.tick
            if self._clock.now < ready:
                self._collect(self._logic.idle(_Until(self._clock, ready)))
                self._clock.wait_until(ready)
            self._hand_over()
        for port in (LEFT, RIGHT):
            self._collect(self._logic.advance(port, TIME_MAX))
        self._note(math.inf)
        return self._recording()

    def _oldest(self) -> float:
        """When the oldest row that is not yet taken arrived or will arrive; at infinity if there is none."""
        waiting = [times[place] for times, place in zip(self._times, self._places, strict=True) if place < times.size]
        return float(min(waiting)) / _SECOND if waiting else math.inf

    def _hand_over(self) -> None:
        bound = self._bound()
        for port in (LEFT, RIGHT):
            begin, end = self._places[port], int(np.searchsorted(self._times[port], bound, side="right"))
            if begin < end:
                self._places[port] = end
                self._collected.taken[port].append(np.full(end - begin, self._clock.now))
                self._collect(self._logic.rows(port, self._rows[port].slice(begin, end - begin)))
        for port in (LEFT, RIGHT):
            self._collect(self._logic.advance(port, bound))
        self._note(bound / _SECOND)
        self._watch(bound / _SECOND)

    def _bound(self) -> int:
        """The time up to which rows are handed over now: what has arrived, and no more than a batch of either port.

        Rows of one time go together, even if that makes a batch larger.
        """
        bound = round(self._clock.now * _SECOND)
        for times, place in zip(self._times, self._places, strict=True):
            if place + self._pace.batch <= times.size:
                bound = min(bound, int(times[place + self._pace.batch - 1]))
        return bound

    def _collect(self, outs: Iterator[Out]) -> None:
        for out in outs:
            self._collected.emitted.append(np.full(out.rows.num_rows, self._clock.now))
            self._collected.results.append(out.rows)

    def _note(self, reached: float) -> None:
        self._collected.progress.append((self._clock.now, reached, self._clock.cpu, self._clock.disk))

    def _recording(self) -> Recording:
        rows = pa.Table.from_batches(self._collected.results, self._schema)
        return Recording(
            arrived=(_seconds(self._times[LEFT]), _seconds(self._times[RIGHT])),
            taken=(_joined(self._collected.taken[LEFT]), _joined(self._collected.taken[RIGHT])),
            progress=Progress(*np.array(self._collected.progress).T),
            results=Results(
                _joined(self._collected.emitted),
                (_moments(rows, "t"), _moments(rows, "t_right")),
                (rows.column("id").to_numpy(), rows.column("id_right").to_numpy()),
            ),
        )


def _entered(trace: pa.Table) -> pa.RecordBatch:
    timed = trace.append_column(TIME, as_times(trace.column("t")))
    return ROWS.enter(timed, hash_keys([trace.column("key").combine_chunks()]))


def _joined(pieces: list[Seconds]) -> Seconds:
    return np.concatenate(pieces) if pieces else np.zeros(0)


def _moments(rows: pa.Table, column: str) -> Seconds:
    return _seconds(as_times(rows.column(column)).to_numpy())


def _seconds(times: Times) -> Seconds:
    return times / _SECOND
