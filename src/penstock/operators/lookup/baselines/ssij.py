"""SSIJ, the semi-stream index join: rows gather, then meet blocks of the table in memory, then wait for other blocks.

*Pending*: rows gather until there are enough of them. *Online*: those whose block is in memory are answered, others go
to the stream buffer. *Join*: when it has too many rows, the block that most of them need is read. A block's utility
is how many rows it has answered; the most useful ones stay in memory.
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


@dataclass(frozen=True, slots=True)
class Ssij(BackMethod):
    """Gather `input_thr` rows, let up to `stream_thr` wait, keep `cache_blocks` blocks; by default what fits.

    >>> Ssij(input_thr=1000, stream_thr=5000, cache_blocks=10).cache_blocks
    10
    """

    input_thr: int | None = None
    stream_thr: int | None = None
    cache_blocks: int | None = None


class PhasedJoin:
    """The stream buffer, with pending rows at its end, and the blocks in memory."""

    def __init__(self, settings: Ssij, desk: Desk, waiting: Waiting, meta: Mapping[str, Any]) -> None:
        self._settings = settings
        self._desk = desk
        self.waiting = waiting
        self.blocks = UsefulBlocks(desk, waiting, settings.cache_blocks, meta)
        self._pending = int(meta.get("pending", 0))
        self._input_thr = settings.input_thr or int(meta.get("input_thr", 1))
        self._stream_thr = settings.stream_thr or int(meta.get("stream_thr", 1))

    @property
    def at_once(self) -> bool:
        """Whether enough rows are pending, or too many are in the stream buffer."""
        if self._pending:
            return self._pending >= self._input_thr
        return len(self.waiting) > self._stream_thr or self.blocks.areas.recalled is not None

    def put(self, rows: pa.RecordBatch, hashes: Hashes, attempts: Indices | int = 0) -> None:
        """Add rows to those that are pending."""
        self.blocks.areas.put(rows, hashes, attempts)
        self._pending += rows.num_rows

    def free(self, rows: pa.RecordBatch) -> int:
        """How many more rows may be pending; none while blocks have to be read."""
        if self.at_once:
            return 0
        slots = room_for(rows, self._desk.budget, self.waiting)
        self._input_thr = self._settings.input_thr or max(1, slots // 4)
        self._stream_thr = self._settings.stream_thr or max(1, slots // 2)
        return max(0, min(self._input_thr - self._pending, self._input_thr + self._stream_thr - len(self.waiting)))

    def step(self, position: float = 1.0) -> Iterator[Out]:
        """The online phase if rows are pending, else the join phase: one block is read."""
        if self._pending:
            self._pending = 0
            yield from self.blocks.answer()
        elif (again := self.blocks.areas.recalled) is not None:
            yield from self.blocks.read(again)
        elif len(self.waiting) > self._stream_thr:
            yield from self.blocks.read(int(np.argmax(self.blocks.areas.sizes)))
        else:
            yield from self.blocks.read(self.blocks.areas.chosen(position))

    def renew(self) -> None:
        """Find the blocks of waiting rows again, because the table has changed."""
        self.blocks.renew()
        self._pending = len(self.waiting)

    def meta(self) -> dict[str, object]:
        """State: how many rows are pending, the thresholds, which blocks were in memory, and how useful they were."""
        thresholds = {"input_thr": self._input_thr, "stream_thr": self._stream_thr}
        return {**self.blocks.meta(), **thresholds, "pending": self._pending}
