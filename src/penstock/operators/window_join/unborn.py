"""Rows on their way into a window: those that wait for a full block, and the blocks that are not full yet."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from penstock.core.budget import Budget
from penstock.core.rows import Indices, times_of
from penstock.core.time import Time
from penstock.kernels.sort import stable_order
from penstock.operators.window_join.blocks import Block
from penstock.operators.window_join.slabs import Slab, joined
from penstock.operators.window_join.window import Window


class Unborn:
    """Rows of one port that wait to be born with others of their partition, charged to the budget."""

    def __init__(self, window: Window, budget: Budget) -> None:
        self._window = window
        self._budget = budget
        self.slabs: list[Slab] = []
        self.sizes = np.zeros(len(window.resident_rows))
        """What they count, by partition."""

    def add(self, slab: Slab) -> None:
        """Let rows wait."""
        self._budget.charge(slab.nbytes, "rows waiting for a full block")
        self.slabs.append(slab)
        each = self._window.size(slab.batch) / slab.rows
        self.sizes += each * np.bincount(self._window.partitions_of(slab.batch), minlength=self.sizes.size)

    def take(self) -> list[Slab]:
        """What waits, as one slab if there is any, and nothing waits any more."""
        if not self.slabs:
            return []
        size = sum(slab.nbytes for slab in self.slabs)
        with self._budget.hold(size, "rows that waited"):
            taken = [joined(self.slabs)]
        self._budget.release(size)
        self.slabs.clear()
        self.sizes[:] = 0
        return taken

    def sort(self) -> list[Slab]:
        """What waits, as one sorted slab if there is any; it goes on waiting."""
        if self.slabs:
            self.slabs[:] = [joined(self.slabs).sorted()]
        return self.slabs

    def reaches(self, edge: Time) -> bool:
        """Whether some that wait are from before `edge`."""
        return any(int(times_of(slab.batch).min()) < edge for slab in self.slabs)


class OpenBlocks:
    """The blocks of one port that rows are still born into, up to `page` bytes: one for each partition."""

    def __init__(self, window: Window, page: int, placed: Callable[[Block], None]) -> None:
        self._window = window
        self._page = page
        self._placed = placed
        self.blocks: dict[int, Block] = {}

    def keep_open(self, block: Block) -> None:
        """A block of the state before may take more rows, if it is not full."""
        if block.role == "recent" and block.size < self._page - 1 and not block.mixed:
            self.blocks[block.partition] = block

    def close(self, block: Block) -> None:
        """Nothing more is born into a block."""
        if self.blocks.get(block.partition) is block:
            del self.blocks[block.partition]

    def full(self, sizes: npt.NDArray[np.float64]) -> Indices:
        """The partitions whose open block such sizes more would fill."""
        sizes = sizes.copy()
        for partition, block in self.blocks.items():
            sizes[partition] += block.size
        return np.flatnonzero(sizes >= self._page)

    def place(self, arrivals: Slab, tick: int, *, apart: bool) -> None:
        """Give each row its block, in order of time: the open one of its partition until it is full, then new ones.

        Rows that stay `apart` get blocks of their own.
        """
        window, times, partitions = self._window, times_of(arrivals.batch), self._window.partitions_of(arrivals.batch)
        into: dict[int, Block] = {} if apart else self.blocks
        each = window.size(arrivals.batch) / arrivals.rows
        numbers = np.empty(arrivals.rows, np.int64)
        for partition in np.unique(partitions).tolist():
            rows = np.flatnonzero(partitions == partition)
            rows = rows[stable_order(times[rows])]
            while rows.size:
                block = into.get(partition)
                if block is None:
                    block = into[partition] = window.new(partition)
                    self._placed(block)
                some = rows[: max(1, int((self._page - block.size) / each + 0.999))]
                rows = rows[some.size :]
                numbers[some] = block.number
                first, last = int(times[some[0]]), int(times[some[-1]])
                window.grow(block, some.size, max(1, round(each * some.size)), tick, first, last)
                if block.size >= self._page - 1:
                    del into[partition]
        window.add(Slab(arrivals.batch, numbers, np.full(arrivals.rows, tick, np.int64), arrivals.met))
