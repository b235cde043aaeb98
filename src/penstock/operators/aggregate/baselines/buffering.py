"""The buffering baseline: tuples wait in a buffer, and the first one past a window's end closes the window.

For ordered input, or for disorder up to the slack: then it is exact. Beyond that, a row that is late for one of its
windows is lost to all of them ('consistent'), or to the closed ones only ('generous'). What is lost is counted.

Each row waits with the number of the first window that was open when it arrived: a window takes it in only from there
on. At the end of an epoch the numbers of rows whose windows have closed meanwhile are raised, so pages alone tell what
is still to come out, on however many shards the next epoch runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from penstock.core.durations import Duration, DurationLike, TimeUnit
from penstock.core.errors import ConfigError
from penstock.core.operator import Out, State
from penstock.core.rows import times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time, Times
from penstock.core.windows import Slides, Wid, Wids
from penstock.kernels.segments import Mask
from penstock.operators.aggregate.aggregation import Aggregation, Given
from penstock.operators.aggregate.buffer import Buffer
from penstock.operators.aggregate.entry import inside
from penstock.operators.aggregate.methods import AggregateMethod
from penstock.operators.aggregate.partials import Source, cost, slices
from penstock.operators.aggregate.results import Read
from penstock.operators.aggregate.roles import Role, by_kind, page_kind

_PIECE = 1 << 14
"""Rows that arrive together: the windows that they close come out after them."""

_OPEN = "__open"
"""The column of a waiting row that numbers the first of its windows which may still take it in."""


@dataclass(frozen=True, slots=True)
class Buffering(AggregateMethod):
    """A baseline: rows wait in a buffer, and a window closes when a row arrives `slack` past its end.

    Bounds are not used, so results have none either. A row that arrives after one of its windows has closed is lost to
    all of them ('consistent') or only to the closed ones ('generous'). With a slack of at least the disorder, nothing
    is lost.

    >>> Buffering("5 s").late
    'consistent'
    """

    slack: DurationLike = 0
    late: Literal["consistent", "generous"] = "consistent"

    takes_rows: ClassVar[bool] = True
    heeds_bounds: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if Duration.of(self.slack, "slack").amount < 0:
            raise ConfigError(f"slack={self.slack!r} is negative. Write how far rows may be out of order, as in '5 s'.")
        if self.late not in ("consistent", "generous"):
            raise ConfigError(f"late={self.late!r} is not one of 'consistent', 'generous'.")

    def check(self, unit: TimeUnit) -> None:
        """The slack is counted in `unit`."""
        self.steps(unit)

    def steps(self, unit: TimeUnit) -> int:
        """The slack in steps of the time column."""
        return Duration.of(self.slack, "slack").on(unit, "slack") if self.slack else 0


class BufferingAggregation(Aggregation):
    """Consistent and generous slack on one shard (specs: window-queries §2.6; F11). Rows count in order of arrival."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        settings: Buffering = given.config.parameters  # type: ignore[assignment]
        state, unit, kind = given.state, given.config.unit, page_kind("buffered")
        self._windows: Slides = given.config.window.on(unit)  # type: ignore[assignment]
        self._slack = settings.steps(unit)
        self._late = settings.late
        mine: tuple[Role] = ("buffered",)
        pages = by_kind(state, given.store, mine).get(kind, [])
        schema = self._rows.inside.append(pa.field(_OPEN, pa.int64()))
        self._buffer = Buffer(schema, kind, given.store, given.budget, pages)
        self._passing = [
            given.partials(lane, page_kind("passing", place), {}) for place, lane in enumerate(self._entry.lanes)
        ]
        # Other shards leave no meta. The latest row always waits, so the pages of its shard tell when it was.
        self._seen: Time = state.meta.get("seen", max((page.max_time for page in pages), default=TIME_MIN))
        self._closed: Wid = TIME_MIN
        self._raised: Wid = TIME_MIN
        self.lost: int = state.meta.get("lost", 0)
        """How many windows late rows were lost to."""

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Keep the rows whose windows are open when they arrive; then close the windows that the rows have passed."""
        for start in range(0, rows.num_rows, _PIECE):
            piece = rows.slice(start, _PIECE)
            latest = np.maximum.accumulate(np.concatenate([[self._seen], times_of(piece)]))
            self._keep(piece, self._first_open(latest[:-1]))
            self._seen = int(latest[-1])
            yield from self._close(int(self._first_open(latest[-1:])[0]))

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Bounds close nothing: rows do, and the end of the stream."""
        if bound == TIME_MAX:
            self._bound = bound
            yield from self._close(TIME_MAX)

    def state(self) -> State:
        """Rows that wait, the latest time seen, and what was lost."""
        if self._closed > self._raised:
            self._raise()
        return State(tuple(self._buffer.pages), {"seen": self._seen, "lost": self.lost})

    def _first_open(self, seen: Times) -> Wids:
        """The first window that is open when the latest row is this."""
        behind = np.where(seen < TIME_MIN + self._slack, TIME_MIN, seen - self._slack)
        first, _ = self._windows.wids(behind)
        return np.where(behind == TIME_MIN, TIME_MIN, first)

    def _keep(self, rows: pa.RecordBatch, first_open: Wids) -> None:
        first, after = self._windows.wids(times_of(rows))
        on_time: Mask = first_open <= first
        kept: Mask = (after > first) & (on_time if self._late == "consistent" else after > first_open)
        missed = np.where(kept, np.maximum(first_open, first) - first, after - first)
        self.lost += int(missed[~on_time].sum())
        self._buffer.add(inside(rows.append_column(_OPEN, pa.array(np.maximum(first_open, first))), kept))

    def _close(self, complete: Wid) -> Iterator[Out]:
        """Aggregate the rows of each window before `complete`, and purge the rows that no open window needs."""
        if complete <= self._closed or complete == TIME_MIN:
            return
        for rows in self._buffer.between(TIME_MIN, self._edge(complete)):
            self._gather(rows, complete)
        numbers = self._passing[0].numbers()
        if numbers is not None:
            yield from self._results.close(numbers[0], numbers[1] + 1, self._read, self._ends)
        for table in self._passing:
            table.clear()
        self._closed = complete
        self._buffer.forget_below(TIME_MAX if complete == TIME_MAX else self._windows.extent(complete)[0])

    def _gather(self, rows: pa.RecordBatch, complete: Wid) -> None:
        """Put rows into those of their windows that close now."""
        each = -(-self._windows.range // self._windows.slide)
        for part in slices(rows, max(1, self._budget.room // 2), each):
            with self._budget.hold(min(each * cost(part), self._budget.room), "the windows of rows that have waited"):
                _, after = self._windows.wids(times_of(part))
                low = np.maximum(part.column(_OPEN).to_numpy(), self._closed)
                sizes = np.maximum(np.minimum(after, complete) - low, 0)
                self._meter.aggregate(updates=int(sizes.sum()))
                stop = np.cumsum(sizes)
                wids = np.arange(int(stop[-1])) + np.repeat(low - (stop - sizes), sizes)
                spread = part.take(pa.array(np.repeat(np.arange(part.num_rows), sizes)))
                for table in self._passing if spread.num_rows else ():
                    table.add(table.lane.lift(spread, self._rows, wids))

    def _raise(self) -> None:
        """Write on rows which of their windows have closed since they came."""
        edge = self._edge(self._closed)
        stale = replace(self._buffer, pages=[page for page in self._buffer.pages if page.min_time < edge])
        fresh = replace(self._buffer, pages=[page for page in self._buffer.pages if page.min_time >= edge])
        for rows in stale.between(TIME_MIN, TIME_MAX):
            opened = np.maximum(rows.column(_OPEN).to_numpy(), self._closed)
            fresh.add(rows.set_column(rows.num_columns - 1, _OPEN, pa.array(opened)))
        stale.forget_below(TIME_MAX)
        self._buffer, self._raised = fresh, self._closed

    def _edge(self, complete: Wid) -> Time:
        """The time from which on rows are in no window before `complete`."""
        return int(self._windows.ends(np.array([complete - 1]))[0]) if complete < TIME_MAX else TIME_MAX

    def _read(self, first: Wid, after: Wid) -> Read:
        return Read([[Source(table, first, after)] for table in self._passing], [None] * len(self._passing))

    def _ends(self, main: pa.RecordBatch) -> tuple[Times, Times]:
        wids = times_of(main)
        return self._windows.starts(wids), self._windows.ends(wids)
