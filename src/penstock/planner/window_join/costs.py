"""What each method of a window join costs: the equations of the exact-join spec, and OA-Join's on page files.

The equations of RPWJ in the source (4.1–4.3) stand first, as they are printed but for what is said beside them.
The costs that the planner compares follow: what a method takes in the long run, in seconds of work per second of
stream. They count reading and writing of state; sorting and matching are much the same whatever the method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from penstock.core.durations import Duration
from penstock.core.within import LEFT, RIGHT
from penstock.operators.window_join import METHODS, AhEwj, Ewj, Rpwj
from penstock.operators.window_join.methods import Deferring
from penstock.planner.machine import SERVER, Disk, Machine
from penstock.planner.window_join.load import Load, Pair

WINDOWS_SHARE = 0.25
"""The part of a task's budget that the windows of a method that puts joins off take, if it is not told."""

LARGEST_PAGE = 4_000_000
FEWEST_PAGES = 16
PAGES_PER_PARTITION = 4
CHUNK_PAGES = 16
"""Pages of those methods: how large at most, how many in memory at least, how many to a basic window."""

OS_PAGE = 4096
"""What the system reads when a mapped file is touched."""

FAN = 4
"""Compaction makes a run of at least so many."""

LARGEST_RUN = 2.0
"""Runs grow to about so many times the budget: compaction stops at four times, when they are a quarter of it to all."""

PIECE = 6
"""Arrivals are matched when they fill this part of the budget, or when the epoch is over."""

SHORTEST_SLIDE = 1e-3

_EWJ, _AH_EWJ, _RPWJ = Ewj(), AhEwj(), Rpwj()


@dataclass(frozen=True, slots=True)
class Reader:
    """How RPWJ reads its disk: t_A, C_R and M_read.

    >>> Reader(access_time=0.01, byte_seconds=1e-6, memory=1000).memory
    1000
    """

    access_time: float
    byte_seconds: float
    memory: float


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of one stream on RPWJ's disk: x runs of |D| bytes together.

    >>> Partition(runs=3, size=5000).size
    5000
    """

    runs: float
    size: float


def md_seconds(reader: Reader, other: Partition) -> float:
    """(4.1) Et_md: rows in memory meet the other stream's partition on disk.

    >>> round(md_seconds(Reader(0.01, 1e-6, 1000), Partition(runs=3, size=5000)), 6)  # 8 accesses, 5 ms
    0.085
    """
    return (other.runs + other.size / reader.memory) * reader.access_time + reader.byte_seconds * other.size


def scan_seconds(reader: Reader, own: Partition) -> float:
    """(4.2) Et: scan a partition on disk through half of the buffer.

    >>> round(scan_seconds(Reader(0.01, 1e-6, 1000), Partition(runs=3, size=5000)), 6)  # 13 accesses, 5 ms
    0.135
    """
    return (own.runs + 2 * own.size / reader.memory) * reader.access_time + reader.byte_seconds * own.size


def dd_passes(reader: Reader, outer: Partition) -> float:
    """How often the inner partition is scanned: 2|D| / M_read times, but not less than once, as (4.3) would have it.

    >>> dd_passes(Reader(0.01, 1e-6, 1000), Partition(runs=3, size=5000))
    10.0
    """
    return max(1.0, 2 * outer.size / reader.memory) if outer.size else 0.0


def dd_seconds(reader: Reader, outer: Partition, inner: Partition) -> float:
    """(4.3) Et_dd: two partitions on disk meet, block by block.

    >>> partition = Partition(runs=3, size=5000)
    >>> round(dd_seconds(Reader(0.01, 1e-6, 1000), partition, partition), 6)  # 11 scans
    1.485
    """
    return scan_seconds(reader, outer) + dd_passes(reader, outer) * scan_seconds(reader, inner)


def slide_seconds(reader: Reader, left: Partition, right: Partition, partitions: int) -> float:
    """Stage 3 of a slide: of each partition both md tasks and the dd task, with the cheaper one as the outer.

    >>> partition = Partition(runs=3, size=5000)
    >>> round(slide_seconds(Reader(0.01, 1e-6, 1000), partition, partition, partitions=2), 6)
    3.31
    """
    outer, inner = _dd_order(reader, left, right)
    once = md_seconds(reader, left) + md_seconds(reader, right) + dd_seconds(reader, outer, inner)
    return partitions * once


def _dd_order(reader: Reader, left: Partition, right: Partition) -> tuple[Partition, Partition]:
    orders = ((left, right), (right, left))
    return min(orders, key=lambda order: dd_seconds(reader, *order))


@dataclass(frozen=True, slots=True)
class Cost:
    """What a method takes: seconds of work per second of stream, bytes per input row, and how prompt it is.

    `at_once` is the share of the results that leave in the epoch of the later of their rows.

    >>> Cost(seconds=0.25, read=1200.0, written=128.0, at_once=1.0).keeps_up
    True
    """

    seconds: float
    read: float
    written: float
    at_once: float

    @property
    def keeps_up(self) -> bool:
        """Whether a second of stream takes no more than one of work."""
        return self.seconds <= 1


def oa_cost(load: Load, memory: float, epoch_seconds: float, machine: Machine = SERVER) -> Cost:
    """OA-Join on page files: arrivals touch a page of each of the other port's runs; compaction keeps the runs few.

    Nothing is put off, so every result leaves at once.

    >>> load = Load(rows_per_second=(1e4, 1e4), row_bytes=(100.0, 100.0), window_seconds=(600.0, 600.0))
    >>> cost = oa_cost(load, memory=64e6, epoch_seconds=2.0, machine=Machine(page_cache=0))
    >>> round(cost.seconds, 2), round(cost.read), round(cost.written)
    (1.23, 30300, 400)
    """
    reads = machine.reading(sum(load.state_bytes), OS_PAGE, OS_PAGE)
    writes = machine.writing(OS_PAGE, memory / PIECE)
    total = _Io()
    for port in (LEFT, RIGHT):
        touched = _touched(load, port, memory, epoch_seconds, reads)
        total += touched * (1 / epoch_seconds)
        total += _settling(load, port, memory, epoch_seconds, reads, writes)
    return total.cost(load, at_once=1.0)


def run_count(state: float, arrivals: float, largest: float) -> float:
    """How many runs hold `state` bytes that came `arrivals` bytes at a time and are merged up to `largest`.

    One of each size up to the largest, and as many as it takes of these.

    >>> run_count(state=64e6, arrivals=1e6, largest=1e9), run_count(state=64e6, arrivals=1e6, largest=16e6)
    (4.0, 6.0)
    """
    if not state:
        return 0.0
    return rewrites(state, arrivals, largest) + max(1.0, state / largest)


def rewrites(state: float, arrivals: float, largest: float) -> float:
    """How often compaction rewrites a row on its way from `arrivals` bytes to a run of `largest`, or of all the state.

    >>> rewrites(state=64e6, arrivals=1e6, largest=1e9), rewrites(state=64e6, arrivals=1e6, largest=16e6)
    (3.0, 2.0)
    """
    grown = min(state, largest)
    return math.log(grown / arrivals, FAN) if grown > arrivals else 0.0


def ewj_cost(load: Load, memory: float, machine: Machine = SERVER, parameters: Ewj = _EWJ) -> Cost:
    """EWJ in the long run: (3.1) and (3.3) of both streams for a second of a long time.

    The half of the memory that a stream has holds that much of its window; the rest is on disk. A stream whose window
    is no more than it may keep fresh leaves before it would be dumped.

    >>> load = Load(rows_per_second=(1e4, 1e4), row_bytes=(100.0, 100.0), window_seconds=(600.0, 600.0))
    >>> cost = ewj_cost(load, memory=64e6, machine=Machine(page_cache=0))
    >>> round(cost.seconds, 2), round(cost.read), round(cost.written), round(cost.at_once, 3)
    (0.45, 11228, 100, 0.013)
    """
    layout = _Layout.of(parameters, memory)
    reads, writes = layout.disks(machine, load)
    half = layout.memory / 2
    fresh = max(layout.page, parameters.probe * parameters.recent * half)
    refill = max(layout.page, parameters.invalidation * half)
    on_disk = _beyond(load.state_bytes, (half, half))
    total = _Io()
    for port in (LEFT, RIGHT):
        if load.state_bytes[port] > fresh:
            arriving = load.bytes_per_second[port]
            probed = _read(reads, on_disk[1 - port]) + _write(writes, fresh)
            total += probed * (arriving / fresh) + _read(reads, refill) * (arriving / refill)
    return total.cost(load, _at_once(load, (half, half)))


def ah_ewj_cost(load: Load, memory: float, machine: Machine = SERVER, parameters: AhEwj = _AH_EWJ) -> Cost:
    """AH-EWJ in the long run: probes by the least recent memory, dumps and refills by basic windows.

    Memory moves to the slower stream until the faster has the least it may; the split that costs least is where it
    goes. A window that fits its memory never sees the disk.

    >>> load = Load(rows_per_second=(1e4, 1e4), row_bytes=(100.0, 100.0), window_seconds=(600.0, 600.0))
    >>> cost = ah_ewj_cost(load, memory=64e6, machine=Machine(page_cache=0))
    >>> round(cost.seconds, 2), round(cost.read), round(cost.written), round(cost.at_once, 3)
    (0.8, 19677, 100, 0.013)
    """
    shares = (parameters.least, 0.5, 1 - parameters.least)
    return min((_ah_ewj_split(load, memory, machine, parameters, share) for share in shares), key=lambda c: c.seconds)


def rpwj_cost(load: Load, memory: float, machine: Machine = SERVER, parameters: Rpwj = _RPWJ) -> Cost:
    """RPWJ in the long run: every slide all its tasks, and what is flushed in between.

    Memory is shared as rows arrive, and on average half a flush below its limit. A run is what a partition gathers
    between two flushes. What has expired stays until the slide is over.

    >>> load = Load(rows_per_second=(1e4, 1e4), row_bytes=(100.0, 100.0), window_seconds=(600.0, 600.0))
    >>> cost = rpwj_cost(load, memory=64e6, machine=Machine(page_cache=0))
    >>> round(cost.seconds, 2), round(cost.read), round(cost.written), round(cost.at_once, 3)
    (2.36, 51479, 100, 0.011)
    """
    layout = _Layout.of(parameters, memory)
    reads, writes = layout.disks(machine, load)
    slide, arriving = _slide(load, parameters), load.bytes_per_second
    shares = _shares(arriving)
    resident = layout.memory * (1 - parameters.flush / 2)
    held = resident * shares[LEFT], resident * shares[RIGHT]
    kept = [size + slide * arrived for size, arrived in zip(load.state_bytes, arriving, strict=True)]
    on_disk = _beyond((kept[LEFT], kept[RIGHT]), held)
    runs = layout.memory * shares[LEFT] / parameters.partitions, layout.memory * shares[RIGHT] / parameters.partitions
    total = _stage_three(reads, parameters, on_disk, runs) * (1 / slide)
    for port in (LEFT, RIGHT):
        if on_disk[port] and runs[port]:
            total += _write(writes, runs[port]) * (arriving[port] / runs[port])
    return total.cost(load, _at_once(load, held))


def rrpj_cost(load: Load, memory: float, epoch_seconds: float, machine: Machine = SERVER) -> Cost:
    """RRPJ while rows arrive: those in memory are read once an epoch, arrivals are written, the rest is left alone.

    What is put off is joined while the streams are silent, and at their end: it does not hold an epoch up.

    >>> load = Load(rows_per_second=(1e4, 1e4), row_bytes=(100.0, 100.0), window_seconds=(6000.0, 6000.0))
    >>> cost = rrpj_cost(load, memory=64e6, epoch_seconds=2.0, machine=Machine(page_cache=0))
    >>> round(cost.seconds, 2), round(cost.read), round(cost.written), round(cost.at_once, 3)
    (0.02, 400, 100, 0.001)
    """
    reads = machine.reading(sum(load.state_bytes), OS_PAGE, memory / PIECE)
    writes = machine.writing(OS_PAGE, memory / PIECE)
    resident = WINDOWS_SHARE * memory
    shares = _shares(load.bytes_per_second)
    held = resident * shares[LEFT], resident * shares[RIGHT]
    loaded = sum(min(size, here) for size, here in zip(load.state_bytes, held, strict=True))
    total = _read(reads, loaded) * (1 / epoch_seconds)
    for port in (LEFT, RIGHT):
        if arriving := load.bytes_per_second[port]:
            total += _write(writes, arriving * epoch_seconds) * (1 / epoch_seconds)
    return total.cost(load, _at_once(load, held))


COSTS: Mapping[str, Callable[[Load, float, float, Machine], Cost]] = METHODS.priced(
    {
        "oa": oa_cost,
        "ewj": lambda load, memory, _, machine: ewj_cost(load, memory, machine),
        "ah_ewj": lambda load, memory, _, machine: ah_ewj_cost(load, memory, machine),
        "rpwj": lambda load, memory, _, machine: rpwj_cost(load, memory, machine),
        "rrpj": rrpj_cost,
    }
)
"""The cost of each method that ``method="auto"`` may pick, by load, memory, seconds of an epoch and machine."""


@dataclass(frozen=True, slots=True)
class _Io:
    """Bytes read, bytes written, seconds."""

    read: float = 0.0
    written: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: _Io) -> _Io:
        return _Io(self.read + other.read, self.written + other.written, self.seconds + other.seconds)

    def __mul__(self, times: float) -> _Io:
        return _Io(self.read * times, self.written * times, self.seconds * times)

    def cost(self, load: Load, at_once: float) -> Cost:
        """As the work of each second under `load`."""
        rows = sum(load.rows_per_second)
        if not rows:
            return Cost(self.seconds, 0.0, 0.0, at_once)
        return Cost(self.seconds, self.read / rows, self.written / rows, at_once)


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a method that puts joins off lays its windows out in a task of so much memory."""

    memory: float
    page: float
    chunk: float

    @classmethod
    def of(cls, parameters: Deferring, memory: float) -> Self:
        partitions = getattr(parameters, "partitions", 1)
        windows = parameters.memory or WINDOWS_SHARE * memory
        page = parameters.page or min(LARGEST_PAGE, windows / max(FEWEST_PAGES, PAGES_PER_PARTITION * partitions))
        return cls(windows, page, parameters.chunk or CHUNK_PAGES * page)

    def disks(self, machine: Machine, load: Load) -> tuple[Disk, Disk]:
        """To read from and to write to."""
        reads = machine.reading(sum(load.state_bytes), self.page, self.chunk)
        return reads, machine.writing(self.page, self.chunk)


def _touched(load: Load, port: int, memory: float, epoch_seconds: float, reads: Disk) -> _Io:
    """What an epoch's arrivals on `port` touch of the other port: scattered pages, or all where they lie dense."""
    other = load.state_bytes[1 - port]
    runs = run_count(other, _arrivals(load, 1 - port, memory, epoch_seconds), LARGEST_RUN * memory)
    pieces = max(1.0, load.bytes_per_second[port] * epoch_seconds * PIECE / memory)
    arrived = load.rows_per_second[port] * epoch_seconds
    pages = min(arrived * runs, pieces * other / OS_PAGE)
    scattered = _Io(pages * OS_PAGE, 0.0, pages * (reads.access_time + OS_PAGE / reads.bandwidth))
    swept = _Io(pieces * other, 0.0, pieces * (runs * reads.access_time + other / reads.bandwidth))
    return min(scattered, swept, key=lambda io: io.seconds)


def _settling(load: Load, port: int, memory: float, epoch_seconds: float, reads: Disk, writes: Disk) -> _Io:
    """What a second's arrivals on `port` take to be written together, and to be rewritten a piece at a time."""
    arriving = load.bytes_per_second[port]
    if not arriving:
        return _Io()
    arrivals, piece = _arrivals(load, port, memory, epoch_seconds), memory / PIECE
    once = _write(writes, arrivals) * (arriving / arrivals)
    again = _Io(arriving, 0.0, arriving / reads.bandwidth) + _write(writes, piece) * (arriving / piece)
    return once + again * rewrites(load.state_bytes[port], arrivals, LARGEST_RUN * memory)


def _arrivals(load: Load, port: int, memory: float, epoch_seconds: float) -> float:
    """The bytes that are sorted and written together: an epoch's, but no more than a piece and no less than a row."""
    return max(load.row_bytes[port], min(load.bytes_per_second[port] * epoch_seconds, memory / PIECE))


def _ah_ewj_split(load: Load, memory: float, machine: Machine, parameters: AhEwj, share: float) -> Cost:
    """AH-EWJ with `share` of the recent memory for the left stream."""
    layout = _Layout.of(parameters, memory)
    reads, writes = layout.disks(machine, load)
    recent = parameters.recent * layout.memory
    rest = (layout.memory - recent) / 2
    held = share * recent + rest, (1 - share) * recent + rest
    fresh = max(layout.page, parameters.probe * parameters.least * recent)
    flush = parameters.flush or layout.chunk
    on_disk = _beyond(load.state_bytes, held)
    total = _Io()
    for port in (LEFT, RIGHT):
        arriving = load.bytes_per_second[port]
        if load.state_bytes[port] > fresh:
            total += _read(reads, on_disk[1 - port]) * (arriving / fresh)
        if on_disk[port]:
            total += _write(writes, flush) * (arriving / flush)
            total += _read(reads, layout.chunk) * (arriving / layout.chunk)
    return total.cost(load, _at_once(load, held))


def _stage_three(reads: Disk, parameters: Rpwj, on_disk: Pair, runs: Pair) -> _Io:
    """All the tasks of a slide."""
    reader = Reader(reads.access_time, 1 / reads.bandwidth, parameters.read_memory)
    count = parameters.partitions
    left, right = (
        Partition(size / count / run if run else 0.0, size / count) for size, run in zip(on_disk, runs, strict=True)
    )
    outer, inner = _dd_order(reader, left, right)
    read = left.size + right.size + outer.size + dd_passes(reader, outer) * inner.size
    return _Io(count * read, 0.0, slide_seconds(reader, left, right, count))


def _slide(load: Load, parameters: Rpwj) -> float:
    """τ in seconds, a tenth of both windows if it is not told; ticks are taken for seconds, as the rates count them."""
    if parameters.slide is None:
        return max(SHORTEST_SLIDE, sum(load.window_seconds) / 10)
    slide = Duration.of(parameters.slide, "slide")
    return max(SHORTEST_SLIDE, slide.amount / 1e6 if slide.kind == "time" else float(slide.amount))


def _read(disk: Disk, size: float) -> _Io:
    return _Io(size, 0.0, disk.stream_seconds(size))


def _write(disk: Disk, size: float) -> _Io:
    return _Io(0.0, size, disk.stream_seconds(size))


def _beyond(sizes: Pair, held: Pair) -> Pair:
    """What of each window is not in memory."""
    return max(0.0, sizes[LEFT] - held[LEFT]), max(0.0, sizes[RIGHT] - held[RIGHT])


def _shares(amounts: Pair) -> Pair:
    total = sum(amounts)
    return (amounts[LEFT] / total, amounts[RIGHT] / total) if total else (0.5, 0.5)


def _at_once(load: Load, held: Pair) -> float:
    """The part of the results whose earlier row is in memory when the later comes, over the pairs of both sides."""
    rates, sizes = load.rows_per_second, load.state_bytes
    found = [min(1.0, memory / size) if size else 1.0 for memory, size in zip(held, sizes, strict=True)]
    pairs = [rates[1 - port] * load.state_rows[port] for port in (LEFT, RIGHT)]
    total = sum(pairs)
    return (pairs[LEFT] * found[LEFT] + pairs[RIGHT] * found[RIGHT]) / total if total else 1.0
