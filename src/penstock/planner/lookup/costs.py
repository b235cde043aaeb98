"""The cost of each method of a lookup join per row of the stream, by the table, the memory and the skew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from penstock.core.errors import ConfigError
from penstock.core.master import TableSize
from penstock.operators.lookup import METHODS
from penstock.planner.lookup.reads import ReadCosts
from penstock.planner.lookup.skew import Skew
from penstock.planner.lookup.yields import hottest, partition_shares, read_yield, steady_share

_SLOT = 24
_BESIDE = 64
_WAITING = 4
"""Rows that wait take up to this part of the memory, and so many bytes each beside their own."""
_KEPT = 0.5
"""The partitioned join keeps partitions in this part of the memory."""


@dataclass(frozen=True, slots=True)
class Labour:
    """Seconds of the CPU for one row, as `python benchmarks/lookup_costs.py` measures them, state included.

    >>> Labour().hit < Labour().offer
    True
    """

    answer: float = 0.25e-6
    """To take a row and make its result."""
    hit: float = 1.2e-6
    """To answer it from the cache."""
    offer: float = 3.0e-6
    """To ask the cache in vain, count the miss and offer what was found."""
    wait: float = 3.0e-6
    """To let it wait, over epochs, and go."""
    look: float = 40e-9
    """To look at a row that waits, at a read that is not its own."""
    copy: float = 0.3e-9
    """To hold a byte of the table."""


@dataclass(frozen=True, slots=True)
class LookupLoad:
    """The load of a task, and what is known about the table. Seconds are of stream time; sizes are in bytes.

    The task is one of `shards`, each with its part of the keys; `table`, `partitions` and `distinct`, its number of
    keys, are those of the whole table.
    Without `max_age` no row may wait over epochs. A table that is not `indexed` is read whole for each request by key;
    one that is not `clustered` does not say which partition has a key. `exponent` is that of the Zipf law which the
    keys of the stream follow; `local` says that frequent keys lie together in the table's partitions.

    >>> LookupLoad(1e4, 100.0, TableSize(10**6, 120 * 10**6), memory=64_000_000, partitions=128).keys
    1000000
    """

    rows_per_second: float
    stream_row: float
    table: TableSize
    memory: int
    partitions: int = 1
    distinct: int | None = None
    unique: bool = True
    clustered: bool = True
    indexed: bool = True
    exponent: float = 0.0
    local: bool = False
    max_age: float | None = None
    epoch_seconds: float = 1.0
    shards: int = 1

    def __post_init__(self) -> None:
        for name in ("stream_row", "memory", "epoch_seconds", "partitions", "shards"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)} must be above 0.")
        if self.rows_per_second < 0 or (self.max_age is not None and self.max_age < 0):
            raise ConfigError(f"rows_per_second={self.rows_per_second}, max_age={self.max_age} must be 0 or more.")

    @property
    def keys(self) -> int:
        """How many keys a task may be asked for."""
        return max(1, (self.distinct or self.table.rows) // self.shards)

    @property
    def skew(self) -> Skew:
        """How unevenly they are asked for."""
        return Skew(self.keys, self.exponent)

    @property
    def rows(self) -> float:
        """Rows of an epoch, one at least."""
        return max(1.0, self.rows_per_second * self.epoch_seconds)

    @property
    def waiting(self) -> int:
        """How many rows wait: as many as fit, or come before the oldest is too old."""
        fit = self.memory / _WAITING / (self.stream_row + _BESIDE)
        age = float("inf") if self.max_age is None else self.max_age * self.rows_per_second
        return max(1, int(min(fit, age)))

    def cached(self, share: float) -> int:
        """How many rows of the table a part of the memory holds."""
        return min(self.table.rows // self.shards, int(share * self.memory / (self.table.row + _SLOT)))


@dataclass(frozen=True, slots=True)
class LookupCost:
    """The cost of a method per row of the stream, in seconds of one task, and its parts.

    >>> LookupCost(seconds=2e-6).rate
    500000.0
    """

    seconds: float
    hit_share: float = 0.0
    """The part of the rows that is answered from memory."""
    reads: float = 0.0
    """Reads of the table for a row."""
    waits: float = 0.0
    """Seconds of stream time for which a row waits."""

    @property
    def rate(self) -> float:
        """Rows a second that one task can answer."""
        return 1 / self.seconds


def predict_lookup(load: LookupLoad, reads: ReadCosts, labour: Labour | None = None) -> dict[str, LookupCost]:
    """What each method would take for a row of the stream, whether it is allowed or not.

    >>> load = LookupLoad(1e4, 100.0, TableSize(10**6, 120 * 10**6), memory=64_000_000, partitions=128, exponent=1.0)
    >>> from penstock.planner.lookup.reads import STORES
    >>> costs = predict_lookup(load, STORES["sql"])
    >>> costs["cinlj"].seconds < costs["inlj"].seconds
    True
    """
    work = labour or Labour()
    return {method: cost(load, reads, work) for method, cost in COSTS.items()}


def cache_of(method: str) -> float:
    """The part of the memory that the cache of a method has.

    >>> cache_of("cinlj"), cache_of("inlj")
    (0.5, 0.0)
    """
    front = METHODS[method].parameters.front
    return 0.0 if front is None else front.share


def _broadcast(load: LookupLoad, reads: ReadCosts, work: Labour) -> LookupCost:
    """The table is read once in an epoch, all its partitions."""
    size = load.table.nbytes
    read = load.partitions * reads.request + size / reads.bandwidth + size * work.copy
    return LookupCost(work.answer + read / load.rows, hit_share=1.0, reads=load.partitions / load.rows)


def _by_key(load: LookupLoad, reads: ReadCosts, work: Labour, cache: float = 0.0) -> LookupCost:
    """INLJ, behind a cache or not: one request for the rows of an epoch, or as many as fit."""
    cached = load.cached(cache)
    batch = min(load.rows, load.memory / _WAITING / (load.stream_row + _BESIDE))
    hit = steady_share(load.skew, cached, max(4 * cached, 1)) if cached else 0.0
    missed = batch * (1 - hit)
    asked = min(missed, load.skew.distinct(missed, cached))
    if load.indexed:
        read = reads.lookups(asked, asked * load.table.nbytes / load.keys / load.shards)
    else:
        read = reads.all_of(load.table.nbytes / load.partitions, load.partitions)
    front = hit * work.hit + (1 - hit) * work.offer if cached else 0.0
    return LookupCost(front + (1 - hit) * work.answer + read / batch, hit, 1 / batch)


def _by_partition(
    load: LookupLoad, reads: ReadCosts, work: Labour, cache: float, order: Literal["oldest", "cyclic"]
) -> LookupCost:
    """HYBRIDJOIN or MESHJOIN, behind a cache or not."""
    cached, size = load.cached(cache), load.table.nbytes / load.partitions
    hit = steady_share(load.skew, cached, load.waiting) if cached else 0.0
    if order == "cyclic":
        finished, read = load.waiting / load.partitions, reads.all_of(size, load.partitions) / load.partitions
    else:
        finished = max(1.0, read_yield(load.waiting, load.partitions, load.skew, cached))
        read = reads.anywhere(size)
    read += load.waiting * work.look
    front = hit * work.hit + (1 - hit) * work.offer if cached else 0.0
    back = (1 - hit) * (work.wait + work.answer + read / finished)
    return LookupCost(front + back, hit, (1 - hit) / finished, _waits(load, hit))


def _partitioned(load: LookupLoad, reads: ReadCosts, work: Labour) -> LookupCost:
    """Whole partitions are kept by demand: all hot where frequent keys lie together, else by chance."""
    size = load.table.nbytes / load.partitions
    kept = min(load.partitions, int(_KEPT * load.memory / max(1.0, size)))
    if load.local:
        hit = load.skew.share(round(kept * load.keys / load.partitions))
    else:
        shares, weights = partition_shares(load.skew, 0, load.partitions)
        hit = min(1.0, hottest(shares, weights, kept)[0])
    finished = max(1.0, 2 * load.waiting / max(1, load.partitions - kept))
    read = reads.anywhere(size) + load.waiting * work.look
    seconds = work.answer + hit * work.hit + (1 - hit) * (work.wait + read / finished)
    return LookupCost(seconds, hit, (1 - hit) / finished, _waits(load, hit))


def _waits(load: LookupLoad, hit: float) -> float:
    """How long a row waits, in the mean over all: those that miss wait until others have filled what there is."""
    missing = load.rows_per_second * (1 - hit)
    return (1 - hit) * load.waiting / missing / 2 if missing else 0.0


COSTS: Mapping[str, Callable[[LookupLoad, ReadCosts, Labour], LookupCost]] = METHODS.priced(
    {
        "broadcast": _broadcast,
        "inlj": partial(_by_key, cache=0.0),
        "cinlj": partial(_by_key, cache=cache_of("cinlj")),
        "hybridjoin": partial(_by_partition, cache=0.0, order="oldest"),
        "chybridjoin": partial(_by_partition, cache=cache_of("chybridjoin"), order="oldest"),
        "meshjoin": partial(_by_partition, cache=0.0, order="cyclic"),
        "cmeshjoin": partial(_by_partition, cache=cache_of("cmeshjoin"), order="cyclic"),
        "partitioned": _partitioned,
    }
)
"""What each method takes that ``method="auto"`` may pick."""
