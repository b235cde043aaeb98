"""Lookup (semi-stream) joins: a fast stream against a master table that is larger than memory."""

from __future__ import annotations

from penstock.operators.lookup.config import LookupJoin
from penstock.operators.lookup.counts import LookupCounts
from penstock.operators.lookup.front import Front
from penstock.operators.lookup.hybridjoin import HybridJoin
from penstock.operators.lookup.inlj import Inlj
from penstock.operators.lookup.meshjoin import MeshJoin
from penstock.operators.lookup.methods import LookupMethod, Stages, lookup_method_name
from penstock.operators.lookup.shedding import Shedding

__all__ = [
    "Front",
    "HybridJoin",
    "Inlj",
    "LookupCounts",
    "LookupJoin",
    "LookupMethod",
    "MeshJoin",
    "Shedding",
    "Stages",
    "lookup_method_name",
]
