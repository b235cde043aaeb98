"""Broadcast: the whole table is held in memory, and every row is answered when it comes.

The table is read when a row first needs it, and is charged in full to the task that holds it. It stays in the process
for the next epoch if the host charges it to a task of that epoch (`hand_over`) and the version is still the same. A
table that does not fit raises an error, which no other method does.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from penstock.core.budget import show_bytes
from penstock.core.errors import BudgetError
from penstock.core.kept import Kept
from penstock.core.master import edition_of, master_schema
from penstock.core.operator import Out
from penstock.core.rows import Hashes, Indices, concat, hashes_of
from penstock.kernels.sort import stable_order
from penstock.operators.lookup.back import Desk
from penstock.operators.lookup.methods import BackMethod
from penstock.operators.lookup.slots import room_for
from penstock.operators.lookup.waiting import Waiting

_RESERVE = 4
"""The table leaves 1/_RESERVE of the memory to rows and their answers."""


@dataclass(frozen=True, slots=True)
class Broadcast(BackMethod):
    """Hold the whole table. `batch` is how many rows are answered at a time, by default as many as fit.

    >>> Broadcast().batch is None
    True
    """

    batch: int | None = None

    reads: ClassVar[Literal["all"]] = "all"


class WholeTableJoin:
    """The table, once it is read, and the rows that are answered next."""

    def __init__(self, settings: Broadcast, desk: Desk, waiting: Waiting, meta: Mapping[str, Any]) -> None:
        self._settings = settings
        self._desk = desk
        self.waiting = waiting
        self._held: pa.RecordBatch | None = None

    @property
    def at_once(self) -> bool:
        """A row never waits for others."""
        return len(self.waiting) > 0

    def put(self, rows: pa.RecordBatch, hashes: Hashes, attempts: Indices | int = 0) -> None:
        """Take rows to be answered next."""
        self.waiting.put(rows, hashes, np.zeros(rows.num_rows, np.int64), attempts)

    def free(self, rows: pa.RecordBatch) -> int:
        """How many more rows may be answered together. The table is read first, as it takes most of the memory."""
        self._whole()
        return max(1, self._settings.batch or room_for(rows, self._desk.budget, self.waiting)) - len(self.waiting)

    def answer(self, rows: pa.RecordBatch) -> Iterator[Out]:
        """Answer rows without waiting for a step; no earlier row may be waiting."""
        yield from self._desk.finish(rows, None, self._whole())

    def step(self, position: float = 1.0) -> Iterator[Out]:
        """Answer all waiting rows."""
        if not len(self.waiting):
            return
        master = self._whole()
        rows, numbers = self.waiting.take(np.ones(len(self.waiting), np.bool_))
        yield from self._desk.finish(rows, numbers["hash"].view(np.uint64), master)

    def renew(self) -> None:
        """Nothing to do: nothing is known of the table before it is read."""

    def meta(self) -> dict[str, object]:
        """No state besides the waiting rows."""
        return {}

    def _whole(self) -> pa.RecordBatch:
        """The rows of the table, ascending by hash."""
        if self._held is None:
            self._held = self._kept()
        return self._held

    def _kept(self) -> pa.RecordBatch:
        """The table as the last task left it here; or read now, and left for the next task if that can be charged."""
        edition, budget = edition_of(self._desk.table), self._desk.budget
        stays = edition is not None and _WHOLE.payer is budget
        known = _WHOLE.get(edition) if stays else None
        if known is not None:
            return known
        whole = self._read()
        size = whole.get_total_buffer_size()
        if not stays or not _WHOLE.put(edition, whole, size):
            budget.charge(size, _WHAT)
        return whole

    def _read(self) -> pa.RecordBatch:
        desk = self._desk
        self._check(desk.table.size.nbytes)
        parts: list[pa.RecordBatch] = []
        total = 0
        for partition in range(desk.table.partitions):
            parts.append(desk.scan(partition))
            total += parts[-1].nbytes
            self._check(total)
        # While the parts are concatenated, they are in memory twice.
        with desk.budget.hold(2 * total, _WHAT):
            whole = concat(parts, master_schema(desk.table.columns))
            del parts
            hashes = hashes_of(whole)
            if (hashes[1:] < hashes[:-1]).any():
                whole = whole.take(pa.array(stable_order(hashes)))
        return whole

    def _check(self, size: int) -> None:
        budget = self._desk.budget
        room = budget.room - budget.limit // _RESERVE
        if 2 * size > room:
            raise BudgetError(
                f"method='broadcast' holds the whole table in each task, {show_bytes(size)} or more, and as much again "
                f"while it is read, but only {show_bytes(max(0, room))} of this task's {show_bytes(budget.limit)} are "
                f"available. Give the flow more memory=, or write method='cinlj', which takes tables of any size."
            )


_WHAT = "the whole table"

_WHOLE: Kept[Hashable, pa.RecordBatch] = Kept()
