"""In which order the rows of a linear operator probe the other relations' stores: the one with the fewest partials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.operators.multi_way import Predicate
from penstock.planner.multi_way.costs import JoinLoad, partials

MOST_EXHAUSTIVE = 6
"""Up to this many relations every connected order is tried."""


def probe_orders(load: JoinLoad, predicates: Sequence[Predicate]) -> dict[str, tuple[str, ...]]:
    """By relation, the order in which its rows probe the others.

    >>> from penstock.operators.multi_way.plan import predicates_of
    >>> from penstock.planner.multi_way.costs import Relation
    >>> on = predicates_of(["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"])
    >>> rows = {"li": Relation(100, 8, 8), "o": Relation(100, 8, 8), "s": Relation(10, 8, 8)}
    >>> load = JoinLoad(rows, {frozenset(("li", "o")): 0.05, frozenset(("li", "s")): 0.1})
    >>> probe_orders(load, on)
    {'li': ('s', 'o'), 'o': ('li', 's'), 's': ('li', 'o')}
    """
    order = _best if len(load.relations) <= MOST_EXHAUSTIVE else _greedy
    return {origin: order(origin, load, predicates) for origin in load.relations}


def connected_orders(origin: str, rels: Sequence[str], predicates: Sequence[Predicate]) -> Iterator[tuple[str, ...]]:
    """Every order of the other relations in which a predicate connects each to the origin or one before it."""
    yield from _extended((origin,), rels, predicates)


def _extended(path: tuple[str, ...], rels: Sequence[str], predicates: Sequence[Predicate]) -> Iterator[tuple[str, ...]]:
    if len(path) == len(rels):
        yield path[1:]
    for rel in _next(path, rels, predicates):
        yield from _extended((*path, rel), rels, predicates)


def _best(origin: str, load: JoinLoad, predicates: Sequence[Predicate]) -> tuple[str, ...]:
    orders = connected_orders(origin, sorted(load.relations), predicates)
    return min(orders, key=lambda order: sum(count for _, count in partials(load, {origin: order})))


def _greedy(origin: str, load: JoinLoad, predicates: Sequence[Predicate]) -> tuple[str, ...]:
    """The connected store with the fewest matches for a row at each step, ties by name."""
    path: tuple[str, ...] = (origin,)
    while len(path) < len(load.relations):
        path = (*path, min(_next(path, sorted(load.relations), predicates), key=lambda rel: load.card((*path, rel))))
    return path[1:]


def _next(path: tuple[str, ...], rels: Sequence[str], predicates: Sequence[Predicate]) -> list[str]:
    seen = frozenset(path)
    return [rel for rel in rels if rel not in seen and any(p.connects(seen, frozenset((rel,))) for p in predicates)]
