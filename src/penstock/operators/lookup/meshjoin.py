"""MESHJOIN: the table is scanned in a cycle, partition by partition, and waiting rows meet each partition once.

A row may leave when the cursor is back where it was when the row entered. So neither an index nor an order is needed,
and the table may grow: rows that have not passed its end yet meet what is appended, the others do not. R-MESHJOIN lets
rows enter only at the beginning of a logical partition of several loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from penstock.core.operator import Out
from penstock.core.rows import Hashes, Indices
from penstock.operators.lookup.back import Desk, may_match
from penstock.operators.lookup.methods import BackMethod
from penstock.operators.lookup.slots import room_for
from penstock.operators.lookup.waiting import Waiting

_NOWHERE = -1
"""The next partition of rows that have met the whole table."""


@dataclass(frozen=True, slots=True)
class MeshJoin(BackMethod):
    """Read the table cyclically. `slots`: how many rows may wait, h_S, by default as many as fit.

    `loads_per_logical` above 1 is R-MESHJOIN: a chunk of rows enters once per that many loads.

    >>> MeshJoin(slots=1000).chunk(partitions=10)
    100
    """

    slots: int | None = None
    loads_per_logical: int = 1

    reads: ClassVar[Literal["round"]] = "round"

    def is_like(self, other: BackMethod) -> bool:
        """Whether both are MESHJOIN, or both R-MESHJOIN."""
        return isinstance(other, MeshJoin) and (self.loads_per_logical > 1) == (other.loads_per_logical > 1)

    def chunk(self, partitions: int, slots: int | None = None) -> int:
        """How many rows enter at a time: w = h_S / k."""
        loads = max(1, partitions // self.loads_per_logical)
        return max(1, (slots or self.slots or partitions) // loads)


class CyclicJoin:
    """Waiting rows and the cursor."""

    def __init__(self, settings: MeshJoin, desk: Desk, waiting: Waiting, meta: Mapping[str, Any]) -> None:
        self._settings = settings
        self._desk = desk
        self.waiting = waiting
        self.cursor = int(meta.get("cursor", 0)) % max(1, desk.table.partitions)
        self._entered = 0

    @property
    def at_once(self) -> bool:
        """False: rows wait until the cursor has completed a cycle."""
        return False

    def put(self, rows: pa.RecordBatch, hashes: Hashes, attempts: Indices | int = 0) -> None:
        """Let a chunk of rows start at the cursor."""
        self._entered += rows.num_rows
        self.waiting.put(rows, hashes, np.full(rows.num_rows, self.cursor), attempts)

    def free(self, rows: pa.RecordBatch) -> int:
        """How many more rows may enter before the next read: at most a chunk, and none inside a logical partition."""
        if self.cursor % self._settings.loads_per_logical:
            return 0
        slots = self._settings.slots or room_for(rows, self._desk.budget, self.waiting)
        chunk = self._settings.chunk(self._desk.table.partitions, slots)
        return max(0, min(chunk - self._entered, slots - len(self.waiting)))

    def step(self, position: float = 1.0) -> Iterator[Out]:
        """Read the partition at the cursor, join it with the rows that are due, and finish those that have met all."""
        desk, waiting = self._desk, self.waiting
        partitions = desk.table.partitions
        here = np.flatnonzero(waiting.partition == self.cursor)
        if partitions:
            master = desk.scan(self.cursor)
            with desk.budget.hold(master.nbytes, "a partition of the table"):
                some = here[may_match(waiting.hash[here], master)]
                matched = yield from desk.meet(waiting.rows(some), waiting.hash[some], master, here.size)
                waiting.mark(some[matched])
        self.cursor = (self.cursor + 1) % max(1, partitions)
        self._entered = 0
        met = np.zeros(len(waiting), np.bool_)
        met[here] = True
        waiting.move(met, self.cursor)
        yield from self._expire((met & (waiting.start == self.cursor)) | (waiting.partition == _NOWHERE))

    def renew(self) -> None:
        """Let rows continue where they are; if the table has become shorter, what is gone counts as met."""
        end = max(1, self._desk.table.partitions)
        partition, start = self.waiting.partition, self.waiting.start
        over = (partition >= end) & ((start > partition) | (start == 0))
        partition[partition >= end] = 0
        start[start >= end] = 0
        partition[over] = _NOWHERE

    def meta(self) -> dict[str, object]:
        """Where the cursor is."""
        return {"cursor": self.cursor}

    def cut_anew(self) -> None:
        """Restart rows after keys have moved to other partitions: which ones a row has still to meet is unknown.

        In a clustered table all rows of a key are in one partition: a row that has matched is finished, others restart.
        """
        if self._desk.table.clustered and len(self.waiting):
            rows, _ = self.waiting.take(self.waiting.matched)
            self._desk.stats.finished += rows.num_rows
            self.waiting.restart(self.cursor)

    def _expire(self, done: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Iterator[Out]:
        """Finish rows that have met the whole table; a left join emits those that matched nothing."""
        if done.any():
            rows, numbers = self.waiting.take(done)
            with self._desk.budget.hold(rows.nbytes, "rows that leave"):
                yield from self._desk.answers.alone(rows, np.flatnonzero(numbers["matched"] == 0))
            self._desk.stats.finished += rows.num_rows
