"""Cost models, the choice of a method, and the words in which `explain()` tells of it."""

from penstock.planner.costs import Cost, ah_ewj_cost, ewj_cost, oa_cost, rpwj_cost
from penstock.planner.explain import describe, explain_choice
from penstock.planner.load import Load, Measured, measure
from penstock.planner.machine import Disk, Machine
from penstock.planner.pilot import AggregatePilot, Pilot
from penstock.planner.window_aggregate import AggregateChoice, is_planned, plan_window_aggregate
from penstock.planner.window_join import Alternative, Choice, Planned, Preference, plan_window_join

__all__ = [
    "AggregateChoice",
    "AggregatePilot",
    "Alternative",
    "Choice",
    "Cost",
    "Disk",
    "Load",
    "Machine",
    "Measured",
    "Pilot",
    "Planned",
    "Preference",
    "ah_ewj_cost",
    "describe",
    "ewj_cost",
    "explain_choice",
    "is_planned",
    "measure",
    "oa_cost",
    "plan_window_aggregate",
    "plan_window_join",
    "rpwj_cost",
]
