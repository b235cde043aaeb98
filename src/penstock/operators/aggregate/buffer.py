"""Rows that wait: raw rows in pages, released by time, range by range of hashes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.pages import Page, PageStore, write_page
from penstock.core.rows import concat, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.kernels.sort import page_order
from penstock.kernels.width import even_pieces
from penstock.operators.aggregate.partials import Source, by_number, fits, pieces, slices

_SORTING = 64
"""Bytes that sorting one row takes besides its own."""


@dataclass(slots=True)
class Buffer:
    """The raw rows of one kind that an algorithm holds back."""

    schema: pa.Schema
    kind: int
    store: PageStore
    budget: Budget
    pages: list[Page]

    @property
    def rows(self) -> int:
        """How many rows wait, at most."""
        return sum(page.rows for page in self.pages)

    def add(self, rows: pa.RecordBatch) -> None:
        """Keep rows."""
        for piece in even_pieces(rows, self.budget.room // 2, _SORTING):
            with self.budget.hold(piece.nbytes + _SORTING * piece.num_rows, "rows that wait"):
                order = page_order(hashes_of(piece), times_of(piece))
                self.pages.append(write_page(self.store, self.kind, piece.take(pa.array(order))))

    def between(self, low: Time, high: Time) -> Iterator[pa.RecordBatch]:
        """Rows from `low` until before `high`, each batch in order of hash and time; those of one hash come by time."""
        whole = [Source(self, low, high)]
        for piece in pieces(whole, self.budget):
            for some in by_number(whole, piece, self.budget):
                waited = (rows for source in some for rows in source.read(piece))
                if fits(some, piece, self.budget):
                    yield from self._ordered(list(waited))
                else:
                    for rows in waited:
                        for part in slices(rows, max(1, self.budget.room // 2)):
                            yield from self._ordered([part])

    def _ordered(self, parts: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if parts:
            with self.budget.hold(2 * sum(rows.nbytes for rows in parts), "rows that have waited"):
                rows = concat(parts, self.schema)
                yield rows.take(pa.array(page_order(hashes_of(rows), times_of(rows))))

    def forget_below(self, time: Time) -> None:
        """Let go of rows below a time."""
        kept = []
        for page in self.pages:
            if page.max_time < time or time == TIME_MAX:
                self.store.drop(page.name)
            else:
                kept.append(replace(page, floor=time) if page.min_time < time > page.floor else page)
        self.pages[:] = kept

    def release(self, until: Time) -> Iterator[pa.RecordBatch]:
        """Rows before a time, which leave."""
        yield from self.between(TIME_MIN, until)
        self.forget_below(until)
