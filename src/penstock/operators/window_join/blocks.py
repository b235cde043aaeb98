"""What is known about the blocks of a window, in memory or on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.pages import Page
from penstock.core.rows import Indices
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.operators.window_join.pairing import Mask
from penstock.operators.window_join.slabs import NOBODY
from penstock.operators.window_join.stays import FOREVER


@dataclass(slots=True, eq=False)
class Block:
    """Where a block is; what changes with every join is in its table's arrays, at `number`."""

    number: int
    partition: int
    role: str = "recent"
    rows: int = 0
    size: int = 0
    page: Page | None = None
    births: str | None = None
    marked: int = 0
    """How many rows its stored marks call met."""
    mixed: bool = False
    """Whether it may hold rows of several partitions: another method made it."""


class BlockTable:
    """Blocks by number, and arrays over all of them.

    `settled` and `newest` are ticks: the last settled birth, and the latest birth; `first` and `last` are times; rows
    below `floor` have left; `alive` and `resident` say whether a block exists, and is in memory.
    """

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        self._next = 0
        self._allocate(64)
        self._next = 1 + NOBODY
        self.settled[NOBODY] = FOREVER

    def _allocate(self, count: int) -> None:
        def longer(name: str, kind: type, default: int = 0) -> npt.NDArray[np.generic]:
            grown: npt.NDArray[np.generic] = np.full(count, default, kind)
            if self._next:
                grown[: self._next] = getattr(self, name)[: self._next]
            return grown

        self.settled: Indices = longer("settled", np.int64)  # type: ignore[assignment]
        self.newest: Indices = longer("newest", np.int64)  # type: ignore[assignment]
        self.first: Indices = longer("first", np.int64, TIME_MAX)  # type: ignore[assignment]
        self.last: Indices = longer("last", np.int64, TIME_MIN)  # type: ignore[assignment]
        self.floor: Indices = longer("floor", np.int64, TIME_MIN)  # type: ignore[assignment]
        self.productivity: npt.NDArray[np.float64] = longer("productivity", np.float64)  # type: ignore[assignment]
        self.alive: Mask = longer("alive", np.bool_)  # type: ignore[assignment]
        self.resident: Mask = longer("resident", np.bool_)  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks.values())

    def new(self, partition: int) -> Block:
        """An empty block in memory."""
        if self._next == len(self.alive):
            self._allocate(2 * self._next)
        block = Block(self._next, partition)
        self._next += 1
        self.blocks[block.number] = block
        self.alive[block.number] = self.resident[block.number] = True
        return block

    def remove(self, block: Block) -> None:
        """A block is over, or part of another."""
        self.resident[block.number] = self.alive[block.number] = False
        self.newest[block.number] = 0
        del self.blocks[block.number]

    def going(self, edge: Time) -> list[Block]:
        """The blocks with rows below `edge` that have not left yet."""
        going = self.alive & ((self.first < edge) | (edge == TIME_MAX)) & (self.floor < edge)
        return [self.blocks[number] for number in np.flatnonzero(going).tolist()]

    def is_fresh(self, block: Block) -> bool:
        """Whether some row of a block is not settled."""
        return bool(self.newest[block.number] > self.settled[block.number])

    def fresh(self) -> list[Block]:
        """The blocks with rows that are not settled."""
        return [self.blocks[n] for n in np.flatnonzero(self.alive & (self.newest > self.settled)).tolist()]
