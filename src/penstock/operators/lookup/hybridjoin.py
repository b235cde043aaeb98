"""HYBRIDJOIN: the oldest waiting row chooses the partition to read, and all rows that wait for it share the read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.operator import Out
from penstock.core.rows import Hashes, Indices
from penstock.operators.lookup.back import Desk
from penstock.operators.lookup.methods import BackMethod
from penstock.operators.lookup.slots import room_for
from penstock.operators.lookup.waiting import Waiting


@dataclass(frozen=True, slots=True)
class HybridJoin(BackMethod):
    """Read the partition of the oldest row. `slots`: how many rows may wait, h_S, by default as many as fit.

    >>> HybridJoin(slots=1000).slots
    1000
    """

    slots: int | None = None


class OldestFirstJoin:
    """Waiting rows in order of arrival, each with the partition that has its key."""

    def __init__(self, settings: HybridJoin, desk: Desk, waiting: Waiting, meta: Mapping[str, Any]) -> None:
        self._settings = settings
        self._desk = desk
        self.waiting = waiting

    @property
    def at_once(self) -> bool:
        """Rows wait for others to share a read."""
        return False

    def put(self, rows: pa.RecordBatch, hashes: Hashes, attempts: Indices | int = 0) -> None:
        """Let rows wait for the partition of their key."""
        partition = self._desk.table.partition_of(hashes, self._desk.answers.keys(rows))
        self.waiting.put(rows, hashes, partition, attempts)

    def free(self, rows: pa.RecordBatch) -> int:
        """How many slots are free."""
        slots = self._settings.slots or room_for(rows, self._desk.budget, self.waiting)
        return max(0, slots - len(self.waiting))

    def step(self, position: float = 1.0) -> Iterator[Out]:
        """Read the partition of the chosen row and answer all rows that wait for it.

        Rows whose key is not in the index are finished first: they need no read (fix B).
        """
        waiting, desk = self.waiting, self._desk
        yield from self._leave(waiting.partition < 0)
        if not len(waiting):
            return
        chosen = round((1.0 - position) * (len(waiting) - 1))
        partition = int(waiting.partition[chosen])
        rows, numbers = waiting.take(waiting.partition == partition)
        master = desk.scan(partition)
        with desk.budget.hold(master.nbytes, "a partition of the table"):
            yield from desk.finish(rows, numbers["hash"].view(np.uint64), master)

    def renew(self) -> None:
        """Find the partitions of waiting rows again, because the table has changed."""
        self._desk.find_again(self.waiting)

    def meta(self) -> dict[str, object]:
        """No state besides the waiting rows."""
        return {}

    def _leave(self, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Iterator[Out]:
        if which.any():
            rows, _ = self.waiting.take(which)
            yield from self._desk.answers.alone(rows, np.arange(rows.num_rows))
            self._desk.stats.finished += rows.num_rows
