"""What a multi-way join carries and by which tree it runs: costs, the choice, what was seen, and when to change."""

from penstock.planner.multi_way.choice import (
    JoinChoice,
    Price,
    carried_by,
    choose,
    most_results,
    name_of,
    search,
)
from penstock.planner.multi_way.costs import JoinCost, JoinLoad, Relation, predict_join, reconstruction_order
from penstock.planner.multi_way.probing import probe_orders
from penstock.planner.multi_way.statistics import Statistics
from penstock.planner.multi_way.switching import Switching

__all__ = [
    "JoinChoice",
    "JoinCost",
    "JoinLoad",
    "Price",
    "Relation",
    "Statistics",
    "Switching",
    "carried_by",
    "choose",
    "most_results",
    "name_of",
    "predict_join",
    "probe_orders",
    "reconstruction_order",
    "search",
]
