"""A choice of a lookup join's method in words: the method, the reason, and what the others would have taken."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.operators.lookup import METHODS
from penstock.planner.lookup.choice import LookupChoice
from penstock.planner.lookup.costs import LookupCost, LookupLoad, cache_of, predict_lookup
from penstock.planner.lookup.reads import ReadCosts
from penstock.planner.table import aligned

_HEAD = ("predicted", "rows/s", "µs/row", "from memory", "reads/row", "waits", "")


def explain_lookup(choice: LookupChoice, keys: KeysAsked | None = None) -> tuple[str, ...]:
    """The lines that `explain()` shows of how a lookup join runs: the method, why, hits, and a row for each method.

    `keys` is their skew, and the hit rate of a cache.

    >>> for line in explain_lookup(LookupChoice("inlj", "nothing is measured yet")):
    ...     print(line)
    method inlj (INLJ: looks up the keys of an epoch in one request)
    because nothing is measured yet
    """
    lines = [*METHODS.explained(choice.method, choice.reason)]
    if keys is not None:
        lines.append(str(keys))
    if choice.cost is None:
        return tuple(lines)
    rows = [_row(choice.method, choice.cost, "chosen")]
    rows += [_row(other.method, other.cost, other.why) for other in choice.alternatives]
    return (*lines, *aligned([_HEAD, *rows]))


def _row(method: str, cost: LookupCost | None, why: str) -> tuple[str, ...]:
    if cost is None:
        return (method, "", "", "", "", "", why)
    numbers = (f"{cost.rate:,.0f}", f"{1e6 * cost.seconds:.2f}", f"{100 * cost.hit_share:.0f} %", f"{cost.reads:.2g}")
    return (method, *numbers, f"{cost.waits:.1f} s", why)


@dataclass(frozen=True, slots=True)
class KeysAsked:
    """The skew of the keys, and the hit rate of a cache: the one that the method has, or could have.

    >>> print(KeysAsked(0.97, cached=197_206, expected=0.718, measured=0.722))
    keys follow Zipf 0.97: a cache of 197,206 rows would answer 72 % of them (measured: 72 %)
    >>> print(KeysAsked(0.0, cached=1000, expected=0.1, seen=False))
    keys assumed to be even until measured: a cache of 1,000 rows would answer 10 % of them
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
        law = f"keys follow Zipf {self.exponent:.2f}"
        if not self.seen:
            how = f"to follow Zipf {self.exponent:.2f}" if self.exponent else "to be even"
            law = f"keys assumed {how} until measured"
        were = "" if self.measured is None else f" (measured: {100 * self.measured:.0f} %)"
        return f"{law}: a cache of {self.cached:,} rows would answer {100 * self.expected:.0f} % of them{were}"


_CACHED = {"all": "cinlj", "keys": "cinlj", "partitions": "chybridjoin", "round": "cmeshjoin"}
"""The method with a cache that is nearest, by what a back end reads."""


def keys_asked(
    load: LookupLoad, reads: ReadCosts, method: str, measured: float | None = None, *, seen: bool = True
) -> KeysAsked:
    """What a cache answers by the skew in `load`: that of `method`, or of the method that is the same with a cache.

    `measured` is what the cache answered lately; of a method that has none, it is of the past and left out.

    >>> from penstock.core.master import TableSize
    >>> from penstock.planner.lookup.reads import STORES
    >>> load = LookupLoad(1e4, 100.0, TableSize(10**6, 120 * 10**6), memory=64_000_000, partitions=128, exponent=1.0)
    >>> print(keys_asked(load, STORES["pages"], "inlj"))
    keys follow Zipf 1.00: a cache of 222,222 rows would answer 89 % of them
    """
    stages = METHODS[method].parameters
    cached = _CACHED[stages.back.reads]
    rows = load.shards * load.cached(cache_of(cached))
    expected = predict_lookup(load, reads)[cached].hit_share
    return KeysAsked(load.exponent, rows, expected, None if stages.front is None else measured, seen)
