"""The list of all methods of a lookup join.

A new method is a module with the parameters of its back end and the back end, and an entry here.
"""

from __future__ import annotations

from penstock.core.methods import MakeLogic, Method
from penstock.operators.lookup.back import MakeBack
from penstock.operators.lookup.baselines.partition_based import PartitionBased, WaitingAreasJoin
from penstock.operators.lookup.baselines.ssij import PhasedJoin, Ssij
from penstock.operators.lookup.broadcast import Broadcast, WholeTableJoin
from penstock.operators.lookup.hybridjoin import HybridJoin, OldestFirstJoin
from penstock.operators.lookup.inlj import IndexJoin, Inlj
from penstock.operators.lookup.logic import LookupLogic
from penstock.operators.lookup.meshjoin import CyclicJoin, MeshJoin
from penstock.operators.lookup.methods import METHODS, Front, Stages
from penstock.operators.lookup.partitioned import Partitioned, PartitionedJoin

__all__ = ["METHODS", "behind"]


def behind(back: MakeBack) -> MakeLogic:
    """Makes a lookup whose misses go to this back end."""
    return lambda config, inputs, store, budget, state, meter=None: LookupLogic(
        config, inputs[0], store, budget, state, meter, back
    )


METHODS.add(
    Method(
        "broadcast",
        "broadcast",
        "holds the whole table in the memory of every task",
        Stages(Broadcast()),
        behind(WholeTableJoin),
        auto="may pick",
    ),
    Method(
        "inlj",
        "INLJ",
        "looks up the keys of an epoch in one request",
        Stages(Inlj()),
        behind(IndexJoin),
        auto="may pick",
    ),
    Method(
        "cinlj",
        "CINLJ",
        "answers frequent keys from a cache and looks up the others",
        Stages(Inlj(), Front(share=0.5, policy="decay", threshold=1)),
        behind(IndexJoin),
        auto="may pick",
    ),
    Method(
        "hybridjoin",
        "HYBRIDJOIN",
        "rows wait for the partition that holds their key, and the oldest row decides which is read next",
        Stages(HybridJoin()),
        behind(OldestFirstJoin),
        auto="may pick",
    ),
    Method(
        "chybridjoin",
        "CHYBRIDJOIN",
        "a cache answers frequent keys, and other rows wait for their partition",
        Stages(HybridJoin(), Front()),
        behind(OldestFirstJoin),
        auto="may pick",
    ),
    Method(
        "meshjoin",
        "MESHJOIN",
        "scans the table in a cycle, and rows stay until they have met all of it",
        Stages(MeshJoin()),
        behind(CyclicJoin),
        auto="may pick",
    ),
    Method(
        "cmeshjoin",
        "CMESHJOIN",
        "a cache answers frequent keys, and other rows meet the table as it is scanned in a cycle",
        Stages(MeshJoin(), Front()),
        behind(CyclicJoin),
        auto="may pick",
    ),
    Method(
        "partitioned",
        "the partitioned join",
        "keeps frequently used partitions in memory, and rows wait for the others",
        Stages(Partitioned()),
        behind(PartitionedJoin),
        auto="may pick",
    ),
    Method(
        "r-meshjoin",
        "R-MESHJOIN",
        "like MESHJOIN, but lets rows in only every few reads",
        Stages(MeshJoin(loads_per_logical=4)),
        behind(CyclicJoin),
        auto="never picks",
    ),
    Method(
        "ssij",
        "SSIJ",
        "gathers rows, joins them with blocks in memory, and reads the other blocks by how many rows need them",
        Stages(Ssij()),
        behind(PhasedJoin),
        auto="never picks",
    ),
    Method(
        "partition-based",
        "the partition-based join",
        "tries rows against pages in memory, and the rest wait for their partition until enough do",
        Stages(PartitionBased()),
        behind(WaitingAreasJoin),
        auto="never picks",
    ),
)
