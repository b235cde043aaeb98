"""The partition-based join: rows are tried against pages in memory, and wait by partition if that fails.

A partition is read when its waiting area is large, or when a row has waited for too long; it stays in memory if it
has answered more rows than one that is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.operator import Out
from penstock.core.rows import Hashes, Indices
from penstock.operators.lookup.back import Desk
from penstock.operators.lookup.baselines.useful import UsefulBlocks
from penstock.operators.lookup.methods import BackMethod
from penstock.operators.lookup.slots import room_for
from penstock.operators.lookup.waiting import Waiting

_AT_LEAST = 4
"""Rows enter only if more than 1/_AT_LEAST of the slots are free: to try a few takes as long as to try many."""


@dataclass(frozen=True, slots=True)
class PartitionBased(BackMethod):
    """Read a partition when `area` rows wait for it; keep `cache_pages` partitions, by default as many as fit.

    >>> PartitionBased(area=500, max_wait=100_000).area
    500
    """

    area: int = 1000
    max_wait: int | None = None
    """How many rows may arrive after a row before its partition must be read."""
    cache_pages: int | None = None


class WaitingAreasJoin:
    """The waiting areas, and the pages in memory."""

    def __init__(self, settings: PartitionBased, desk: Desk, waiting: Waiting, meta: Mapping[str, Any]) -> None:
        self._settings = settings
        self._desk = desk
        self.waiting = waiting
        self.blocks = UsefulBlocks(desk, waiting, settings.cache_pages, meta)
        self._came = int(meta.get("came", 0))
        self._untried = False

    @property
    def at_once(self) -> bool:
        """Whether rows have yet to be tried against the pages in memory, or a partition is due to be read."""
        return self._untried or self._due() is not None

    def put(self, rows: pa.RecordBatch, hashes: Hashes, attempts: Indices | int = 0) -> None:
        """Let rows wait; the next step tries them."""
        before = len(self.waiting)
        self.blocks.areas.put(rows, hashes, attempts)
        # This method needs no start partition: the column holds the number of the row in order of arrival instead.
        self.waiting.start[before:] = np.arange(self._came, self._came + rows.num_rows)
        self._came += rows.num_rows
        self._untried = True

    def free(self, rows: pa.RecordBatch) -> int:
        """How many rows may enter now: none before the last ones were tried, nor while a partition is due."""
        if self.at_once:
            return 0
        slots = room_for(rows, self._desk.budget, self.waiting)
        left = slots - len(self.waiting)
        return left if left > slots // _AT_LEAST else 0

    def step(self, position: float = 1.0) -> Iterator[Out]:
        """Try new rows, or read a partition that is due; if none is, read that of the row at `position`."""
        if self._untried:
            self._untried = False
            yield from self.blocks.answer()
            return
        due = self._due()
        yield from self.blocks.read(self.blocks.areas.chosen(position) if due is None else due)

    def renew(self) -> None:
        """Find the partitions of waiting rows again, because the table has changed."""
        self.blocks.renew()
        self._untried = True
        self._came = max(self._came, int(self.waiting.start.max(initial=-1)) + 1)

    def meta(self) -> dict[str, object]:
        """State: which pages were in memory, without their rows, how useful they were, and how many rows arrived."""
        return {**self.blocks.meta(), "came": self._came}

    def _due(self) -> int | None:
        areas, settings = self.blocks.areas, self._settings
        if not len(self.waiting):
            return None
        if settings.max_wait is not None:
            oldest = int(self.waiting.start.argmin())
            if self._came - 1 - int(self.waiting.start[oldest]) >= settings.max_wait:
                return int(self.waiting.partition[oldest])
        if (again := areas.recalled) is not None:
            return again
        sizes = areas.sizes
        return int(sizes.argmax()) if sizes.size and sizes.max() >= settings.area else None
