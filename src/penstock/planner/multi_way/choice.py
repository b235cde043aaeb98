"""Which payload a multi-way join carries, and by which tree it runs: the cheapest in bytes, messages or both.

Early is taken at a tie. Bytes alone can mislead where messages are what takes time (spec §3), so a price per message
can be added; it is 0 until a machine was measured.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import Literal

import numpy as np

from penstock.core.errors import ConfigError
from penstock.operators.multi_way import Leaf, Linear, Node, Plan, Predicate
from penstock.operators.multi_way.plan import left_deep, splits
from penstock.planner.multi_way.costs import (
    JoinCost,
    JoinLoad,
    Rels,
    predict_join,
    reconstruction,
    reconstruction_order,
)
from penstock.planner.multi_way.probing import probe_orders

MOST_HYBRIDS = 6
"""Up to this many relations every set of carried ones is tried."""
MOST_SEARCHED = 10
"""Up to this many relations the best tree is found; above, a left-deep one is built greedily."""

Reconstruction = Literal["inline", "decoupled"]
"""Whether fetching payload is part of the join's own work, or done elsewhere and free."""

Materialize = Literal["early", "late", "hybrid"]
"""What may be chosen: all payload is carried, none, or that of any relations."""


@dataclass(frozen=True, slots=True)
class Price:
    """α and β: what a byte and a message cost. Messages are free until they were measured.

    >>> Price().message
    0.0
    """

    byte: float = 1.0
    message: float = 0.0

    def __post_init__(self) -> None:
        if self.byte < 0 or self.message < 0:
            raise ConfigError(f"byte={self.byte}, message={self.message}: a price is 0 or more.")


@dataclass(frozen=True, slots=True)
class JoinChoice:
    """The plan, the relations whose payload it carries, what that costs, and what else was weighed, by name."""

    plan: Plan
    cost: JoinCost
    price: float
    considered: Mapping[str, float] = field(default_factory=dict)
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By relation, in which order a linear plan probes the others."""

    @property
    def carried(self) -> Rels:
        """The relations whose payload travels."""
        return self.cost.carried

    @property
    def name(self) -> str:
        """``early``, ``late``, or the relations that are carried."""
        return name_of(self.carried, self.plan.rels)


def name_of(carried: Collection[str], rels: Collection[str]) -> str:
    """How a set of carried relations is called: ``early``, ``late`` or ``carry li s``.

    >>> name_of({"li", "s"}, ["li", "o", "s"]), name_of((), ["li"]), name_of(["li"], ["li"])
    ('carry li s', 'late', 'early')
    """
    if {*carried} == {*rels}:
        return "early"
    return f"carry {' '.join(sorted(carried))}" if carried else "late"


def carried_by(name: str, rels: Collection[str]) -> Rels:
    """The set that has a name.

    >>> sorted(carried_by("carry li s", ["li", "o", "s"])), len(carried_by("early", ["li", "o"]))
    (['li', 's'], 2)
    """
    return frozenset(rels) if name == "early" else frozenset(name.split()[1:])


def choose(
    plan: Plan,
    load: JoinLoad,
    among: Collection[Materialize] = ("early", "late"),
    mode: Reconstruction = "inline",
    price: Price | None = None,
    forwarded: float | None = None,
) -> JoinChoice:
    """The cheapest set of relations to carry in a given plan.

    Early against late is the comparison of the thesis, which does not charge for forwarding results to the first
    store. With hybrids that would make one that fetches from a single store look free, so everything is charged and φ
    is 1, unless `forwarded` says otherwise.

    >>> from penstock.planner.multi_way.costs import Relation
    >>> plan = Plan.parse("(R S) T", ["R.a = S.a", "R.b = T.b"])
    >>> once = {frozenset("RS"): 0.001, frozenset("RT"): 0.001}
    >>> load = JoinLoad({name: Relation(1000, 50, 1000) for name in "RST"}, once)
    >>> choose(plan, load).name
    'late'
    """
    orders = probe_orders(load, plan.predicates) if isinstance(plan.root, Linear) else {}
    every = [
        predict_join(plan, load, carried, forwarded=_share(among, forwarded), orders=orders)
        for carried in _candidates(tuple(load.relations), among)
    ]
    priced = {name_of(cost.carried, plan.rels): (_priced(cost, among, mode, price or Price()), cost) for cost in every}
    name = min(priced, key=lambda each: priced[each][0])
    considered = {each: amount for each, (amount, _) in priced.items()}
    return JoinChoice(plan, priced[name][1], priced[name][0], considered, orders)


def most_results(plan: Plan, load: JoinLoad) -> float:
    """Q*: late materialization moves fewer bytes than early for fewer results than this.

    >>> from penstock.planner.multi_way.costs import Relation
    >>> plan = Plan.parse("(R S) T", ["R.a = S.a", "R.b = T.b"])
    >>> load = JoinLoad({name: Relation(1000, 50, 1000) for name in "RST"}, {frozenset("RS"): 0.001})
    >>> round(most_results(plan, load), 1)  # (3·N·p + 2·P·p) / (6k + 3p)
    1515.2
    """
    one = JoinLoad(load.relations, counted={frozenset(load.relations): 1.0})
    per_result = reconstruction(one, reconstruction_order(load))
    saved = sum(
        load.card(node.rels) * (load.width(node.rels, node.rels) - load.width(node.rels)) for node in plan.stores
    )
    return saved / per_result if per_result else float("inf")


def search(
    predicates: Sequence[Predicate],
    load: JoinLoad,
    among: Collection[Materialize] = ("early", "late"),
    mode: Reconstruction = "inline",
    price: Price | None = None,
) -> JoinChoice:
    """The cheapest tree and the cheapest set of relations to carry in it, together.

    >>> from penstock.operators.multi_way.plan import predicates_of
    >>> from penstock.planner.multi_way.costs import Relation
    >>> on = predicates_of(["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"])
    >>> rows = {"li": Relation(1000, 12, 115), "o": Relation(250, 8, 105), "s": Relation(10, 4, 137)}
    >>> load = JoinLoad(rows, {frozenset(("li", "o")): 1 / 250, frozenset(("li", "s")): 1 / 20})
    >>> str(search(on, load).plan)
    '(li s) o'
    """
    rels, cost = tuple(load.relations), price or Price()
    best: JoinChoice | None = None
    considered: dict[str, float] = {}
    for carried in _candidates(rels, among):
        share = _share(among, None)
        # Without a share of results that is given, it depends on the tree how many must be forwarded.
        messages = cost.message * load.results if mode == "inline" and share is None else 0.0
        plan = Plan(_cheapest_tree(rels, predicates, load, carried, cost, messages), tuple(predicates))
        predicted = predict_join(plan, load, carried, forwarded=share)
        amount = _priced(predicted, among, mode, cost)
        considered[name_of(carried, rels)] = amount
        if best is None or amount < best.price:
            best = JoinChoice(plan, predicted, amount)
    if best is None:
        raise ConfigError(f"among={tuple(among)!r} leaves nothing to choose. Name 'early', 'late' or 'hybrid'.")
    return JoinChoice(best.plan, best.cost, best.price, considered)


def cheapest_tree(predicates: Sequence[Predicate], load: JoinLoad, carried: Collection[str], price: Price) -> Plan:
    """The tree that sends least between its stores where it is settled whose payload travels.

    What it takes to fetch the payload of others is the same for every tree.

    >>> from penstock.operators.multi_way.plan import predicates_of
    >>> from penstock.planner.multi_way.costs import Relation
    >>> on = predicates_of(["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"])
    >>> rows = {"li": Relation(1000, 12, 115), "o": Relation(250, 8, 105), "s": Relation(10, 4, 137)}
    >>> load = JoinLoad(rows, {frozenset(("li", "o")): 1 / 250, frozenset(("li", "s")): 1 / 20})
    >>> str(cheapest_tree(on, load, {"o"}, Price()))
    '(li s) o'
    """
    tree = _cheapest_tree(tuple(load.relations), predicates, load, frozenset(carried), price, 0.0)
    return Plan(tree, tuple(predicates))


def _candidates(rels: Sequence[str], among: Collection[Materialize]) -> Iterator[Rels]:
    """Sets of carried relations: early first and late next, which win ties."""
    if unknown := {*among} - {"early", "late", "hybrid"}:
        raise ConfigError(f"among={sorted(unknown)} is not a materialization. Write 'early', 'late' or 'hybrid'.")
    if "early" in among or "hybrid" in among:
        yield frozenset(rels)
    if "late" in among or "hybrid" in among:
        yield frozenset()
    if "hybrid" in among and len(rels) <= MOST_HYBRIDS:
        yield from (frozenset(some) for size in range(1, len(rels)) for some in combinations(rels, size))


def _share(among: Collection[Materialize], forwarded: float | None) -> float | None:
    return 1.0 if "hybrid" in among and forwarded is None else forwarded


def _priced(cost: JoinCost, among: Collection[Materialize], mode: Reconstruction, price: Price) -> float:
    if mode == "decoupled":
        return price.byte * cost.communication + price.message * cost.join_messages
    return price.byte * cost.bytes("all" if "hybrid" in among else "thesis") + price.message * cost.messages


def _cheapest_tree(
    rels: Sequence[str],
    predicates: Sequence[Predicate],
    load: JoinLoad,
    carried: Rels,
    price: Price,
    forwarding: float,
) -> Leaf | Node:
    """By dynamic programming over connected sets: what a store costs does not depend on the tree below it.

    At the root, what forwarding all results costs is spared in part if payload is first fetched from one of its sides.
    """
    if len(rels) > MOST_SEARCHED:
        return _greedy_tree(rels, predicates, load)
    links = [frozenset(place for place, rel in enumerate(rels) if rel in each.rels) for each in predicates]

    everything, order = frozenset(range(len(rels))), reconstruction_order(load, carried)

    def forwarded(one: frozenset[int], other: frozenset[int]) -> float:
        if not order or not forwarding:
            return 0.0
        first = frozenset((rels.index(order[0]),))
        return forwarding / len(rels) if first in (one, other) else forwarding

    def store(members: frozenset[int]) -> float:
        names = [rels[place] for place in sorted(members)]
        return load.card(names) * (price.byte * load.width(names, carried) + price.message)

    @cache
    def best(members: frozenset[int]) -> tuple[float, Leaf | Node] | None:
        if len(members) == 1:
            return 0.0, Leaf(rels[min(members)])
        found: tuple[float, Leaf | Node] | None = None
        for one, other in splits(members):
            if not any(link & one and link & other and link <= members for link in links):
                continue
            left, right = best(one), best(other)
            if left is None or right is None:
                continue
            amount = left[0] + right[0] + sum(store(side) for side in (one, other) if len(side) > 1)
            if members == everything:
                amount += forwarded(one, other)
            if found is None or amount < found[0]:
                found = amount, Node(left[1], right[1])
        return found

    whole = best(everything)
    return whole[1] if whole else left_deep(rels, predicates)


def _greedy_tree(rels: Sequence[str], predicates: Sequence[Predicate], load: JoinLoad) -> Leaf | Node:
    """A left-deep tree from the pair with the fewest rows, each time with the relation that leaves the fewest."""

    def connected(seen: Collection[str], rel: str) -> bool:
        return any(each.connects(frozenset(seen), frozenset((rel,))) for each in predicates)

    pairs = [pair for pair in combinations(sorted(rels), 2) if connected(pair[:1], pair[1])]
    path = [*pairs[int(np.argmin([load.card(pair) for pair in pairs]))]]
    tree: Leaf | Node = Node(Leaf(path[0]), Leaf(path[1]))
    while len(path) < len(rels):
        following = [rel for rel in sorted(rels) if rel not in path and connected(path, rel)]
        path.append(min(following, key=lambda rel: load.card((*path, rel))))
        tree = Node(tree, Leaf(path[-1]))
    return tree
