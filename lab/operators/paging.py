"""Paging: hands rows on in pages, and never lets one wait for rows that a lull holds back.

Engines pass rows between operators by the page, because a hop per row is dear. A page leaves when it is full, and also
when a punctuation comes: the rows before it may be all there are for a long time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.errors import ConfigError
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import PageStore, read_page, write_page
from penstock.core.progress import Bounds
from penstock.core.rows import RowType, concat, hashes_of, times_of
from penstock.core.time import TIME_MIN, Time
from penstock.kernels.sort import page_order

PAGE = 30
"""Rows in a page, in the engine that the experiments ran on."""


@dataclass(frozen=True, slots=True)
class Paging:
    """Hand one stream on in pages of `page` rows (F27)."""

    page: int = PAGE

    def __post_init__(self) -> None:
        if self.page < 1:
            raise ConfigError(f"page={self.page} has no place for a row. Write 1 or more.")

    def output(self, inputs: tuple[RowType, ...]) -> pa.Schema:
        """The same columns."""
        return inputs[0].columns

    def logic(
        self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State, meter: Meter | None = None
    ) -> Pager:
        """At work."""
        return Pager(self.page, inputs[0], store, budget, state)


class Pager:
    """Paging at work: it holds less than a page."""

    def __init__(self, page: int, rows: RowType, store: PageStore, budget: Budget, state: State) -> None:
        self._page = page
        self._type = rows
        self._store = store
        self._budget = budget
        self._bound: Time = TIME_MIN
        self._begun: list[pa.RecordBatch] = []
        for kept in state.pages:
            self._begin(read_page(store, kept))

    @property
    def held(self) -> int:
        """How many rows are in the page that has been begun."""
        return sum(part.num_rows for part in self._begun)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Full pages leave, the rest waits."""
        at = 0
        while self.held + rows.num_rows - at >= self._page:
            filled = at + self._page - self.held
            self._begin(rows.slice(at, filled - at))
            yield from self._ship()
            at = filled
        self._begin(rows.slice(at))

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """The page that has been begun leaves, before the bound does."""
        yield from self._ship()
        self._bound = max(self._bound, bound)

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing is deferred."""
        return iter(())

    def bounds(self) -> Bounds:
        """As the input's: no row from before a bound is still here when it is given out."""
        return Bounds.at(self._bound)

    def state(self) -> State:
        """The page that has been begun."""
        if not self._begun:
            return State()
        begun = self._taken()
        order = page_order(hashes_of(begun), times_of(begun))
        return State((write_page(self._store, 0, begun.take(pa.array(order))),))

    def _begin(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._budget.charge(rows.nbytes, "a page that has been begun")
            self._begun.append(rows)

    def _ship(self) -> Iterator[Out]:
        if self._begun:
            yield Out("results", self._type.leave(self._taken()))

    def _taken(self) -> pa.RecordBatch:
        self._budget.release(sum(part.nbytes for part in self._begun))
        page, self._begun = concat(self._begun, self._type.inside), []
        return page
