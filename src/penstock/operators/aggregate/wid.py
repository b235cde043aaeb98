"""WID: every window by itself (Bucket and Aggregate).

Bucket tags a row with the range of its windows, Aggregate keeps a partial for each window and group and lets go of all
that a bound completes, however many windows it skips. Rows may come in any order. State is open windows times groups,
and each row updates range / slide partials: the plain way, and the best one when windows do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.core.operator import Out, State
from penstock.core.rows import times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time, Times
from penstock.core.windows import Slides, Wid
from penstock.kernels.segments import Mask
from penstock.operators.aggregate.aggregation import STATEMENTS, Aggregation, Given, tidy_pages
from penstock.operators.aggregate.config import Panes
from penstock.operators.aggregate.entry import inside
from penstock.operators.aggregate.group_bounds import GroupBoundTable
from penstock.operators.aggregate.inherited import Inherited
from penstock.operators.aggregate.lanes import Lane
from penstock.operators.aggregate.methods import AggregateMethod
from penstock.operators.aggregate.partials import Renumber, Source
from penstock.operators.aggregate.results import Read
from penstock.operators.aggregate.roles import by_kind, page_kind
from penstock.operators.aggregate.spread import spread_over_windows


@dataclass(frozen=True, slots=True)
class ByWindow(AggregateMethod):
    """WID has no parameters."""


class WidAggregation(Aggregation):
    """WID on one shard (specs: window-queries §2.5; F09, F10)."""

    tells_of_rows = True

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._windows: Slides = given.config.window.on(given.config.unit)  # type: ignore[assignment]
        self._panes = Panes.of(self._windows)
        pages = by_kind(given.state, given.store, ("windows", "panes", "waiting", "stated"))
        self._tables = [
            given.partials(lane, page_kind("windows", place), pages) for place, lane in enumerate(self._entry.lanes)
        ]
        self._inherited = Inherited(self._entry, self._rows, self._panes, given.store, given.budget, pages)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Fold rows by pane, then each pane into all its windows; what is said of groups waits for the epoch's end."""
        if self._stated is not None and port == STATEMENTS:
            self._stated.add(rows)
            return iter(())
        first, after = self._windows.wids(times_of(rows))
        self._meter.aggregate(updates=int((after - first).sum()))
        held = inside(rows, after > first)
        for place, partials in self._entry.lift(port, held, lambda times: self._panes.tumbling.wids(times)[0]):
            for spread in spread_over_windows(self._entry.lanes[place], partials, self._panes, self._budget):
                self._tables[place].add(spread)
        return iter(())

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Every window that ends at or before the bound comes out: Fig 6-4 emits one of them only."""
        for place, partials in self._inherited.windows(self._windows.complete(bound)):
            self._tables[place].add(partials)
        if bound <= self._bound:
            return
        self._bound = bound
        complete = self._windows.complete(bound)
        numbers = self._tables[0].numbers()
        if numbers is not None and numbers[0] < complete:
            yield from self._results.close(numbers[0], min(complete, numbers[1] + 1), self._read, self._ends)
        for table in self._tables:
            table.clear() if complete == TIME_MAX else table.forget_below(complete)

    def _close_groups(self, stated: GroupBoundTable) -> Iterator[Out]:
        """Entries of the windows and groups leave one by one: later bounds find only what is still open."""
        numbers = self._tables[0].numbers()
        if numbers is None:
            return
        closed = [self._closed_by(stated, table.lane) for table in self._tables]

        def read(first: Wid, after: Wid) -> Read:
            return self._read(first, after)._replace(renumber=[_only(mask) for mask in closed])

        yield from self._results.close(numbers[0], numbers[1] + 1, read, self._ends)
        for table, mask in zip(self._tables, closed, strict=True):
            table.remove(mask)

    def _closed_by(self, stated: GroupBoundTable, lane: Lane) -> Callable[[pa.RecordBatch], Mask]:
        def mask(partials: pa.RecordBatch) -> Mask:
            bounds = self._stated_of(stated, lane, partials)
            ended: Mask = (self._windows.ends(times_of(partials)) <= bounds) & (bounds > TIME_MIN)
            return ended

        return mask

    def _read(self, first: Wid, after: Wid) -> Read:
        return Read([[Source(table, first, after)] for table in self._tables], [None] * len(self._tables))

    def _ends(self, main: pa.RecordBatch) -> tuple[Times, Times]:
        wids = times_of(main)
        return self._windows.starts(wids), self._windows.ends(wids)

    def state(self) -> State:
        """The partials of open windows."""
        stated = self._stated.pages if self._stated is not None else ()
        return State((*tidy_pages(self._tables), *self._inherited.pages, *stated))


def _only(mask: Callable[[pa.RecordBatch], Mask]) -> Renumber:
    return lambda partials: partials.filter(pa.array(mask(partials)))
