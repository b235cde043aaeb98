"""Adaptive Hash-partitioned EWJ (AH-EWJ): EWJ by partitions, with memory where it yields most.

Rows wait for a full block of their partition before they meet the other stream's blocks. Both streams share the recent
memory, which shifts to the slower one, whose rows are met by more arrivals. The oldest block of the least productive
partition leaves it first; blocks are written in trains, partition by partition, so that the disk sees long sequential
writes and blocks stay nearly in the order of their birth.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Granularity, Meter
from penstock.core.operator import Out, State
from penstock.core.pages import PageStore
from penstock.core.rows import Indices, RowType
from penstock.core.time import TIME_MIN
from penstock.core.within import LEFT, RIGHT
from penstock.operators.window_join.blocks import Block
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.methods import AhEwj
from penstock.operators.window_join.segments import SegmentedJoin


class AHEWJoin(SegmentedJoin):
    """AH-EWJ on one shard (spec: exact-window-joins §2.4, corrected by §6.1; 000-20…000-27)."""

    granularity: Granularity = "block"

    def __init__(
        self,
        config: WindowJoin,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        settings: AhEwj,
        meter: Meter | None = None,
    ) -> None:
        self._gain = settings.gain
        self._decay = settings.decay
        super().__init__(config, inputs, store, budget, state, settings, meter)
        self.recent_size = int(settings.recent * self.memory)
        self.least_size = int(settings.least * self.recent_size)
        self._fresh_limit = settings.probe * self.least_size
        self.flush_blocks = max(1, (settings.flush or self.chunk) // self.page)
        self.train = settings.train * self.flush_blocks
        self.dumped = [1 + len(window.blocks) for window in self.windows]
        """Blocks that went to disk, or past it, by port: the number that the next one in order would have."""
        self.train_limits = list(self.dumped)
        self._cursors = [0, 0]
        self._count_epoch = self._steps(settings.count_epoch, "10 s")
        counts = state.meta.get("blocks", [0.0, 0.0])
        self.arrivals = [float(count) for count in counts]
        """Blocks born of late, by port; older ones count less."""
        self._counted = int(state.meta.get("counted", TIME_MIN))

    def _remember(self) -> dict[str, object]:
        return {**super()._remember(), "blocks": self.arrivals, "counted": self._counted}

    # Waiting and birth

    def _arrive(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Rows wait; those of partitions that fill a block are born."""
        return self._gather(port, rows)

    def _born(self, port: int, counts: Indices) -> Iterator[Out]:
        window = self.windows[port]
        self._count_arrivals(port)
        if sum(block.size for block in window.fresh()) >= self._fresh_limit:
            yield from self.settle(port)

    def _placed(self, port: int, block: Block) -> None:
        super()._placed(port, block)
        if hasattr(self, "arrivals"):
            self.arrivals[port] += 1

    def _count_arrivals(self, port: int) -> None:
        now = self._now()
        if self._counted == TIME_MIN:
            self._counted = now
        elif now - self._counted >= max(1, self._count_epoch):
            self._counted = now
            self.arrivals = [count * self._decay for count in self.arrivals]

    # Memory

    def _beats(self, productivity: float, least: float) -> bool:
        return productivity > (1 + self._gain) * least

    def recent_bytes(self, port: int) -> int:
        """What the recent blocks of a port count."""
        return sum(block.size for block in self.recent_blocks(port))

    def _make_room(self, port: int, size: int) -> Iterator[Out]:
        while (total := self.recent_bytes(LEFT) + self.recent_bytes(RIGHT)) and total + size > self.recent_size:
            yield from self._evict_recent(port)

    def _evict_recent(self, port: int) -> Iterator[Out]:
        """One block leaves the recent memory: of the other stream if that can spare it."""
        victim = 1 - port if self._can_supply(1 - port) or not self.recent_blocks(port) else port
        window = self.windows[victim]
        if not self._flushed(victim) and not self._stale(victim):
            yield from self.settle(victim)
        if not self._flushed(victim):
            if self._bypass(victim):
                return
            self.dump(victim, min(self.flush_blocks, len(self._stale(victim))))
        block = self._victim(victim)
        self.recent[victim][block.partition].remove(block)
        self._open[victim].close(block)
        if self._deserves(victim, block) and self._make_frequent_room(victim, block):
            block.role = "frequent"
            self.frequent[victim][block.number] = block
        else:
            window.evict(block, self._tick + 1)

    def _can_supply(self, port: int) -> bool:
        """Eq 5.1, corrected: the faster stream, above its least memory, with blocks that need no settling."""
        much = self.arrivals[port] >= (1 + self._gain) * self.arrivals[1 - port]
        return much and self.recent_bytes(port) > self.least_size and bool(self._flushed(port) or self._stale(port))

    def _flushed(self, port: int) -> list[Block]:
        """Recent blocks that are on disk and owe nothing."""
        window = self.windows[port]
        return [b for b in self.recent_blocks(port) if b.page is not None and not window.is_fresh(b)]

    def _stale(self, port: int) -> list[Block]:
        """Recent blocks that owe nothing and are not on disk."""
        window = self.windows[port]
        return [b for b in self.recent_blocks(port) if b.page is None and not window.is_fresh(b)]

    def _victim(self, port: int) -> Block:
        """The oldest flushed block of the partition whose recent blocks are least productive (000-24)."""
        productivity = self.windows[port].productivity
        flushed: dict[int, Block] = {}
        for block in self._flushed(port):
            flushed.setdefault(block.partition, block)

        def yields(partition: int) -> float:
            return float(np.mean([productivity[block.number] for block in self.recent[port][partition]]))

        return flushed[min(flushed, key=lambda partition: (yields(partition), partition))]

    def _bypass(self, port: int) -> bool:
        """While nothing is on disk and the window's end has room, the oldest stale block goes there unwritten."""
        window = self.windows[port]
        if any(not window.resident[number] for number in window.disk):
            return False
        block = min(self._stale(port), key=lambda b: b.number)
        if sum(b.size for b in self.leaving[port].values()) + block.size > self.leaving_size:
            return False
        self._open[port].close(block)
        self.recent[port][block.partition].remove(block)
        window.stays.join(block.number)
        self.leaving[port][block.number] = block
        block.role = "leaving"
        self.dumped[port] += 1
        return True

    # Trains

    def dump(self, port: int, count: int) -> None:
        """Append stale blocks to disk, a partition at a time, none of a later train before this one is through."""
        for _ in range(count):
            while self.dumped[port] >= self.train_limits[port]:
                self.train_limits[port] += self.train
            while (block := self._next_of_train(port)) is None:
                self.train_limits[port] += self.train
            self._open[port].close(block)
            self.windows[port].dump(block, self._segment(port, block))
            self.dumped[port] += 1

    def _next_of_train(self, port: int) -> Block | None:
        """From the partition that the last block was of, cyclically: the first with a stale block of this train."""
        oldest: dict[int, Block] = {}
        for block in self._stale(port):
            oldest.setdefault(block.partition, block)
        for step in range(self.partitions):
            first = oldest.get((self._cursors[port] + step) % self.partitions)
            if first is not None and first.number < self.train_limits[port]:
                self._cursors[port] = first.partition
                return first
        return None

    def _gone(self, port: int, block: Block) -> None:
        if block.page is None and block.role == "recent":
            self.dumped[port] += 1
        super()._gone(port, block)
