"""WID: every window by itself (Bucket and Aggregate).

Bucket tags a row with the range of its windows, Aggregate keeps a partial for each window and group and lets go of all
that a bound completes, however many windows it skips. Rows may come in any order. State is open windows times groups,
and each row updates range / slide partials: the plain way, and the best one when windows do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.core.operator import Out, State
from penstock.core.rows import times_of
from penstock.core.time import TIME_MAX, Time, Times
from penstock.core.windows import Slides, Wid
from penstock.operators.aggregate.aggregation import Aggregation, Given, tidy_pages
from penstock.operators.aggregate.config import Panes
from penstock.operators.aggregate.entry import inside
from penstock.operators.aggregate.inherited import Inherited
from penstock.operators.aggregate.partials import Source
from penstock.operators.aggregate.results import Read
from penstock.operators.aggregate.roles import by_port, port_of
from penstock.operators.aggregate.spread import spread_over_windows


class WidAggregation(Aggregation):
    """WID on one shard (specs: window-queries §2.5; F09, F10)."""

    tells_of_rows = True

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._windows: Slides = given.config.window.on(given.config.unit)  # type: ignore[assignment]
        self._panes = Panes.of(self._windows)
        pages = by_port(given.state, given.store, ("windows", "panes", "waiting"))
        self._tables = [
            given.partials(lane, port_of("windows", place), pages) for place, lane in enumerate(self._entry.lanes)
        ]
        self._inherited = Inherited(self._entry, self._rows, self._panes, given.store, given.budget, pages)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Fold rows by pane, then each pane into all its windows."""
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

    def _read(self, first: Wid, after: Wid) -> Read:
        return Read([[Source(table, first, after)] for table in self._tables], [None] * len(self._tables))

    def _ends(self, main: pa.RecordBatch) -> tuple[Times, Times]:
        wids = times_of(main)
        return self._windows.starts(wids), self._windows.ends(wids)

    def state(self) -> State:
        """The partials of open windows."""
        return State((*tidy_pages(self._tables), *self._inherited.pages))
