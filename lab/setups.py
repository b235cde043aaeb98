"""One run of an experiment: the thesis' parameters as printed, and what they become at a scale.

At scale f everything that grows with the streams is multiplied by f: rates, memory, basic windows, flushes, the
disk's bandwidth, the cap of the b-model's mini-intervals. Windows, other times, seeks and partitions stay. Two rows
of a window are compared f² times as often, so a comparison costs 1/f² as much (spec §3).

Three things differ from the spec's list. The key domain shrinks by f as well, or a row would meet only f times as many
partners: a block's productivity is then what it is at full size, and results are f times as many. Where windows are
partitioned, pages shrink, but no further than to a quarter. And AH-EWJ's partitions shrink, no further than to a tenth,
while a comparison costs so much less: every partition has a page that is not yet full and one whose rows are partly
over, and the more time a page spans, the more of memory these take, and the more often a page at the edge of its window
is read. RPWJ, which writes a run for each partition and so positions its disk as often as it has partitions, keeps all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pyarrow as pa

from lab.measures import Point, measure
from lab.simulated_disk import CpuModel, DiskModel
from lab.simulation import Machine, Pace, Recording, Watch, simulate
from lab.workloads.traces import KEYS, Composite
from penstock.core.errors import ConfigError
from penstock.core.within import windows
from penstock.operators.window_join import METHODS, AhEwj, Ewj, Rpwj
from penstock.operators.window_join.config import WindowJoin

CODE = (
    "penstock.core",
    "penstock.kernels",
    "penstock.operators.window_join",
    "penstock.storage",
    "lab.workloads",
    "lab.simulated_disk",
    "lab.simulation",
    "lab.setups",
    "lab.measures",
)
"""What the numbers of a setup depend on."""

Method = Ewj | AhEwj | Rpwj
"""A join method with its parameters at full size; `memory`, `page`, `row` and `chunk` must be given."""

_LEAST_PAGE = 1 / 4
_LEAST_PARTITIONS = 1 / 10
"""The parts of a page and of AH-EWJ's partitions that are left at any scale."""

_LOW_BACKLOG, _HIGH_BACKLOG = 2, 4
"""RPWJ's marks, in mean arrivals of a tick: at full size 100 pages are less than one, and nothing is seen so finely."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Two bursty traces (b-model and PQRS) of `rate` rows a second each, `span` seconds long.

    Results whose later row came within the first `warm_up` seconds are not counted, nor is the work until then.

    >>> left, right = Workload(rate=200, span=60, warm_up=10).traces(scale=0.1, seed=1)
    >>> left.num_rows, left.column("key").equals(right.column("key"))
    (1200, False)
    """

    rate: float
    span: float
    warm_up: float
    bias: float = 0.6
    cap: int = 70_000
    keys: int = KEYS

    def traces(self, scale: float, seed: int) -> tuple[pa.Table, pa.Table]:
        """Both traces; those of different seeds have nothing in common."""
        left, right = (self.trace(scale, 2 * seed + side) for side in (0, 1))
        return left.table(), right.table()

    def trace(self, scale: float, seed: int) -> Composite:
        """One trace."""
        return Composite(
            rate=self.rate * scale,
            span=f"{round(self.span * 1000)} ms",
            bias=self.bias,
            cap=max(1, round(self.cap * scale)),
            keys=max(1, round(self.keys * scale)),
            seed=seed,
        )


@dataclass(frozen=True, slots=True)
class Setup:
    """A workload, the join's window (seconds, both streams), a method, and what the CPU takes (seconds).

    A `comparison` of two rows, and a `scan`: to load a block of rows that is looked through.

    `tick` is how finely arrivals are handed over, in seconds.

    >>> method = Ewj(memory=40 << 20, page=4096, row=128, chunk=1 << 20)
    >>> setup = Setup(Workload(rate=200, span=60, warm_up=10), window=20, method=method)
    >>> setup.method_at(1 / 16).memory, setup.page_at(1 / 16)
    (2621440, 4096)
    >>> setup.run(scale=0.1, seed=0).arrived[0].size
    1200
    """

    workload: Workload
    window: float
    method: Method
    comparison: float = 4e-9
    scan: float = 0.0
    tick: float = 2.0

    def __post_init__(self) -> None:
        sizes = (self.method.memory, self.method.page, self.method.row, self.method.chunk)
        if None in sizes:
            raise ConfigError(f"memory, page, row, chunk = {sizes}: an experiment says how large all of them are.")

    @property
    def stem(self) -> str:
        """Method, rate and burstiness."""
        return f"{type(self.method).__name__.lower()}-{self.workload.rate:g}-b{self.workload.bias:g}"

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
        return measure(self.run(scale, seed, watch), self, scale)

    def run(self, scale: float, seed: int, watch: Watch = lambda _: None) -> Recording:
        """Simulate it."""
        width = f"{round(self.window * 1000)} ms"
        join = WindowJoin(
            on=(("key", "key"),),
            within=windows(width, width),
            unit="microseconds",
            method=self.method_at(scale),
        )
        return simulate(join, self.workload.traces(scale, seed), self.machine_at(scale), self.pace_at(scale), watch)

    def method_at(self, scale: float) -> Method:
        """The method's parameters at `scale`; a size never falls below a page."""
        page = self.page_at(scale)
        memory, chunk = _scaled(self.method.memory, scale, page), _scaled(self.method.chunk, scale, page)
        if isinstance(self.method, AhEwj):
            flush = None if self.method.flush is None else _scaled(self.method.flush, scale, page)
            parts = self.partitions_at(scale)
            return replace(self.method, memory=memory, chunk=chunk, page=page, flush=flush, partitions=parts)
        if isinstance(self.method, Rpwj):
            reading = _scaled(self.method.read_memory, scale, page)
            rate = self.method.read_rate * scale
            tick = self._tick_rows(scale) * self.row / page
            low, high = (max(1, math.ceil(mark * tick)) for mark in (_LOW_BACKLOG, _HIGH_BACKLOG))
            small = replace(self.method, memory=memory, chunk=chunk, page=page, low_mark=low, high_mark=high)
            return replace(small, read_memory=reading, read_rate=rate)
        return replace(self.method, memory=memory, chunk=chunk, page=page)

    def machine_at(self, scale: float) -> Machine:
        """The machine at `scale`."""
        disk = DiskModel(block_bytes=self.page_at(scale), window_blocks=(self.method.chunk or 0) // self.page_at(scale))
        fewer = self.partitions_at(scale) / getattr(self.method, "partitions", 1)
        block = (self.method.page or 0) / self.row
        cpu = CpuModel(self.comparison * fewer, scan=self.scan * fewer, block_rows=block, each=1 / scale)
        return Machine(disk.scaled(scale), cpu, self.row)

    def pace_at(self, scale: float) -> Pace:
        """What comes in a tick on average; RPWJ, which goes by the backlog, is shown as much as its marks ask for.

        Neither depends on the size of a page, so that pages of any size see the same arrivals.
        """
        ticks = _HIGH_BACKLOG + 1 if isinstance(self.method, Rpwj) else 1
        return Pace(self.tick, ticks * self._tick_rows(scale))

    def page_at(self, scale: float) -> int:
        """Bytes in a page at `scale`."""
        shrunk = 1.0 if isinstance(self.method, Ewj) else max(scale, _LEAST_PAGE)
        return max(self.row, round((self.method.page or 0) * shrunk))

    def partitions_at(self, scale: float) -> int:
        """Into how many partitions the windows are divided at `scale`."""
        if isinstance(self.method, AhEwj):
            return max(1, round(self.method.partitions * max(scale, _LEAST_PARTITIONS)))
        return getattr(self.method, "partitions", 1)

    def _tick_rows(self, scale: float) -> int:
        """Rows of either stream that come in a tick on average."""
        return max(1, round(self.workload.rate * scale * self.tick))

    @property
    def row(self) -> int:
        """Bytes that a row counts."""
        return self.method.row or 0

    def __str__(self) -> str:
        return f"{METHODS.name_of(self.method)} at {self.workload.rate:g}/s, b = {self.workload.bias:g}"


def _scaled(size: int | None, scale: float, least: int) -> int:
    return max(least, round((size or 0) * scale))
