"""The methods of a linear multi-way join: the one list of them.

A new one is a module with its parameters and its logic, and an entry here.
"""

from __future__ import annotations

from penstock.core.methods import Method
from penstock.operators.multi_way.baselines.amjoin import AMJoin, AMJoinJoin
from penstock.operators.multi_way.baselines.bistream import BiStream, BiStreamJoin
from penstock.operators.multi_way.baselines.mjoin import MJoin, MJoinJoin
from penstock.operators.multi_way.methods import METHODS
from penstock.operators.multi_way.msj import Msj, MSJoin

__all__ = ["METHODS"]

METHODS.add(
    Method(
        "msj",
        "linear MSJ",
        "arrivals probe the stores of all other streams in turn, those that leave the fewest partial results first",
        Msj(),
        MSJoin,
        auto="may pick",
    ),
    Method(
        "mjoin",
        "MJoin",
        "arrivals probe the other stores in a fixed order until one has no partner",
        MJoin(),
        MJoinJoin,
        auto="never picks",
    ),
    Method(
        "amjoin",
        "AMJoin",
        "like MJoin, with a bit table of the keys that are in every stream, so that other keys probe nothing",
        AMJoin(),
        AMJoinJoin,
        auto="never picks",
    ),
    Method(
        "bistream",
        "BiStream",
        "every row is stored by one unit of its own side and probes all units of the other",
        BiStream(),
        BiStreamJoin,
        auto="never picks",
    ),
)
