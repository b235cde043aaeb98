"""Cost models, the choice of a method, and its explanation for `explain()`."""

from penstock.planner.lookup import (
    STORES,
    KeysAsked,
    LookupChoice,
    LookupLoad,
    LookupPilot,
    LookupPreference,
    ReadCosts,
    choose_lookup,
    explain_lookup,
    keys_asked,
    predict_lookup,
)
from penstock.planner.machine import Disk, Machine
from penstock.planner.window_aggregate import (
    AggregateChoice,
    AggregatePilot,
    explain_aggregate,
    is_planned,
    plan_window_aggregate,
)
from penstock.planner.window_join import Choice, Load, Pilot, explain_choice, plan_window_join

__all__ = [
    "STORES",
    "AggregateChoice",
    "AggregatePilot",
    "Choice",
    "Disk",
    "KeysAsked",
    "Load",
    "LookupChoice",
    "LookupLoad",
    "LookupPilot",
    "LookupPreference",
    "Machine",
    "Pilot",
    "ReadCosts",
    "choose_lookup",
    "explain_aggregate",
    "explain_choice",
    "explain_lookup",
    "is_planned",
    "keys_asked",
    "plan_window_aggregate",
    "plan_window_join",
    "predict_lookup",
]
