"""One run of an experiment: the thesis' parameters as printed, and what they become at a scale.

At scale f everything that grows with the streams is multiplied by f: rates, memory, basic windows, flushes, the
disk's bandwidth, the cap of the b-model's mini-intervals. Windows, other times, seeks and partitions stay. Two rows
of a window are compared f² times as often, so a comparison costs 1/f² as much (spec §3).

Two things differ from the spec's list. The key domain shrinks by f as well, or a row would meet only f times as many
partners: a block's productivity is then what it is at full size, and results are f times as many. And where windows are
partitioned, pages shrink, but no further than to a half: every partition has a page that is not yet full and one
whose rows are partly over, and the more time a page spans, the more of what is compared is over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.core.errors import ConfigError
from penstock.core.within import windows
from penstock.lab.simulation import Machine, Pace, Recording, Watch, simulate
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.methods import AhEwj, Ewj, Rpwj, method_name
from penstock.storage.simulated import CpuModel, DiskModel
from penstock.workloads.traces import KEYS, Composite

Method = Ewj | AhEwj | Rpwj
"""A join method with its parameters at full size; `memory`, `page`, `row` and `chunk` must be given."""


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
        left, right = (self._trace(scale, 2 * seed + side) for side in (0, 1))
        return left.table(), right.table()

    def _trace(self, scale: float, seed: int) -> Composite:
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
    """A workload, the join's window (seconds, both streams), a method, and what a comparison costs (seconds).

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
    tick: float = 2.0

    def __post_init__(self) -> None:
        sizes = (self.method.memory, self.method.page, self.method.row, self.method.chunk)
        if None in sizes:
            raise ConfigError(f"memory, page, row, chunk = {sizes}: an experiment says how large all of them are.")

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
            return replace(self.method, memory=memory, chunk=chunk, page=page, flush=flush)
        if isinstance(self.method, Rpwj):
            reading = _scaled(self.method.read_memory, scale, page)
            rate = self.method.read_rate * scale
            return replace(self.method, memory=memory, chunk=chunk, page=page, read_memory=reading, read_rate=rate)
        return replace(self.method, memory=memory, chunk=chunk, page=page)

    def machine_at(self, scale: float) -> Machine:
        """The machine at `scale`."""
        disk = DiskModel(block_bytes=self.page_at(scale), window_blocks=(self.method.chunk or 0) // self.page_at(scale))
        return Machine(disk.scaled(scale), CpuModel(comparison=self.comparison / scale**2), self.row)

    def pace_at(self, scale: float) -> Pace:
        """As much as comes in a tick, at least a page of either stream; for RPWJ, which goes by the backlog, all of it.

        More than its high mark makes no difference to RPWJ.
        """
        rows = max(1, self.page_at(scale) // self.row)
        if isinstance(self.method, Rpwj):
            return Pace(self.tick, (self.method.high_mark + 1) * rows)
        return Pace(self.tick, max(rows, round(self.workload.rate * scale * self.tick)))

    def page_at(self, scale: float) -> int:
        """Bytes in a page at `scale`."""
        shrunk = 1.0 if isinstance(self.method, Ewj) else max(scale, 0.5)
        return max(self.row, round((self.method.page or 0) * shrunk))

    @property
    def row(self) -> int:
        """Bytes that a row counts."""
        return self.method.row or 0

    def __str__(self) -> str:
        return f"{method_name(self.method)} at {self.workload.rate:g}/s, b = {self.workload.bias:g}"


def _scaled(size: int | None, scale: float, least: int) -> int:
    return max(least, round((size or 0) * scale))
