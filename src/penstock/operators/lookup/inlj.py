"""INLJ, the index nested-loop join: rows are looked up by key, a batch of them in one request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.errors import BudgetError
from penstock.core.operator import Out
from penstock.core.pages import Page, PageStore, read_page, write_page
from penstock.core.rows import HASH, TIME, Hashes, Indices, hashes_of
from penstock.kernels.distinct import firsts
from penstock.kernels.sort import stable_order
from penstock.operators.lookup.back import Desk, Met
from penstock.operators.lookup.front import FrontStage
from penstock.operators.lookup.methods import BackMethod
from penstock.operators.lookup.slots import room_for
from penstock.operators.lookup.waiting import Waiting

_COUNT = 16
"""Bytes per missed key: its hash and the number of misses."""

MISSED = 2
"""The kind of pages that say how often keys were missed."""


@dataclass(frozen=True, slots=True)
class Inlj(BackMethod):
    """Look each key up. `batch` is how many rows are looked up in one request, by default as many as fit.

    >>> Inlj(batch=1000).batch
    1000
    """

    batch: int | None = None

    reads: ClassVar[Literal["keys"]] = "keys"


class IndexJoin:
    """Looks up the keys of waiting rows in the table and answers them."""

    def __init__(self, settings: Inlj, desk: Desk, waiting: Waiting, meta: Mapping[str, Any]) -> None:
        self._settings = settings
        self._desk = desk
        self.waiting = waiting
        self.missed = Missed(desk.budget)
        self._found = desk.table.size.row
        """Bytes of master rows per key: the largest average of a request so far."""

    @property
    def at_once(self) -> bool:
        """A row never waits for others."""
        return len(self.waiting) > 0

    def put(self, rows: pa.RecordBatch, hashes: Hashes, attempts: Indices | int = 0) -> None:
        """Let rows wait for the next request."""
        self.waiting.put(rows, hashes, np.zeros(rows.num_rows, np.int64), attempts)

    def free(self, rows: pa.RecordBatch) -> int:
        """How many more rows the next request may have."""
        fits = room_for(rows, self._desk.budget, self.waiting, 2 * self._found)
        return min(self._settings.batch or fits, fits) - len(self.waiting)

    def step(self, position: float = 1.0) -> Iterator[Out]:
        """Look up all waiting rows."""
        if not len(self.waiting):
            return
        rows, numbers = self.waiting.take(np.ones(len(self.waiting), np.bool_))
        yield from self._look_up(rows, numbers["hash"].view(np.uint64))
        self._desk.stats.finished += rows.num_rows

    def _look_up(self, rows: pa.RecordBatch, hashes: Hashes) -> Iterator[Out]:
        """Look up the keys of these rows, in several requests if the result of one does not fit."""
        keys = self._desk.answers.keys(rows)
        order = stable_order(hashes)
        ordered = [key.take(pa.array(order)) for key in keys]
        first = firsts(hashes[order].view(np.int64), ordered)
        asked = order[first]
        with self._desk.budget.hold(rows.nbytes, "rows that are looked up"):
            master = self._asked(hashes[asked], [key.take(pa.array(asked)) for key in keys])
            if master is not None:
                with self._desk.budget.hold(master.nbytes, "rows of the table"):
                    yield from self._answer(rows, hashes, master)
        if master is None:
            middle = hashes[asked[asked.size // 2]]
            for half in (hashes < middle, hashes >= middle):
                yield from self._look_up(rows.filter(pa.array(half)), hashes[half])

    def _asked(self, hashes: Hashes, keys: list[pa.Array]) -> pa.RecordBatch | None:
        """The table's rows of these keys; None if they do not fit and it may help to ask for fewer.

        To make room for the rows of a single key, all caches are dropped.
        """
        single, desk = hashes[0] == hashes[-1], self._desk
        try:
            master = desk.get(hashes, keys)
        except BudgetError:
            if not single:
                return None
            desk.give_way()
            master = desk.get(hashes, keys)
        self._found = max(self._found, master.nbytes / max(1, hashes.size))
        fits = 2 * master.nbytes <= desk.budget.room
        if single and not fits:
            desk.give_way()
        return master if single or fits else None

    def renew(self) -> None:
        """Nothing to do: rows are looked up by key in any table."""

    def meta(self) -> dict[str, object]:
        """No state besides the waiting rows."""
        return {}

    def _answer(self, rows: pa.RecordBatch, hashes: Hashes, master: pa.RecordBatch) -> Iterator[Out]:
        offers = 0 if self._desk.front is None else master.num_rows
        met = yield from self._desk.pair(rows, hashes, master, offers)
        alone = np.flatnonzero(~met.matched)
        yield from self._desk.answers.alone(rows, alone)
        if self._desk.front is not None:
            self._offer(self._desk.front, rows, master, met, alone)

    def _offer(self, front: FrontStage, rows: pa.RecordBatch, master: pa.RecordBatch, met: Met, alone: Indices) -> None:
        """Offer keys that were missed often enough in this span to the cache, including keys that the table lacks."""
        self.missed.count(hashes_of(rows), front.span)
        some = met.found[self.missed.of(met.asked[met.found]) >= front.threshold.value]
        front.offer(master.take(pa.array(some)), met.asked[some], self.missed.of(met.asked[some]))
        hashes, places = np.unique(hashes_of(rows)[alone], return_index=True)
        keys = [key.take(pa.array(alone[places])) for key in self._desk.answers.keys(rows)]
        front.offer_missing(keys, self._desk.table.keys, hashes, self.missed.of(hashes))


class Missed:
    """The temporary buffer: how often keys were missed lately. Cleared after a span of misses, or if memory is short.

    >>> missed = Missed(Budget(1000))
    >>> missed.count(np.array([7, 7, 8], np.uint64), span=3)
    >>> missed.of(np.array([7, 9], np.uint64)).tolist()
    [2, 0]
    >>> missed.count(np.array([8], np.uint64), span=3)
    >>> missed.of(np.array([7, 8], np.uint64)).tolist()
    [0, 1]
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._hashes = np.empty(0, np.uint64)
        self._counts = np.empty(0, np.int64)
        self._misses = 0

    def count(self, hashes: Hashes, span: int) -> None:
        """Count misses of these keys."""
        if self._misses >= span:
            self._forget()
        self._misses += hashes.size
        keys, counts = np.unique(hashes, return_counts=True)
        self._merge(keys, counts)

    def of(self, hashes: Hashes) -> Indices:
        """How often each was missed in this span."""
        if not self._hashes.size:
            return np.zeros(hashes.size, np.int64)
        places = np.minimum(np.searchsorted(self._hashes, hashes), self._hashes.size - 1)
        return np.where(self._hashes[places] == hashes, self._counts[places], 0)

    def save(self, store: PageStore) -> list[Page]:
        """Write the counts to a page."""
        if not self._hashes.size:
            return []
        zeros = np.zeros(self._hashes.size, np.int64)
        columns = {HASH: self._hashes, TIME: zeros, "count": self._counts}
        return [write_page(store, MISSED, pa.record_batch({name: pa.array(c) for name, c in columns.items()}))]

    def restore(self, store: PageStore, pages: Sequence[Page]) -> None:
        """Restore the counts from pages."""
        for page in pages:
            rows = read_page(store, page)
            self._merge(hashes_of(rows), rows.column("count").to_numpy())
        self._misses = int(self._counts.sum())

    def _merge(self, hashes: Hashes, counts: Indices) -> None:
        """Add the counts of `hashes`, which are ascending."""
        places = self._hashes.searchsorted(hashes)
        known = (
            self._hashes.take(places, mode="clip") == hashes if self._hashes.size else np.zeros(hashes.size, np.bool_)
        )
        self._counts[places[known]] += counts[known]
        fresh = np.flatnonzero(~known)
        size = _COUNT * (self._hashes.size + fresh.size)
        if size > self._budget.room:
            self._forget()
            return
        with self._budget.hold(size, "counts of missed keys, while they grow"):
            self._hashes = np.insert(self._hashes, places[fresh], hashes[fresh])
            self._counts = np.insert(self._counts, places[fresh], counts[fresh])
        self._budget.charge(_COUNT * fresh.size, "counts of missed keys")

    def _forget(self) -> None:
        self._budget.release(_COUNT * self._hashes.size)
        self._hashes, self._counts, self._misses = self._hashes[:0].copy(), self._counts[:0].copy(), 0
