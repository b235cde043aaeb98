"""The tree of a multi-way join in a flow: the one whose stores are predicted to send least.

All trees store and send the rows of their streams; they differ in their partial results. A flow chooses once, when its
join is built, because trees cannot share stores; later measurements show whether another would have been cheaper.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from penstock.core.budget import show_bytes
from penstock.operators.multi_way import Linear, Plan, Predicate
from penstock.operators.multi_way.plan import left_deep
from penstock.planner.multi_way.assumptions import Keys, assumed_load
from penstock.planner.multi_way.choice import Price, cheapest_tree
from penstock.planner.multi_way.costs import JoinLoad, Relation

SENT = Price(byte=1e-8, message=1e-6)
"""Seconds to send, keep and probe with a byte, and a row, once more: `benchmarks/multi_way_costs.py`."""

MARGIN = 0.1
"""Predictions are rough: another tree than the expected one is taken, or spoken of, if it costs this much less."""


_ALIKE = Relation(rows=1000, keys=24, payload=76)
"""What relations are taken to be where nothing is known of them."""


class EdgeLoad(NamedTuple):
    """What a store sends to its sibling: rows, and their bytes."""

    source: str
    target: str
    messages: float
    bytes: float

    def __str__(self) -> str:
        return f"{self.messages:,.0f} messages, {show_bytes(round(self.bytes))}"


class Planned(NamedTuple):
    """A plan, and the reason for it."""

    plan: Plan
    why: str


def first_plan(
    predicates: Sequence[Predicate], relations: Mapping[str, Relation | None], keys: Keys, carried: Collection[str]
) -> Planned:
    """The tree of a join that is yet to run, by the sizes of its relations as far as they are known, and their keys.

    >>> from penstock.operators.multi_way.plan import predicates_of
    >>> on = predicates_of(["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"])
    >>> sizes = {"li": Relation(1000, 12, 115), "o": Relation(250, 8, 900), "s": Relation(10, 4, 137)}
    >>> str(first_plan(on, sizes, {}, sizes).plan), str(first_plan(on, sizes | {"s": None}, {}, sizes).plan)
    ('(li s) o', '(li o) s')
    """
    given = Plan(left_deep(tuple(relations), predicates), tuple(predicates))
    known = {rel: about for rel, about in relations.items() if about is not None}
    if unknown := [rel for rel in relations if rel not in known]:
        return _by_keys(given, unknown[0], keys)
    found = cheaper_plan(given, assumed_load(predicates, known, keys), carried)
    if found is None:
        return Planned(given, "in the order given: no other is predicted to be clearly cheaper")
    plan, now, then = found
    return Planned(plan, f"predicted to send {then}; {given} would send {now}")


def _by_keys(given: Plan, unknown: str, keys: Keys) -> Planned:
    """The tree if the size of a relation is unknown: all are assumed to be equally large, so only keys count."""
    load = assumed_load(given.predicates, dict.fromkeys(given.rels, _ALIKE), keys)
    found = cheaper_plan(given, load, given.rels)
    if found is None:
        why = f"the size of {unknown} is unknown, so streams are joined in the order given"
        return Planned(given, why)
    plan, now, then = found
    less = f"{saved(now, then):.0%} cheaper than {given}"
    return Planned(plan, f"by keys alone, which make it {less}: the size of {unknown} is unknown")


def cheaper_plan(plan: Plan, load: JoinLoad, carried: Collection[str]) -> tuple[Plan, EdgeLoad, EdgeLoad] | None:
    """Another plan that is predicted to be clearly cheaper, and what this and that one send; None if there is none.

    A linear operator sends no partial results. It needs streams that all have the same keys.
    """
    if isinstance(plan.root, Linear) or len(plan.rels) < 3:
        return None
    if plan.has_one_key:
        other = Plan(Linear(plan.rels), plan.predicates)
    else:
        other = cheapest_tree(plan.predicates, load, carried, SENT)
    now, then = (total(edges(each, load, carried)) for each in (plan, other))
    return (other, now, then) if _seconds(then) < (1 - MARGIN) * _seconds(now) else None


def edges(plan: Plan, load: JoinLoad, carried: Collection[str]) -> list[EdgeLoad]:
    """What each store of a plan is predicted to send to its sibling, or to the others where all are in one operator.

    >>> plan = Plan.parse("(R S) T", ["R.a = S.a", "R.b = T.b"])
    >>> load = JoinLoad({name: Relation(10, 8, 92) for name in "RST"}, {frozenset("RS"): 0.1, frozenset("RT"): 0.1})
    >>> [str(edge) for edge in edges(plan, load, "R")][:3]
    ['10 messages, 1.0 kB', '10 messages, 80 B', '10 messages, 1.1 kB']
    """
    linear = isinstance(plan.root, Linear)
    found = []
    for store in plan.stores:
        target = "the others" if linear else str(plan.sibling(store))
        rows = load.card(store.rels)
        found.append(EdgeLoad(str(store), target, rows, rows * load.width(store.rels, carried)))
    return found


def total(some: Sequence[EdgeLoad]) -> EdgeLoad:
    """All edges together."""
    return EdgeLoad("", "", sum(edge.messages for edge in some), sum(edge.bytes for edge in some))


def saved(now: EdgeLoad, then: EdgeLoad) -> float:
    """Which part of the seconds for what is sent now would not be needed for something else.

    >>> round(saved(EdgeLoad("", "", 100, 0), EdgeLoad("", "", 40, 0)), 2)
    0.6
    """
    return 1 - _seconds(then) / _seconds(now)


def _seconds(sent: EdgeLoad) -> float:
    return SENT.message * sent.messages + SENT.byte * sent.bytes
