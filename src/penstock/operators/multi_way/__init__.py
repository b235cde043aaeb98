"""Multi-way joins: several streams joined by a tree of stores, or by one linear operator."""

from __future__ import annotations

from penstock.operators.multi_way.config import MultiJoin, MultiJoinTime
from penstock.operators.multi_way.methods import MultiJoinMethod, MultiJoinMethodLike, read_method
from penstock.operators.multi_way.plan import Edge, Leaf, Linear, Node, Plan, Predicate, Tree, trees
from penstock.operators.multi_way.registry import METHODS

__all__ = [
    "METHODS",
    "Edge",
    "Leaf",
    "Linear",
    "MultiJoin",
    "MultiJoinMethod",
    "MultiJoinMethodLike",
    "MultiJoinTime",
    "Node",
    "Plan",
    "Predicate",
    "Tree",
    "read_method",
    "trees",
]
