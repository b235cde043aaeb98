"""What a multi-way join moves and stores, in bytes and messages, by its plan and by whose payload travels.

The model is that of the multi-way spec (§2.10). A relation's row has `keys` bytes that always travel and `payload`
bytes that travel only if the relation is *carried*: with all carried the join materializes early, with none late, and
anything between is a hybrid. What is not carried is fetched for results alone, store by store: the reconstruction.

By default costs have the scope of the thesis: input rows to their own store, partial results to theirs, results out,
and results on their way to the first store of the reconstruction (`forwarding`) are not charged.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from penstock.core.errors import ConfigError
from penstock.operators.multi_way import Leaf, Linear, Plan, Tree

Rels = frozenset[str]
"""Names of relations."""

Root = Literal["excluded", "included"]
"""Whether results count as an intermediate store. The equations as printed include the root and contradict the 3-way
model, which does not (§6-1); a plan that also stores its results does include it."""

Scope = Literal["thesis", "all"]
"""Whether bytes of results on their way to the first store of a reconstruction are left out, or counted."""


@dataclass(frozen=True, slots=True)
class Relation:
    """|R|, W_k and W_p: rows so far, and the bytes of their keys and of their payload, in the mean."""

    rows: float
    keys: float
    payload: float

    def __post_init__(self) -> None:
        for name in ("rows", "keys", "payload"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name}={getattr(self, name)} of a relation must be 0 or more.")

    @property
    def width(self) -> float:
        """Bytes of a row."""
        return self.keys + self.payload


@dataclass(frozen=True, slots=True)
class JoinLoad:
    """The relations by name, and how selective the predicates between two of them are together.

    A pair without a predicate has selectivity 1. `counted` has the rows of joins that were counted; they are used
    instead of the product of selectivities.

    >>> rows = {name: Relation(1000, 50, 1000) for name in "RST"}
    >>> load = JoinLoad(rows, {frozenset("RS"): 0.001, frozenset("ST"): 0.002})
    >>> load.card("RS"), load.card("RST"), load.card("RT")
    (1000.0, 2000.0, 1000000.0)
    """

    relations: Mapping[str, Relation]
    selectivities: Mapping[Rels, float] = field(default_factory=dict)
    counted: Mapping[Rels, float] = field(default_factory=dict)

    def card(self, rels: Collection[str]) -> float:
        """How many rows the join of some relations has: over all their pairs, not neighbours only (§6-3)."""
        if (counted := self.counted.get(frozenset(rels))) is not None:
            return counted
        pairs = (self.selectivities.get(frozenset(pair), 1.0) for pair in combinations(rels, 2))
        return math.prod(pairs) * math.prod(self.relations[rel].rows for rel in rels)

    def width(self, rels: Collection[str], carried: Collection[str] = ()) -> float:
        """Bytes of a row of their join when the payload of those `carried` travels."""
        return sum(self.relations[rel].keys + (rel in carried) * self.relations[rel].payload for rel in rels)

    @property
    def results(self) -> float:
        """Q: rows of the whole join."""
        return self.card(tuple(self.relations))


def storage(plan: Plan, load: JoinLoad, carried: Collection[str], root: Root = "excluded") -> float:
    """Bytes in all stores: whole rows in relation stores, what is carried in intermediate ones (Eqs 4.1, 4.3)."""
    return sum(
        load.card(node.rels) * load.width(node.rels, node.rels if isinstance(node, Leaf) else carried)
        for node in _charged(plan, root)
    )


def communication(
    plan: Plan,
    load: JoinLoad,
    carried: Collection[str],
    root: Root = "excluded",
    orders: Mapping[str, Sequence[str]] | None = None,
) -> float:
    """Bytes of the join phase: each row that enters a store probes the sibling's once (Eqs 4.2, 4.4).

    A linear plan needs `orders`, in which the rows of each relation probe the others.
    """
    if isinstance(plan.root, Linear):
        return sum(count * load.width(rels, carried) for rels, count in partials(load, orders or {}))
    return sum(load.card(node.rels) * load.width(node.rels, carried) for node in _charged(plan, root))


def partials(load: JoinLoad, orders: Mapping[str, Sequence[str]]) -> list[tuple[Sequence[str], float]]:
    """The rows that a linear operator sends on: those of t relations, for each origin and t below n.

    Of the results of t relations, those that a row of the origin completed are 1/t when arrivals interleave evenly.

    >>> load = JoinLoad({name: Relation(10, 1, 0) for name in "abc"}, {frozenset("ab"): 0.1, frozenset("bc"): 0.2})
    >>> partials(load, {"a": "bc"})
    [(('a',), 10.0), (('a', 'b'), 5.0)]
    """
    paths = [(origin, *order) for origin, order in orders.items()]
    return [(path[:size], load.card(path[:size]) / size) for path in paths for size in range(1, len(path))]


def reconstruction_order(load: JoinLoad, carried: Collection[str] = ()) -> tuple[str, ...]:
    """σ: the relations whose payload is fetched, the lightest first, so that the heaviest travel least; ties by name.

    >>> sizes = {"li": 115, "o": 105, "s": 137}
    >>> reconstruction_order(JoinLoad({name: Relation(1, 8, size) for name, size in sizes.items()}))
    ('o', 'li', 's')
    """
    late = [rel for rel in load.relations if rel not in carried]
    return tuple(sorted(late, key=lambda rel: (load.relations[rel].payload, rel)))


def reconstruction(load: JoinLoad, order: Sequence[str], carried: Collection[str] = ()) -> float:
    """RC(σ): bytes between the stores of `order`. A result takes one hop less than there are stores to visit.

    Each hop carries all keys, the payload that the join carried, and that of the stores visited so far.

    >>> load = JoinLoad({name: Relation(1, 1, size) for name, size in zip("abc", (10, 20, 30))})
    >>> reconstruction(load, "abc"), reconstruction(load, "cba")
    (46.0, 86.0)
    """
    always = load.width(load.relations, carried)
    hops = [load.relations[rel].payload * (len(order) - place) for place, rel in enumerate(order, start=1)]
    return load.results * (max(0, len(order) - 1) * always + sum(hops))


def forwarded_share(plan: Plan, order: Sequence[str], orders: Mapping[str, Sequence[str]] | None = None) -> float:
    """φ: the part of the results that are not found at the first store of the reconstruction.

    Arrivals are taken to interleave evenly: each relation has the last row of as many results.

    >>> plan = Plan.parse("(li o) s", ["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"])
    >>> round(forwarded_share(plan, ("s", "o", "li")), 3), forwarded_share(plan, ("o", "s", "li"))
    (0.333, 1.0)
    """
    if not order:
        return 0.0
    if isinstance(plan.root, Linear):
        return sum(path[-1] != order[0] for path in (orders or {}).values()) / len(plan.rels)
    return 1 / len(plan.rels) if Leaf(order[0]) in plan.root.children else 1.0


@dataclass(frozen=True, slots=True)
class JoinCost:
    """What a plan takes when the payload of some relations is carried and that of the others fetched in `order`."""

    carried: Rels
    order: tuple[str, ...]
    communication: float
    """Bytes of the join phase."""
    reconstruction: float
    """Bytes between stores that results visit."""
    forwarding: float
    """Bytes of results on their way to the first of these stores."""
    storage: float
    """Bytes in all stores."""
    join_messages: float
    reconstruction_messages: float
    """With those that forward results."""

    def bytes(self, scope: Scope = "thesis") -> float:
        """Bytes moved by join and reconstruction."""
        return self.communication + self.reconstruction + (self.forwarding if scope == "all" else 0.0)

    @property
    def messages(self) -> float:
        """Messages of join and reconstruction."""
        return self.join_messages + self.reconstruction_messages


def predict_join(
    plan: Plan,
    load: JoinLoad,
    carried: Collection[str],
    order: Sequence[str] | None = None,
    forwarded: float | None = None,
    orders: Mapping[str, Sequence[str]] | None = None,
) -> JoinCost:
    """All costs of a plan. By default the lightest payload is fetched first, and φ is `forwarded_share`.

    >>> plan = Plan.parse("(R S) T", ["R.a = S.a", "R.b = T.b"])
    >>> once = {frozenset("RS"): 0.001, frozenset("RT"): 0.001}
    >>> load = JoinLoad({name: Relation(1000, 50, 1000) for name in "RST"}, once)
    >>> [round(predict_join(plan, load, carried).bytes() / 1000) for carried in ("RST", "")]
    [5250, 3550]
    """
    path = reconstruction_order(load, carried) if order is None else tuple(order)
    _check_order(path, load, carried)
    share = forwarded_share(plan, path, orders) if forwarded is None else forwarded
    results = load.results if path else 0.0
    return JoinCost(
        frozenset(carried) & frozenset(load.relations),
        path,
        communication(plan, load, carried, orders=orders),
        reconstruction(load, path, carried),
        share * results * load.width(load.relations, carried),
        storage(plan, load, carried),
        _join_messages(plan, load, orders),
        results * (max(0, len(path) - 1) + share),
    )


def _join_messages(plan: Plan, load: JoinLoad, orders: Mapping[str, Sequence[str]] | None) -> float:
    if isinstance(plan.root, Linear):
        return sum(count for _, count in partials(load, orders or {}))
    return sum(load.card(node.rels) for node in _charged(plan, "excluded"))


def _charged(plan: Plan, root: Root) -> tuple[Tree, ...]:
    return plan.nodes if root == "included" and not isinstance(plan.root, Linear) else plan.stores


def _check_order(order: Sequence[str], load: JoinLoad, carried: Collection[str]) -> None:
    late = {*load.relations} - {*carried}
    if sorted(order) != sorted(late):
        raise ConfigError(
            f"order={' '.join(order)!r} does not visit the relations whose payload is fetched, each once. "
            f"Write them in some order: {' '.join(sorted(late))!r}."
        )
