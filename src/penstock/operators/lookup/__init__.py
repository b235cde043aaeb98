"""Lookup (semi-stream) joins: a fast stream against a master table that is larger than memory."""

from __future__ import annotations

from penstock.operators.lookup.broadcast import Broadcast
from penstock.operators.lookup.config import LookupJoin
from penstock.operators.lookup.counts import LookupCounts, Waits
from penstock.operators.lookup.front import Front
from penstock.operators.lookup.hybridjoin import HybridJoin
from penstock.operators.lookup.inlj import Inlj
from penstock.operators.lookup.meshjoin import MeshJoin
from penstock.operators.lookup.methods import LookupMethod, Stages, lookup_method_name
from penstock.operators.lookup.partition_based import PartitionBased
from penstock.operators.lookup.partitioned import Partitioned
from penstock.operators.lookup.shedding import Shedding
from penstock.operators.lookup.ssij import Ssij

__all__ = [
    "Broadcast",
    "Front",
    "HybridJoin",
    "Inlj",
    "LookupCounts",
    "LookupJoin",
    "LookupMethod",
    "MeshJoin",
    "PartitionBased",
    "Partitioned",
    "Shedding",
    "Ssij",
    "Stages",
    "Waits",
    "lookup_method_name",
]
