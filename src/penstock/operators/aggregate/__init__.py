"""Window aggregation: every kind of window over disordered streams, by windows, by panes, or adaptively per group."""

from penstock.operators.aggregate.adapt_wid import AdaptWid
from penstock.operators.aggregate.baselines.buffering import Buffering
from penstock.operators.aggregate.config import Emit, Panes, WindowAggregate
from penstock.operators.aggregate.functions import Function, UserDefined
from penstock.operators.aggregate.holistic import Holistic
from penstock.operators.aggregate.methods import AggregateMethod, AggregateMethodLike
from penstock.operators.aggregate.registry import METHODS

__all__ = [
    "METHODS",
    "AdaptWid",
    "AggregateMethod",
    "AggregateMethodLike",
    "Buffering",
    "Emit",
    "Function",
    "Holistic",
    "Panes",
    "UserDefined",
    "WindowAggregate",
]
