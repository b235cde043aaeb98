"""A simulated disk: a page store that charges what a disk would take to a clock of its own.

Experiments count operations and multiply them by constants, so that their seconds are those of the machine that is
modelled and the same on every machine that runs them. Nothing here looks at the time of day.

The disk lays the blocks of a segment out in basic windows, chunks that are physically contiguous. An access costs one
positioning (latency and seek) for each basic window it enters, and one to begin with unless the arm stands in its
window already; and then the transfer of its blocks. Blocks between them that a reader does not want pass under the
arm like those it wants, unless a positioning is sooner. So n blocks from the start of a basic window take what the
thesis says, ``RT(n) = ⌈n / B_win⌉ (C_L + C_S) + n·c_b / B``, and as much to write.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import pyarrow as pa

from penstock.core.errors import ConfigError, StateError
from penstock.core.meter import Granularity
from penstock.core.pages import PageStore
from penstock.core.rows import Indices


@dataclass(frozen=True, slots=True)
class DiskModel:
    """What a disk takes. Seconds, bytes per second, bytes, blocks; the thesis' names stand behind.

    The defaults are the spec's for an IBM 9LZX, whose own figures the thesis does not give (§2.0).

    >>> disk = DiskModel(latency=0.003, seek=0.005, bandwidth=1e6, block_bytes=1000, window_blocks=4)
    >>> round(disk.read_seconds(4), 6), round(disk.read_seconds(5), 6)
    (0.012, 0.021)
    """

    latency: float = 2.99e-3  # C_L
    seek: float = 5.3e-3  # C_S
    bandwidth: float = 20e6  # B
    block_bytes: int = 4096  # c_b
    window_blocks: int = 256  # B_win

    def __post_init__(self) -> None:
        for name in ("bandwidth", "block_bytes", "window_blocks"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)} is no disk: write a number above 0.")
        for name in ("latency", "seek"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name}={getattr(self, name)} would turn back the clock: write seconds, 0 or more.")

    def read_seconds(self, blocks: int) -> float:
        """RT: to read so many blocks that begin a basic window."""
        return self.seconds(math.ceil(blocks / self.window_blocks), blocks)

    def write_seconds(self, blocks: int) -> float:
        """WT: to write so many; the same."""
        return self.read_seconds(blocks)

    def seconds(self, seeks: int, blocks: int) -> float:
        """For so many positionings and blocks transferred."""
        return seeks * (self.latency + self.seek) + blocks * self.block_bytes / self.bandwidth

    def blocks(self, size: int) -> int:
        """How many blocks `size` bytes take; nothing is kept in less than one."""
        return max(1, math.ceil(size / self.block_bytes))

    def scaled(self, factor: float) -> Self:
        """The disk of an experiment run at `factor` of its size: bandwidth and basic windows shrink, times stay (§3).

        >>> DiskModel().scaled(1 / 16).window_blocks
        16
        """
        windows = max(1, round(self.window_blocks * factor))
        return replace(self, bandwidth=self.bandwidth * factor, window_blocks=windows)


@dataclass(frozen=True, slots=True)
class CpuModel:
    """What an operation takes, in seconds; calibrated on where the thesis' curves have their knees (§3).

    A comparison of two join keys at 4 ns makes a nested-loop EWJ saturate at 250 rows/s (2 · 250 · 450,000 a second).
    The parallel join's slower machines need 12 ns: ``CpuModel(comparison=12e-9)``. A node of a hash chain that is
    walked, MESHJOIN's knee, takes 40 ns.

    Rows that are looked through come into the cache a block of `block_rows` at a time, once for each row, or block of
    rows, that looks through them: `scan` seconds per block.

    >>> CpuModel().seconds(comparisons=250_000_000)
    1.0
    >>> model, mine, theirs = CpuModel(comparison=0, scan=1.0, block_rows=4), np.array([5]), np.array([12])
    >>> model.probing(mine, theirs, by="tuple"), model.probing(mine, theirs, by="block")
    (15.0, 6.0)
    """

    comparison: float = 4e-9  # c_cmp
    chain_node: float = 40e-9
    scan: float = 0.0  # c_scan
    block_rows: float = 16
    each: float = 1.0
    """How many rows of the machine's own size a row stands for, where an experiment is run at a part of it."""

    def __post_init__(self) -> None:
        for name in ("comparison", "chain_node", "scan"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name}={getattr(self, name)} would turn back the clock: write seconds, 0 or more.")

    def seconds(self, comparisons: int = 0, chain_nodes: int = 0) -> float:
        """For so many operations."""
        return comparisons * self.comparison + chain_nodes * self.chain_node

    def probing(self, pending: Indices, stored: Indices, by: Granularity) -> float:
        """For so many rows that look through so many others, partition by partition."""
        mine, theirs = pending * self.each, stored * self.each
        passes = mine if by == "tuple" else np.ceil(mine / self.block_rows)
        return float(np.dot(mine, theirs) * self.comparison + np.dot(passes, theirs) / self.block_rows * self.scan)


class VirtualClock:
    """The time of a simulated machine: it moves by what is charged, and by waiting for something to happen.

    CPU and disk work one after the other; `busy` is their sum.

    >>> clock = VirtualClock()
    >>> clock.compute(comparisons=250_000_000)
    >>> clock.transfer(0.5)
    >>> clock.wait_until(4.0)
    >>> clock.now, clock.busy, clock.cpu, clock.disk, clock.idle
    (4.0, 1.5, 1.0, 0.5, 2.5)
    """

    def __init__(self, model: CpuModel | None = None) -> None:
        self.model = model or CpuModel()
        self.cpu = 0.0
        self.disk = 0.0
        self.idle = 0.0
        self.now = 0.0
        """Seconds since the beginning."""

    @property
    def busy(self) -> float:
        """Seconds of work, CPU and disk."""
        return self.cpu + self.disk

    def compute(self, comparisons: int = 0, chain_nodes: int = 0) -> None:
        """Charge operations of the CPU."""
        self.work(self.model.seconds(comparisons, chain_nodes))

    def probe(self, pending: Indices, stored: Indices, by: Granularity) -> None:
        """Charge what it takes to look through rows."""
        self.work(self.model.probing(pending, stored, by))

    def work(self, seconds: float) -> None:
        """Charge the CPU with what somebody else has reckoned."""
        self.cpu += seconds
        self.now += seconds

    def defer(self, results: int) -> None:
        """Results that come late cost nothing by themselves."""

    def aggregate(self, updates: int = 0, panes: int = 0, partials: int = 0) -> None:
        """Aggregation has no model of its own yet."""

    def lift(self, rows: int, partials: int) -> None:
        """Aggregation has no model of its own yet."""

    def transfer(self, seconds: float) -> None:
        """Charge the disk."""
        self.disk += seconds
        self.now += seconds

    def wait_until(self, moment: float) -> None:
        """Nothing to do until `moment`, when the next row arrives; no wait if that has passed."""
        if moment > self.now:
            self.idle += moment - self.now
            self.now = moment


@dataclass(frozen=True, slots=True)
class Access:
    """Blocks that the disk read or wrote in one run, without going elsewhere in between."""

    kind: Literal["read", "write"]
    segment: str
    first: int
    blocks: int
    seeks: int
    seconds: float

    @property
    def end(self) -> int:
        """The block after the last."""
        return self.first + self.blocks


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a page lies."""

    segment: str
    first: int
    blocks: int

    @property
    def end(self) -> int:
        """The block after the last."""
        return self.first + self.blocks


class SimulatedDisk:
    """One disk: its segments, its arm, and the log of what it did. The rows themselves are in `store`.

    A segment, one per stream, is appended to. A row counts `row_bytes`, the record size of the experiment, or what it
    takes in Arrow if none is given; a page begins a block. Blocks are never used twice: what is dropped leaves a hole.

    >>> from penstock.core.budget import Budget
    >>> from penstock.storage.memory import MemoryPages
    >>> disk = SimulatedDisk(MemoryPages(Budget(10**6)), DiskModel(window_blocks=2), VirtualClock(), row_bytes=4096)
    >>> names = [disk.put(pa.record_batch({"n": [n]}), "left") for n in range(3)]
    >>> [(access.kind, access.first, access.blocks, access.seeks) for access in disk.log]
    [('write', 0, 3, 2)]
    >>> [rows.column("n").to_pylist() for name, rows in disk.scan("left")]
    [[0], [1], [2]]
    >>> math.isclose(disk.clock.disk, disk.model.write_seconds(3) + disk.model.read_seconds(3))
    True
    """

    def __init__(self, store: PageStore, model: DiskModel, clock: VirtualClock, row_bytes: int | None = None) -> None:
        self.model = model
        self.clock = clock
        self._store = store
        self._row_bytes = row_bytes
        self._extents: dict[str, Extent] = {}
        self._segments: dict[str, dict[str, None]] = {}
        self._ends: dict[str, int] = {}
        self._log: list[Access] = []

    @property
    def log(self) -> tuple[Access, ...]:
        """What the disk did, in order; accesses that follow each other on the disk as well are one."""
        return tuple(self._log)

    def put(self, rows: pa.RecordBatch, segment: str = "main") -> str:
        """Write a page behind the last one of `segment`."""
        size = rows.nbytes if self._row_bytes is None else rows.num_rows * self._row_bytes
        extent = Extent(segment, self._ends.get(segment, 0), self.model.blocks(size))
        name = self._store.put(rows)
        self._extents[name] = extent
        self._segments.setdefault(segment, {})[name] = None
        self._ends[segment] = extent.end
        self._access("write", extent)
        return name

    def get(self, name: str) -> pa.RecordBatch:
        """Read a page."""
        extent = self.extent(name)
        rows = self._store.get(name)
        self._access("read", extent)
        return rows

    def drop(self, name: str) -> None:
        """Forget a page, which takes no time."""
        extent = self.extent(name)
        self._store.drop(name)
        del self._extents[name], self._segments[extent.segment][name]

    def scan(self, segment: str = "main") -> Iterator[tuple[str, pa.RecordBatch]]:
        """Read the pages of `segment` in the order in which they lie, without those that are dropped meanwhile."""
        for name in self.pages(segment):
            if name in self._extents:
                yield name, self.get(name)

    def pages(self, segment: str = "main") -> tuple[str, ...]:
        """The names of the pages of `segment`, in the order in which they lie."""
        return tuple(self._segments.get(segment, ()))

    def extent(self, name: str) -> Extent:
        """Where a page lies."""
        if name not in self._extents:
            raise StateError.missing(name)
        return self._extents[name]

    def _access(self, kind: Literal["read", "write"], extent: Extent) -> None:
        """Move the arm over `extent`; what it did before says where it stands."""
        last = self._log[-1] if self._log else None
        window = self.model.window_blocks
        first, seeks = extent.first, (extent.end - 1) // window - extent.first // window
        if last is not None and self._passes(kind, last, extent):
            first = last.end
        else:
            seeks += 1
        blocks = extent.end - first
        seconds = self.model.seconds(seeks, blocks)
        self.clock.transfer(seconds)
        if last is not None and (last.kind, last.segment, last.end) == (kind, extent.segment, first):
            blocks, seeks, seconds = last.blocks + blocks, last.seeks + seeks, last.seconds + seconds
            self._log[-1] = Access(kind, last.segment, last.first, blocks, seeks, seconds)
        else:
            self._log.append(Access(kind, extent.segment, first, blocks, seeks, seconds))

    def _passes(self, kind: Literal["read", "write"], last: Access, extent: Extent) -> bool:
        """Whether the arm gets from where it stands to `extent` inside a basic window, and by waiting sooner."""
        gap = extent.first - last.end
        window = self.model.window_blocks
        if last.segment != extent.segment or gap < 0 or (last.end - 1) // window != extent.first // window:
            return False
        return gap == 0 or (kind == "read" and self.model.seconds(0, gap) <= self.model.seconds(1, 0))
