"""Paned-WID: rows are aggregated once, by pane; windows are assembled from panes (PLQ and WLQ).

Panes are the largest pieces that every window is made of. Few partials are simply merged window by window. Many are
kept on two stacks that all groups share: the panes of the old block as aggregates of what is left of them (suffixes),
those of the new block as one running aggregate. A window is one suffix and the running aggregate, so that its cost
hardly depends on how many panes it has. Suffixes are made some at a time, from aggregates of the blocks after them
(checkpoints); they, the checkpoints and the running aggregate can all be made again from the panes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.core.operator import Out, State
from penstock.core.pages import read_page
from penstock.core.rows import times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time, Times
from penstock.core.windows import Landmarks, Slides, Wid, Wids
from penstock.operators.aggregate.aggregation import Aggregation, Given
from penstock.operators.aggregate.config import Panes
from penstock.operators.aggregate.entry import inside
from penstock.operators.aggregate.lanes import Lane
from penstock.operators.aggregate.methods import AggregateMethod
from penstock.operators.aggregate.partials import Partials, Renumber, Source, write_folded
from penstock.operators.aggregate.results import Read
from penstock.operators.aggregate.roles import Role, by_kind, page_kind
from penstock.operators.aggregate.spread import windows_of_panes

_FEW_WINDOWS = 64
"""Up to so many windows are tried one by one; of more, only those that hold a pane."""


@dataclass(frozen=True, slots=True)
class Paned(AggregateMethod):
    """Paned-WID has no parameters."""

    from_panes: ClassVar[bool] = True
    updates: ClassVar[bool] = True


class PanedAggregation(Aggregation):
    """Paned-WID on one shard (specs: window-queries §2.7; F12)."""

    tells_of_rows = True

    direct_rows = 8_192
    """Windows of fewer partials than this are merged from their panes directly: a stack costs more than it saves."""

    roles: tuple[Role, ...] = ("panes", "running", "suffixes", "checkpoints")
    """What pages hold; a page's kind tells its role and lane."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._windows: Slides | Landmarks = given.config.window.on(given.config.unit)  # type: ignore[assignment]
        self._panes: Panes = given.config.panes  # type: ignore[assignment]
        pages = by_kind(given.state, given.store, self.roles)
        self._tables = {
            role: [given.partials(lane, page_kind(role, place), pages) for place, lane in enumerate(self._entry.lanes)]
            for role in self.roles
        }
        self._closed: Wid = given.state.meta.get("closed", TIME_MIN)
        self._told_where = bool(given.state.meta) or not given.state.pages
        self._restore(given.state.meta)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Fold rows by pane."""
        first, after = self._windows.wids(times_of(rows))
        held = inside(rows, after > first)
        self._meter.aggregate(updates=held.num_rows)
        for place, partials in self._entry.lift(port, held, lambda times: self._panes.tumbling.wids(times)[0]):
            self._tables["panes"][place].add(partials)
        return iter(())

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Every window that ends at or before the bound comes out.

        State that comes without a record, as after a change of shards, begins at the first bound: what that completes
        has come out before.
        """
        told, self._told_where = self._told_where, True
        if bound <= self._bound:
            return
        self._bound = bound
        complete = self._windows.complete(bound)
        first, after = self._due(complete) if told else (0, 0)
        if first < after:
            yield from self._close(first, after)
        self._closed = max(self._closed, complete)
        self._forget()

    def state(self) -> State:
        """Panes that open windows need, and what was made of them."""
        for table in self._tables["panes"]:
            table.tidy()
        pages = tuple(page for tables in self._tables.values() for table in tables for page in table.pages)
        return State(pages, self._record()) if pages else State()

    def _record(self) -> dict[str, Any]:
        return {"closed": self._closed, "first": self._first, "front": self._front, "ran": self._ran}

    def _restore(self, record: dict[str, Any]) -> None:
        """Take up the stacks; without a record, or with that of another method, they are made again."""
        self._first: Wid = record.get("first", TIME_MIN)
        """Where the old block of panes began."""
        self._front: Wid = record.get("front", TIME_MIN)
        """Where the new block of panes begins."""
        self._ran: Wid = record.get("ran", TIME_MIN)
        """The first pane that the running aggregate does not have."""
        if "front" not in record:
            self._clear("running", "suffixes", "checkpoints")

    def _forget(self) -> None:
        """Let go of what no open window needs."""
        if self._bound == TIME_MAX:
            self._clear(*self.roles)
            return
        needed = self._panes.windows.extent(self._closed)[0] if self._closed > TIME_MIN else TIME_MIN
        for table in (t for role in self.roles if role != "running" for t in self._tables[role]):
            table.forget_below(needed)

    def _clear(self, *roles: Role) -> None:
        for role in roles:
            for table in self._tables[role]:
                table.clear()

    def _due(self, complete: Wid) -> tuple[Wid, Wid]:
        """The first window that has not come out, and the first that must not yet; rows or not."""
        numbers = self._tables["panes"][0].numbers()
        if numbers is None:
            return 0, 0
        windows = self._panes.windows.wids(np.array(numbers))
        return max(self._closed, int(windows[0][0])), min(complete, int(windows[1][1]))

    def _close(self, first: Wid, after: Wid) -> Iterator[Out]:
        if self._is_small(first, after):
            yield from self._results.close(first, after, self._read_panes, self._ends)
            return
        for wid in self._holding(first, after):
            self._prepare(wid)
            yield from self._results.close(wid, wid + 1, self._read_stacks, self._ends)

    def _is_small(self, first: Wid, after: Wid) -> bool:
        """Whether merging panes is less work than two stacks: windows hardly overlap, or have few partials."""
        overlap = self._panes.count / self._panes.step
        if overlap <= 2:
            return True
        low, high = self._panes.windows.extent(first)[0], self._panes.windows.extent(after - 1)[1]
        partials = sum(_rows_between(table, low, high) for table in self._tables["panes"])
        return partials * min(overlap, after - first) <= self.direct_rows * (after - first)

    def _holding(self, first: Wid, after: Wid) -> Sequence[Wid]:
        """The windows that may hold a pane."""
        if after - first <= _FEW_WINDOWS:
            return range(first, after)
        wids = self._panes.windows.windows(self._numbers())
        return [int(wid) for wid in wids[(wids >= first) & (wids < after)]]

    def _numbers(self) -> Wids:
        """The numbers of the panes that have rows, in order."""
        table = self._tables["panes"][0]
        there = [np.unique(times_of(read_page(table.store, page))) for page in table.pages]
        return np.unique(np.concatenate(there)) if there else np.empty(0, np.int64)

    def _read_panes(self, first: Wid, after: Wid) -> Read:
        """Windows straight from their panes."""
        low, high = self._panes.windows.extent(first)[0], self._panes.windows.extent(after - 1)[1]
        tables = self._tables["panes"]
        overlap = min(-(-self._panes.count // self._panes.step), after - first)
        return Read(
            [[Source(table, low, high)] for table in tables],
            [self._counted(windows_of_panes(table.lane, self._panes, first, after)) for table in tables],
            overlap,
        )

    def _counted(self, renumber: Renumber) -> Renumber:
        def counted(partials: pa.RecordBatch) -> pa.RecordBatch:
            spread = renumber(partials)
            self._meter.aggregate(panes=_distinct(spread), partials=spread.num_rows)
            return spread

        return counted

    def _read_stacks(self, wid: Wid, after: Wid) -> Read:
        """A window from a suffix and the running aggregate."""
        low = self._panes.windows.extent(wid)[0]
        sources = [
            [Source(suffix, low, low + 1), Source(running)]
            for suffix, running in zip(self._tables["suffixes"], self._tables["running"], strict=True)
        ]
        return Read(sources, [_numbered(table.lane, wid) for table in self._tables["panes"]])

    def _prepare(self, wid: Wid) -> None:
        """Bring the stacks to where this window can be read from them."""
        low, high = self._panes.windows.extent(wid)
        if low >= self._front:
            self._flip(low, high)
        elif high > self._ran:
            self._meter.aggregate(panes=high - self._ran)
            for table, panes in zip(self._tables["running"], self._tables["panes"], strict=True):
                table.take(write_folded(table, [Source(table), Source(panes, self._ran, high)], self._front))
            self._ran = high
        if low < self._front and not self._has_suffix(low):
            self._make_suffixes(low)

    def _flip(self, low: Wid, high: Wid) -> None:
        """All panes there are become the old block; its checkpoints are made from the end."""
        self._clear("running", "suffixes", "checkpoints")
        self._first, self._front, self._ran = low, high, high
        self._meter.aggregate(panes=high - low)
        for table, panes in zip(self._tables["checkpoints"], self._tables["panes"], strict=True):
            later: list[Source] = []
            for start in reversed(range(low, high, self._block)):
                pages = write_folded(table, [*later, Source(panes, start, min(start + self._block, high))], start)
                table.pages += pages
                later = [Source(table, start, start + 1)]

    def _make_suffixes(self, low: Wid) -> None:
        """The suffixes of one block, from `low` on, from the checkpoint after it."""
        block = self._first + (low - self._first) // self._block * self._block
        end = min(block + self._block, self._front)
        self._clear("suffixes")
        tables = zip(*(self._tables[role] for role in ("suffixes", "panes", "checkpoints")), strict=True)
        for table, panes, checkpoints in tables:
            later = [Source(checkpoints, end, end + 1)]
            for start in reversed(range(low, end, self._panes.step)):
                self._meter.aggregate(panes=1)
                stop = min(start + self._panes.step, end)
                table.pages += write_folded(table, [*later, Source(panes, start, stop)], start)
                later = [Source(table, start, start + 1)]

    @property
    def _block(self) -> int:
        """How many panes lie between checkpoints: as many windows begin there as there are checkpoints."""
        return math.isqrt(-(-self._panes.count // self._panes.step) - 1) * self._panes.step + self._panes.step

    def _has_suffix(self, low: Wid) -> bool:
        """Whether the suffix is made: those of its block lie side by side, from the one last asked for on."""
        made = self._tables["suffixes"][0].numbers()
        return made is not None and made[0] <= low <= made[1]

    def _ends(self, main: pa.RecordBatch) -> tuple[Times, Times]:
        wids = times_of(main)
        return self._windows.starts(wids), self._windows.ends(wids)


def _numbered(lane: Lane, number: Wid) -> Renumber:
    return lambda partials: lane.renumbered(partials, number)


def _rows_between(table: Partials, low: Wid, high: Wid) -> float:
    """About how many partials have a number from `low` until before `high`, if each page's are spread evenly."""
    total = 0.0
    for page in table.pages:
        overlap = min(high, page.max_time + 1) - max(low, page.min_time)
        if overlap > 0:
            total += page.rows * overlap / (page.max_time + 1 - page.min_time)
    return total


def _distinct(partials: pa.RecordBatch) -> int:
    return int(np.unique(times_of(partials)).size)
