"""What all aggregations of a shard share: lanes that rows enter, results that leave, a bound, and no deferred work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Meter, Tally
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import Page, PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import RowType, hashes_of
from penstock.core.time import TIME_MIN, Time, Times
from penstock.operators.aggregate.config import WindowAggregate
from penstock.operators.aggregate.entry import Entry
from penstock.operators.aggregate.group_bounds import GroupBoundTable
from penstock.operators.aggregate.lanes import Lane
from penstock.operators.aggregate.partials import Partials
from penstock.operators.aggregate.results import Results
from penstock.operators.aggregate.roles import page_kind

STATEMENTS = 1
"""The port that takes statements about groups, if groups have bounds of their own; partials do not come then."""


@dataclass(frozen=True, slots=True)
class Given:
    """What an aggregation on one shard is built from."""

    config: WindowAggregate
    inputs: tuple[RowType, ...]
    store: PageStore
    budget: Budget
    state: State
    meter: Meter | None = None

    def partials(self, lane: Lane, kind: int, pages: Mapping[int, list[Page]]) -> Partials:
        """The partials of a lane and kind, with those of the pages that are there."""
        return Partials(lane, kind, self.store, self.budget, pages.get(kind, []))

    @property
    def pages(self) -> dict[int, list[Page]]:
        """The pages of the state, kind by kind."""
        mine: dict[int, list[Page]] = {}
        for page in self.state.pages:
            mine.setdefault(page.kind, []).append(page)
        return mine


class Aggregation(ABC):
    """Windows of one shard; each kind of window, and each method, says how rows become windows."""

    tells_of_rows = False
    """Whether it is counted how many partials rows become as they enter."""

    def __init__(self, given: Given) -> None:
        self._config = given.config
        self._rows = given.inputs[0]
        self._budget = given.budget
        self._meter: Meter = given.meter or Tally()
        self._entry = Entry(given.config, given.inputs, given.budget, self._meter if self.tells_of_rows else None)
        self._results = Results(given.config, given.inputs, self._entry.lanes, given.budget)
        self._bound = TIME_MIN
        self._stated: GroupBoundTable | None = None
        if given.config.punctuated:
            kind = page_kind("stated")
            pages = given.pages.get(kind, [])
            self._stated = GroupBoundTable(given.inputs[STATEMENTS], kind, given.store, given.budget, pages)

    @abstractmethod
    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Take rows, or partials of them, in."""

    @abstractmethod
    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Windows that are complete by this bound come out."""

    @abstractmethod
    def state(self) -> State:
        """All that windows to come need."""

    def idle(self, work: Allowance) -> Iterator[Out]:
        """The epoch is over: what was stated of groups takes effect."""
        if self._stated:
            self._stated.fold()
            yield from self._close_groups(self._stated)
            self._stated.clear()

    def _close_groups(self, stated: GroupBoundTable) -> Iterator[Out]:
        """The windows come out, and are gone, that end at or before the bound of their own group."""
        raise TypeError(self._config)

    def _stated_of(self, stated: GroupBoundTable, lane: Lane, partials: pa.RecordBatch) -> Times:
        """The bound of each partial's group."""
        places = [lane.group_places[lane.groups.index(name)] for name in self._config.punctuated]
        return stated.of(hashes_of(partials), [partials.column(place) for place in places])

    def bounds(self) -> Bounds:
        """Up to where windows are complete."""
        return self._config.bounds(self._bound)


def tidy_pages(tables: Sequence[Partials]) -> tuple[Page, ...]:
    """The pages of some partials, few of them."""
    for table in tables:
        table.tidy()
    return tuple(page for table in tables for page in table.pages)
