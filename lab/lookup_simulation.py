"""A lookup join in virtual time: the real join reads a table on a simulated disk, and each row's work takes constants.

The stream is there whenever the join can take more of it, unless rows are given moments to arrive at. What is counted
are operations; the seconds are those of the machine that is modelled (§2.2–2.8).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lab.lookup_equations import Operations
from lab.simulated_disk import DiskModel, VirtualClock
from lab.simulated_table import OpenSimulatedTable, SimulatedTable
from lab.workloads.lookup import STREAM
from penstock.core.budget import Budget
from penstock.core.delays import Seconds
from penstock.core.operator import Out, State
from penstock.core.rows import TIME, RowType
from penstock.core.time import as_times
from penstock.kernels.hashing import hash_keys
from penstock.operators.lookup import Inlj, LookupJoin
from penstock.operators.lookup.logic import LookupLogic
from penstock.storage.memory import MemoryPages

ROWS = RowType(STREAM, keys=("key",), time="t")
"""The rows of a stream, as a join takes them."""

_AMPLE = 1 << 50
"""Bytes that never run out: the memory an experiment grants is in the numbers of slots."""


@dataclass(frozen=True, slots=True)
class LookupMachine:
    """What work takes: a disk, what each request takes besides, a CPU, and how many bytes a master row counts.

    Rows of `aside_bytes` each that are put aside are written to `aside`, and read again from there; without one that
    takes nothing.
    """

    disk: DiskModel
    operations: Operations
    row_bytes: int
    request: float = 0.0
    aside: DiskModel | None = None
    aside_bytes: int = 20


class LookupPath(NamedTuple):
    """After each hand-over, since the beginning: what was done, and the seconds that it took by both clocks."""

    finished: npt.NDArray[np.int64]
    hits: npt.NDArray[np.int64]
    reads: npt.NDArray[np.int64]
    busy: Seconds
    wall: Seconds
    """Seconds of this machine; what lies between two streams is not counted."""


class LookupRecording(NamedTuple):
    """A run: its path, and for each result the place of its row in the stream and how long that was worked on."""

    path: LookupPath
    ids: npt.NDArray[np.int64]
    processing: Seconds
    """From when a row was handed over until it came out, without the time in which there was nothing to do."""

    def since(self, step: int) -> LookupTotals:
        """What was done after so many hand-overs: after the warm-up."""
        done = [float(column[-1] - (column[step - 1] if step else 0)) for column in self.path]
        return LookupTotals(*done)


class LookupTotals(NamedTuple):
    """What was done in a part of a run."""

    finished: float
    hits: float
    reads: float
    seconds: float
    wall: float

    @property
    def rate(self) -> float:
        """μ: rows finished in a second of work."""
        return self.finished / self.seconds

    @property
    def wall_rate(self) -> float:
        """Rows finished in a second of this machine."""
        return self.finished / self.wall

    @property
    def hit_share(self) -> float:
        """The part of them that the front stage answered."""
        return self.hits / self.finished

    @property
    def per_read(self) -> float:
        """Rows finished for each read of the table."""
        return self.finished / max(1.0, self.reads)


def simulate_lookup(
    config: LookupJoin,
    stream: pa.Table,
    machine: LookupMachine,
    batch: int = 256,
    arrivals: Seconds | None = None,
) -> LookupRecording:
    """Run `config` over a stream of columns `STREAM`, `batch` rows at a time, to the end of the stream.

    Rows that still wait then stay where they are. With `arrivals`, a batch is taken when its last row is there. With a
    quota, the table may be read so many times for each batch.

    >>> from penstock.operators.lookup import HybridJoin, Stages
    >>> from penstock.storage.tables import ArrowTable
    >>> from lab.workloads.lookup import MasterRows, ZipfStream
    >>> from lab.workloads.zipf import Zipf
    >>> table = ArrowTable(MasterRows(rows=1000).table(), ("key",), partition_rows=100)
    >>> config = LookupJoin(table, (("key", "key"),), method=Stages(HybridJoin(slots=500)))
    >>> machine = LookupMachine(DiskModel(), Operations(), row_bytes=120)
    >>> run = simulate_lookup(config, ZipfStream(20_000, Zipf(1000)).table(), machine)
    >>> run.since(20).per_read > 80
    True
    """
    simulation = LookupSimulation(config, machine)
    simulation.feed(stream, batch, arrivals)
    return simulation.recording()


class LookupSimulation:
    """A join at work in virtual time: streams are fed to it one after the other, and the table may be another then."""

    def __init__(self, config: LookupJoin, machine: LookupMachine) -> None:
        self._config = config
        self._machine = machine
        self._clock = VirtualClock()
        self._store = MemoryPages(Budget(_AMPLE))
        self._logic = self._begin(State())
        self._charged = 0.0
        self._aside = (0, 0)
        self._before = (0, 0, 0)
        self._results = 0
        self._first = 0
        self._loaded: list[Seconds] = []
        self._path: list[tuple[int, int, int, float, float]] = []
        self._wall = 0.0
        self._ids: list[npt.NDArray[np.int64]] = []
        self._emitted: list[Seconds] = []

    def feed(self, stream: pa.Table, batch: int = 256, arrivals: Seconds | None = None) -> None:
        """Hand a stream over; its ids go on where those of the one before ended."""
        timed = stream.append_column(TIME, as_times(stream.column("t")))
        rows = ROWS.enter(timed, hash_keys([stream.column("key").combine_chunks()]))
        if not self._path and rows.num_rows:
            self._first = int(stream.column("id")[0].as_py())
        started = time.perf_counter() - self._wall
        for begin in range(0, rows.num_rows, batch):
            some = rows.slice(begin, batch)
            if arrivals is not None:
                self._clock.wait_until(float(arrivals[begin + some.num_rows - 1]))
            self._loaded.append(np.full(some.num_rows, self._clock.busy))
            if self._config.quota is not None:
                self._logic.grant(self._config.quota)
            self._take(self._logic.rows(0, some))
            self._charge_aside()
            self._wall = time.perf_counter() - started
            self._path.append((*self._done(), self._wall))

    def renew(self) -> None:
        """The table has another version: go on with it, in the state that a new epoch would have."""
        self._before = self._done()[:3]
        self._charged = 0.0
        self._aside = (0, 0)
        self._results = 0
        self._logic = self._begin(self._logic.state())

    def recording(self) -> LookupRecording:
        """What was done so far."""
        loaded = np.concatenate([np.empty(0), *self._loaded])
        ids = np.concatenate([np.empty(0, np.int64), *self._ids]) - self._first
        emitted = np.concatenate([np.empty(0), *self._emitted])
        whole = np.array([step[:3] for step in self._path], np.int64).reshape(-1, 3).T
        busy, wall = np.array([step[3:] for step in self._path]).reshape(-1, 2).T
        path = LookupPath(whole[0], whole[1], whole[2], busy, wall)
        return LookupRecording(path, ids, emitted - loaded[ids])

    def _begin(self, state: State) -> LookupLogic:
        config, machine = self._config, self._machine
        source = SimulatedTable(config.table, machine.disk, self._clock, machine.row_bytes, machine.request)
        logic = replace(config, table=source).logic((ROWS,), self._store, Budget(_AMPLE), state)
        assert isinstance(logic, LookupLogic)
        assert isinstance(logic.desk.table, OpenSimulatedTable)
        self._table = logic.desk.table
        return logic

    def _take(self, outs: Iterator[Out]) -> None:
        for out in outs:
            self._results += out.rows.num_rows
            self._charge()
            self._ids.append(out.rows.column("id").to_numpy().astype(np.int64))
            self._emitted.append(np.full(out.rows.num_rows, self._clock.busy))
        self._charge()

    def _done(self) -> tuple[int, int, int, float]:
        stats, hits = self._logic.desk.stats, self._hits()
        finished, answered, reads = self._before
        return finished + stats.finished + hits, answered + hits, reads + stats.reads, self._clock.busy

    def _hits(self) -> int:
        return 0 if self._logic.front is None else self._logic.front.stats.hits

    def _charge(self) -> None:
        """What the operations so far take, but for what was charged already."""
        cpu, scanned = self._machine.operations, self._table.reads.rows
        looks_up = isinstance(self._config.stages.back, Inlj)
        back = cpu.read if looks_up else cpu.back - cpu.output
        tried = cpu.probe + (0.0 if self._logic.front is None else cpu.count)
        rows = self._hits() * (cpu.front - cpu.output) + self._logic.desk.stats.finished * back
        total = rows + self._results * cpu.output + scanned * tried
        self._clock.work(total - self._charged)
        self._charged = total

    def _charge_aside(self) -> None:
        """What went to the place for rows that are put aside, and what came back, in one access each."""
        store = self._machine.aside
        if store is None:
            return
        tally = self._logic.tally()
        moved = tally.put_aside, tally.replayed
        for now, before in zip(moved, self._aside, strict=True):
            if now > before:
                blocks = store.blocks((now - before) * self._machine.aside_bytes)
                self._clock.transfer(store.seconds(1, blocks))
        self._aside = moved
