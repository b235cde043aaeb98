"""Plans and loads that tests of multi-way costs share."""

from __future__ import annotations

import itertools

import numpy as np

from penstock.operators.multi_way import Plan
from penstock.operators.multi_way.plan import predicates_of
from penstock.planner.multi_way.costs import JoinLoad, Relation

BASE = Plan.parse("(R S) T", ["R.a = S.a", "R.b = T.b"])
EXTENDED = Plan.parse("(li s) (o c)", ["li.suppkey = s.suppkey", "o.custkey = c.custkey", "li.orderkey = o.orderkey"])


def drawn(rng: np.random.Generator, names, pairs) -> JoinLoad:
    relations = {
        name: Relation(float(rng.integers(1, 2000)), float(rng.integers(1, 80)), float(rng.integers(0, 3000)))
        for name in names
    }
    return JoinLoad(relations, {frozenset(pair): float(10 ** rng.uniform(-4, 0)) for pair in pairs})


def random_query(rng: np.random.Generator, n: int):
    """A connected graph of predicates: a random tree, and perhaps some more."""
    names = [f"r{i}" for i in range(n)]
    pairs = {(names[int(rng.integers(0, i))], names[i]) for i in range(1, n)}
    pairs |= {pair for pair in itertools.combinations(names, 2) if rng.random() < 0.2}
    on = predicates_of([f"{a}.{a}{b} = {b}.{a}{b}" for a, b in sorted(pairs)])
    return names, on, drawn(rng, names, sorted(pairs))


def tpch(rows: float, orders: float, payload: float = 0.0) -> JoinLoad:
    """The widths that the spec assumes, in bytes, with every lineitem finding its partners."""
    relations = {
        "li": Relation(rows, 12, 115 + payload),
        "s": Relation(10_000, 4, 137),
        "o": Relation(orders, 8, 105),
        "c": Relation(150_000, 4, 158),
    }
    pairs = {("li", "s"): 1 / 10_000, ("li", "o"): 1 / orders, ("o", "c"): 1 / 150_000}
    return JoinLoad(relations, {frozenset(pair): f for pair, f in pairs.items()})


def without_customers(load: JoinLoad) -> JoinLoad:
    left = {rel: each for rel, each in load.relations.items() if rel != "c"}
    return JoinLoad(left, {pair: f for pair, f in load.selectivities.items() if "c" not in pair})
