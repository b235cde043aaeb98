"""The tree of a multi-way join that is predicted to send least, in bytes, messages or both.

Which payload travels is not chosen here but epoch by epoch (`planner.payload`). Bytes alone can mislead where messages
are what takes time (spec §3), so they can have a price; it is 0 until a machine was measured.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np

from penstock.core.errors import ConfigError
from penstock.operators.multi_way import Leaf, Node, Plan, Predicate
from penstock.operators.multi_way.plan import left_deep, splits
from penstock.planner.multi_way.costs import JoinLoad, Rels, reconstruction_order

MOST_SEARCHED = 10
"""Up to this many relations the best tree is found; above, a left-deep one is built greedily."""


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


def cheapest_tree(
    predicates: Sequence[Predicate], load: JoinLoad, carried: Collection[str], price: Price, forwarding: float = 0.0
) -> Plan:
    """The tree that sends least between its stores where it is settled whose payload travels.

    What it takes to fetch the payload of others is the same for every tree; what it takes to bring all results to the
    first store of a reconstruction, `forwarding`, is not.

    >>> from penstock.operators.multi_way.plan import predicates_of
    >>> from penstock.planner.multi_way.costs import Relation
    >>> on = predicates_of(["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"])
    >>> rows = {"li": Relation(1000, 12, 115), "o": Relation(250, 8, 105), "s": Relation(10, 4, 137)}
    >>> load = JoinLoad(rows, {frozenset(("li", "o")): 1 / 250, frozenset(("li", "s")): 1 / 20})
    >>> str(cheapest_tree(on, load, {"o"}, Price()))
    '(li s) o'
    """
    tree = _cheapest_tree(tuple(load.relations), predicates, load, frozenset(carried), price, forwarding)
    return Plan(tree, tuple(predicates))


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
