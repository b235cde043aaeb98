"""Rate-based Progressive Window Join (RPWJ): hash partitions that are flushed whole, and joined from disk when idle.

Arrivals meet their partition's rows in memory. When memory is full, the partitions that the other stream's arrivals
want least are flushed, joined or not. What was not is made up for by tasks: memory with disk (md) and disk with disk
(dd), the one with the most expected results per second first when nothing arrives, and all of them at each slide,
before rows leave their window. The baseline that AH-EWJ is measured against.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import Page, PageStore
from penstock.core.rows import Indices, RowType, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.core.within import LEFT, RIGHT
from penstock.operators.window_join.blocks import Block, Slab, Window, owed
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.deferring import DeferringJoin
from penstock.operators.window_join.methods import Rpwj
from penstock.operators.window_join.pairing import Admit, Mask


class Task(NamedTuple):
    """A join of one partition that was put off: of the memory of `port` with the other's disk, or of both disks."""

    kind: Literal["md", "dd"]
    port: int
    partition: int


class RPWJoin(DeferringJoin):
    """RPWJ on one shard (spec: exact-window-joins §2.3, corrected by §6.1; 000-16…000-19)."""

    def __init__(
        self,
        config: WindowJoin,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        settings: Rpwj,
        meter: Meter | None = None,
    ) -> None:
        self._settings = settings
        self._slide = config.slide
        count = settings.partitions
        self.held: tuple[list[list[Block]], list[list[Block]]] = (
            [[] for _ in range(count)],
            [[] for _ in range(count)],
        )
        """Blocks in memory, by port and partition, in the order of their birth."""
        self.flushed: tuple[list[list[Block]], ...] = tuple([[] for _ in range(count)] for _ in (LEFT, RIGHT))
        """Blocks on disk only, by port and partition."""
        self._mixed: tuple[list[Block], list[Block]] = ([], [])
        self.runs: Indices = np.zeros((2, count), np.int64)
        """x: how many times a partition was flushed."""
        self.arrivals = np.array(state.meta.get("rows_born", np.zeros((2, count))), float).reshape(2, -1)
        """C: rows that arrived of late, by port and partition."""
        self.expected_md = np.zeros((2, count))
        """Er of the md tasks: pairs not joined yet, whatever their selectivity."""
        self.expected_dd = np.zeros(count)
        self.granularity: Literal["tuple", "block"] = "tuple"
        super().__init__(config, inputs, store, budget, state, settings, meter)
        if self.arrivals.shape != (2, count):
            self.arrivals = np.zeros((2, count))
        self._gap = self._steps(settings.idle_gap, "15 s")
        self._count_epoch = self._steps(settings.count_epoch, "10 s")
        self._counted = int(state.meta.get("counted", TIME_MIN))
        self._expect_anew()

    def _remember(self) -> dict[str, object]:
        return {**super()._remember(), "rows_born": self.arrivals.tolist(), "counted": self._counted}

    # Arrival: tuple by tuple while there is little to do, block by block while there is much

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """As ever; how many come at once decides how finely they are processed."""
        yield from self._settle_strangers()
        blocks = self.windows[port].size(rows) / self.page
        if blocks > self._settings.high_mark:
            self.granularity = "block"
        elif blocks < self._settings.low_mark and self.granularity == "block":
            self.granularity = "tuple"
            for either in (LEFT, RIGHT):
                yield from self._bear_waiting(either)
        yield from super().rows(port, rows)

    def _arrive(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        return self._gather(port, rows) if self.granularity == "block" else super()._arrive(port, rows)

    def _born(self, port: int, counts: Indices) -> Iterator[Out]:
        self.arrivals[port] += counts
        self.expected_md[port] += counts * self._rows(self.flushed[1 - port])
        now = self._now()
        if self._counted == TIME_MIN:
            self._counted = now
        elif now - self._counted >= max(1, self._count_epoch):
            self._counted = now
            self.arrivals *= self._settings.decay
        return iter(())

    def _placed(self, port: int, block: Block) -> None:
        self.held[port][block.partition].append(block)

    # Flushing

    def _make_room(self, port: int, size: int) -> Iterator[Out]:
        while (held := self._held_bytes()) and held + size > self.memory:
            self.flush()
        return iter(())

    def _held_bytes(self) -> int:
        return sum(block.size for side in self.held for blocks in side for block in blocks)

    def flush(self) -> None:
        """Flush whole partitions, those first that the other stream's arrivals look at least (000-17)."""
        freed = 0
        order = sorted((self.arrivals[i, p], i, p) for i in (LEFT, RIGHT) for p in range(self.partitions))
        for _, port, partition in order:
            if freed and freed >= self._settings.flush * self.memory:
                return
            freed += self._flush(1 - port, partition)

    def _flush(self, port: int, partition: int) -> int:
        window, blocks = self.windows[port], self.held[port][partition]
        if not blocks:
            return 0
        for block in blocks:
            self._close(port, block)
        size = sum(block.size for block in blocks)
        for together in self._writable(window, blocks):
            run = window.unite(together)
            window.dump(run, self._segment(port, run))
            window.save_births(run)
            window.evict(run, self._tick + 1)
            self.flushed[port][partition].append(run)
        self.held[port][partition] = []
        self.runs[port, partition] += 1
        self.expected_dd[partition] += self.expected_md[port, partition]
        self.expected_md[port, partition] = 0
        return size

    def _writable(self, window: Window, blocks: Sequence[Block]) -> list[list[Block]]:
        """Blocks to write as one page: of one floor, and no more than there is room to copy."""
        each = sum(slab.nbytes for slab in window.slabs) / max(1, sum(slab.rows for slab in window.slabs))
        limit = self._budget.room / 4 / max(1.0, each)
        runs: list[list[Block]] = []
        rows = 0.0
        for block in sorted(blocks, key=lambda b: int(window.floor[b.number])):
            rows += block.rows
            if not runs or rows > limit or window.floor[block.number] != window.floor[runs[-1][0].number]:
                runs.append([])
                rows = block.rows
            runs[-1].append(block)
        return runs

    def _segment(self, port: int, block: Block) -> str:
        return f"stream-{port}-{block.partition}"

    # Tasks

    def tasks(self) -> list[Task]:
        """Every task there is: 3 for each partition."""
        md = [Task("md", port, partition) for port in (LEFT, RIGHT) for partition in range(self.partitions)]
        return md + [Task("dd", LEFT, partition) for partition in range(self.partitions)]

    def expected(self, task: Task) -> float:
        """Er: the pairs that a task would join."""
        return float(
            self.expected_md[task.port, task.partition] if task.kind == "md" else self.expected_dd[task.partition]
        )

    def seconds(self, task: Task) -> float:
        """Et: what a task would take (4.1, 4.2, 4.3)."""
        if task.kind == "md":
            return self._scan_seconds(1 - task.port, task.partition, self._settings.read_memory)
        half = self._settings.read_memory / 2
        outer, inner = (self._scan_seconds(port, task.partition, half) for port in (LEFT, RIGHT))
        return outer + self._bytes(LEFT, task.partition) / half * inner

    def _scan_seconds(self, port: int, partition: int, buffer: float) -> float:
        size = self._bytes(port, partition)
        accesses = self.runs[port, partition] + size / buffer
        return float(accesses * self._settings.access_time + size / self._settings.read_rate)

    def best_task(self) -> Task | None:
        """The task with the most expected results per second (000-18); None if nothing is owed."""
        owing = [task for task in self.tasks() if self.expected(task) > 0]
        return max(owing, key=lambda t: self.expected(t) / max(self.seconds(t), 1e-9), default=None)

    def run_task(self, task: Task) -> Iterator[Out]:
        """Join what a task is about; it owes nothing then."""
        if task.kind == "md":
            yield from self._memory_with_disk(task.port, task.partition)
            self.expected_md[task.port, task.partition] = 0
        else:
            yield from self._disk_with_disk(task.partition)
            self.expected_dd[task.partition] = 0

    def _memory_with_disk(self, port: int, partition: int) -> Iterator[Out]:
        me, other = self.windows[port], self.windows[1 - port]
        fresh = [block for block in self.held[port][partition] if me.is_fresh(block)]
        if not fresh:
            return
        self._tick += 1
        births = self._fresh_births(me)
        for blocks in self._chunks(self._on_disk(1 - port, partition)):
            with self._read(other, blocks) as theirs:
                self._count_owed(births, other, theirs)
                for mine in me.slabs:
                    admit = self._of(partition, theirs, self._owed(me, mine, other, theirs, TIME_MAX))
                    yield from self._pairing.meet(port, mine.batch, mine.met, theirs.batch, theirs.met, admit)
                self._save_marks(other, blocks, theirs)
        me.settle(fresh, self._tick)

    def _disk_with_disk(self, partition: int) -> Iterator[Out]:
        """Nested loops over the blocks of both disks; either's fresh rows may owe the other's a join."""
        left, right = self.windows
        outer, inner = self._on_disk(LEFT, partition), self._on_disk(RIGHT, partition)
        fresh = [[b for b in self.flushed[w.port][partition] if w.is_fresh(b)] for w in self.windows]
        if not any(fresh):
            return
        self._tick += 1
        for some in self._chunks(outer):
            with self._read(left, some) as mine:
                for others in self._chunks(inner):
                    with self._read(right, others) as theirs:
                        self._count_owed_by_either(left, mine, right, theirs)
                        admit = self._of(partition, theirs, self._owed_by_either(left, mine, right, theirs))
                        yield from self._pairing.meet(LEFT, mine.batch, mine.met, theirs.batch, theirs.met, admit)
                        self._save_marks(right, others, theirs)
                self._save_marks(left, some, mine)
        for window, blocks in zip(self.windows, fresh, strict=True):
            window.settle(blocks, self._tick)

    def _count_owed_by_either(self, left: Window, mine: Slab, right: Window, theirs: Slab) -> None:
        """What nested loops would compare that leave out pairs which have met."""
        for me, slab, other, others in ((left, mine, right, theirs), (right, theirs, left, mine)):
            births = np.sort(slab.births[slab.births > me.settled[slab.numbers]])
            owing = sum(rows * other.missed(block, births) for block, rows in other.living(others))
            self._meter.compute(comparisons=owing)

    def _owed_by_either(self, left: Window, mine: Slab, right: Window, theirs: Slab) -> Admit:
        """Rows below their block's floor have met all on their way out."""
        here, there = times_of(mine.batch), times_of(theirs.batch)

        def admit(i: Indices, j: Indices) -> Mask:
            due: Mask = owed(left, mine, i, right, theirs, j) | owed(right, theirs, j, left, mine, i)
            due &= (here[i] >= left.floor[mine.numbers[i]]) & (there[j] >= right.floor[theirs.numbers[j]])
            self._meter.defer(int(np.count_nonzero(np.maximum(mine.births[i], theirs.births[j])[due] <= self._began)))
            return due

        return admit

    def _of(self, partition: int, theirs: Slab, admit: Admit) -> Admit:
        """Only pairs of one partition: blocks that another method left may hold several."""
        if not any(self._mixed):
            return admit
        ours = self._partitions(theirs.batch) == partition

        def both(i: Indices, j: Indices) -> Mask:
            due: Mask = ours[j]
            due[due] = admit(i[due], j[due])
            return due

        return both

    def _on_disk(self, port: int, partition: int) -> list[Block]:
        return self.flushed[port][partition] + self._mixed[port]

    def _save_marks(self, window: Window, blocks: Sequence[Block], slab: Slab) -> None:
        if slab.met is not None:
            for block in blocks:
                window.save_marks(block, slab)

    def settle(self, port: int) -> Iterator[Out]:
        """Stage 3: every task, whatever it yields; nothing is owed by either port then."""
        for task in self.tasks():
            yield from self.run_task(task)
        for window in self.windows:
            window.forget_stays(self._tick)

    def _react(self, work: Allowance) -> Iterator[Out]:
        """Stage 2: the most promising tasks while nothing arrives."""
        now = self._now()
        if self._idled > TIME_MIN and now - self._idled < self._gap:
            return
        while work.left() and (task := self.best_task()) is not None:
            self._idled = now
            yield from self.run_task(task)

    # Leaving

    def _edge(self, port: int, bound: Time) -> Time:
        """Rows leave at the slide, not before."""
        whole = bound if bound in (TIME_MIN, TIME_MAX) else bound // self._slide * self._slide
        return super()._edge(port, whole)

    def _expire(self, port: int) -> Iterator[Out]:
        if self._going(port):
            yield from self.settle(port)
        yield from super()._expire(port)

    def _gone(self, port: int, block: Block) -> None:
        for blocks in (self.held[port][block.partition], self.flushed[port][block.partition], self._mixed[port]):
            if block in blocks:
                blocks.remove(block)

    def _probed(self, port: int, blocks: Sequence[Block], slab: Slab) -> None:
        """No block is kept for having been productive."""

    # State

    def _taken_up(self, port: int, block: Block) -> None:
        window = self.windows[port]
        if window.resident[block.number] and not block.mixed:
            block.role = "recent"
            self.held[port][block.partition].append(block)
            return
        if window.resident[block.number]:
            window.evict(block, self._tick)
        if block.mixed:
            self._mixed[port].append(block)
        else:
            self.flushed[port][block.partition].append(block)
            self.runs[port, block.partition] += 1

    def _saved(self, page: Page) -> Page:
        """Pages stay apart: a task is about one partition."""
        return page

    def _is_stranger(self, block: Block, window: Window) -> bool:
        return block.mixed

    def _expect_anew(self) -> None:
        """Er from the blocks taken up."""
        for port in (LEFT, RIGHT):
            window, there = self.windows[port], self._rows(self.flushed[1 - port])
            self.expected_md[port] = self._rows(self.held[port], window) * there
            self.expected_dd += self._rows(self.flushed[port], window) * there

    def _rows(self, side: list[list[Block]], fresh_in: Window | None = None) -> Indices:
        """Rows of the blocks of each partition; only of fresh ones if a window is given."""
        return np.array([sum(b.rows for b in blocks if fresh_in is None or fresh_in.is_fresh(b)) for blocks in side])

    def _bytes(self, port: int, partition: int) -> int:
        return sum(block.size for block in self.flushed[port][partition])
