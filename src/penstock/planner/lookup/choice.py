"""The method of a lookup join: the fastest of those that the table and the user allow.

Four things decide: whether the table fits the memory; how long a lookup takes, by key or by partition, in its store;
how skewed the keys are; and whether rows may wait for each other. A cached row costs about as much as one in mapped
pages, so a cache pays only if lookups are expensive.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.budget import show_bytes
from penstock.core.errors import ConfigError
from penstock.operators.lookup import METHODS
from penstock.planner.lookup.costs import COSTS, Labour, LookupCost, LookupLoad, predict_lookup
from penstock.planner.lookup.reads import ReadCosts

BROADCAST_SHARE = 0.25
"""A table is held whole if it is no more than this part of a task's memory."""


@dataclass(frozen=True, slots=True)
class LookupPreference:
    """The value of an immediate answer, and the cost of a switch. These are preferences: change them at will.

    >>> LookupPreference(prompt=1.0).stay
    0.3
    """

    prompt: float = 1.5
    """So many times faster a method must be to be let rows wait."""
    stay: float = 0.3
    """How much faster, as a fraction, the best method must be than the running one to take over."""
    tie: float = 0.15
    """Times that differ by no more than this fraction count as equal: the simpler method is chosen."""

    def __post_init__(self) -> None:
        for name, least in (("prompt", 1), ("tie", 0)):
            if not getattr(self, name) >= least:
                raise ConfigError(f"{name}={getattr(self, name)} must be {least} or more.")
        if not 0 <= self.stay < 1:
            raise ConfigError(f"stay={self.stay} must be in [0, 1).")


@dataclass(frozen=True, slots=True)
class LookupAlternative:
    """A method that was not chosen, its cost if it is possible, and the reason."""

    method: str
    cost: LookupCost | None
    why: str


@dataclass(frozen=True, slots=True)
class LookupChoice:
    """The method, the reason, its cost, and the alternatives.

    >>> LookupChoice("inlj", "nothing is measured yet").alternatives
    ()
    """

    method: str
    reason: str
    cost: LookupCost | None = None
    alternatives: tuple[LookupAlternative, ...] = ()


def choose_lookup(
    load: LookupLoad,
    reads: ReadCosts,
    current: str | None = None,
    preference: LookupPreference | None = None,
    labour: Labour | None = None,
) -> LookupChoice:
    """Choose the method of a lookup join, before it runs or at the boundary of an epoch.

    `load` is that of one task; `reads` what it takes to read where the table is (`STORES`), `current` the method that
    runs, if one does.

    >>> from penstock.core.master import TableSize
    >>> from penstock.planner.lookup.reads import STORES
    >>> load = LookupLoad(1e4, 100.0, TableSize(10**6, 120 * 10**6), memory=64_000_000, partitions=128, exponent=1.0)
    >>> [choose_lookup(load, STORES[store]).method for store in ("pages", "sql")]
    ['inlj', 'cinlj']
    >>> print(choose_lookup(load, STORES["pages"]).reason)
    a lookup takes 0.3 µs, less than asking a cache first
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


def _barred(load: LookupLoad) -> dict[str, str]:
    """Which methods are out of the question, and why."""
    barred: dict[str, str] = {}
    if load.table.nbytes > BROADCAST_SHARE * load.memory:
        barred["broadcast"] = "excluded: the table does not fit the memory"
    for method in COSTS:
        stages = METHODS[method].parameters
        if stages.defers and load.max_age is None:
            barred[method] = "excluded: rows would wait across epochs, and no max_age= allows it"
        elif stages.back.reads == "partitions" and not load.clustered:
            barred[method] = "excluded: the table does not record which partition holds a key"
        elif stages.back.reads == "round" and stages.front is not None and not (load.clustered or load.unique):
            barred[method] = "excluded: a read may return only some rows of a key"
    return barred


def _weighed(method: str, cost: LookupCost, taste: LookupPreference) -> float:
    """Seconds, with what waiting is held to cost."""
    return taste.prompt * cost.seconds if _waits(method) else cost.seconds


def _kept(running: str, best: str) -> str:
    return f"{METHODS[running].title} runs already, and {METHODS[best].title} is not faster by enough to switch"


def _why(
    chosen: str,
    load: LookupLoad,
    reads: ReadCosts,
    work: Labour,
    costs: dict[str, LookupCost],
) -> str:
    cost = costs[chosen]
    hits = f"{100 * cost.hit_share:.0f} % of the rows"
    if chosen == "broadcast":
        size, memory = show_bytes(load.table.nbytes), show_bytes(load.memory)
        return f"the table of about {size} fits the memory of one task ({memory}), so every lookup stays in memory"
    if chosen == "inlj":
        return _why_plain(load, reads, work, costs["cinlj"].hit_share)
    if chosen == "cinlj":
        plain = costs["inlj"].seconds / cost.seconds
        return f"a lookup takes {_micro(reads.key)}, and a cache answers {hits}: {plain:.1f} × as fast as without"
    if chosen == "partitioned":
        together = "frequent keys lie together, and" if load.local else "rows may wait, and"
        return f"{together} partitions that stay in memory answer {hits}"
    shared = f"rows may wait, and {1 / max(1e-12, cost.reads):,.0f} of them share a read"
    cached = f", of which a cache answers {hits}" if cost.hit_share else ""
    order = ", in the order of the table" if METHODS[chosen].parameters.back.reads == "round" else ""
    return shared + cached + order


def _why_plain(load: LookupLoad, reads: ReadCosts, work: Labour, hits: float) -> str:
    if not load.indexed:
        return "the table has no index, so it is read once for all rows of an epoch"
    if reads.key < work.offer:
        return f"a lookup takes {_micro(reads.key)}, less than asking a cache first"
    return f"keys are so even that a cache would answer only {100 * hits:.0f} % of the rows"


def _why_not(method: str, chosen: str, costs: dict[str, LookupCost], taste: LookupPreference) -> str:
    ratio = costs[method].seconds / costs[chosen].seconds
    if ratio >= 1:
        return f"takes {ratio:.1f} × as long"
    if _waits(method) and not _waits(chosen):
        return f"{100 * (1 - ratio):.0f} % faster, but lets rows wait, which must be {taste.prompt:g} × as fast"
    return f"{100 * (1 - ratio):.0f} % faster, but a switch needs {100 * taste.stay:.0f} %"


def _waits(method: str) -> bool:
    """Whether rows wait over epochs by a method."""
    return METHODS[method].parameters.defers


def _micro(seconds: float) -> str:
    return f"{1e6 * seconds:.1f} µs" if seconds < 1e-3 else f"{1e3 * seconds:.1f} ms"
