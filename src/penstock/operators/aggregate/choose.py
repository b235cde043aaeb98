"""Which algorithm runs an aggregation, by its window and method."""

from __future__ import annotations

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Logic, State
from penstock.core.pages import PageStore
from penstock.core.rows import RowType
from penstock.core.windows import Landmark, PartitionedWindow, Session, SlideByTuple
from penstock.operators.aggregate.adapt_wid import AdaptAggregation
from penstock.operators.aggregate.buffering import BufferingAggregation
from penstock.operators.aggregate.config import WindowAggregate
from penstock.operators.aggregate.differential import DifferentialAggregation, check_differential
from penstock.operators.aggregate.landmark import LandmarkAggregation
from penstock.operators.aggregate.methods import AdaptWid, Buffering
from penstock.operators.aggregate.paned import PanedAggregation
from penstock.operators.aggregate.session import SessionAggregation
from penstock.operators.aggregate.slide_by_tuple import SlideByTupleAggregation
from penstock.operators.aggregate.tuples import ArrivalAggregation, PartitionedAggregation
from penstock.operators.aggregate.updating import UpdatingAggregation
from penstock.operators.aggregate.wid import WidAggregation


def logic_of(
    config: WindowAggregate,
    inputs: tuple[RowType, ...],
    store: PageStore,
    budget: Budget,
    state: State,
    meter: Meter | None,
) -> Logic:
    """The logic of a config."""
    if config.emit != "final":
        return UpdatingAggregation(config, inputs, store, budget, state, meter)
    if isinstance(config.window, PartitionedWindow):
        return PartitionedAggregation(config, inputs, store, budget, state, meter)
    if config.by_arrival:
        return ArrivalAggregation(lambda s: _sliding(config, inputs, store, budget, s, meter), store, state)
    if isinstance(config.window, SlideByTuple):
        return SlideByTupleAggregation(config, inputs, store, budget, state, meter)
    if isinstance(config.window, Session):
        return SessionAggregation(config, inputs, store, budget, state, meter)
    if isinstance(config.window, Landmark):
        return LandmarkAggregation(config, inputs, store, budget, state, meter)
    return _sliding(config, inputs, store, budget, state, meter)


def _sliding(
    config: WindowAggregate,
    inputs: tuple[RowType, ...],
    store: PageStore,
    budget: Budget,
    state: State,
    meter: Meter | None,
) -> Logic:
    if config.method == "adapt" or isinstance(config.method, AdaptWid):
        settings = config.method if isinstance(config.method, AdaptWid) else AdaptWid()
        return AdaptAggregation(config, inputs, store, budget, state, settings, meter)
    if isinstance(config.method, Buffering):
        return BufferingAggregation(config, inputs, store, budget, state, config.method, meter)
    if config.method == "wid":
        return WidAggregation(config, inputs, store, budget, state, meter)
    if config.method == "differential":
        check_differential(config, inputs)
        return DifferentialAggregation(config, inputs, store, budget, state, meter)
    return PanedAggregation(config, inputs, store, budget, state, meter)
