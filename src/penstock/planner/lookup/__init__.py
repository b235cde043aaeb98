"""The method of a lookup join: costs, the choice, its explanation, and the pilot of a running lookup."""

from penstock.planner.lookup.choice import LookupChoice, LookupPreference, choose_lookup
from penstock.planner.lookup.costs import COSTS, LookupLoad, predict_lookup
from penstock.planner.lookup.explain import KeysAsked, explain_lookup, keys_asked
from penstock.planner.lookup.pilot import LookupPilot
from penstock.planner.lookup.reads import STORES, ReadCosts

__all__ = [
    "COSTS",
    "STORES",
    "KeysAsked",
    "LookupChoice",
    "LookupLoad",
    "LookupPilot",
    "LookupPreference",
    "ReadCosts",
    "choose_lookup",
    "explain_lookup",
    "keys_asked",
    "predict_lookup",
]
