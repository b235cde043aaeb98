"""The deferred joins of RPWJ by partition: where the blocks are, and the yield and cost of joining them."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from penstock.core.rows import Indices
from penstock.core.within import LEFT, RIGHT
from penstock.operators.window_join.blocks import Block, BlockTable
from penstock.operators.window_join.methods import Rpwj


class PartitionBlocks:
    """The blocks of each port and partition, in memory and on disk."""

    def __init__(self, count: int) -> None:
        self.held: tuple[list[list[Block]], ...] = tuple([[] for _ in range(count)] for _ in (LEFT, RIGHT))
        """In memory, in the order of their birth."""
        self.flushed: tuple[list[list[Block]], ...] = tuple([[] for _ in range(count)] for _ in (LEFT, RIGHT))
        """On disk only."""
        self.mixed: tuple[list[Block], list[Block]] = ([], [])
        """On disk, of several partitions, by port."""
        self.runs: Indices = np.zeros((2, count), np.int64)
        """x: how many times a partition was flushed."""

    def on_disk(self, port: int, partition: int) -> list[Block]:
        """The blocks on disk that may have rows of a partition."""
        return self.flushed[port][partition] + self.mixed[port]

    def held_bytes(self) -> int:
        """What the blocks in memory count."""
        return sum(block.size for side in self.held for blocks in side for block in blocks)

    def flushed_bytes(self, port: int, partition: int) -> int:
        """What those of a partition on disk count."""
        return sum(block.size for block in self.flushed[port][partition])

    def remove(self, port: int, block: Block) -> None:
        """A block is over."""
        for blocks in (self.held[port][block.partition], self.flushed[port][block.partition], self.mixed[port]):
            if block in blocks:
                blocks.remove(block)


class Task(NamedTuple):
    """A deferred join of one partition: of the memory of `port` with the other's disk, or of both disks."""

    kind: Literal["md", "dd"]
    port: int
    partition: int


class Tasks:
    """The tasks, the pairs that each would join (Er), and the seconds that it would take (Et)."""

    def __init__(self, settings: Rpwj, blocks: PartitionBlocks) -> None:
        self._settings = settings
        self._blocks = blocks
        count = settings.partitions
        self.md = np.zeros((2, count))
        """Er of the md tasks: pairs not joined yet, whatever their selectivity."""
        self.dd = np.zeros(count)
        self.all = [Task("md", port, partition) for port in (LEFT, RIGHT) for partition in range(count)]
        self.all += [Task("dd", LEFT, partition) for partition in range(count)]

    def expect_anew(self, windows: tuple[BlockTable, BlockTable]) -> None:
        """Er from the blocks that are there."""
        for port, window in enumerate(windows):
            there = _rows(self._blocks.flushed[1 - port])
            self.md[port] = _rows(self._blocks.held[port], window) * there
            self.dd += _rows(self._blocks.flushed[port], window) * there

    def born(self, port: int, counts: Indices) -> None:
        """Rows were born, so many of each partition: they owe a join to what is on disk."""
        self.md[port] += counts * _rows(self._blocks.flushed[1 - port])

    def flushed(self, port: int, partition: int) -> None:
        """A partition went to disk: what its memory owed, its disk does."""
        self.dd[partition] += self.md[port, partition]
        self.md[port, partition] = 0

    def done(self, task: Task) -> None:
        """A task owes nothing."""
        if task.kind == "md":
            self.md[task.port, task.partition] = 0
        else:
            self.dd[task.partition] = 0

    def expected(self, task: Task) -> float:
        """Er: the pairs that a task would join."""
        return float(self.md[task.port, task.partition] if task.kind == "md" else self.dd[task.partition])

    def seconds(self, task: Task) -> float:
        """Et: what a task would take (4.1, 4.2, 4.3)."""
        if task.kind == "md":
            return self._scan_seconds(1 - task.port, task.partition, self._settings.read_memory)
        half = self._settings.read_memory / 2
        outer, inner = (self._scan_seconds(port, task.partition, half) for port in (LEFT, RIGHT))
        return outer + self._blocks.flushed_bytes(LEFT, task.partition) / half * inner

    def _scan_seconds(self, port: int, partition: int, buffer: float) -> float:
        size = self._blocks.flushed_bytes(port, partition)
        accesses = self._blocks.runs[port, partition] + size / buffer
        return float(accesses * self._settings.access_time + size / self._settings.read_rate)

    def best(self) -> Task | None:
        """The task with the most expected results per second (000-18); None if nothing is owed."""
        owing = [task for task in self.all if self.expected(task) > 0]
        return max(owing, key=lambda t: self.expected(t) / max(self.seconds(t), 1e-9), default=None)


def _rows(side: list[list[Block]], fresh_in: BlockTable | None = None) -> Indices:
    """Rows of the blocks of each partition; only of fresh ones if a window is given."""
    return np.array([sum(b.rows for b in blocks if fresh_in is None or fresh_in.is_fresh(b)) for blocks in side])
