"""State that a method takes over from another: panes and waiting rows become partials of open windows.

That is exact, because every window is the fold of its panes. There is no way back: a finished
window does not show which panes it was made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.pages import Page, PageStore
from penstock.core.rows import RowType
from penstock.core.time import TIME_MAX
from penstock.core.windows import Wid
from penstock.operators.aggregate.buffer import Buffer
from penstock.operators.aggregate.config import Panes
from penstock.operators.aggregate.entry import Entry
from penstock.operators.aggregate.partials import Partials, Source, pieces
from penstock.operators.aggregate.roles import page_kind
from penstock.operators.aggregate.spread import spread_over_windows


class Inherited:
    """Panes and rows that another method has left, until the first bound says which windows are still open."""

    def __init__(
        self,
        entry: Entry,
        rows: RowType,
        panes: Panes,
        store: PageStore,
        budget: Budget,
        pages: Mapping[int, Sequence[Page]],
    ) -> None:
        self._entry = entry
        self._panes = panes
        self._budget = budget
        self._tables = [
            Partials(lane, page_kind("panes", place), store, budget, list(pages.get(page_kind("panes", place), ())))
            for place, lane in enumerate(entry.lanes)
        ]
        self._waiting = Buffer(
            rows.inside, page_kind("waiting"), store, budget, list(pages.get(page_kind("waiting"), ()))
        )

    @property
    def pages(self) -> list[Page]:
        """What is not yet taken up."""
        tables: list[Partials | Buffer] = [*self._tables, self._waiting]
        return [page for table in tables for page in table.pages]

    def windows(self, first: Wid) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Each lane's place, and partials of the windows from `first` on; afterwards nothing is left."""
        for place, table in enumerate(self._tables):
            for piece in pieces([Source(table)], self._budget):
                for partials in Source(table).read(piece):
                    yield from self._spread(place, partials, first)
            table.clear()
        for rows in self._waiting.release(TIME_MAX):
            for place, partials in self._entry.lift(0, rows, lambda times: self._panes.tumbling.wids(times)[0]):
                yield from self._spread(place, partials, first)

    def _spread(self, place: int, partials: pa.RecordBatch, first: Wid) -> Iterator[tuple[int, pa.RecordBatch]]:
        lane = self._entry.lanes[place]
        for spread in spread_over_windows(lane, partials, self._panes, self._budget, first):
            yield place, spread
