"""Memory in segments, as EWJ and AH-EWJ divide it: recent blocks, frequent ones, and those about to leave.

Recent blocks are the newest; what follows them in age is on disk. Frequent blocks are productive ones from disk that
are kept in memory as well. The invalidation segment holds the oldest blocks, so that rows leave their window without a
look at the disk; it is refilled a basic window at a time.
"""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import PageStore
from penstock.core.rows import RowType
from penstock.core.time import TIME_MIN
from penstock.core.within import LEFT, RIGHT
from penstock.operators.window_join.blocks import Block
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.debts import fresh_births
from penstock.operators.window_join.deferring import DeferringJoin
from penstock.operators.window_join.methods import AhEwj, Ewj
from penstock.operators.window_join.slabs import Slab


class SegmentedJoin(DeferringJoin):
    """A join whose memory is recent, frequent and invalidation segments; subclasses say what leaves the recent one."""

    def __init__(
        self,
        config: WindowJoin,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        settings: Ewj | AhEwj,
        meter: Meter | None,
    ) -> None:
        self._settings: Ewj | AhEwj = settings
        self._choosing = False
        self.recent: tuple[dict[int, deque[Block]], dict[int, deque[Block]]] = ({}, {})
        """By partition, oldest first."""
        self.frequent: tuple[dict[int, Block], dict[int, Block]] = ({}, {})
        self.leaving: tuple[dict[int, Block], dict[int, Block]] = ({}, {})
        super().__init__(config, inputs, store, budget, state, settings, meter)
        half = self.memory / 2
        self.frequent_size, self.leaving_size = int(settings.frequent * half), int(settings.invalidation * half)
        self._gap = self._steps(settings.idle_gap, "15 s")

    def recent_blocks(self, port: int) -> list[Block]:
        """The recent blocks of all partitions, oldest first in each."""
        return [block for blocks in self.recent[port].values() for block in blocks]

    def settle(self, port: int) -> Iterator[Out]:
        """As ever; every few times the frequent blocks of the other stream are chosen anew."""
        before = self._probes[port]
        self._choosing = (before + 1) % self._settings.refresh == 0
        yield from super().settle(port)
        if self._choosing and self._probes[port] > before:
            self.windows[1 - port].productivity *= self._settings.decay
        self._choosing = False

    def _placed(self, port: int, block: Block) -> None:
        self.recent[port].setdefault(block.partition, deque()).append(block)

    def _gone(self, port: int, block: Block) -> None:
        self.frequent[port].pop(block.number, None)
        self.leaving[port].pop(block.number, None)
        blocks = self.recent[port].get(block.partition)
        if blocks and block in blocks:
            blocks.remove(block)

    def _taken_up(self, port: int, block: Block) -> None:
        if block.role == "recent":
            self._placed(port, block)
        elif block.role == "frequent":
            self.frequent[port][block.number] = block
        elif block.role == "leaving":
            self.leaving[port][block.number] = block
        elif self.windows[port].resident[block.number]:
            block.role = "recent"
            self._placed(port, block)

    def _probed(self, port: int, blocks: Sequence[Block], slab: Slab) -> None:
        """Choose frequent blocks among those read, once they have met all: never while others still wait (000-13)."""
        if not self._choosing:
            return
        window = self.windows[port]
        for block in [block for block in blocks if self._deserves(port, block)]:
            if self._make_frequent_room(port, block):
                window.load(block, slab, self._tick + 1)
                self.frequent[port][block.number] = block
                block.role = "frequent"

    def _deserves(self, port: int, block: Block) -> bool:
        """Whether a block is worth a place among the frequent ones."""
        if self._fits(port, block):
            return True
        least = self._least_productive(port)
        productivity = self.windows[port].productivity
        return least is not None and self._beats(productivity[block.number], productivity[least.number])

    def _fits(self, port: int, block: Block) -> bool:
        return _size(self.frequent[port].values()) + block.size <= self.frequent_size

    def _least_productive(self, port: int) -> Block | None:
        productivity = self.windows[port].productivity
        return min(self.frequent[port].values(), key=lambda b: (productivity[b.number], b.number), default=None)

    @abc.abstractmethod
    def _beats(self, productivity: float, least: float) -> bool:
        """Whether so many matches are enough more than the `least` to take that block's place."""

    def _make_frequent_room(self, port: int, block: Block) -> bool:
        """Let less productive blocks go until this one fits; False if it is not worth it after all."""
        while not self._fits(port, block):
            if not self._deserves(port, block):
                return False
            least = self._least_productive(port)
            if least is None:
                return False
            del self.frequent[port][least.number]
            self.windows[port].evict(least, self._tick + 1)
        return True

    def _refill(self, port: int) -> Iterator[Out]:
        """Bring the oldest basic window from disk once there is room for it; fresh rows meet it first (000-11)."""
        window, other = self.windows[port], self.windows[1 - port]
        step = max(1, min(self.chunk, self.leaving_size // 2))
        while self.leaving_size - _size(self.leaving[port].values()) >= step:
            blocks = self._oldest(port, step)
            if not blocks:
                return
            away = [block for block in blocks if not window.resident[block.number]]
            if away:
                with self._debts.reading(window, away) as theirs:
                    yield from self._join_refill(other.port, away, theirs)
                    for block in away:
                        window.load(block, theirs, self._tick + 1)
            for block in blocks:
                window.stays.join(block.number)
                self.frequent[port].pop(block.number, None)
                self.leaving[port][block.number] = block
                block.role = "leaving"

    def _join_refill(self, port: int, blocks: Sequence[Block], theirs: Slab) -> Iterator[Out]:
        """Fresh rows of `port` meet the blocks that come from disk."""
        me, other = self.windows[port], self.windows[1 - port]
        return self._debts.pay_to_disk(me, me.slabs, fresh_births(me), other, blocks, theirs)

    def _oldest(self, port: int, size: int) -> list[Block]:
        """The first blocks on disk, up to `size`, that are neither recent nor about to leave already."""
        blocks: list[Block] = []
        room = min(size, self.leaving_size - _size(self.leaving[port].values()))
        for block in self.windows[port].disk.values():
            if block.number in self.leaving[port]:
                continue
            if block.role == "recent" or block.size > room:
                break
            blocks.append(block)
            room -= block.size
        return blocks

    def _react(self, work: Allowance) -> Iterator[Out]:
        """Settle in quiet times, but not too often (000-26)."""
        now = self._now()
        if self._idled > TIME_MIN and now - self._idled < self._gap:
            return
        for port in (LEFT, RIGHT):
            if work.left() and self.windows[port].fresh():
                self._idled = now
                yield from self._quiet(port)

    def _quiet(self, port: int) -> Iterator[Out]:
        return self.settle(port)


def _size(blocks: Iterable[Block]) -> int:
    return sum(block.size for block in blocks)
