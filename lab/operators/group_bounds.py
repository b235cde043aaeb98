"""Bounds of single groups in memory, for a union of streams that speak of their groups.

Flows keep theirs in pages: `penstock.operators.aggregate.group_bounds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lab.operators.punctuation import Punctuation
from penstock.core.budget import Budget
from penstock.core.errors import PunctuationError
from penstock.core.pages import Page, PageStore, read_page, write_page
from penstock.core.rows import TIME, RowType, concat, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time, Times
from penstock.kernels.distinct import firsts, same_rows
from penstock.kernels.hashing import hash_keys
from penstock.kernels.match import expand, ranges
from penstock.kernels.sort import page_order
from penstock.operators.progress.groups import group_type

_AT_ONCE = 1 << 16
"""How many rows and bounds are compared at a time."""

_SORTING = 64
"""Bytes that putting one bound in its place takes besides its own."""


def size_of(bounds: pa.RecordBatch) -> int:
    """The bytes that bounds of groups take; none if there are none, whatever Arrow keeps for them."""
    return int(bounds.nbytes) if bounds.num_rows else 0


def group_batch(rows: RowType, punctuations: Sequence[Punctuation]) -> pa.RecordBatch:
    """Group-wise punctuations on a stream's time, as a batch of bounds.

    >>> from lab.operators.punctuation import below
    >>> rows = RowType(pa.schema({"k": pa.int64(), "t": pa.int64()}), keys=("k",), time="t")
    >>> group_batch(rows, [Punctuation.of(t=below(5), k=1)]).select([TIME, "k"]).to_pylist()
    [{'__time': 5, 'k': 1}]
    """
    said: list[tuple[tuple[Any, ...], Any]] = []
    for punctuation in punctuations:
        one = punctuation.group_wise(rows.time or TIME, rows.keys)
        if one is None:
            raise PunctuationError(
                f"{punctuation} is not group-wise linear. Write {rows.time}=below(…) and a constant for each of "
                f"{', '.join(rows.keys)}, and leave the other columns out."
            )
        said.append(one)
    kinds = group_type(rows).columns
    columns = [pa.array([group[n] for group, _ in said], kind) for n, kind in enumerate(kinds.types)]
    table = pa.table([pa.array([stop for _, stop in said], pa.int64()), *columns], names=[TIME, *kinds.names])
    return group_type(rows).enter(table, hash_keys(columns))


class GroupBounds:
    """The bounds of the groups that have one, in memory and charged; a group that has none is at `TIME_MIN`."""

    def __init__(self, rows: RowType, budget: Budget) -> None:
        self._type = group_type(rows)
        self._budget = budget
        self.batch = concat([], self._type.inside)

    def take_up(self, store: PageStore, pages: Iterable[Page]) -> None:
        """Go on from what `save` wrote."""
        for page in pages:
            self.rise(read_page(store, page))

    def save(self, store: PageStore, port: int) -> list[Page]:
        """As pages of `port`; the memory is given back, so nothing may follow."""
        pages = [write_page(store, port, self.batch)] if self.batch.num_rows else []
        self._replace(self.batch.slice(0, 0))
        return pages

    def rise(self, bounds: pa.RecordBatch) -> None:
        """Let groups come up to `bounds`; none goes back."""
        if not bounds.num_rows:
            return
        size = self.batch.nbytes + bounds.nbytes
        work = 2 * size + _SORTING * (self.batch.num_rows + bounds.num_rows)
        with self._budget.hold(work, "sorting the bounds of groups"):
            both = concat([self.batch, bounds], self._type.inside)
            # The largest bound of a group first: it is the one that stays.
            order = page_order(hashes_of(both), -np.maximum(times_of(both), -TIME_MAX))
            both = both.take(pa.array(order))
            labels = hashes_of(both).view(np.int64)
            highest = both.filter(pa.array(firsts(labels, self._columns(both))))
            kept = highest.take(pa.array(page_order(hashes_of(highest), times_of(highest))))
        self._replace(kept)

    def of(self, rows: pa.RecordBatch) -> Times:
        """The bound of each row's group; `rows` have the group's columns and its hash."""
        bounds = np.full(rows.num_rows, TIME_MIN, np.int64)
        if not rows.num_rows or not self.batch.num_rows:
            return bounds
        order = np.argsort(hashes_of(rows), kind="stable")
        everything = np.full(rows.num_rows, TIME_MIN, np.int64), np.full(rows.num_rows, TIME_MAX, np.int64)
        held = hashes_of(self.batch), times_of(self.batch)
        for some, j in expand(*ranges(*held, hashes_of(rows)[order], *everything), _AT_ONCE):
            i = order[some]
            equal = same_rows(self._columns(rows), i, self._columns(self.batch), j)
            bounds[i[equal]] = held[1][j[equal]]
        return bounds

    def purge(self, bound: Time) -> None:
        """Forget the groups that `bound` speaks of as well."""
        kept = times_of(self.batch) > bound
        if not kept.all():
            self._replace(self.batch.filter(pa.array(kept)))

    def _columns(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return [rows.column(key) for key in self._type.keys]

    def _replace(self, batch: pa.RecordBatch) -> None:
        self._budget.release(size_of(self.batch))
        self._budget.charge(size_of(batch), "the bounds of groups")
        self.batch = batch
