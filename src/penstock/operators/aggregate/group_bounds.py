"""Bounds of single groups, in pages: any number of groups, with little memory.

A statement has the shape of a row inside an operator: the group's hash, its bound as the time, and the columns that
make the group. Of several statements about a group the largest holds. Groups are compared as in window aggregation:
null is a group, NaN is one, and -0.0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.pages import Page, PageStore, read_page, write_page
from penstock.core.rows import HASH, TIME, Hashes, RowType, hashes_of
from penstock.core.time import TIME_MIN, Time, Times
from penstock.kernels.segments import numbers_of
from penstock.kernels.sort import stable_order
from penstock.operators.aggregate.functions import Extreme
from penstock.operators.aggregate.lanes import Lane, clean
from penstock.operators.aggregate.partials import (
    Partials,
    Piece,
    Source,
    cost,
    folded,
    pieces,
    write_folded,
)

_SORTING = 16
"""Bytes that the order of one row, and its bound, take."""

_LOOKING = 160
"""Bytes that finding the bound of one row takes besides its group: codes, order, segments and places."""


class GroupBoundTable:
    """The bounds of the groups that have one; a group that has none is at `TIME_MIN`.

    >>> from penstock.storage.memory import MemoryPages
    >>> groups, budget = RowType(pa.schema({"k": pa.int64()}), keys=("k",)), Budget(100_000)
    >>> table = GroupBoundTable(groups, 0, MemoryPages(budget), budget)
    >>> table.add(groups.enter(pa.table({"k": [7, 8, 7], TIME: [5, 1, 9]}), np.array([1, 2, 1], np.uint64)))
    >>> table.of(np.array([2, 1, 3], np.uint64), [pa.array([8, 7, 9])]).tolist()[:2]
    [1, 9]
    """

    def __init__(
        self, groups: RowType, kind: int, store: PageStore, budget: Budget, pages: Sequence[Page] = ()
    ) -> None:
        self._type = groups
        self._budget = budget
        self._lane = Lane.of(groups.keys, (), [("bound", Extreme(TIME, "max"))], groups)
        self._table = Partials(self._lane, kind, store, budget, list(pages))

    @property
    def pages(self) -> list[Page]:
        """Where the bounds are."""
        return self._table.pages

    def __bool__(self) -> bool:
        return bool(self._table.pages)

    def add(self, statements: pa.RecordBatch) -> None:
        """Let groups rise to these bounds; none goes back."""
        for piece in self._slices(statements):
            with self._budget.hold(2 * cost(piece), "sorting the bounds of groups"):
                self._table.add(self._lane.lift(piece, self._type, np.zeros(piece.num_rows, np.int64)))

    def take_over(self, other: GroupBoundTable) -> None:
        """Add all the bounds of `other`, which has none afterwards."""
        self._table.pages += [replace(page, kind=self._table.kind) for page in other._table.pages]
        other._table.pages.clear()

    def of(self, hashes: Hashes, groups: Sequence[pa.Array]) -> Times:
        """The bound of each row's group; `groups` are the columns that make it."""
        if not hashes.size or not self._table.pages:
            return np.full(hashes.size, TIME_MIN, np.int64)
        bounds = np.full(hashes.size, TIME_MIN, np.int64)
        with self._budget.hold(_SORTING * hashes.size, "finding the bounds of rows' groups"):
            # In order of their hashes, some rows at a time meet only a part of the bounds.
            order = stable_order(hashes)
            each = 2 * (sum(group.nbytes for group in groups) / hashes.size + _LOOKING)
            size = max(1, int(self._budget.room / 2 / each))
            for begin in range(0, hashes.size, size):
                some = order[begin : begin + size]
                with self._budget.hold(int(each * some.size), "finding the bounds of rows' groups"):
                    bounds[some] = self._sought(hashes[some], [clean(group.take(pa.array(some))) for group in groups])
        return bounds

    def purge(self, bound: Time) -> None:
        """Forget bounds that say no more than `bound` says of all groups.

        A page is rewritten once half of its groups can go, so that forgetting costs no more than remembering did.
        """
        kept = []
        for page in self._table.pages:
            rows = read_page(self._table.store, page)
            above = self._bounds_in(rows) > bound
            if 2 * np.count_nonzero(above) > page.rows:
                kept.append(page)
            elif above.any():
                with self._budget.hold(rows.nbytes, "forgetting the bounds of groups"):
                    left = rows.filter(pa.array(above))
                    kept.append(write_page(self._table.store, self._table.kind, left))
        self._table.take(kept)

    def fold(self) -> None:
        """Keep one bound of each group: before many questions."""
        if len(self._table.pages) > 1:
            self._table.take(write_folded(self._table, [Source(self._table)]))

    def tidy(self) -> None:
        """Keep pages few."""
        self._table.tidy()

    def clear(self) -> None:
        """Forget everything."""
        self._table.clear()

    def _sought(self, hashes: Hashes, groups: Sequence[pa.Array]) -> Times:
        """The bounds of the groups of some rows, which are in order of their hashes."""
        bounds = np.full(hashes.size, TIME_MIN, np.int64)
        rows = pa.RecordBatch.from_arrays([pa.array(hashes), *groups], names=[HASH, *self._type.keys])
        among = Piece(int(hashes[0]), int(hashes[-1]))
        for piece in pieces([Source(self._table)], self._budget, within=among):
            ends = np.array(piece, np.uint64)
            begin = int(np.searchsorted(hashes, ends[0]))
            end = int(np.searchsorted(hashes, ends[1], side="right"))
            if begin < end:
                bounds[begin:end] = self._found(piece, rows.slice(begin, end - begin))
        return bounds

    def _found(self, piece: Piece, rows: pa.RecordBatch) -> Times:
        known = folded([Source(self._table)], piece, self._budget)
        known = known.filter(pa.array(np.isin(hashes_of(known), hashes_of(rows))))
        with self._budget.hold(cost(known), "finding the bounds of rows' groups"):
            places = self._lane.look_up(known, hashes_of(rows), rows.columns[1:])
            if not known.num_rows:
                return np.full(places.size, TIME_MIN, np.int64)
            return np.where(places >= 0, self._bounds_in(known)[places], TIME_MIN)

    def _bounds_in(self, rows: pa.RecordBatch) -> Times:
        return numbers_of(rows.column(self._lane.parts[0].first)).astype(np.int64, copy=False)

    def _slices(self, statements: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Statements in pieces whose sorting takes at most half of the room."""
        if not statements.num_rows:
            return
        count = max(1, -(-4 * cost(statements) // max(1, self._budget.room)))
        size = -(-statements.num_rows // count)
        for start in range(0, statements.num_rows, size):
            yield statements.slice(start, size)
