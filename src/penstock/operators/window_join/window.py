"""One stream's window in blocks: which of them are in memory, which on disk, and which joins they still owe.

A block is a page whose rows have met the same rows of the other stream. Every row is *born* at a tick: it meets the
blocks of the other stream that are in memory then. It owes a join to those that are not, until it is *settled*. A block
in memory is met by all rows born during its *stay*. So a pair is owed iff the younger row is not settled and was born
outside the stays of the older one's block. That is all it takes to join every pair exactly once, whatever is written,
read and evicted in between, and it is small enough to be stored with the pages.

The source keeps the same knowledge as block numbers (minBN, E, residency spans) and timestamps (ATS, DTS, last md, last
dd); ticks say it once for all its algorithms, and survive a change of shards: numbers from different shards never meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.pages import Debts, Page, PageStore
from penstock.core.rows import Indices, hashes_of, times_of
from penstock.core.time import Time
from penstock.operators.window_join.block_pages import BlockPages
from penstock.operators.window_join.blocks import Block, BlockTable
from penstock.operators.window_join.pairing import Mask
from penstock.operators.window_join.slabs import Slab, Slabs, merged
from penstock.operators.window_join.stays import FOREVER, Stays


class Window(BlockTable):
    """The blocks of one port: how they are created, stay in memory, leave it, and expire."""

    def __init__(
        self, port: int, store: PageStore, budget: Budget, keeps: bool, row: int | None, partitions: int = 1
    ) -> None:
        super().__init__()
        self.port = port
        self.resident_rows: Indices = np.zeros(partitions, np.int64)
        """Rows in memory, by partition."""
        self.disk: dict[int, Block] = {}
        """Blocks that have a page, in the order in which they were written; some are in memory, too."""
        self.slabs = Slabs(budget)
        self.stays = Stays()
        self.pages = BlockPages(port, store, keeps)
        self._budget = budget
        self._keeps = keeps
        self._row = row

    def size(self, rows: pa.RecordBatch) -> int:
        """What rows count against the memory of the windows."""
        return int(rows.nbytes) if self._row is None else self._row * int(rows.num_rows)

    def partitions_of(self, rows: pa.RecordBatch) -> Indices:
        """The partition of each row."""
        count = len(self.resident_rows)
        return (hashes_of(rows) % np.uint64(count)).astype(np.int64) if count > 1 else np.zeros(rows.num_rows, np.int64)

    # Memory

    def new(self, partition: int) -> Block:
        """An empty block in memory."""
        block = super().new(partition)
        self.stays.begin(block.number)
        return block

    def grow(self, block: Block, rows: int, size: int, birth: int, first: Time, last: Time) -> None:
        """Some rows are born into a block in memory; `add` brings the rows themselves."""
        self._unwrite(block)
        number = block.number
        block.rows += rows
        block.size += size
        self.resident_rows[block.partition] += rows
        self.newest[number] = max(birth, int(self.newest[number]))
        self.first[number] = min(first, int(self.first[number]))
        self.last[number] = max(last, int(self.last[number]))

    def add(self, slab: Slab) -> None:
        """Rows of blocks that are in memory."""
        self.slabs.sweep()
        self.slabs.add(slab)

    def load(self, block: Block, slab: Slab, tick: int) -> None:
        """Bring a block from disk, read into `slab`, into memory: those who are born from `tick` on will meet it."""
        self.resident[block.number] = True
        self.resident_rows[block.partition] += block.rows
        self.stays.begin_again(block.number, tick)
        self.add(slab.take(np.flatnonzero(slab.numbers == block.number)))

    def unite(self, blocks: Sequence[Block]) -> Block:
        """Blocks of one partition and floor, in memory since their birth, as one; settled births are forgotten."""
        first, numbers = blocks[0], [block.number for block in blocks]
        self._unwrite(first)
        for slab in self.slabs:
            ours = np.flatnonzero(np.isin(slab.numbers, numbers))
            slab.births[ours] *= slab.births[ours] > self.settled[slab.numbers[ours]]
            slab.numbers[ours] = first.number
        self.newest[first.number] = (self.newest[numbers] * (self.newest[numbers] > self.settled[numbers])).max()
        self.settled[first.number] = 0
        self.first[first.number], self.last[first.number] = self.first[numbers].min(), self.last[numbers].max()
        self.productivity[first.number] = self.productivity[numbers].sum()
        for block in blocks[1:]:
            first.rows, first.size = first.rows + block.rows, first.size + block.size
            self._unwrite(block)
            self.remove(block)
        return first

    def evict(self, block: Block, tick: int) -> None:
        """A block leaves memory; it must have a page."""
        if block.page is None:
            raise AssertionError(f"block {block.number} would be lost")
        self.save_marks(block)
        self._leave(block, tick)
        block.role = "disk"

    def drop(self, block: Block) -> None:
        """A block is over."""
        self._leave(block, 0)
        self.stays.drop(block.number)
        self.remove(block)
        self.disk.pop(block.number, None)
        self.pages.drop(block)

    def _leave(self, block: Block, tick: int) -> None:
        if self.resident[block.number]:
            self.resident_rows[block.partition] -= block.rows
        self.resident[block.number] = False
        self.slabs.disown(block.number)
        self.stays.end(block.number, tick)

    # Disk

    def dump(self, block: Block, segment: str) -> None:
        """Write a block that is in memory and stays there for now."""
        if block.page is not None:
            return
        slab = self.slabs.extract(block.number)
        with self._budget.hold(slab.nbytes, "writing a block"):
            self.pages.write(block, slab, segment)
            self.disk[block.number] = block

    def save_births(self, block: Block) -> None:
        """Remember, beside a block's page, when its rows were born, if some are fresh."""
        if block.births is None and self.is_fresh(block):
            self.pages.write_births(block, self.slabs.extract(block.number).births)

    def save_marks(self, block: Block, slab: Slab | None = None) -> None:
        """Remember who has met a partner, from `slab` or from memory."""
        if self._keeps:
            slab = slab or self.slabs.extract(block.number)
            self.pages.write_marks(block, slab.met[slab.numbers == block.number])  # type: ignore[index]

    def save_marks_of(self, blocks: Iterable[Block], slab: Slab) -> None:
        """The same of several blocks that were read into `slab`."""
        for block in blocks:
            self.save_marks(block, slab)

    def _unwrite(self, block: Block) -> None:
        """A block in memory takes more rows: what was written of it is not all of it any more."""
        self.pages.drop(block)
        self.disk.pop(block.number, None)

    def read(self, blocks: Sequence[Block]) -> Slab:
        """The rows of blocks from disk; the caller answers for the memory."""
        return merged([self.pages.read(block, int(self.newest[block.number])) for block in blocks])

    def unmet(self, oldest: int, newest: int) -> list[Block]:
        """The blocks that are only on disk and have not met all who were born from `oldest` to `newest`."""
        away = [block for block in self.disk.values() if not self.resident[block.number]]
        return [block for block in away if not self.stays.met_all(block.number, oldest, newest)]

    # State

    def take_up(self, page: Page, room: int, tick: int) -> Block:
        """A page of the state before, in memory again if it was and there is room; else it left at `tick`."""
        block = self.new(page.min_hash % len(self.resident_rows))
        number, debts = block.number, page.debts or Debts()
        block.rows, block.size = page.rows, page.nbytes if self._row is None else self._row * page.rows
        block.mixed = len(self.resident_rows) not in (1, debts.partitions)
        block.role = debts.role
        self.pages.take_up(block, page)
        self.disk[number] = block
        self.newest[number], self.settled[number] = debts.born, debts.settled
        self.first[number], self.last[number], self.floor[number] = page.min_time, page.max_time, page.floor
        self.productivity[number] = debts.productivity
        self.stays.restore(number, debts.stays)
        if block.size <= room and any(until == FOREVER for _, until in debts.stays):
            self.resident_rows[block.partition] += block.rows
            self.add(self.read([block]))
        else:
            self.resident[number] = False
            self._leave(block, tick)
            block.role = "disk"
        return block

    def described(self, block: Block, since: int) -> Page:
        """The page of a block for the state; stays that were over by tick `since` matter to nobody."""
        number = block.number
        if block.page is None:
            raise AssertionError(f"block {number} has no page")
        debts = Debts(
            born=int(self.newest[number]),
            births=block.births if self.is_fresh(block) else None,
            settled=int(self.settled[number]),
            stays=tuple(stay for stay in self.stays.of(number) if stay[1] > since),
            role=block.role,
            partitions=0 if block.mixed else len(self.resident_rows),
            productivity=float(self.productivity[number]),
        )
        return replace(block.page, floor=int(self.floor[number]), debts=debts)

    # Who owes what

    def fresh_rows(self) -> list[tuple[Slab, Indices]]:
        """The slabs in memory that hold rows that are not settled, and where."""
        found = [(slab, np.flatnonzero(slab.births > self.settled[slab.numbers])) for slab in self.slabs]
        return [(slab, which) for slab, which in found if which.size]

    def settle(self, blocks: Iterable[Block], tick: int) -> None:
        """These blocks owe nothing any more."""
        for block in blocks:
            self.settled[block.number] = tick
            self.pages.drop_births(block)

    def living(self, slab: Slab) -> list[tuple[Block, int]]:
        """The blocks in a slab, and how many of their rows have not left yet."""
        here = times_of(slab.batch) >= self.floor[slab.numbers]
        numbers, counts = np.unique(slab.numbers[here], return_counts=True)
        return [(self.blocks[number], rows) for number, rows in zip(numbers.tolist(), counts.tolist(), strict=True)]


def owed(me: Window, mine: Slab, i: Indices, other: Window, theirs: Slab, j: Indices) -> Mask:
    """Which pairs my rows owe to theirs: mine are not settled, and were born while theirs were out of memory."""
    births = mine.births[i]
    owing: Mask = births > me.settled[mine.numbers[i]]
    owing &= ~other.stays.cover(theirs.numbers[j], births)
    return owing
