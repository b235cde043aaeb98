"""Runs of lookup joins: a fast stream against a table larger than memory, with and without a front stage.

The real joins read a table of which every row, and every byte of the disk's blocks, stands for as many of the source's
as the scale says. So what a read takes is what it takes there, and counts and rates are shown at the source's size. The
memory is dealt out by the equations of the cost models: to the cache, to the partition that is read, and to slots of
28 bytes (MESHJOIN) or 36 (HYBRIDJOIN) for rows that wait.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from lab.feeding import Counted, totals
from lab.lookup_equations import (
    Cycle,
    Operations,
    Setting,
    Sizes,
    hybrid_cycle,
    hybrid_waiting,
    inlj_cycle,
    mesh_cycle,
    mesh_waiting,
)
from lab.lookup_simulation import LookupMachine, LookupRecording, LookupSimulation, simulate_lookup
from lab.measures import WALL, Measure, Point
from lab.simulated_disk import DiskModel
from lab.simulation import Watch
from lab.statistics import warm_up
from lab.workloads.lookup import STREAM, LonLike, MasterRows, TemporalLocality, TpchLike, ZipfStream
from lab.workloads.zipf import Placement, Zipf
from penstock.core.master import TableSource
from penstock.kernels.hashing import hash_keys
from penstock.operators.lookup import Front, HybridJoin, Inlj, LookupJoin, MeshJoin, Shedding, Stages
from penstock.operators.lookup.shedding import Shed
from penstock.planner.lookup.reads import ReadCosts
from penstock.planner.lookup.skew import Skew
from penstock.planner.machine import Disk
from penstock.storage.tables import ArrowTable
from penstock.storage.tables.build import build_page_table

PER_READ = Measure("per_read", "tuples finished per partition read", "tuples")
RATE = Measure("rate", "service rate, virtual clock", "tuples/s")
MODEL = Measure("model", "service rate by the cost model", "tuples/s")
HIT = Measure("hit", "answered by the front stage", "part")
FRONT_RATE = Measure("front_rate", "service rate of the front stage", "tuples/s")
BACK_RATE = Measure("back_rate", "service rate of the back end", "tuples/s")
PROCESSING = Measure("processing", "processing time per tuple", "s")
IDEAL = Measure("ideal", "ideal share", "part")
GAIN = Measure("gain", "gain by the I/O model", "times")

Family = Literal["mesh", "hybrid", "inlj"]
Data = Literal["synthetic", "tpch", "even orders", "lon", "local"]

Aside = Literal["disk", "network"]
"""Where rows that are put aside go: to the disk that the table is on, or over a network of a gigabit a second."""

NETWORK = DiskModel(latency=1e-4, seek=0.0, bandwidth=125e6)
"""No arm to move, and more bytes a second than the disk has."""

REQUEST = 0.001
"""What a database takes for each request, in seconds."""

_CODE = (
    "penstock.core",
    "penstock.kernels",
    "penstock.operators.lookup",
    "lab.lookup_equations",
    "penstock.planner.lookup.skew",
    "penstock.storage",
    "lab.workloads",
    "lab.simulated_disk",
    "lab.simulated_table",
)

_CYCLES = {"mesh": (3.0, 10.0), "hybrid": (8.0, 10.0), "inlj": (1.0, 24.0)}
"""Over how many times the rows that may wait a run goes, without a cache and with one, where only misses count.

As many as it takes: looked at one at a time, the rate drifts for 5 of them before MESHJOIN, for 3 before HYBRIDJOIN and
for 16 before INLJ, and HYBRIDJOIN's goes up and down every 2, so that several must be measured.
"""
_LEAST_CYCLES = 1.3
_STEPS = 200
"""Rows are handed over in so many batches."""
_CHUNKS = 100
"""MESHJOIN lets rows in so many times a round at most, lest a chunk be of a few rows only."""
_LOOKED_UP = 600
"""INLJ is run over so few rows: each takes the same."""
_GROWTH = 5


class Law(NamedTuple):
    """A table and a stream: bytes of their rows, how often keys come, the rows themselves."""

    table_row: int
    stream_row: int
    skew: Skew


@dataclass(frozen=True, slots=True)
class Looking(Counted):
    """A join at the source's size: |R|, M as a part of 100 million rows, the cache's part of M, b, and the skew.

    `partition` is b; if it is not given, a tenth (MESHJOIN) or a fiftieth (HYBRIDJOIN) of the memory, but no less than
    3 or 2 in a thousand of the table. With `shrunk` False the disk is not shrunk with the table.
    """

    family: Family
    cache: float = 0.0
    memory: float = 10.0
    """In per cent of the table; of `of` rows, if that is given."""
    rows: float = 100e6
    of: float | None = None
    partition: float | None = None
    exponent: float = 1.0
    threshold: int = 10
    adaptive: bool = True
    data: Data = "synthetic"
    placement: Placement = "random"
    """Where frequent keys lie in the table, if `data` is synthetic."""
    per_key: int = 1
    stretch: int = 1
    """How many times as long as the source's the intervals of `data` local are; there are as many fewer of them."""
    shrunk: bool = True
    cut: float = 1.0
    """The part of its cycles that a run goes over, at least one."""

    @property
    def stem(self) -> str:
        """The name of the class."""
        return f"lookup-{type(self).__name__.lower()}"

    @property
    def code(self) -> tuple[str, ...]:
        """All operators, the simulation, and the models that deal the memory out."""
        return (*_CODE, "lab.lookups", "lab.lookup_simulation", "lab.statistics")

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Run it and measure what comes after the warm-up."""
        plan = self.plan(scale)
        stream = plan.stream(seed)
        run = simulate_lookup(plan.join(), stream, plan.machine, plan.batch(stream))
        return totals(plan.measured(run, stream))

    def plan(self, scale: float) -> Plan:
        """What is run at a part of the source's size."""
        return Plan(self, scale)

    def __str__(self) -> str:
        cached = f"C{self.family} (cache {self.cache:g})" if self.cache else self.family
        return f"{cached}, |R| {self.rows / 1e6:g} M, M {self.memory:g} %, skew {self.exponent:g}"


@dataclass(frozen=True, slots=True)
class Sharing(Looking):
    """The same join over so many iterations: which part of the stream the front stage has answered so far."""

    iterations: int = 1000

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Looked at a hundred times."""
        plan = self.plan(scale)
        stream = plan.stream(seed, round(self.iterations * plan.cycle().per_read * 1.1))
        path = simulate_lookup(plan.join(), stream, plan.machine, plan.batch(stream)).path
        times = np.linspace(0, self.iterations, 101)[1:]
        finished, hits, wall = (
            np.interp(times, path.reads, column) for column in (path.finished, path.hits, path.wall)
        )
        ideal = np.full(times.size, plan.ideal)
        shown = {HIT.name: hits / np.maximum(1, finished), IDEAL.name: ideal, WALL.name: finished / wall}
        return Point({}, times, shown)

    def __str__(self) -> str:
        return f"{self.family}, {self.iterations} iterations"


@dataclass(frozen=True, slots=True)
class Overloaded(Looking):
    """The same join when `load` times as many tuples arrive in an iteration as it would finish without shedding.

    Each time so many arrive the table may be read once. `position` says which waiting row chooses what is read while
    rows are shed: 0 the newest, 1 the oldest.
    """

    load: float = 2.0
    policy: Shed = "considering"
    position: float = 0.15
    to: Aside | None = None
    """Where rows that are put aside go; if not given, that takes nothing."""
    settling: int = 2
    """How often the table is gone over before anything counts."""

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """What a read finishes once the queue has been filled and the join has settled."""
        plan = self.plan(scale)
        arrive = max(1, round(self.load * plan.cycle().per_read))
        partitions = plan.sizes.partitions(plan.setting.partition_rows)
        warm = self.settling * partitions + 3 * plan.slots // max(1, round(arrive * (1 - plan.ideal)))
        stream = plan.stream(seed, arrive * (warm + 3 * partitions))
        shed = Shedding(self.policy, self.position)
        machine = plan.machine if self.to is None else plan.machine_with(self.to)
        done = simulate_lookup(replace(plan.join(), quota=1, shed=shed), stream, machine, arrive).since(warm)
        measured = {PER_READ: done.per_read / scale, RATE: done.rate / plan.factor, HIT: done.hit_share}
        return totals({**measured, WALL: done.wall_rate})

    def __str__(self) -> str:
        where = "" if self.to is None else f" to {self.to}"
        what = f"{self.family} (cache {self.cache:g}), frequent keys {self.placement}, {self.policy}{where}"
        return f"{what} at {self.position:g}, load {self.load:g}"


@dataclass(frozen=True, slots=True)
class Growing(Looking):
    """The same join while its table grows from half to all of its rows, in five steps; rows ask for what is there.

    With `online` False all rows are there from the beginning, and the stream asks for all of them throughout.
    """

    online: bool = True

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """The service rate over time, in forty parts of the run."""
        plan = self.plan(scale)
        master = MasterRows(plan.rows).table().sort_by("key")
        present = [plan.rows * (_GROWTH + step) // (2 * _GROWTH) if self.online else plan.rows for step in range(6)]
        with tempfile.TemporaryDirectory() as folder:
            rows = plan.setting.partition_rows
            table = build_page_table(folder, [master[: present[0]]], ["key"], by="range", partition_rows=rows)
            simulation = LookupSimulation(plan.join(table), plan.machine)
            stream, first, sent = _asking(plan, seed), 0, 0
            for step, there in enumerate(present):
                if step and there > present[step - 1]:
                    table.append(master[present[step - 1] : there])
                    simulation.renew()
                part = 0.25 if 0 < step < _GROWTH else 0.5 if not step else 1.0
                some, first = _next_rows(stream, there, first, int(part * plan.length))
                ids = pa.array(np.arange(sent, sent + some.num_rows, dtype=np.int32))
                simulation.feed(some.set_column(2, STREAM.field("id"), ids), max(1, plan.length // _STEPS))
                sent += some.num_rows
            run = simulation.recording()
        return _rates(run, plan)

    def __str__(self) -> str:
        return f"{self.family} (cache {self.cache:g}), |R| {'grows' if self.online else 'stays'}"


@dataclass(frozen=True)
class Plan:
    """A join at a part of its size: all in rows and bytes of the run."""

    what: Looking
    scale: float

    @cached_property
    def law(self) -> Law:
        """Of which rows and keys the streams are."""
        rows, exponent = self.rows, self.what.exponent
        match self.what.data:
            case "tpch":
                return Law(223, 138, Skew(rows, 1.0))
            case "even orders":
                return Law(223, 138, Skew(rows, 0.0))
            case "lon":
                return Law(128, 128, Skew(min(rows, 36_001), 1.0))
            case _:
                return Law(120, 20, Skew(rows // self.what.per_key, exponent))

    @property
    def rows(self) -> int:
        """|R|."""
        return max(1, round(self.what.rows * self.scale))

    @cached_property
    def sizes(self) -> Sizes:
        """|R|, v_R, v_S, M."""
        of = self.rows if self.what.of is None else self.what.of * self.scale
        memory = self.what.memory / 100 * of * self.law.table_row
        return Sizes(self.rows, self.law.table_row, self.law.stream_row, memory)

    @cached_property
    def setting(self) -> Setting:
        """b, x, and loads per chunk."""
        what = self.what
        if what.partition is not None:
            rows = what.partition * (self.scale if what.shrunk else 1.0)
        else:
            part, least = (0.1, 0.003) if what.family == "mesh" else (0.02, 0.002)
            rows = max(part * self.sizes.memory / self.law.table_row, least * self.rows)
        b = max(1, round(rows))
        loads = max(1, self.sizes.partitions(b) // _CHUNKS) if what.family == "mesh" and what.shrunk else 1
        return Setting(b, what.cache, loads=loads)

    @cached_property
    def slots(self) -> int:
        """h_S."""
        if self.what.family == "inlj":
            return 4 * self.sizes.cached(self.what.cache) if self.what.cache else _LOOKED_UP
        waiting = mesh_waiting if self.what.family == "mesh" else hybrid_waiting
        return max(1, waiting(self.sizes, self.setting))

    @property
    def length(self) -> int:
        """How many rows come."""
        plain, cached = _CYCLES[self.what.family]
        whole = cached if self.what.cache else plain
        cycles = min(whole, max(_LEAST_CYCLES, whole * self.what.cut))
        return int(cycles * self.slots / max(0.05, 1 - self.ideal))

    @property
    def ideal(self) -> float:
        """The part that a cache answers which has the most frequent keys: H(h_R) / H(n)."""
        per_key = self.rows // self.law.skew.keys
        return self.law.skew.share(self.sizes.cached(self.what.cache) // per_key)

    @property
    def factor(self) -> float:
        """By how much smaller the disk is: what INLJ does to it does not depend on the size of the table."""
        return self.scale if self.what.shrunk and self.what.family != "inlj" else 1.0

    @property
    def disk(self) -> DiskModel:
        """Bytes are scaled, times are as they are."""
        return self._shrunk(DiskModel())

    def _shrunk(self, whole: DiskModel) -> DiskModel:
        size = max(1, round(whole.block_bytes * self.factor))
        return replace(whole, bandwidth=whole.bandwidth * self.factor, block_bytes=size)

    @property
    def operations(self) -> Operations:
        """A row stands for many."""
        return Operations(**{name: each / self.factor for name, each in asdict(Operations()).items()})

    @property
    def machine(self) -> LookupMachine:
        """What the join runs on."""
        return LookupMachine(self.disk, self.operations, self.law.table_row, REQUEST)

    def machine_with(self, aside: Aside) -> LookupMachine:
        """The same, and what it takes to put rows aside and to take them again."""
        store = self.disk if aside == "disk" else self._shrunk(NETWORK)
        return replace(self.machine, aside=store, aside_bytes=self.law.stream_row)

    @property
    def method(self) -> Stages:
        """The join."""
        what, front = self.what, None
        if what.cache:
            policy: Literal["strict", "decay"] = "decay" if what.data == "local" else "strict"
            slots = max(1, self.sizes.cached(what.cache))
            threshold = min(2, what.threshold) if what.family == "inlj" else what.threshold
            front = Front(slots=slots, policy=policy, threshold=threshold, adaptive=what.adaptive)
        if what.family == "inlj":
            # Rows that the cache misses scarcely ask for the same key: that 64 go together saves nothing but wall time.
            return Stages(Inlj(batch=64 if front else 1), front)
        if what.family == "mesh":
            return Stages(MeshJoin(self.slots, self.setting.loads), front)
        return Stages(HybridJoin(self.slots), front)

    def join(self, table: TableSource | None = None) -> LookupJoin:
        """The join of this plan."""
        table = table or _table(self.what.data, self.rows, self.what.per_key, self.setting.partition_rows)
        return LookupJoin(table, (("key", table.keys[0]),), method=self.method)

    def stream(self, seed: int, count: int | None = None) -> pa.Table:
        """What comes: time, key, place."""
        count = count or self.length
        match self.what.data:
            case "tpch" | "even orders":
                orders = TpchLike(self.rows, count, self.law.skew.exponent, seed=seed).order_table()
                places = pa.array(np.arange(count, dtype=np.int32))
                return pa.table([orders.column("o_orderdate"), orders.column("o_custkey"), places], schema=STREAM)
            case "lon":
                law = Zipf(self.law.skew.keys, seed=seed)
                return ZipfStream(count, law, seed=seed).table()
            case "local":
                whole = self.what.stretch * self.rows // 2
                local = TemporalLocality(self.rows, self.what.per_key, whole, seed=seed)
                return local.stream.table().slice(0, self.rows // 2)
            case _:
                law = Zipf(self.rows, self.what.exponent, self.what.placement, seed=seed)
                stream = ZipfStream(count, law, seed=seed).table()
                return _in_order_of_hashes(stream, self.rows) if self.what.placement == "local" else stream

    def batch(self, stream: pa.Table) -> int:
        """How many rows are handed over at a time."""
        return max(1, int(stream.num_rows) // _STEPS)

    def cycle(self) -> Cycle:
        """By the cost model."""
        disk = self.disk
        described = Disk(disk.latency, disk.seek, disk.bandwidth, disk.block_bytes, disk.window_blocks)
        reads = ReadCosts.of_disk(described, self.law.table_row, REQUEST)
        arguments = self.sizes, self.setting, self.law.skew, reads, self.operations
        if self.what.family == "inlj":
            return inlj_cycle(*arguments, 64 if self.what.cache else 1)
        return mesh_cycle(*arguments) if self.what.family == "mesh" else hybrid_cycle(*arguments)

    def measured(self, run: LookupRecording, stream: pa.Table) -> dict[Measure, float]:
        """All measures, by both clocks over the same part of the run."""
        # MESHJOIN reads before anything is finished, HYBRIDJOIN fills up before it reads, a cache goes on filling.
        path = run.path
        step = max(warm_up(np.diff(column, prepend=0)) for column in (path.reads, path.finished, path.hits))
        done = run.since(step)
        counted = run.processing[run.ids >= step * self.batch(stream)]
        per_second = 1 / self.factor / done.seconds
        return {
            PER_READ: done.per_read / self.scale,
            RATE: done.finished * per_second,
            WALL: done.wall_rate,
            MODEL: self.cycle().rate / self.factor,
            HIT: done.hit_share,
            FRONT_RATE: done.hits * per_second,
            BACK_RATE: (done.finished - done.hits) * per_second,
            PROCESSING: float(counted.mean()) if counted.size else float("nan"),
            GAIN: self.gain,
        }

    @property
    def gain(self) -> float:
        """G(x)."""
        family = self.what.family
        if family == "inlj":
            return 1 / (1 - self.ideal)
        waiting = mesh_waiting if family == "mesh" else hybrid_waiting
        without = max(1, waiting(self.sizes, replace(self.setting, cache=0.0)))
        return self.slots / without / (1 - self.ideal)


@lru_cache(maxsize=2)
def _table(data: Data, rows: int, per_key: int, partition_rows: int) -> ArrowTable:
    if data in ("tpch", "even orders"):
        return ArrowTable(TpchLike(rows, 0).customer_table(), ("c_custkey",), partition_rows)
    if data == "lon":
        return ArrowTable(LonLike(rows).master.table(), ("key",), partition_rows)
    if data == "local":
        return ArrowTable(TemporalLocality(rows, per_key).master.table(), ("key",), partition_rows)
    return ArrowTable(MasterRows(rows).table(), ("key",), partition_rows)


def _in_order_of_hashes(stream: pa.Table, keys: int) -> pa.Table:
    """For the i-th key the one with the i-th hash: a table's partitions are in that order."""
    order = np.argsort(hash_keys([pa.array(np.arange(keys))]))
    return stream.set_column(1, STREAM.field("key"), pa.array(order[stream.column("key").to_numpy()]))


def _asking(plan: Plan, seed: int) -> pa.Table:
    """Rows by one law over all keys: more than can be asked for while half of them are there."""
    return plan.stream(seed, plan.length * (_GROWTH + 1))


def _next_rows(stream: pa.Table, there: int, first: int, count: int) -> tuple[pa.Table, int]:
    """From place `first` on, the next `count` rows that ask for the first `there` keys, and where they end."""
    keys = stream.column("key").to_numpy()[first:]
    places = first + np.flatnonzero(keys < there)[:count]
    return stream.take(pa.array(places)), int(places[-1]) + 1 if places.size else first


def _rates(run: LookupRecording, plan: Plan) -> Point:
    places = np.linspace(0, run.path.finished.size - 1, 41).astype(np.int64)
    finished, busy, wall = (column[places] for column in (run.path.finished, run.path.busy, run.path.wall))
    done = np.diff(finished)
    rates = done / plan.factor / np.maximum(np.diff(busy), 1e-9)
    return Point({}, finished[1:] / plan.scale, {RATE.name: rates, WALL.name: done / np.diff(wall)})
