"""Lookup (semi-stream) joins: a fast stream against a master table that is larger than memory."""

from __future__ import annotations

from penstock.operators.lookup.baselines.partition_based import PartitionBased
from penstock.operators.lookup.baselines.ssij import Ssij
from penstock.operators.lookup.broadcast import Broadcast
from penstock.operators.lookup.config import LookupJoin
from penstock.operators.lookup.counts import LookupCounts
from penstock.operators.lookup.hybridjoin import HybridJoin
from penstock.operators.lookup.inlj import Inlj
from penstock.operators.lookup.meshjoin import MeshJoin
from penstock.operators.lookup.methods import Front, LookupMethodLike, Stages
from penstock.operators.lookup.partitioned import Partitioned
from penstock.operators.lookup.registry import METHODS
from penstock.operators.lookup.shedding import Shedding

__all__ = [
    "METHODS",
    "Broadcast",
    "Front",
    "HybridJoin",
    "Inlj",
    "LookupCounts",
    "LookupJoin",
    "LookupMethodLike",
    "MeshJoin",
    "PartitionBased",
    "Partitioned",
    "Shedding",
    "Ssij",
    "Stages",
]
