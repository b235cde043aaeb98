"""What is assumed about a multi-way join before anything is measured: by its keys and the sizes of its relations.

A join on a key of one side, such as lines with orders on the order's key, finds one row for each row of the other side:
f = 1/|R| of the relation R that has the key (§2.11). If no key is known, the smaller relation is assumed to have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.operators.multi_way import Predicate
from penstock.planner.multi_way.costs import JoinLoad, Relation, Rels

Keys = Mapping[str, tuple[str, ...]]
"""By relation, the columns that identify its rows, if known."""

REPEATED = 10
"""Rows that a value has in a column that is known not to be a key, where nothing else is known of it."""


def assumed_load(predicates: Sequence[Predicate], relations: Mapping[str, Relation], keys: Keys) -> JoinLoad:
    """The load of a join of which only sizes and keys are known.

    >>> from penstock.operators.multi_way.plan import predicates_of
    >>> on = predicates_of(["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"])
    >>> rows = {"li": Relation(1000, 12, 115), "o": Relation(2000, 8, 105), "s": Relation(10, 4, 137)}
    >>> assumed_load(on, rows, {"o": ("orderkey",)}).card(("li", "o"))
    1000.0
    >>> assumed_load(on, rows, {"li": ("orderkey",), "o": ("orderkey", "day")}).card(("li", "o"))
    2000.0
    """
    pairs = dict.fromkeys(each.rels for each in predicates)
    return JoinLoad(relations, {pair: _selectivity(pair, predicates, relations, keys) for pair in pairs})


def unique_sides(left: Rels, right: Rels, predicates: Sequence[Predicate], keys: Keys) -> list[Rels]:
    """The sides of a join of which a row of the other can meet one row at most: the key of the only relation is there.

    >>> from penstock.operators.multi_way.plan import predicates_of
    >>> on = predicates_of(["li.orderkey = o.orderkey"])
    >>> unique_sides(frozenset(["li"]), frozenset(["o"]), on, {"o": ("orderkey",), "li": ("orderkey", "line")})
    [frozenset({'o'})]
    """
    return [side for side, other in ((left, right), (right, left)) if _is_unique(side, other, predicates, keys)]


def _selectivity(pair: Rels, predicates: Sequence[Predicate], relations: Mapping[str, Relation], keys: Keys) -> float:
    one, other = (frozenset((rel,)) for rel in sorted(pair))
    sizes = {frozenset((rel,)): max(1.0, relations[rel].rows) for rel in pair}
    unique = unique_sides(one, other, predicates, keys)
    if unique:
        return 1 / max(sizes[side] for side in unique)
    if all(rel in keys for rel in pair):
        return min(1.0, REPEATED / max(sizes.values()))
    # Of a relation whose key is known to be another, no row is met once only: then the key is the other's.
    unknown = [sizes[side] for side in sizes if not side & keys.keys()]
    return 1 / min(unknown)


def _is_unique(side: Rels, other: Rels, predicates: Sequence[Predicate], keys: Keys) -> bool:
    if len(side) != 1:
        return False
    (rel,) = side
    joined = {each.column(rel) for each in predicates if each.connects(side, other)}
    return rel in keys and joined >= {*keys[rel]}
