"""The methods of aggregating sliding windows: the one list of them. Windows of other shapes have one algorithm each.

A new method is a module with its parameters and its logic, and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.methods import MakeLogic, Method
from penstock.core.operator import Logic
from penstock.core.windows import Landmark, PartitionedWindow, Session, SlideByTuple
from penstock.operators.aggregate.adapt_wid import AdaptAggregation, AdaptWid
from penstock.operators.aggregate.aggregation import Given
from penstock.operators.aggregate.baselines.buffering import Buffering, BufferingAggregation
from penstock.operators.aggregate.differential import Differential, DifferentialAggregation
from penstock.operators.aggregate.landmark import LandmarkAggregation
from penstock.operators.aggregate.methods import METHODS
from penstock.operators.aggregate.paned import Paned, PanedAggregation
from penstock.operators.aggregate.session import SessionAggregation
from penstock.operators.aggregate.slide_by_tuple import SlideByTupleAggregation
from penstock.operators.aggregate.tuples import ArrivalAggregation, PartitionedAggregation
from penstock.operators.aggregate.updating import UpdatingAggregation
from penstock.operators.aggregate.wid import ByWindow, WidAggregation

__all__ = ["METHODS"]

_OTHERS: dict[type, Callable[[Given], Logic]] = {
    PartitionedWindow: PartitionedAggregation,
    SlideByTuple: SlideByTupleAggregation,
    Session: SessionAggregation,
    Landmark: LandmarkAggregation,
}
"""What runs windows that do not slide, whatever the method."""


def _for_sliding(kind: Callable[[Given], Logic]) -> MakeLogic:
    """Makes `kind` for windows that slide, and for the others what they need."""
    return lambda config, inputs, store, budget, state, meter=None: _made(
        kind, Given(config, inputs, store, budget, state, meter)
    )


def _made(sliding: Callable[[Given], Logic], given: Given) -> Logic:
    config = given.config
    if config.emit != "final":
        return UpdatingAggregation(given)
    if config.by_arrival:
        return ArrivalAggregation(given, sliding)
    return _OTHERS.get(type(config.window), sliding)(given)


METHODS.add(
    Method(
        "paned",
        "Paned-WID",
        "each row updates its pane, and windows are assembled from panes",
        Paned(),
        _for_sliding(PanedAggregation),
        auto="may pick",
    ),
    Method(
        "differential",
        "differential panes",
        "windows slide by the panes that enter and leave",
        Differential(),
        _for_sliding(DifferentialAggregation),
        auto="may pick",
    ),
    Method(
        "wid",
        "WID",
        "each row updates all of its windows",
        ByWindow(),
        _for_sliding(WidAggregation),
        auto="may pick",
    ),
    Method(
        "adapt",
        "AdaptWID",
        "keeps a group's rows while they are few, and its windows once they are many",
        AdaptWid(),
        _for_sliding(AdaptAggregation),
        auto="may pick",
    ),
    Method(
        "buffering",
        "buffering",
        "rows wait until a row past the end of their window closes it; late ones are lost",
        Buffering(),
        _for_sliding(BufferingAggregation),
        auto="never picks",
    ),
)
