"""Blocks of the table that are kept in memory by utility: how many rows each has answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from penstock.core.operator import Out
from penstock.operators.lookup.areas import Areas
from penstock.operators.lookup.back import Desk
from penstock.operators.lookup.segments import Segments, Worth, keep_by_utility
from penstock.operators.lookup.waiting import Waiting


class UsefulBlocks:
    """The rows that wait for blocks, and the blocks in memory: up to `most`, or as many as fit."""

    def __init__(self, desk: Desk, waiting: Waiting, most: int | None, meta: Mapping[str, Any]) -> None:
        self._desk = desk
        self._most = most
        self.segments = Segments(desk, most=most, recall=(place for place, _ in meta.get("kept", ())))
        self.areas = Areas(desk, waiting, self.segments)
        self.utility: Worth = np.zeros(desk.table.partitions)
        for place, utility in meta.get("kept", ()):
            if place < self.utility.size:
                self.utility[place] = utility

    def answer(self) -> Iterator[Out]:
        """Answer rows whose block is in memory, and finish those whose key the table lacks."""
        self.segments.tidy(self.utility)
        yield from self.areas.leave()
        here = self.areas.here
        self.utility += np.bincount(self.areas.waiting.partition[here], minlength=self.utility.size)
        yield from self.areas.answer(here)

    def read(self, block: int) -> Iterator[Out]:
        """Read a block unless it is in memory, answer all rows that wait for it, and keep it if it is useful enough."""
        self.segments.tidy(self.utility)
        if block < 0:
            yield from self.areas.leave()
            return
        self.utility[block] += np.count_nonzero(self.areas.waiting.partition == block)
        rows = yield from self.areas.fetch(block)
        if self._most != 0:
            keep_by_utility(self.segments, self.utility, block, rows)

    def renew(self) -> None:
        """Find the blocks of waiting rows again, because the table has changed."""
        self.areas.renew()
        if self.utility.size != self._desk.table.partitions:
            self.utility = np.zeros(self._desk.table.partitions)
            self.segments.recall = set()

    def meta(self) -> dict[str, object]:
        """Which blocks were in memory, without their rows, and how useful they were."""
        kept = sorted({*self.segments.ids.tolist(), *self.segments.recall})
        return {"kept": [(place, float(self.utility[place])) for place in kept]}
