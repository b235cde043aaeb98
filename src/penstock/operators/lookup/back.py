"""What all back ends share: rows that wait, a table to read, and what becomes of the rows once they have met it."""

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
"""Bytes of how often a master row was found, and by which hash."""


@dataclass(slots=True)
class BackStats:
    """What the back end did so far."""

    finished: int = 0
    """Rows that have left it, answered or not."""
    reads: int = 0
    """Partitions or batches of keys that were read from the table."""
    bytes_read: int = 0
    looked_up: int = 0
    """Keys that were asked for one by one."""
    at_hand: int = 0
    """Rows whose partition was in memory when they came to it."""


class Met(NamedTuple):
    """Which stream rows found something; of each master row how many it was, and the hash that they bring."""

    matched: Mask
    counts: Indices
    asked: Hashes

    @property
    def found(self) -> Indices:
        """The master rows that were found."""
        return np.flatnonzero(self.counts)


@dataclass(slots=True)
class Desk:
    """Where a back end works: the table, its rows' answers, the cache before it if there is one, the budget."""

    table: MasterTable
    answers: Answers
    budget: Budget
    front: FrontStage | None = None
    meter: Meter | None = None
    stats: BackStats = field(default_factory=BackStats)
    backlog: int = 0
    """Rows that have come, and have yet to be let in."""

    def scan(self, partition: int) -> pa.RecordBatch:
        """Read a partition; what is cached gives way to it."""
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
        """Forget what is cached, and what is kept of tables: an answer may need the room, and none depends on them."""
        if self.front is not None:
            self.front.invalidate(None)
        give_way(self.budget)

    def meet(
        self, rows: pa.RecordBatch, hashes: Hashes | None, master: pa.RecordBatch, compared: int | None = None
    ) -> Generator[Out, None, Mask]:
        """Let rows meet master rows, all that there are of each key; which of them found any comes back.

        What was found is offered to the cache, if there is one and there is room to count it. `compared` is how many
        rows meet them, if some that cannot match were left out.
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
        """Answer rows with master rows; what is to be known for the cache is counted if they are its `offers`."""
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
        """Let rows, whose hashes may not be known, meet all that they can find, and leave."""
        matched = yield from self.meet(rows, hashes, master)
        yield from self.answers.alone(rows, np.flatnonzero(~matched))
        self.stats.finished += rows.num_rows

    def find_again(self, waiting: Waiting) -> None:
        """The table is another: find where waiting rows must look now."""
        if len(waiting):
            rows = waiting.rows(np.ones(len(waiting), np.bool_))
            waiting.send(self.table.partition_of(waiting.hash, self.answers.keys(rows)))

    def _read(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        self.stats.reads += 1
        self.stats.bytes_read += rows.nbytes
        return rows


def may_match(hashes: Hashes, master: pa.RecordBatch) -> Mask:
    """Which of the hashes lie between the least and the greatest of a partition, whose rows are sorted by theirs.

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
    """Makes a back end: of its parameters, where it works, and what it remembered."""

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
        """One iteration: at most one read of the table. `position` says which waiting row chooses, 1 the oldest."""
        ...

    @property
    def at_once(self) -> bool:
        """Whether a step is due, though more rows may wait."""
        ...

    def renew(self) -> None:
        """The table is another than the one that waiting rows were put for."""
        ...

    def meta(self) -> dict[str, object]:
        """What to remember beside the rows that wait: small, JSON-able, given back to the next one."""
        ...
