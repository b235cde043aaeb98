"""Which algorithm runs an aggregation, by its window and method."""

from __future__ import annotations

from penstock.core.operator import Logic
from penstock.core.windows import Landmark, PartitionedWindow, Session, SlideByTuple
from penstock.operators.aggregate.adapt_wid import AdaptAggregation
from penstock.operators.aggregate.aggregation import Given
from penstock.operators.aggregate.buffering import BufferingAggregation
from penstock.operators.aggregate.differential import DifferentialAggregation
from penstock.operators.aggregate.landmark import LandmarkAggregation
from penstock.operators.aggregate.methods import AdaptWid
from penstock.operators.aggregate.paned import PanedAggregation
from penstock.operators.aggregate.session import SessionAggregation
from penstock.operators.aggregate.slide_by_tuple import SlideByTupleAggregation
from penstock.operators.aggregate.tuples import ArrivalAggregation, PartitionedAggregation
from penstock.operators.aggregate.updating import UpdatingAggregation
from penstock.operators.aggregate.wid import WidAggregation


def logic_of(given: Given) -> Logic:
    """The logic of a config."""
    config = given.config
    if config.emit != "final":
        return UpdatingAggregation(given)
    if isinstance(config.window, PartitionedWindow):
        return PartitionedAggregation(given)
    if config.by_arrival:
        return ArrivalAggregation(given, _sliding)
    if isinstance(config.window, SlideByTuple):
        return SlideByTupleAggregation(given)
    if isinstance(config.window, Session):
        return SessionAggregation(given)
    if isinstance(config.window, Landmark):
        return LandmarkAggregation(given)
    return _sliding(given)


def _sliding(given: Given) -> Logic:
    method = given.config.method
    if method == "adapt" or isinstance(method, AdaptWid):
        return AdaptAggregation(given, method if isinstance(method, AdaptWid) else AdaptWid())
    if given.config.buffering is not None:
        return BufferingAggregation(given, given.config.buffering)
    if method == "wid":
        return WidAggregation(given)
    if method == "differential":
        return DifferentialAggregation(given)
    return PanedAggregation(given)
