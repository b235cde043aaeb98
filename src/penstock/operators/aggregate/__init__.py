"""Window aggregation: every window type over disordered streams, by windows, by panes, per group as it pays."""

from penstock.operators.aggregate.config import Emit, Method, Panes, WindowAggregate
from penstock.operators.aggregate.costs import WindowCosts
from penstock.operators.aggregate.functions import Function, UserDefined
from penstock.operators.aggregate.holistic import Holistic
from penstock.operators.aggregate.methods import AdaptWid, Buffering

__all__ = [
    "AdaptWid",
    "Buffering",
    "Emit",
    "Function",
    "Holistic",
    "Method",
    "Panes",
    "UserDefined",
    "WindowAggregate",
    "WindowCosts",
]
