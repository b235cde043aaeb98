"""What a multi-way join carries and by which tree it runs: costs, the choice, what was seen, and when to change."""

from penstock.planner.multi_way.assumptions import Keys, assumed_load
from penstock.planner.multi_way.choice import Price, cheapest_tree
from penstock.planner.multi_way.costs import JoinCost, JoinLoad, Relation, predict_join, reconstruction_order
from penstock.planner.multi_way.explain import JoinOutlook, explain_chain, explain_join
from penstock.planner.multi_way.planning import Planned, cheaper_plan, first_plan
from penstock.planner.multi_way.probing import probe_orders
from penstock.planner.multi_way.statistics import Statistics
from penstock.planner.multi_way.switching import Switching

__all__ = [
    "JoinCost",
    "JoinLoad",
    "JoinOutlook",
    "Keys",
    "Planned",
    "Price",
    "Relation",
    "Statistics",
    "Switching",
    "assumed_load",
    "cheaper_plan",
    "cheapest_tree",
    "explain_chain",
    "explain_join",
    "first_plan",
    "predict_join",
    "probe_orders",
    "reconstruction_order",
]
