"""What all back ends share: waiting rows, a table to read, and how rows that have met it are answered."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.errors import BudgetError
from penstock.core.kept import give_way
from penstock.core.master import MasterTable
from penstock.core.meter import Meter
from penstock.core.operator import Out
from penstock.core.rows import Hashes, Indices, hashes_of
from penstock.operators.lookup.answers import Answers, Mask
from penstock.operators.lookup.front import FrontStage
from penstock.operators.lookup.waiting import Waiting

_COUNTED = 16
"""Bytes per master row that count its matches and hold their hash."""


@dataclass(slots=True)
class BackStats:
    """What the back end has done so far."""

    finished: int = 0
    """Rows that have left it, answered or not."""
    reads: int = 0
    """Partitions or batches of keys that were read from the table."""
    bytes_read: int = 0
    looked_up: int = 0
    """Keys that were asked for one by one."""
    at_hand: int = 0
    """Rows that were answered by a partition that was in memory already."""


class Met(NamedTuple):
    """Which stream rows matched; for each master row, how many rows matched it and which hash they have."""

    matched: Mask
    counts: Indices
    asked: Hashes

    @property
    def found(self) -> Indices:
        """Indices of the master rows that were matched."""
        return np.flatnonzero(self.counts)


@dataclass(slots=True)
class Desk:
    """What a back end works with: the table, the maker of results, the cache in front of it if any, the budget."""

    table: MasterTable
    answers: Answers
    budget: Budget
    front: FrontStage | None = None
    meter: Meter | None = None
    stats: BackStats = field(default_factory=BackStats)
    backlog: int = 0
    """Rows that have arrived and are still to be let in."""

    def scan(self, partition: int) -> pa.RecordBatch:
        """Read a partition; if it does not fit, caches are dropped first."""
        try:
            return self._read(self.table.scan(partition))
        except BudgetError:
            self.give_way()
            return self._read(self.table.scan(partition))

    def get(self, hashes: Hashes, keys: list[pa.Array]) -> pa.RecordBatch:
        """Read the rows of some keys."""
        self.stats.looked_up += hashes.size
        return self._read(self.table.get(hashes, keys))

    def give_way(self) -> None:
        """Drop the cache, and what is kept of tables, to make room for an answer; no answer depends on them."""
        if self.front is not None:
            self.front.invalidate(None)
        give_way(self.budget)

    def meet(
        self, rows: pa.RecordBatch, hashes: Hashes | None, master: pa.RecordBatch, compared: int | None = None
    ) -> Generator[Out, None, Mask]:
        """Join rows with master rows, which must be complete for each key. Returns which rows matched.

        Matches are offered to the cache, if there is one and there is room to count them. `compared` is how many rows
        to count as compared, if some that cannot match were left out.
        """
        counts = self.front is not None and rows.nbytes + 2 * _COUNTED * master.num_rows <= self.budget.room
        offers = master.num_rows if counts else 0
        with self.budget.hold(rows.nbytes + _COUNTED * offers, "rows that meet the table"):
            met = yield from self.pair(rows, hashes, master, offers)
            if self.front is not None and offers:
                self.front.offer(master.take(pa.array(met.found)), met.asked[met.found], met.counts[met.found])
        if self.meter is not None:
            self.meter.compute(comparisons=rows.num_rows if compared is None else compared, chain_nodes=master.num_rows)
        return met.matched

    def pair(
        self, rows: pa.RecordBatch, hashes: Hashes | None, master: pa.RecordBatch, offers: int
    ) -> Generator[Out, None, Met]:
        """Answer rows with master rows. If `offers` is their number, not 0, matches are counted for the cache."""
        matched = np.zeros(rows.num_rows, np.bool_)
        counts, asked = np.zeros(offers, np.int64), np.zeros(offers, np.uint64)
        for i, j in self.answers.pairs(rows, hashes, master):
            matched[i] = True
            if offers:
                counts += np.bincount(j, minlength=offers)
                asked[j] = hashes_of(rows)[i]
            yield from self.answers.found(rows, i, master, j)
        return Met(matched, counts, asked)

    def finish(self, rows: pa.RecordBatch, hashes: Hashes | None, master: pa.RecordBatch) -> Iterator[Out]:
        """Join rows, whose hashes may be unknown, with all master rows that they can match, and finish them."""
        matched = yield from self.meet(rows, hashes, master)
        yield from self.answers.alone(rows, np.flatnonzero(~matched))
        self.stats.finished += rows.num_rows

    def find_again(self, waiting: Waiting) -> None:
        """Find the partitions of waiting rows again, because the table has changed."""
        if len(waiting):
            rows = waiting.rows(np.ones(len(waiting), np.bool_))
            waiting.send(self.table.partition_of(waiting.hash, self.answers.keys(rows)))

    def _read(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        self.stats.reads += 1
        self.stats.bytes_read += rows.nbytes
        return rows


def may_match(hashes: Hashes, master: pa.RecordBatch) -> Mask:
    """Which hashes lie between the least and the greatest hash of a partition, whose rows are sorted by hash.

    >>> batch = pa.record_batch({"hash": pa.array([4, 9], pa.uint64())})
    >>> may_match(np.array([3, 4, 7, 11], np.uint64), batch).tolist()
    [False, True, True, False]
    """
    held = hashes_of(master)
    if not held.size:
        return np.zeros(hashes.size, np.bool_)
    inside: Mask = (hashes >= held[0]) & (hashes <= held[-1])
    return inside


class MakeBack(Protocol):
    """Makes a back end from its parameters, the desk it works at, the waiting rows and the `meta` it has saved."""

    def __call__(self, settings: Any, desk: Desk, waiting: Waiting, meta: Mapping[str, Any]) -> BackEnd:
        """The back end."""
        ...


class BackEnd(Protocol):
    """A way to join waiting rows with a table that is not in memory."""

    waiting: Waiting

    def put(self, rows: pa.RecordBatch, hashes: Hashes, attempts: Indices | int = 0) -> None:
        """Let rows wait; `attempts` says how often each was put aside."""
        ...

    def free(self, rows: pa.RecordBatch) -> int:
        """How many more rows like these may wait before the table must be read."""
        ...

    def step(self, position: float = 1.0) -> Iterator[Out]:
        """One iteration: at most one read of the table, chosen by the waiting row at `position`, 1 being the oldest."""
        ...

    @property
    def at_once(self) -> bool:
        """Whether a step is due even if more rows could wait."""
        ...

    def renew(self) -> None:
        """Adapt to a table that has changed since rows began to wait."""
        ...

    def meta(self) -> dict[str, object]:
        """State beside the waiting rows: small, JSON-able, passed to the next back end as `meta`."""
        ...
