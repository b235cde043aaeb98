"""Small multi-way joins for tests of the simulation: plans, rows in any order of arrival, and their topology."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lab.multi_way_topology import Input, Row, Topology
from penstock.operators.multi_way import Plan, trees
from penstock.operators.multi_way.plan import predicates_of

BASE = Plan.parse("(li o) s", ["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"])
EXTENDED = Plan.parse("(li s) (o c)", ["li.suppkey = s.suppkey", "o.custkey = c.custkey", "li.orderkey = o.orderkey"])
IDENTIFIERS = {"li": ("orderkey", "linenumber"), "o": ("orderkey",), "s": ("suppkey",), "c": ("custkey",)}
KEY_BYTES = {"li": 12.0, "o": 8.0, "s": 4.0, "c": 4.0}
PAYLOAD = {"li": 115.0, "o": 105.0, "s": 137.0, "c": 158.0}
HARD_CODED = {"(li o) s": ("s", "o", "li"), "(li s) (o c)": ("c", "o", "s", "li")}


def tpch(rng: np.random.Generator, plan: Plan, rows: int = 40, orders: int = 12) -> list[Input]:
    """Lineitems, orders, suppliers and perhaps customers in random order, a second apart; some have no partner."""
    tables = {
        "li": [
            Row(
                (i % orders, i),
                {"orderkey": i % orders, "linenumber": i, "suppkey": int(rng.integers(0, 6))},
                PAYLOAD["li"],
            )
            for i in range(rows)
        ],
        "o": [Row((i,), {"orderkey": i, "custkey": int(rng.integers(0, 5))}, PAYLOAD["o"]) for i in range(orders)],
        "s": [Row((i,), {"suppkey": i}, PAYLOAD["s"]) for i in range(5)],
        "c": [Row((i,), {"custkey": i}, PAYLOAD["c"]) for i in range(4)],
    }
    return arriving(rng, {rel: tables[rel] for rel in plan.rels})


def arriving(rng: np.random.Generator, tables: Mapping[str, Sequence[Row]]) -> list[Input]:
    rows = [(rel, row) for rel, own in tables.items() for row in own]
    return [Input(float(time), *rows[place]) for time, place in enumerate(rng.permutation(len(rows)))]


def topology(plan: Plan, **more: Any) -> Topology:
    settings: dict[str, Any] = {"order": HARD_CODED.get(str(plan), plan.rels)}
    return Topology(plan, IDENTIFIERS, KEY_BYTES, **(settings | more))


def random_join(rng: np.random.Generator, n: int, values: int = 4, rows: int = 6) -> tuple[Topology, list[Input]]:
    """A random query over n relations of few rows, its tree drawn from all."""
    names = [f"r{i}" for i in range(n)]
    pairs = {(names[int(rng.integers(0, i))], names[i]) for i in range(1, n)}
    pairs |= {pair for pair in itertools.combinations(names, 2) if rng.random() < 0.15}
    on = predicates_of([f"{a}.{a}{b} = {b}.{a}{b}" for a, b in sorted(pairs)])
    every = [*trees(names, on)]
    plan = Plan(every[int(rng.integers(0, len(every)))], on)
    columns = {name: [p.column(name) for p in on if name in p.rels] for name in names}
    payload = {name: float(rng.integers(0, 300)) for name in names}
    tables = {
        name: [
            Row((i,), {"id": i, **{column: int(rng.integers(0, values)) for column in columns[name]}}, payload[name])
            for i in range(rows)
        ]
        for name in names
    }
    widths = {name: float(rng.integers(1, 20)) for name in names}
    order = tuple(rng.permutation(names).tolist())
    return Topology(plan, dict.fromkeys(names, ("id",)), widths, order), arriving(rng, tables)


def random_delay(rng: np.random.Generator, mean: float = 5.0) -> Any:
    return lambda kind, source, target: float(rng.exponential(mean))
