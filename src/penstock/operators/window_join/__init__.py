"""Joins of two streams whose rows must be near in time: one config, one module per algorithm."""

from penstock.operators.window_join.config import How, JoinTime, WindowJoin
from penstock.operators.window_join.oa import OAJoin

__all__ = ["How", "JoinTime", "OAJoin", "WindowJoin"]
