"""One stream's window in blocks: which of them are in memory, which on disk, and which joins they still owe.

A block is a page whose rows have met the same rows of the other stream. Every row is *born* at a tick: it meets the
blocks of the other stream that are in memory then. It owes a join to those that are not, until it is *settled*. A
block in memory is met by whoever is born during its *stay*. So a pair is owed iff the younger row is not settled and
was born outside the stays of the older one's block. That is all that must be known to join every pair exactly once,
whatever is written, read and thrown out of memory in between, and it is small enough to be kept with the pages.

The source keeps the same knowledge as block numbers (minBN, E, residency spans) and timestamps (ATS, DTS, last md, last
dd); ticks say it once for all its algorithms, and survive a change of shards: numbers from different shards never meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.pages import Debts, Page, PageStore, read_page, write_page
from penstock.core.rows import Indices, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.kernels.sort import page_order
from penstock.operators.window_join.pairing import Mask

FOREVER = 1 << 62
"""The end of a stay that is not over."""

_NOBODY = 0
"""The number of no block: rows in memory whose block has left, until they are swept."""

_ROW = 17
"""Bytes that a row in memory takes besides its columns: block, birth, mark."""

_LARGEST_SLAB = 1 << 16
"""Rows up to which slabs are merged."""


@dataclass(slots=True, eq=False)
class Block:
    """A block's place in the world; what changes with every join is in its window's arrays, at `number`."""

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


@dataclass(slots=True, eq=False)
class Slab:
    """Rows of some blocks, sorted as pages are: which block each is of, when it was born, whether it has met anyone.

    Births of rows that are settled do not matter and are 0.
    """

    batch: pa.RecordBatch
    numbers: Indices
    births: Indices
    met: Mask | None

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.numbers)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self.batch.nbytes) + _ROW * self.rows

    def order(self) -> Indices:
        """Where the rows are, as pages sort them."""
        return page_order(hashes_of(self.batch), times_of(self.batch))

    def sorted(self) -> Slab:
        """The same rows as pages sort them."""
        return self.take(self.order())

    def take(self, which: Indices) -> Slab:
        """Some of the rows, in the order given."""
        met = None if self.met is None else self.met[which]
        return Slab(self.batch.take(pa.array(which)), self.numbers[which], self.births[which], met)


def joined(slabs: Sequence[Slab]) -> Slab:
    """The rows of several slabs as one, one after the other."""
    if len(slabs) == 1:
        return slabs[0]
    met = None if slabs[0].met is None else np.concatenate([slab.met for slab in slabs])
    numbers, births = np.concatenate([s.numbers for s in slabs]), np.concatenate([s.births for s in slabs])
    return Slab(pa.concat_batches([slab.batch for slab in slabs]), numbers, births, met)


def merged(slabs: Sequence[Slab]) -> Slab:
    """The rows of several sorted slabs as one, sorted."""
    return slabs[0] if len(slabs) == 1 else joined(slabs).sorted()


class Window:
    """The blocks of one port.

    Arrays over all blocks, by number: `left` (the tick until which it was in memory from its birth on), `settled`,
    `newest` (its latest birth), `first` and `last` (times), `floor` (rows below have left), `productivity`, and whether
    it is `alive` and `resident`.
    """

    def __init__(
        self, port: int, store: PageStore, budget: Budget, keeps: bool, row: int | None, partitions: int = 1
    ) -> None:
        self.port = port
        self.resident_rows: Indices = np.zeros(partitions, np.int64)
        """Rows in memory, by partition."""
        self.blocks: dict[int, Block] = {}
        self.disk: dict[int, Block] = {}
        """Blocks that have a page, in the order in which they were written; some are in memory, too."""
        self.slabs: list[Slab] = []
        self._store = store
        self._budget = budget
        self._keeps = keeps
        self._row = row
        self._stays: dict[int, list[tuple[int, int]]] = {}
        self._holes = False
        self._next = 0
        self._allocate(64)
        self._next = 1 + _NOBODY
        self.settled[_NOBODY] = self.left[_NOBODY] = FOREVER

    def _allocate(self, count: int) -> None:
        def longer(name: str, kind: type, default: int = 0) -> npt.NDArray[np.generic]:
            grown: npt.NDArray[np.generic] = np.full(count, default, kind)
            if self._next:
                grown[: self._next] = getattr(self, name)[: self._next]
            return grown

        self.left: Indices = longer("left", np.int64)  # type: ignore[assignment]
        self.settled: Indices = longer("settled", np.int64)  # type: ignore[assignment]
        self.newest: Indices = longer("newest", np.int64)  # type: ignore[assignment]
        self.first: Indices = longer("first", np.int64, TIME_MAX)  # type: ignore[assignment]
        self.last: Indices = longer("last", np.int64, TIME_MIN)  # type: ignore[assignment]
        self.floor: Indices = longer("floor", np.int64, TIME_MIN)  # type: ignore[assignment]
        self.productivity: npt.NDArray[np.float64] = longer("productivity", np.float64)  # type: ignore[assignment]
        self.alive: Mask = longer("alive", np.bool_)  # type: ignore[assignment]
        self.resident: Mask = longer("resident", np.bool_)  # type: ignore[assignment]

    # Blocks come, stay in memory, leave it, and go

    def new(self, partition: int) -> Block:
        """An empty block in memory."""
        if self._next == len(self.alive):
            self._allocate(2 * self._next)
        block = Block(self._next, partition)
        self._next += 1
        self.blocks[block.number] = block
        self.alive[block.number] = self.resident[block.number] = True
        self.left[block.number] = FOREVER
        return block

    def size(self, rows: pa.RecordBatch) -> int:
        """What rows count against the memory of the windows."""
        return int(rows.nbytes) if self._row is None else self._row * int(rows.num_rows)

    def grow(self, block: Block, rows: int, size: int, birth: int, first: Time, last: Time) -> None:
        """Some rows are born into a block in memory; `add` brings the rows themselves."""
        number = block.number
        block.rows += rows
        block.size += size
        self.resident_rows[block.partition] += rows
        self.newest[number] = max(birth, int(self.newest[number]))
        self.first[number] = min(first, int(self.first[number]))
        self.last[number] = max(last, int(self.last[number]))

    def add(self, slab: Slab) -> None:
        """Rows of blocks that are in memory."""
        self.sweep()
        self._budget.charge(slab.nbytes, "blocks in memory")
        self.slabs.append(slab)
        while len(self.slabs) > 1 and self._mergeable(*self.slabs[-2:]):
            pair = self.slabs[-2:]
            with self._budget.hold(sum(part.nbytes for part in pair), "merging blocks in memory"):
                whole = merged(pair)
            self._budget.release(sum(part.nbytes for part in pair))
            self._budget.charge(whole.nbytes, "blocks in memory")
            self.slabs[-2:] = [whole]

    def _mergeable(self, older: Slab, newer: Slab) -> bool:
        """Each slab is at least twice its successor, so that a row is copied few times and slabs are few."""
        rows, size = older.rows + newer.rows, older.nbytes + newer.nbytes
        return 2 * newer.rows > older.rows and rows <= _LARGEST_SLAB and 8 * size <= self._budget.room

    def load(self, block: Block, slab: Slab, tick: int) -> None:
        """Bring a block from disk, read into `slab`, into memory: those who are born from `tick` on will meet it."""
        self.resident[block.number] = True
        self.resident_rows[block.partition] += block.rows
        self._stays.setdefault(block.number, []).append((tick, FOREVER))
        self.add(slab.take(np.flatnonzero(slab.numbers == block.number)))

    def unite(self, blocks: Sequence[Block]) -> Block:
        """Blocks of one partition and floor, in memory since their birth, as one; settled births are forgotten."""
        first, numbers = blocks[0], [block.number for block in blocks]
        self.unwrite(first)
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
            self.unwrite(block)
            self.resident[block.number] = self.alive[block.number] = False
            self.newest[block.number] = 0
            del self.blocks[block.number]
        return first

    def everyone_met(self, block: Block) -> None:
        """All that were born so far have met this block, which stays in memory from now on."""
        self.left[block.number] = FOREVER
        self._stays.pop(block.number, None)

    def evict(self, block: Block, tick: int) -> None:
        """A block leaves memory; it must have a page."""
        number = block.number
        if block.page is None:
            raise AssertionError(f"block {number} would be lost")
        self.save_marks(block)
        self._leave(number, tick)
        block.role = "disk"

    def _leave(self, number: int, tick: int) -> None:
        if self.resident[number]:
            self.resident_rows[self.blocks[number].partition] -= self.blocks[number].rows
        self.resident[number] = False
        self._holes = True
        for slab in self.slabs:
            slab.numbers[slab.numbers == number] = _NOBODY
        if self.left[number] == FOREVER:
            self.left[number] = tick
        if stays := self._stays.get(number):
            stays[-1] = (stays[-1][0], min(tick, stays[-1][1]))

    def drop(self, block: Block) -> None:
        """A block is over."""
        number = block.number
        self._leave(number, 0)
        self.newest[number] = 0
        self.alive[number] = False
        self._stays.pop(number, None)
        self.blocks.pop(number)
        self.disk.pop(number, None)
        if block.page is not None:
            for name in (block.page.name, block.page.marks, block.births):
                if name is not None:
                    self._store.drop(name)

    def sweep(self) -> None:
        """Give back the memory of rows whose block has left: at once where a slab is empty, else from a quarter on."""
        if not self._holes:
            return
        self._holes = False
        kept: list[Slab] = []
        for slab in self.slabs:
            here = self.resident[slab.numbers]
            count = int(np.count_nonzero(here))
            if 4 * count > 3 * slab.rows:
                kept.append(slab)
                continue
            self._budget.release(slab.nbytes)
            if count:
                smaller = slab.take(np.flatnonzero(here))
                self._budget.charge(smaller.nbytes, "blocks in memory")
                kept.append(smaller)
        self.slabs = kept

    def release(self) -> None:
        """Give all memory back."""
        for slab in self.slabs:
            self._budget.release(slab.nbytes)
        self.slabs = []

    # Pages

    def extract(self, block: Block) -> Slab:
        """The rows of a block in memory."""
        found = [(slab, np.flatnonzero(slab.numbers == block.number)) for slab in self.slabs]
        return merged([slab.take(which) for slab, which in found if which.size])

    def dump(self, block: Block, segment: str) -> None:
        """Write a block that is in memory and stays there for now."""
        if block.page is not None:
            return
        slab = self.extract(block)
        with self._budget.hold(slab.nbytes, "writing a block"):
            block.page = write_page(self._store, self.port, slab.batch, segment=segment)
            self.disk[block.number] = block
            self._put_marks(block, slab.met)

    def save_births(self, block: Block) -> None:
        """Remember, beside a block's page, when its rows were born, if some are fresh and not all of one age."""
        if block.births is None and self.is_fresh(block):
            births = self.extract(block).births
            if births.min() < births.max():
                block.births = self._store.put(pa.record_batch({"born": births}))

    def unwrite(self, block: Block) -> None:
        """A block in memory takes more rows: what was written of it is not all of it any more."""
        page = block.page
        if page is not None:
            for name in (page.name, page.marks, block.births):
                if name is not None:
                    self._store.drop(name)
            block.page, block.births, block.marked = None, None, 0
            del self.disk[block.number]

    def read(self, blocks: Sequence[Block]) -> Slab:
        """The rows of blocks from disk; the caller answers for the memory."""
        return merged([self._read(block) for block in blocks])

    def _read(self, block: Block) -> Slab:
        page = block.page
        if page is None:
            raise AssertionError(f"block {block.number} is not on disk")
        batch = read_page(self._store, page)
        births = np.full(page.rows, self.newest[block.number], np.int64)
        if block.births is not None:
            births = self._store.get(block.births).column(0).to_numpy()[page.begin : page.end].copy()
        return Slab(batch, np.full(page.rows, block.number, np.int64), births, self._read_marks(page))

    def _read_marks(self, page: Page) -> Mask | None:
        if not self._keeps:
            return None
        if page.marks is None:
            return np.zeros(page.rows, np.bool_)
        marks: Mask = self._store.get(page.marks).column(0).to_numpy(zero_copy_only=False)[page.begin : page.end].copy()
        return marks

    def save_marks(self, block: Block, slab: Slab | None = None) -> None:
        """Remember who has met a partner, from `slab` or from memory, if more have than its page says."""
        if self._keeps:
            slab = slab or self.extract(block)
            met = slab.met[slab.numbers == block.number]  # type: ignore[index]
            self._put_marks(block, met)

    def _put_marks(self, block: Block, met: Mask | None) -> None:
        page = block.page
        if met is None or page is None or (count := int(np.count_nonzero(met))) == block.marked:
            return
        block.marked = count
        if page.marks is not None:
            self._store.drop(page.marks)
        whole = np.concatenate([np.zeros(page.begin, np.bool_), met])
        name = self._store.put(pa.RecordBatch.from_arrays([pa.array(whole)], names=["met"]))
        block.page = replace(page, marks=name)

    def take_up(self, page: Page, room: int, tick: int) -> Block:
        """A page of the state before, in memory again if it was and there is room; else it left at `tick`."""
        block = self.new(page.min_hash % len(self.resident_rows))
        number, debts = block.number, page.debts or Debts()
        block.rows, block.size = page.rows, page.nbytes if self._row is None else self._row * page.rows
        block.page, block.births = page, debts.births
        block.mixed = len(self.resident_rows) not in (1, debts.partitions)
        block.role = debts.role
        self.disk[number] = block
        self.newest[number], self.settled[number] = debts.born, debts.settled
        self.first[number], self.last[number], self.floor[number] = page.min_time, page.max_time, page.floor
        self.productivity[number] = debts.productivity
        stays = [stay for stay in debts.stays if stay[0]]
        self.left[number] = next((until for since, until in debts.stays if not since), 0)
        if stays:
            self._stays[number] = stays
        marks = None if page.marks is None else self._read_marks(page)
        block.marked = 0 if marks is None else int(np.count_nonzero(marks))
        stayed = any(until == FOREVER for _, until in debts.stays)
        if stayed and block.size <= room:
            self.resident_rows[block.partition] += block.rows
            self.add(self._read(block))
        else:
            self.resident[number] = False
            self._leave(number, tick)
            block.role = "disk"
        return block

    def keep_waiting(self, slab: Slab) -> Page:
        """Rows that have met nobody yet, as a page that says so."""
        slab = slab.sorted()
        block = Block(-1, 0, page=write_page(self._store, self.port, slab.batch))
        self._put_marks(block, slab.met)
        if block.page is None:
            raise AssertionError("a page was just written")
        return replace(block.page, debts=Debts(role="waiting"))

    def read_waiting(self, page: Page) -> Slab:
        """Such rows again; the page is over."""
        zeros = np.zeros(page.rows, np.int64)
        slab = Slab(read_page(self._store, page), zeros, zeros, self._read_marks(page))
        for name in (page.name, page.marks):
            if name is not None:
                self._store.drop(name)
        return slab

    def described(self, block: Block, since: int) -> Page:
        """The page of a block for the state; stays that were over by tick `since` matter to nobody."""
        number = block.number
        if block.page is None:
            raise AssertionError(f"block {number} has no page")
        stays = [(0, int(self.left[number]))] if self.left[number] else []
        stays += self._stays.get(number, [])
        debts = Debts(
            born=int(self.newest[number]),
            births=block.births if self.newest[number] > self.settled[number] else None,
            settled=int(self.settled[number]),
            stays=tuple(stay for stay in stays if stay[1] > since),
            role=block.role,
            partitions=0 if block.mixed else len(self.resident_rows),
            productivity=float(self.productivity[number]),
        )
        return replace(block.page, floor=int(self.floor[number]), debts=debts)

    # Who owes what

    def is_fresh(self, block: Block) -> bool:
        """Whether some row of a block is not settled."""
        return bool(self.newest[block.number] > self.settled[block.number])

    def fresh(self) -> list[Block]:
        """The blocks with rows that are not settled."""
        return [self.blocks[n] for n in np.flatnonzero(self.alive & (self.newest > self.settled)).tolist()]

    def fresh_rows(self) -> list[tuple[Slab, Indices]]:
        """The slabs in memory that hold rows that are not settled, and where."""
        found = [(slab, np.flatnonzero(slab.births > self.settled[slab.numbers])) for slab in self.slabs]
        return [(slab, which) for slab, which in found if which.size]

    def settle(self, blocks: Iterable[Block], tick: int) -> None:
        """These blocks owe nothing any more."""
        for block in blocks:
            self.settled[block.number] = tick
            if block.births is not None:
                self._store.drop(block.births)
                block.births = None

    def covers(self, numbers: Indices, births: Indices) -> Mask:
        """Which births fell into a stay of the block beside them."""
        met: Mask = births < self.left[numbers]
        for number in self._stays.keys() & set(np.unique(numbers[~met]).tolist()) if self._stays else ():
            here = np.flatnonzero(numbers == number)
            for since, until in self._stays[number]:
                met[here] |= (births[here] >= since) & (births[here] < until)
        return met

    def living(self, slab: Slab) -> list[tuple[Block, int]]:
        """The blocks in a slab, and how many of their rows have not left yet."""
        here = times_of(slab.batch) >= self.floor[slab.numbers]
        numbers, counts = np.unique(slab.numbers[here], return_counts=True)
        return [(self.blocks[number], rows) for number, rows in zip(numbers.tolist(), counts.tolist(), strict=True)]

    def missed(self, block: Block, births: Indices) -> int:
        """How many of some births, ascending, fell outside the stays of a block."""
        stays = ((0, int(self.left[block.number])), *self._stays.get(block.number, ()))
        met = sum(int(births.searchsorted(until) - births.searchsorted(since)) for since, until in stays)
        return len(births) - met

    def met_all(self, block: Block, oldest: int, newest: int) -> bool:
        """Whether all births from `oldest` to `newest` fell into one stay of a block."""
        number = block.number
        if newest < self.left[number]:
            return True
        return any(since <= oldest and newest < until for since, until in self._stays.get(number, ()))

    def forget_stays(self, before: int) -> None:
        """Stays that were over by tick `before` matter to nobody: all who were born earlier are settled."""
        self.left[self.left <= before] = 0
        for number, stays in list(self._stays.items()):
            self._stays[number] = [stay for stay in stays if stay[1] > before]
            if not self._stays[number]:
                del self._stays[number]

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks.values())


def owed(me: Window, mine: Slab, i: Indices, other: Window, theirs: Slab, j: Indices) -> Mask:
    """Which pairs my rows owe to theirs: mine are not settled, and were born while theirs were out of memory."""
    births = mine.births[i]
    owing: Mask = births > me.settled[mine.numbers[i]]
    owing &= ~other.covers(theirs.numbers[j], births)
    return owing
