"""What lookup joins cost: memory equations, the seconds of an iteration, and the rows a second that follow from them.

The equations are those of the semi-stream spec (§2.2–2.8). Of the stream only what the front stage does not answer
reaches a back end, and of that no key that is cached; so both the hit share and what a read yields follow from how
unevenly keys are asked for (`Skew`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from penstock.core.errors import ConfigError
from penstock.planner.lookup.reads import ReadCosts
from penstock.planner.lookup.skew import Skew
from penstock.planner.lookup.yields import hottest, partition_shares, read_yield, steady_share, yield_of

POINTER = 4
"""Bytes of a node of MESHJOIN's queue."""
NODE = 12
"""Bytes of a node of HYBRIDJOIN's queue: key, previous, next."""
FREQUENCY = 8
"""Bytes beside each cached row."""
SPAN = 4
"""INLJ counts missed keys over so many misses for each row that is cached."""
FUDGE = 1.2
"""Bytes of a hash map for each byte that is in it."""
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Operations:
    """Seconds of the CPU for one row: c_S, c_A, c_E, c_H, c_O, c_F.

    The spec prints none; these are of the size that a compiled hash map takes. What penstock's own loops over columns
    take is another matter (`planner.lookup.costs.Labour`).

    >>> Operations().back > Operations().front
    True
    """

    read: float = 0.02e-6
    """c_S: to take a row of the stream."""
    append: float = 0.10e-6
    """c_A: to let it wait."""
    expire: float = 0.05e-6
    """c_E: to let it go."""
    probe: float = 0.04e-6
    """c_H: to find it in a hash map, or to try a master row."""
    output: float = 0.15e-6
    """c_O: to make a result."""
    count: float = 0.01e-6
    """c_F: to look at the frequency of a master row that matched."""

    @property
    def front(self) -> float:
        """A row that the front stage answers."""
        return self.read + self.probe + self.output

    @property
    def back(self) -> float:
        """A row that waits and is answered by a read."""
        return self.output + self.expire + self.read + self.append


@dataclass(frozen=True, slots=True)
class Sizes:
    """|R|, v_R, v_S and M: how large a table is, its rows, those of the stream, and the memory that a join may use.

    >>> Sizes(table_rows=100_000, table_row=120, stream_row=20, memory=1_200_000).share
    0.1
    """

    table_rows: int
    table_row: float
    stream_row: float
    memory: float

    def __post_init__(self) -> None:
        for name in ("table_rows", "table_row", "stream_row", "memory"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)} leaves nothing to reckon with. Write more than 0.")

    @property
    def share(self) -> float:
        """The memory as a part of the table."""
        return self.memory / (self.table_rows * self.table_row)

    def partitions(self, partition_rows: int) -> int:
        """k: how many partitions of so many rows there are."""
        return -(-self.table_rows // partition_rows)

    def cached(self, cache: float) -> int:
        """h_R: how many master rows `cache` of the memory holds, no more than there are."""
        return min(self.table_rows, int(cache * self.memory / (self.table_row + FREQUENCY)))


@dataclass(frozen=True, slots=True)
class Setting:
    """What there is to choose: b, the part x of the memory that the front stage has, α, and loads per chunk.

    `alpha` is the part of HYBRIDJOIN's memory for rows that wait that is the hash map's, the rest being the queue's;
    what fits both if it is not given.

    >>> Setting(partition_rows=200, cache=0.15).cache
    0.15
    """

    partition_rows: int
    cache: float = 0.0
    alpha: float | None = None
    loads: int = 1

    def __post_init__(self) -> None:
        if self.partition_rows < 1 or self.loads < 1:
            raise ConfigError(f"partition_rows={self.partition_rows}, loads={self.loads}: write 1 or more.")
        if not 0 <= self.cache < 1:
            raise ConfigError(f"cache={self.cache} is no part that leaves some memory. Write 0 or more, below 1.")
        if self.alpha is not None and not 0 < self.alpha < 1:
            raise ConfigError(f"alpha={self.alpha} leaves no map or no queue. Write more than 0, less than 1.")


@dataclass(frozen=True, slots=True)
class Cycle:
    """An iteration in the long run: rows finished by the front stage (w_F) and the back end (w_B), and its seconds.

    >>> Cycle(front=60, back=40, seconds=0.01, waiting=4000, cached=100).rate
    10000.0
    """

    front: float
    back: float
    seconds: float
    """c_loop."""
    waiting: int
    """h_S: how many rows may wait."""
    cached: int
    """h_R."""
    reads: float = 1.0
    """Reads of the table."""

    @property
    def rate(self) -> float:
        """μ: rows finished in a second."""
        return (self.front + self.back) / self.seconds if self.seconds else math.inf

    @property
    def hit_share(self) -> float:
        """The part that the front stage answers."""
        return self.front / (self.front + self.back) if self.front + self.back else 0.0

    @property
    def per_read(self) -> float:
        """Rows finished for each read of the table."""
        return (self.front + self.back) / self.reads


def mesh_memory(sizes: Sizes, partition_rows: int, chunk: int) -> float:
    """M of MESHJOIN with chunks of w rows: ``b·v_R + w·v_S + k·w·ptr + fudge·k·w·v_S``.

    >>> mesh_memory(Sizes(100_000, 120, 20, 10**6), partition_rows=1000, chunk=100)
    402000.0
    """
    waiting = sizes.partitions(partition_rows) * chunk
    return partition_rows * sizes.table_row + chunk * sizes.stream_row + waiting * _mesh_slot(sizes)


def mesh_waiting(sizes: Sizes, setting: Setting) -> int:
    """h_S that the memory leaves MESHJOIN, or R-MESHJOIN: its equation solved for w, times the chunks.

    >>> mesh_waiting(Sizes(100_000, 120, 20, 402_000), Setting(partition_rows=1000))
    10000
    """
    left = _left(sizes, setting)
    chunks = max(1, sizes.partitions(setting.partition_rows) // setting.loads)
    return max(0, int(left / (sizes.stream_row / chunks + _mesh_slot(sizes)) + _ROUNDING))


def hybrid_memory(sizes: Sizes, partition_rows: int, waiting: int) -> float:
    """M of HYBRIDJOIN with h_S rows that wait: ``b·v_R + h_S·(fudge·v_S + node)``.

    >>> hybrid_memory(Sizes(100_000, 120, 20, 10**6), partition_rows=1000, waiting=1000)
    156000.0
    """
    return partition_rows * sizes.table_row + waiting * (FUDGE * sizes.stream_row + NODE)


def hybrid_waiting(sizes: Sizes, setting: Setting) -> int:
    """h_S that the memory leaves HYBRIDJOIN: as many as both the hash map's part α and the queue's have room for.

    >>> sizes = Sizes(100_000, 120, 20, 156_000)
    >>> [hybrid_waiting(sizes, Setting(1000, alpha=alpha)) for alpha in (None, 0.5, 2 / 3)]
    [1000, 750, 1000]
    """
    left, entry = _left(sizes, setting), FUDGE * sizes.stream_row
    alpha = entry / (entry + NODE) if setting.alpha is None else setting.alpha
    return max(0, int(min(alpha * left / entry, (1 - alpha) * left / NODE) + _ROUNDING))


def mesh_cycle(
    sizes: Sizes, setting: Setting, skew: Skew, reads: ReadCosts, operations: Operations | None = None
) -> Cycle:
    """MESHJOIN, with `cache` CMESHJOIN, with `loads` above 1 R-MESHJOIN: a chunk enters, partitions are read in order.

    >>> from penstock.planner.machine import Disk
    >>> disk = ReadCosts.of_disk(Disk(), row=120)
    >>> sizes, even = Sizes(100_000, 120, 20, 1_200_000), Skew(100_000)
    >>> round(mesh_cycle(sizes, Setting(1000), even, disk).rate)
    52452
    """
    cpu = operations or Operations()
    waiting = mesh_waiting(sizes, setting)
    chunks = max(1.0, sizes.partitions(setting.partition_rows) / setting.loads)
    back = waiting / chunks
    size, partitions = setting.partition_rows * sizes.table_row, sizes.partitions(setting.partition_rows)
    read = reads.all_of(size, partitions) / partitions + setting.partition_rows * _tried(cpu, setting)
    return _cycle(sizes, setting, skew, cpu, back, setting.loads * read, waiting, setting.loads, waiting)


def hybrid_cycle(
    sizes: Sizes, setting: Setting, skew: Skew, reads: ReadCosts, operations: Operations | None = None
) -> Cycle:
    """HYBRIDJOIN, with `cache` CHYBRIDJOIN: the oldest row chooses, all that wait for the partition share the read.

    >>> from penstock.planner.machine import Disk
    >>> disk = ReadCosts.of_disk(Disk(), row=120)
    >>> sizes, even = Sizes(100_000, 120, 20, 1_200_000), Skew(100_000)
    >>> cycle = hybrid_cycle(sizes, Setting(200), even, disk)
    >>> round(cycle.back), round(2 * cycle.waiting * 200 / 100_000)
    (131, 131)
    """
    cpu = operations or Operations()
    waiting = hybrid_waiting(sizes, setting)
    beyond = sizes.cached(setting.cache)
    back = read_yield(waiting, sizes.partitions(setting.partition_rows), skew, beyond)
    size = setting.partition_rows * sizes.table_row
    read = reads.anywhere(size) + setting.partition_rows * _tried(cpu, setting)
    return _cycle(sizes, setting, skew, cpu, back, read, waiting, 1, 2 * waiting)


def inlj_cycle(
    sizes: Sizes,
    setting: Setting,
    skew: Skew,
    reads: ReadCosts,
    operations: Operations | None = None,
    batch: int = 1,
) -> Cycle:
    """INLJ, with `cache` CINLJ: `batch` rows are looked up in one request, a key that several ask for only once.

    >>> from penstock.planner.machine import Disk
    >>> disk = ReadCosts.of_disk(Disk(), row=120)
    >>> round(inlj_cycle(Sizes(100_000, 120, 20, 1_200_000), Setting(1), Skew(100_000), disk).rate)
    118
    """
    cpu = operations or Operations()
    beyond = sizes.cached(setting.cache)
    asked = min(float(batch), skew.distinct(batch, beyond)) if batch > 1 else 1.0
    per_key = sizes.table_rows / skew.keys
    read = reads.lookups(asked, asked * per_key * sizes.table_row)
    work = _Work(cpu.front, cpu.read + cpu.output)
    return _cycle(sizes, setting, skew, cpu, float(batch), read, batch, 1, SPAN * beyond, work)


def partitioned_cycle(
    sizes: Sizes,
    setting: Setting,
    skew: Skew,
    reads: ReadCosts,
    operations: Operations | None = None,
    placement: Literal["random", "local"] = "local",
    wait: float = 0.1,
) -> Cycle:
    """The partitioned join: whole partitions are kept, by demand, in all the memory but `wait`, where rows wait.

    With ``placement="local"`` frequent keys lie together, so that what is kept is all hot; else it is hot by chance.

    >>> from penstock.planner.machine import Disk
    >>> disk, skew = ReadCosts.of_disk(Disk(), row=120), Skew(100_000, 1.0)
    >>> sizes = Sizes(100_000, 120, 20, 1_200_000)
    >>> local, random = (partitioned_cycle(sizes, Setting(200), skew, disk, None, p) for p in ("local", "random"))
    >>> local.hit_share > random.hit_share + 0.2
    True
    """
    cpu = operations or Operations()
    waiting = max(1, int(wait * sizes.memory / (FUDGE * sizes.stream_row + NODE)))
    size = setting.partition_rows * sizes.table_row
    partitions = sizes.partitions(setting.partition_rows)
    kept = min(partitions, max(0, int((1 - wait) * sizes.memory / size) - 1))
    if placement == "local":
        keys = round(setting.partition_rows * skew.keys / sizes.table_rows)
        hit, back = skew.share(kept * keys), float(waiting)
        if kept < partitions:
            back = read_yield(waiting, partitions - kept, skew, min(kept * keys, skew.keys - 1))
    else:
        shares, weights = partition_shares(skew, 0, partitions)
        hit, rest, left = hottest(shares, weights, kept)
        back = yield_of(waiting, rest, left) if kept < partitions else float(waiting)
    front = back * hit / max(1e-9, 1 - hit)
    seconds = reads.anywhere(size) + setting.partition_rows * cpu.probe + front * cpu.front + back * cpu.back
    return Cycle(front, back, seconds, waiting, round(kept * setting.partition_rows))


def gain(sizes: Sizes, cache: float, skew: Skew, partition_rows: int, method: Literal["mesh", "hybrid"]) -> float:
    """G(x): by what the front stage raises the rows per read, ``[h_S(x) / h_S(0)] / (1 - p(x))`` (§2.5).

    >>> sizes, skew = Sizes(100_000, 120, 20, 1_200_000), Skew(100_000, 1.0)
    >>> [round(gain(sizes, x, skew, 1000, "mesh"), 2) for x in (0.05, 0.15, 0.5, 0.75)]
    [2.13, 2.36, 1.76, 0.76]
    """
    waiting = mesh_waiting if method == "mesh" else hybrid_waiting
    with_cache, without = (waiting(sizes, Setting(partition_rows, x)) for x in (cache, 0.0))
    return with_cache / without / (1 - skew.share(sizes.cached(cache)))


def _mesh_slot(sizes: Sizes) -> float:
    return POINTER + FUDGE * sizes.stream_row


def _left(sizes: Sizes, setting: Setting) -> float:
    """The memory beside the cache and the partition that is read."""
    cached = sizes.cached(setting.cache) * (sizes.table_row + FREQUENCY)
    return max(0.0, sizes.memory - cached - setting.partition_rows * sizes.table_row)


def _tried(cpu: Operations, setting: Setting) -> float:
    """A master row that was read: is it waited for, and how often."""
    return cpu.probe + (cpu.count if setting.cache else 0.0)


@dataclass(frozen=True, slots=True)
class _Work:
    """Seconds of a row that the front stage answers, and of one that the back end does."""

    front: float
    back: float


def _cycle(
    sizes: Sizes,
    setting: Setting,
    skew: Skew,
    cpu: Operations,
    back: float,
    read: float,
    waiting: int,
    reads: int,
    window: int,
    work: _Work | None = None,
) -> Cycle:
    row = work or _Work(cpu.front, cpu.back)
    cached = sizes.cached(setting.cache)
    hit = steady_share(skew, cached, window) if setting.cache else 0.0
    front = back * hit / max(1e-9, 1 - hit)
    return Cycle(front, back, read + front * row.front + back * row.back, waiting, cached, float(reads))
