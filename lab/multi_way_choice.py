"""The chooser of the multi-way spec (§2.11): which payload a join carries and by which tree, at once, in its model.

Penstock itself fetches payload from files, not by a walk from store to store, so it can choose for each source by
itself (`penstock.planner.payload`), and the tree alone (`penstock.planner.multi_way.choice`). A tie goes to early.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from penstock.core.errors import ConfigError
from penstock.operators.multi_way import Linear, Plan, Predicate
from penstock.planner.multi_way.choice import Price, cheapest_tree
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

Reconstruction = Literal["inline", "decoupled"]
"""Whether fetching payload is part of the join's own work, or done elsewhere and free."""

Materialize = Literal["early", "late", "hybrid"]
"""What may be chosen: all payload is carried, none, or that of any relations."""


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
        plan = cheapest_tree(predicates, load, carried, cost, messages)
        predicted = predict_join(plan, load, carried, forwarded=share)
        amount = _priced(predicted, among, mode, cost)
        considered[name_of(carried, rels)] = amount
        if best is None or amount < best.price:
            best = JoinChoice(plan, predicted, amount)
    if best is None:
        raise ConfigError(f"among={tuple(among)!r} leaves nothing to choose. Name 'early', 'late' or 'hybrid'.")
    return JoinChoice(best.plan, best.cost, best.price, considered)


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
