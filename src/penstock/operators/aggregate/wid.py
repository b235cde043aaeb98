"""WID: every window by itself (Bucket and Aggregate).

Bucket tags a row with the range of its windows, Aggregate keeps a partial for each window and group and lets go of all
that a bound completes, however many windows it skips. Rows may come in any order. State is open windows times groups,
and each row updates range / slide partials: the plain way, and the best one when windows do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Meter, Tally
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import RowType, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time, Times
from penstock.core.windows import Slides, Wid
from penstock.operators.aggregate.config import Panes, WindowAggregate
from penstock.operators.aggregate.entry import Entry, inside
from penstock.operators.aggregate.inherited import Inherited
from penstock.operators.aggregate.partials import Partials, Source
from penstock.operators.aggregate.results import Read, Results
from penstock.operators.aggregate.roles import by_port, port_of
from penstock.operators.aggregate.spread import spread_over_windows


class WidAggregation:
    """WID on one shard (specs: window-queries §2.5; F09, F10)."""

    def __init__(
        self,
        config: WindowAggregate,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        meter: Meter | None = None,
    ) -> None:
        self._config = config
        self._inputs = inputs
        self._windows: Slides = config.window.on(config.unit)  # type: ignore[assignment]
        self._panes = Panes.of(self._windows)
        self._budget = budget
        self._meter = meter or Tally()
        self._entry = Entry(config, inputs, budget, self._meter)
        self._results = Results(config, inputs, self._entry.lanes, budget)
        self._bound = TIME_MIN
        pages = by_port(state, store, ("windows", "panes", "waiting"))
        self._tables = [
            Partials(lane, port_of("windows", place), store, budget, pages.get(port_of("windows", place), []))
            for place, lane in enumerate(self._entry.lanes)
        ]
        self._inherited = Inherited(self._entry, inputs[0], self._panes, store, budget, pages)

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

    def idle(self, work: Allowance) -> Iterator[Out]:
        """WID defers nothing."""
        return iter(())

    def end(self) -> Iterator[Out]:
        """Every window comes out."""
        return self.advance(0, TIME_MAX)

    def bounds(self) -> Bounds:
        """The first window that is not complete."""
        return self._config.bounds(self._bound)

    def state(self) -> State:
        """The partials of open windows."""
        for table in self._tables:
            table.tidy()
        return State((*(page for table in self._tables for page in table.pages), *self._inherited.pages))
