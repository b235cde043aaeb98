"""Which method a lookup join runs by: what answers rows fastest, of the methods that the table and the user allow.

Four things decide: whether the table fits the memory; what a look-up takes, by key or by partition, where the table is;
how unevenly keys are asked for; and whether rows may wait for each other. A cached row costs about as much as one
that is found in mapped pages, so a cache pays only where look-ups are dear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.core.budget import show_bytes
from penstock.core.errors import ConfigError
from penstock.core.master import TableSize
from penstock.planner.lookup_costs import ReadCosts, partition_shares, read_yield, settled_share
from penstock.planner.skew import Skew

PlannedLookup = Literal[
    "broadcast",
    "inlj",
    "cinlj",
    "hybridjoin",
    "chybridjoin",
    "meshjoin",
    "cmeshjoin",
    "partitioned",
]
"""What ``method="auto"`` can become."""

BROADCAST_SHARE = 0.25
"""A table is held whole if it is no more than this part of a task's memory."""

STORES: dict[str, ReadCosts] = {
    "arrow": ReadCosts(request=5e-5, key=0.3e-6, bandwidth=20e9),
    "pages": ReadCosts(request=1.3e-4, key=0.3e-6, bandwidth=10e9),
    "parquet": ReadCosts(request=2e-3, key=2e-6, bandwidth=500e6),
    "sql": ReadCosts(request=1e-3, key=8e-6, bandwidth=50e6),
    "remote": ReadCosts(request=3e-2, key=2e-5, bandwidth=100e6),
}
"""What reads take by the kind of store, until it is measured: a table in this process, mapped pages, files, a database
behind a socket, files in an object store."""

_CACHE: dict[PlannedLookup, float] = {"cinlj": 0.5, "chybridjoin": 0.15, "cmeshjoin": 0.15}
"""The part of the memory that the front stage of each has."""
_WITH_CACHE: dict[PlannedLookup, PlannedLookup] = {
    "broadcast": "cinlj",
    "inlj": "cinlj",
    "cinlj": "cinlj",
    "hybridjoin": "chybridjoin",
    "chybridjoin": "chybridjoin",
    "meshjoin": "cmeshjoin",
    "cmeshjoin": "cmeshjoin",
    "partitioned": "chybridjoin",
}
"""The method with a cache that is nearest to each."""
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
    """What a task has to bear, and what is known of the table. Seconds are of stream time; bytes.

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
                raise ConfigError(f"{name}={getattr(self, name)} leaves nothing to plan with. Write more than 0.")
        if self.rows_per_second < 0 or (self.max_age is not None and self.max_age < 0):
            raise ConfigError(f"rows_per_second={self.rows_per_second}, max_age={self.max_age}: write 0 or more.")

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
    """What a method takes for a row of the stream, in seconds of one task, and how it gets there.

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


@dataclass(frozen=True, slots=True)
class LookupPreference:
    """What an answer at once is worth, and a change of method. All of it is a matter of taste: change it at will.

    >>> LookupPreference(prompt=1.0).stay
    0.3
    """

    prompt: float = 1.5
    """So many times faster a method must be to be let rows wait."""
    stay: float = 0.3
    """By this part of the time of the method that runs the best must be faster, to take over from it."""
    tie: float = 0.15
    """Times that differ by no more than this part are the same: the simpler method is taken."""

    def __post_init__(self) -> None:
        for name, least in (("prompt", 1), ("tie", 0)):
            if not getattr(self, name) >= least:
                raise ConfigError(f"{name}={getattr(self, name)} is too little. Write {least} or more.")
        if not 0 <= self.stay < 1:
            raise ConfigError(f"stay={self.stay} is no part that a cost can fall by. Write 0 or more, below 1.")


@dataclass(frozen=True, slots=True)
class LookupAlternative:
    """A method that was not chosen, what it would take if it is possible, and why it was not."""

    method: PlannedLookup
    cost: LookupCost | None
    why: str


@dataclass(frozen=True, slots=True)
class LookupChoice:
    """The method, why, what it takes, and what else there was.

    >>> LookupChoice("inlj", "nothing is measured yet").alternatives
    ()
    """

    method: PlannedLookup
    reason: str
    cost: LookupCost | None = None
    alternatives: tuple[LookupAlternative, ...] = ()


@dataclass(frozen=True, slots=True)
class KeysAsked:
    """How unevenly keys are asked for, and what a cache makes of it: the one the method has, or could have.

    >>> print(KeysAsked(0.97, cached=197_206, expected=0.718, measured=0.722))
    keys as by Zipf 0.97: a cache of 197,206 rows would answer 72 % of them (72 % were)
    >>> print(KeysAsked(0.0, cached=1000, expected=0.1, seen=False))
    keys assumed to be asked for evenly, as nothing says otherwise: a cache of 1,000 rows would answer 10 % of them
    """

    exponent: float
    """That of the Zipf law."""
    cached: int
    """Rows that the cache holds, over all tasks."""
    expected: float
    """The part of the rows that it answers by that law, once it is full."""
    measured: float | None = None
    """What a cache answered lately, if one was asked."""
    seen: bool = True
    """Whether the exponent was found from what came; it is assumed before."""

    def __str__(self) -> str:
        law = f"keys as by Zipf {self.exponent:.2f}"
        if not self.seen:
            how = f"as by Zipf {self.exponent:.2f}" if self.exponent else "evenly"
            law = f"keys assumed to be asked for {how}, as nothing says otherwise"
        were = "" if self.measured is None else f" ({100 * self.measured:.0f} % were)"
        return f"{law}: a cache of {self.cached:,} rows would answer {100 * self.expected:.0f} % of them{were}"


def keys_asked(
    load: LookupLoad, reads: ReadCosts, method: PlannedLookup, measured: float | None = None, *, seen: bool = True
) -> KeysAsked:
    """What a cache answers by the skew in `load`: that of `method`, or of the method that is the same with a cache.

    `measured` is what the cache answered lately; of a method that has none, it is of the past and left out.

    >>> load = LookupLoad(1e4, 100.0, TableSize(10**6, 120 * 10**6), memory=64_000_000, partitions=128, exponent=1.0)
    >>> print(keys_asked(load, STORES["pages"], "inlj"))
    keys as by Zipf 1.00: a cache of 222,222 rows would answer 89 % of them
    """
    cached = _WITH_CACHE[method]
    rows = load.shards * load.cached(_CACHE[cached])
    expected = predict_lookup(load, reads)[cached].hit_share
    return KeysAsked(load.exponent, rows, expected, measured if method in _CACHE else None, seen)


def choose_lookup(
    load: LookupLoad,
    reads: ReadCosts,
    current: PlannedLookup | None = None,
    preference: LookupPreference | None = None,
    labour: Labour | None = None,
) -> LookupChoice:
    """Choose the method of a lookup join, before it runs or at the boundary of an epoch.

    `load` is that of one task; `reads` what it takes to read where the table is (`STORES`), `current` the method that
    runs, if one does.

    >>> load = LookupLoad(1e4, 100.0, TableSize(10**6, 120 * 10**6), memory=64_000_000, partitions=128, exponent=1.0)
    >>> [choose_lookup(load, STORES[store]).method for store in ("pages", "sql")]
    ['inlj', 'cinlj']
    >>> print(choose_lookup(load, STORES["pages"]).reason)
    a look-up takes 0.3 µs, less than to ask a cache first
    """
    taste, work = preference or LookupPreference(), labour or Labour()
    costs = predict_lookup(load, reads, work)
    barred = _barred(load)
    allowed = {method: cost for method, cost in costs.items() if method not in barred}
    weighed = {method: _weighed(method, cost, taste) for method, cost in allowed.items()}
    least = min(weighed.values())
    best = next(method for method in weighed if weighed[method] <= (1 + taste.tie) * least)
    stays = current in weighed and weighed[best] > (1 - taste.stay) * weighed[current]
    chosen = current if stays and current is not None else best
    reason = _kept(chosen, best) if chosen != best else _why(chosen, load, reads, work, allowed)
    others = [
        LookupAlternative(
            method,
            None if method in barred else costs[method],
            barred.get(method) or _why_not(method, chosen, allowed, taste),
        )
        for method in costs
        if method != chosen
    ]
    return LookupChoice(chosen, reason, costs[chosen], tuple(others))


def predict_lookup(load: LookupLoad, reads: ReadCosts, labour: Labour | None = None) -> dict[PlannedLookup, LookupCost]:
    """What each method would take for a row of the stream, whether it is allowed or not.

    >>> load = LookupLoad(1e4, 100.0, TableSize(10**6, 120 * 10**6), memory=64_000_000, partitions=128, exponent=1.0)
    >>> costs = predict_lookup(load, STORES["sql"])
    >>> costs["cinlj"].seconds < costs["inlj"].seconds
    True
    """
    work = labour or Labour()
    given = load, reads, work
    return {
        "broadcast": _broadcast(*given),
        "inlj": _by_key(*given, cache=0.0),
        "cinlj": _by_key(*given, cache=_CACHE["cinlj"]),
        "hybridjoin": _by_partition(*given, cache=0.0, order="oldest"),
        "chybridjoin": _by_partition(*given, cache=_CACHE["chybridjoin"], order="oldest"),
        "meshjoin": _by_partition(*given, cache=0.0, order="cyclic"),
        "cmeshjoin": _by_partition(*given, cache=_CACHE["cmeshjoin"], order="cyclic"),
        "partitioned": _partitioned(*given),
    }


TITLES: dict[PlannedLookup, str] = {
    "broadcast": "broadcast",
    "inlj": "INLJ",
    "cinlj": "CINLJ",
    "hybridjoin": "HYBRIDJOIN",
    "chybridjoin": "CHYBRIDJOIN",
    "meshjoin": "MESHJOIN",
    "cmeshjoin": "CMESHJOIN",
    "partitioned": "the partitioned join",
}
"""The methods as the literature calls them."""

_AT_ONCE = ("broadcast", "inlj", "cinlj")


def _broadcast(load: LookupLoad, reads: ReadCosts, work: Labour) -> LookupCost:
    """The table is read once in an epoch, all its partitions."""
    size = load.table.nbytes
    read = load.partitions * reads.request + size / reads.bandwidth + size * work.copy
    return LookupCost(work.answer + read / load.rows, hit_share=1.0, reads=load.partitions / load.rows)


def _by_key(load: LookupLoad, reads: ReadCosts, work: Labour, cache: float) -> LookupCost:
    """INLJ, behind a cache or not: one request for the rows of an epoch, or as many as fit."""
    cached = load.cached(cache)
    batch = min(load.rows, load.memory / _WAITING / (load.stream_row + _BESIDE))
    hit = settled_share(load.skew, cached, max(4 * cached, 1)) if cached else 0.0
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
    hit = settled_share(load.skew, cached, load.waiting) if cached else 0.0
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
        hit = _hottest(shares.tolist(), weights.tolist(), kept)
    finished = max(1.0, 2 * load.waiting / max(1, load.partitions - kept))
    read = reads.anywhere(size) + load.waiting * work.look
    seconds = work.answer + hit * work.hit + (1 - hit) * (work.wait + read / finished)
    return LookupCost(seconds, hit, (1 - hit) / finished, _waits(load, hit))


def _hottest(shares: list[float], weights: list[float], kept: int) -> float:
    """What the `kept` most frequent partitions have together."""
    total, left = 0.0, float(kept)
    for share, weight in sorted(zip(shares, weights, strict=True), reverse=True):
        total += share * min(weight, left)
        left -= min(weight, left)
    return min(1.0, total)


def _waits(load: LookupLoad, hit: float) -> float:
    """How long a row waits, in the mean over all: those that miss wait until others have filled what there is."""
    missing = load.rows_per_second * (1 - hit)
    return (1 - hit) * load.waiting / missing / 2 if missing else 0.0


def _barred(load: LookupLoad) -> dict[PlannedLookup, str]:
    """Which methods are out of the question, and why."""
    barred: dict[PlannedLookup, str] = {}
    if load.table.nbytes > BROADCAST_SHARE * load.memory:
        barred["broadcast"] = "excluded: the table does not fit the memory"
    for method in TITLES:
        if method not in _AT_ONCE and load.max_age is None:
            barred[method] = "excluded: rows would wait over epochs, and no max_age= allows it"
        elif method in ("hybridjoin", "chybridjoin", "partitioned") and not load.clustered:
            barred[method] = "excluded: the table does not say which partition has a key"
        elif method == "cmeshjoin" and not (load.clustered or load.unique):
            barred[method] = "excluded: a read may bring only some rows of a key"
    return barred


def _weighed(method: PlannedLookup, cost: LookupCost, taste: LookupPreference) -> float:
    """Seconds, with what waiting is held to cost."""
    return cost.seconds if method in _AT_ONCE else taste.prompt * cost.seconds


def _kept(running: PlannedLookup, best: PlannedLookup) -> str:
    return f"{TITLES[running]} runs already, and {TITLES[best]} is not so much faster that a change pays"


def _why(
    chosen: PlannedLookup,
    load: LookupLoad,
    reads: ReadCosts,
    work: Labour,
    costs: dict[PlannedLookup, LookupCost],
) -> str:
    cost = costs[chosen]
    hits = f"{100 * cost.hit_share:.0f} % of the rows"
    if chosen == "broadcast":
        size, memory = show_bytes(load.table.nbytes), show_bytes(load.memory)
        return (
            f"the table of about {size} fits the memory of one task ({memory}), so that every look-up is one in memory"
        )
    if chosen == "inlj":
        return _why_plain(load, reads, work, costs["cinlj"].hit_share)
    if chosen == "cinlj":
        plain = costs["inlj"].seconds / cost.seconds
        return f"a look-up takes {_micro(reads.key)}, and a cache answers {hits}: {plain:.1f} × as fast as without"
    if chosen == "partitioned":
        together = "frequent keys lie together, and" if load.local else "rows may wait, and"
        return f"{together} partitions that stay in memory answer {hits}"
    shared = f"rows may wait, and {1 / max(1e-12, cost.reads):,.0f} of them share a read"
    cached = f", of which a cache answers {hits}" if cost.hit_share else ""
    order = ", in the order of the table" if chosen in ("meshjoin", "cmeshjoin") else ""
    return shared + cached + order


def _why_plain(load: LookupLoad, reads: ReadCosts, work: Labour, hits: float) -> str:
    if not load.indexed:
        return "the table has no index, and is read once for all rows of an epoch"
    if reads.key < work.offer:
        return f"a look-up takes {_micro(reads.key)}, less than to ask a cache first"
    return f"keys are asked for so evenly that a cache would answer {100 * hits:.0f} % of the rows"


def _why_not(
    method: PlannedLookup, chosen: PlannedLookup, costs: dict[PlannedLookup, LookupCost], taste: LookupPreference
) -> str:
    ratio = costs[method].seconds / costs[chosen].seconds
    if ratio >= 1:
        return f"takes {ratio:.1f} × as long"
    if method not in _AT_ONCE and chosen in _AT_ONCE:
        return f"{100 * (1 - ratio):.0f} % faster, but lets rows wait: that takes {taste.prompt:g} ×"
    return f"{100 * (1 - ratio):.0f} % faster: a change takes {100 * taste.stay:.0f} %"


def _micro(seconds: float) -> str:
    return f"{1e6 * seconds:.1f} µs" if seconds < 1e-3 else f"{1e3 * seconds:.1f} ms"
