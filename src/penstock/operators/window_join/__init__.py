"""Joins of two streams whose rows must be close in time: one config, one module per algorithm."""

from penstock.operators.window_join.ah_ewj import AHEWJoin
from penstock.operators.window_join.config import LEFT_ONLY, How, JoinKeys, JoinTime, Near, WindowJoin
from penstock.operators.window_join.ewj import EWJoin
from penstock.operators.window_join.methods import (
    AhEwj,
    Ewj,
    JoinMethod,
    JoinMethodLike,
    Rpwj,
    read_method,
)
from penstock.operators.window_join.oa import OAJoin
from penstock.operators.window_join.progressive.parameters import Rrpj
from penstock.operators.window_join.registry import METHODS
from penstock.operators.window_join.rpwj import RPWJoin

__all__ = [
    "LEFT_ONLY",
    "METHODS",
    "AHEWJoin",
    "AhEwj",
    "EWJoin",
    "Ewj",
    "How",
    "JoinKeys",
    "JoinMethod",
    "JoinMethodLike",
    "JoinTime",
    "Near",
    "OAJoin",
    "RPWJoin",
    "Rpwj",
    "Rrpj",
    "WindowJoin",
    "read_method",
]
