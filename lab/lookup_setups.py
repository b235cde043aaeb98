"""One run of a lookup experiment: the thesis' parameters as printed, and what they become at a scale (§2.5, §2.6, §3).

At scale f everything that grows with the stream is multiplied by f: the rate, the table and its segments, memory, pages
and basic windows, the disk's bandwidth, N_invoke, the key domain. Times, seeks and the number of segments stay. As
many rows meet f times as large a segment, so a pair that meets costs 1/f² as much.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from lab.arrivals import History, PairMachine, measure_history, simulate_arrivals
from lab.measures import Point
from lab.segmented import BUCKETS, SegmentedTable
from lab.setups import Workload
from lab.simulated_disk import CpuModel, DiskModel
from lab.simulation import Pace, Watch
from lab.workloads.pqrs import Pqrs
from lab.workloads.traces import Composite
from penstock.operators.lookup import LookupJoin, MeshJoin, Partitioned, Stages

CODE = (
    "penstock.core",
    "penstock.kernels",
    "penstock.operators.lookup",
    "penstock.storage",
    "lab.workloads",
    "lab.simulated_disk",
    "lab.simulated_table",
    "lab.simulation",
    "lab.arrivals",
    "lab.segmented",
    "lab.setups",
    "lab.measures",
    "lab.lookup_setups",
)
"""What the numbers of a setup depend on."""

STREAM_ROW, TABLE_ROW = 64, 128
"""Bytes of a record."""

_ARROW_ROW = 16
"""Bytes that a table row takes in memory here: its key and the hash of it."""

_LET_IN = 32
"""This part of the wait buffer is let in at a time."""

Join = Literal["MESHJOIN", "range", "hash"]
"""MESHJOIN, or the partitioned join on segments by range or by hash."""


@dataclass(frozen=True, slots=True)
class LookupSetup:
    """A bursty stream against a table on disk. Bytes and seconds; defaults are those of Table 6.2.

    `segment` is θ of the partitioned join by range and the read buffer d of MESHJOIN; by hash there are `buckets`.

    >>> setup = LookupSetup("MESHJOIN", Workload(rate=1000, span=60, warm_up=10, keys=1_000_001))
    >>> setup.method_at(1).chunk(partitions=200)
    3194
    >>> setup.point(scale=1 / 200, seed=0).totals["done"] > 0
    True
    """

    join: Join
    workload: Workload
    table: int = 200 << 20
    memory: int = 40 << 20
    wait: int = 4 << 20
    segment: int = 1 << 20
    buckets: int = BUCKETS
    page: int = 4096
    chunk: int = 2 << 20
    """A basic window of the disk."""
    invoke: int = 3000
    epoch: float = 10.0
    """Seconds after which arrival frequencies age."""
    quadrants: Pqrs = Pqrs()  # noqa: RUF009 - frozen
    """Where the stream's keys gather."""
    table_quadrants: Pqrs = Pqrs()  # noqa: RUF009 - frozen
    """Where the table's do."""
    tick: float = 2.0

    @property
    def stem(self) -> str:
        """Method, rate and burstiness."""
        return f"lookup-{self.join.lower()}-{self.workload.rate:g}-b{self.workload.bias:g}"

    @property
    def code(self) -> tuple[str, ...]:
        """What joins, generates and measures."""
        return CODE

    @property
    def span(self) -> float:
        """That of the workload."""
        return self.workload.span

    def point(self, scale: float, seed: int, watch: Watch = lambda _: None) -> Point:
        """Simulate and measure it."""
        history = self.run(scale, seed, watch)
        return measure_history(history, self.workload.warm_up, self.workload.span, scale)

    def run(self, scale: float, seed: int, watch: Watch = lambda _: None) -> History:
        """Simulate it."""
        join = LookupJoin(self.table_at(scale, seed), (("key", "key"),), method=Stages(self.method_at(scale)))
        trace = replace(self.workload.trace(scale, 2 * seed), quadrants=self.quadrants)
        return simulate_arrivals(join, trace.table(), self.machine_at(scale), self.pace_at(scale), self.span, watch)

    def table_at(self, scale: float, seed: int) -> SegmentedTable:
        """The table: keys of a trace like the stream's, of b = 0.6 whatever that of the stream is."""
        rows = max(1, round(self.table / TABLE_ROW * scale))
        span, keys = "2880 s", max(1, round(self.workload.keys * scale))
        cap = max(1, round(self.workload.cap * scale))
        trace = Composite(
            rate=rows / 2880, span=span, cap=cap, keys=keys, quadrants=self.table_quadrants, seed=2 * seed + 1
        )
        by = "scan" if self.join == "MESHJOIN" else self.join
        theta = _part(self.segment / TABLE_ROW, scale)
        return SegmentedTable(pa.table({"key": trace.table().column("key")}), by, theta, self.buckets)

    def method_at(self, scale: float) -> MeshJoin | Partitioned:
        """The method's parameters at `scale`."""
        if self.join == "MESHJOIN":
            return MeshJoin(slots=_part((self.memory - self.segment) / STREAM_ROW, scale))
        wait = _part(self.wait / STREAM_ROW, scale)
        return Partitioned(
            wait=wait,
            block=_part(self.page / STREAM_ROW, scale),
            invoke=_part(self.invoke, scale),
            cache=max(0, round((self.memory - self.wait - self._read_buffer) / TABLE_ROW * scale)) * _ARROW_ROW,
            every=_part(self.epoch * self.workload.rate, scale),
            batch=max(1, wait // _LET_IN),
        )

    def machine_at(self, scale: float) -> PairMachine:
        """The machine: MESHJOIN walks the chain of one of 89 buckets for each row it reads, the others compare all."""
        page = max(TABLE_ROW, round(self.page * scale))
        disk = DiskModel(
            block_bytes=page, window_blocks=_part(self.chunk / page, scale), bandwidth=DiskModel().bandwidth * scale
        )
        cpu = CpuModel()
        pair = cpu.chain_node / BUCKETS if self.join == "MESHJOIN" else cpu.comparison
        return PairMachine(disk, pair / scale**2, TABLE_ROW)

    def pace_at(self, scale: float) -> Pace:
        """MESHJOIN takes what fills a segment of its queue; the partitioned join is shown what its marks ask for."""
        method = self.method_at(scale)
        if isinstance(method, MeshJoin):
            return Pace(self.tick, method.chunk(max(1, round(self.table / self.segment))))
        return Pace(self.tick, (method.high + 2) * (method.block or 1) + (method.batch or 1))

    @property
    def _read_buffer(self) -> int:
        """Room for the largest segment."""
        return self.table // self.buckets if self.join == "hash" else 2 * self.segment

    def __str__(self) -> str:
        return f"{self.join} at {self.workload.rate:g}/s, b = {self.workload.bias:g}"


def _part(size: float, scale: float) -> int:
    return max(1, round(size * scale))
