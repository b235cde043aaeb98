"""Cost models, the choice of a method, and the words in which `explain()` tells of it."""

from penstock.planner.costs import Cost, ah_ewj_cost, ewj_cost, oa_cost, rpwj_cost
from penstock.planner.explain import describe, describe_lookup, explain_choice, explain_lookup
from penstock.planner.load import Load, Measured, measure
from penstock.planner.lookup import (
    STORES,
    KeysAsked,
    LookupChoice,
    LookupLoad,
    LookupPreference,
    PlannedLookup,
    choose_lookup,
    keys_asked,
    predict_lookup,
)
from penstock.planner.lookup_costs import ReadCosts
from penstock.planner.lookup_pilot import LookupPilot
from penstock.planner.machine import Disk, Machine
from penstock.planner.pilot import AggregatePilot, Pilot
from penstock.planner.skew import Skew, fit_exponent, observed_share
from penstock.planner.window_aggregate import AggregateChoice, is_planned, plan_window_aggregate
from penstock.planner.window_join import Alternative, Choice, Planned, Preference, plan_window_join

__all__ = [
    "STORES",
    "AggregateChoice",
    "AggregatePilot",
    "Alternative",
    "Choice",
    "Cost",
    "Disk",
    "KeysAsked",
    "Load",
    "LookupChoice",
    "LookupLoad",
    "LookupPilot",
    "LookupPreference",
    "Machine",
    "Measured",
    "Pilot",
    "Planned",
    "PlannedLookup",
    "Preference",
    "ReadCosts",
    "Skew",
    "ah_ewj_cost",
    "choose_lookup",
    "describe",
    "describe_lookup",
    "ewj_cost",
    "explain_choice",
    "explain_lookup",
    "fit_exponent",
    "is_planned",
    "keys_asked",
    "measure",
    "oa_cost",
    "observed_share",
    "plan_window_aggregate",
    "plan_window_join",
    "predict_lookup",
    "rpwj_cost",
]
