"""DupElim: passes the first of equal rows, however much later the others arrive.

Rows are equal iff their keys and their times are; nulls equal nulls. Rows are remembered until the bound passes them:
no equal row can arrive after that, so the state is what lies between the bound and the latest row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Operator, Out, State
from penstock.core.pages import Page, PageStore, read_page, write_page
from penstock.core.progress import Bounds
from penstock.core.rows import Indices, RowType, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.kernels.distinct import firsts, same_rows
from penstock.kernels.match import expand, ranges
from penstock.kernels.sort import page_order
from penstock.operators.pieces import pieces
from penstock.operators.progress.groups import group_type

_COMPARING = 128
"""Bytes that sorting and comparing one arrival takes besides its own."""

_AT_ONCE = 1 << 16
"""How many arrivals and rows seen are compared at a time, at most."""


@dataclass(frozen=True, slots=True)
class DupElim(Operator):
    """Pass one of several equal rows: equal in the keys of the input and in its time (F22)."""

    on: tuple[str, ...] = ()
    """The keys of its input."""

    def says(self, inputs: tuple[RowType, ...] = ()) -> str:
        """What it does, in words."""
        return "distinct: one of equal rows, at once"

    @property
    def compacts(self) -> bool:
        """Its pages may be merged between epochs."""
        return True

    def bounds(self, *ports: Time) -> Bounds:
        """The input's bound: rows pass at once."""
        return Bounds.at(ports[0])

    def logic(
        self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State, meter: Meter | None = None
    ) -> Eliminating:
        """The running operator."""
        return Eliminating(inputs[0], store, budget, state)


class Eliminating:
    """The logic of duplicate elimination. Its pages hold only keys and times."""

    def __init__(self, rows: RowType, store: PageStore, budget: Budget, state: State) -> None:
        self._type = rows
        self._seen = group_type(rows)
        self._store = store
        self._budget = budget
        self._pages = list(state.pages)
        self._bound: Time = TIME_MIN

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Emit rows that are the first of their kind, and remember them."""
        for piece in pieces(rows, self._budget, _COMPARING):
            with self._budget.hold(piece.nbytes + _COMPARING * piece.num_rows, "looking for equal rows"):
                fresh = self._fresh(piece)
                if fresh.num_rows:
                    self._pages.append(write_page(self._store, 0, self._keys_of(fresh)))
                    yield Out("results", self._type.leave(fresh))

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Forget rows that no equal row can follow."""
        self._bound = max(self._bound, bound)
        kept = []
        for page in self._pages:
            if page.max_time < self._bound or self._bound == TIME_MAX:
                self._store.drop(page.name)
            else:
                kept.append(replace(page, floor=self._bound) if page.min_time < self._bound else page)
        self._pages = kept
        return iter(())

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing is deferred."""
        return iter(())

    def bounds(self) -> Bounds:
        """The input's bound: rows pass at once."""
        return Bounds.at(self._bound)

    def state(self) -> State:
        """Keys and times of the rows seen."""
        return State(tuple(self._pages))

    def _fresh(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are the first of their kind, sorted like pages."""
        ordered = rows.take(pa.array(page_order(hashes_of(rows), times_of(rows))))
        hashes, times = hashes_of(ordered), times_of(ordered)
        moved = (hashes[1:] != hashes[:-1]) | (times[1:] != times[:-1])
        labels = np.cumsum(np.concatenate([[False], moved]))
        fresh = firsts(labels, self._columns(ordered))
        for page in self._pages:
            fresh &= ~self._met(ordered, page)
        return ordered if fresh.all() else ordered.filter(pa.array(fresh))

    def _met(self, rows: pa.RecordBatch, page: Page) -> npt.NDArray[np.bool_]:
        """Which rows are equal to a row of a page."""
        met = np.zeros(rows.num_rows, np.bool_)
        near = self._near(rows, page)
        if near.size:
            held = read_page(self._store, page)
            hashes, times = hashes_of(rows)[near], times_of(rows)[near]
            for some, j in expand(*ranges(hashes_of(held), times_of(held), hashes, times, times), self._chunk()):
                i = near[some]
                met[i[same_rows(self._columns(rows), i, self._columns(held), j)]] = True
        return met

    def _near(self, rows: pa.RecordBatch, page: Page) -> Indices:
        times = times_of(rows)
        return np.flatnonzero((times >= page.min_time) & (times <= page.max_time))

    def _chunk(self) -> int:
        return max(1, min(_AT_ONCE, self._budget.room // _COMPARING))

    def _columns(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return [self._type.column(rows, key) for key in self._type.keys]

    def _keys_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = [rows.column(0), rows.column(1), *self._columns(rows)]
        return pa.RecordBatch.from_arrays(columns, schema=self._seen.inside)
