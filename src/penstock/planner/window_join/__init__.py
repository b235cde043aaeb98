"""Which method a window join runs by: costs, the choice, its explanation, and who follows a running join."""

from penstock.planner.window_join.choice import Alternative, Choice, Preference, plan_window_join
from penstock.planner.window_join.costs import COSTS, Cost
from penstock.planner.window_join.explain import explain_choice
from penstock.planner.window_join.load import Load, Measured, measure
from penstock.planner.window_join.pilot import Pilot

__all__ = [
    "COSTS",
    "Alternative",
    "Choice",
    "Cost",
    "Load",
    "Measured",
    "Pilot",
    "Preference",
    "explain_choice",
    "measure",
    "plan_window_join",
]
