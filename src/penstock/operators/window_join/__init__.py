"""Joins of two streams whose rows must be near in time: one config, one module per algorithm."""

from penstock.operators.window_join.ah_ewj import AHEWJoin
from penstock.operators.window_join.config import LEFT_ONLY, How, JoinKeys, JoinTime, WindowJoin
from penstock.operators.window_join.ewj import EWJoin
from penstock.operators.window_join.methods import (
    AhEwj,
    Baseline,
    Deferring,
    Ewj,
    Method,
    MethodName,
    Rpwj,
    is_baseline,
    method_name,
    read_method,
)
from penstock.operators.window_join.oa import OAJoin
from penstock.operators.window_join.rpwj import RPWJoin

__all__ = [
    "LEFT_ONLY",
    "AHEWJoin",
    "AhEwj",
    "Baseline",
    "Deferring",
    "EWJoin",
    "Ewj",
    "How",
    "JoinKeys",
    "JoinTime",
    "Method",
    "MethodName",
    "OAJoin",
    "RPWJoin",
    "Rpwj",
    "WindowJoin",
    "is_baseline",
    "method_name",
    "read_method",
]
