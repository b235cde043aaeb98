"""The methods of lookup joins: a back end, and the front stage that may precede any of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from penstock.core.errors import ConfigError
from penstock.core.master import MasterTable
from penstock.operators.lookup.broadcast import Broadcast
from penstock.operators.lookup.front import Front
from penstock.operators.lookup.hybridjoin import HybridJoin
from penstock.operators.lookup.inlj import Inlj
from penstock.operators.lookup.meshjoin import MeshJoin
from penstock.operators.lookup.partition_based import PartitionBased
from penstock.operators.lookup.partitioned import Partitioned
from penstock.operators.lookup.ssij import Ssij

MethodName = Literal[
    "auto",
    "broadcast",
    "inlj",
    "meshjoin",
    "r-meshjoin",
    "hybridjoin",
    "cinlj",
    "cmeshjoin",
    "chybridjoin",
    "partitioned",
    "ssij",
    "partition-based",
]

Back = Broadcast | Inlj | MeshJoin | HybridJoin | Partitioned | Ssij | PartitionBased


@dataclass(frozen=True, slots=True)
class Stages:
    """A back end, perhaps behind a front stage: ``Stages(HybridJoin(), Front(share=0.15))`` is CHYBRIDJOIN.

    >>> Stages(Inlj()).defers
    False
    """

    back: Back
    front: Front | None = None

    @property
    def defers(self) -> bool:
        """Whether rows may wait over epochs."""
        return not isinstance(self.back, Broadcast | Inlj)

    def check(self, table: MasterTable) -> None:
        """Refuse a table of which this method would find, or keep, only some of the rows of a key.

        INLJ asks for all rows of a key wherever they are, and to broadcast is to have all; the others have the
        partitions that they read.
        """
        if isinstance(self.back, Broadcast | Inlj) or table.clustered:
            return
        keys, name = ", ".join(table.keys), lookup_method_name(self)
        remedy = (
            f"Write method='cinlj' or 'meshjoin', or freshness='snapshot', which copies the table into pages; Parquet "
            f"files can also be sorted by {keys}, so that equal keys lie together."
        )
        if not isinstance(self.back, MeshJoin):
            raise ConfigError(
                f"method={name!r} reads the one partition that has a key, but this table does not say which partition "
                f"has which {keys}, or has rows of one {keys} in several. {remedy}"
            )
        if self.front is not None and not table.unique:
            raise ConfigError(
                f"method={name!r} keeps all rows of a frequent {keys}, but this table has them in several partitions, "
                f"and a read brings only some of them. {remedy}"
            )


LookupMethod = MethodName | Stages

_NAMED: dict[str, Stages] = {
    "broadcast": Stages(Broadcast()),
    "inlj": Stages(Inlj()),
    "meshjoin": Stages(MeshJoin()),
    "r-meshjoin": Stages(MeshJoin(loads_per_logical=4)),
    "hybridjoin": Stages(HybridJoin()),
    "partitioned": Stages(Partitioned()),
    "ssij": Stages(Ssij()),
    "partition-based": Stages(PartitionBased()),
}
_NAMED |= {f"c{name}": replace(_NAMED[name], front=Front()) for name in ("inlj", "meshjoin", "hybridjoin")}
_NAMED["cinlj"] = Stages(Inlj(), Front(share=0.5, policy="decay", threshold=1))
_NAMED["auto"] = _NAMED["cinlj"]

_PLAIN: dict[type[Back], str] = {
    Broadcast: "broadcast",
    Inlj: "inlj",
    MeshJoin: "meshjoin",
    HybridJoin: "hybridjoin",
    Partitioned: "partitioned",
    Ssij: "ssij",
    PartitionBased: "partition-based",
}


def read_stages(method: LookupMethod) -> Stages:
    """What a method's name stands for.

    >>> read_stages("chybridjoin").front is not None
    True
    """
    if isinstance(method, Stages):
        return method
    if method not in _NAMED:
        raise ConfigError(f"method={method!r} is not one of {', '.join(get_args(MethodName))}.")
    return _NAMED[method]


def lookup_method_name(method: LookupMethod) -> str:
    """What to call a method in reports.

    >>> lookup_method_name(Stages(HybridJoin(), Front()))
    'chybridjoin'
    """
    if not isinstance(method, Stages):
        return method
    plain = _PLAIN[type(method.back)]
    if isinstance(method.back, MeshJoin) and method.back.loads_per_logical > 1:
        plain = "r-meshjoin"
    return plain if method.front is None else f"c{plain}"
