"""Rate-based Progressive Window Join (RPWJ): hash partitions that are flushed whole, and joined from disk when idle.

Arrivals meet their partition's rows in memory. When memory is full, the partitions that the other stream's arrivals
need least are flushed, joined or not. Missed joins are done by tasks: memory with disk (md) and disk with disk (dd),
the one with the most expected results per second first when nothing arrives, and all of them at each slide, before rows
leave their window. This is the baseline for AH-EWJ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Granularity, Meter
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import Page, PageStore
from penstock.core.rows import Indices, RowType
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.core.within import LEFT, RIGHT
from penstock.operators.window_join.blocks import Block
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.debts import fresh_births
from penstock.operators.window_join.deferring import DeferringJoin
from penstock.operators.window_join.methods import Rpwj
from penstock.operators.window_join.pairing import Admit, Mask
from penstock.operators.window_join.partition_tasks import PartitionBlocks, Task, Tasks
from penstock.operators.window_join.slabs import Slab
from penstock.operators.window_join.window import Window


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
        self.blocks = PartitionBlocks(count)
        self.tasks = Tasks(settings, self.blocks)
        self.arrivals = np.array(state.meta.get("rows_born", np.zeros((2, count))), float).reshape(2, -1)
        """C: rows that arrived of late, by port and partition."""
        self.granularity: Granularity = "tuple"
        super().__init__(config, inputs, store, budget, state, settings, meter)
        if self.arrivals.shape != (2, count):
            self.arrivals = np.zeros((2, count))
        self._gap = self._steps(settings.idle_gap, "15 s")
        self._count_epoch = self._steps(settings.count_epoch, "10 s")
        self._counted = int(state.meta.get("counted", TIME_MIN))
        self.tasks.expect_anew(self.windows)

    def _remember(self) -> dict[str, object]:
        return {**super()._remember(), "rows_born": self.arrivals.tolist(), "counted": self._counted}

    # Arrival: tuple by tuple while there is little to do, block by block while there is much

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """As ever; how many come at once decides how finely they are processed."""
        yield from self._settle_displaced()
        blocks = self.windows[port].size(rows) / self.page
        if blocks > self._settings.high_mark:
            self.granularity = "block"
        elif blocks < self._settings.low_mark and self.granularity == "block":
            self.granularity = "tuple"
            for either in (LEFT, RIGHT):
                yield from self._bear_unborn(either)
        yield from super().rows(port, rows)

    def _arrive(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        return self._gather(port, rows) if self.granularity == "block" else super()._arrive(port, rows)

    def _born(self, port: int, counts: Indices) -> Iterator[Out]:
        self.arrivals[port] += counts
        self.tasks.born(port, counts)
        now = self._now()
        if self._counted == TIME_MIN:
            self._counted = now
        elif now - self._counted >= max(1, self._count_epoch):
            self._counted = now
            self.arrivals *= self._settings.decay
        return iter(())

    def _placed(self, port: int, block: Block) -> None:
        self.blocks.held[port][block.partition].append(block)

    # Flushing

    def _make_room(self, port: int, size: int) -> Iterator[Out]:
        while (held := self.blocks.held_bytes()) and held + size > self.memory:
            self.flush()
        return iter(())

    def flush(self) -> None:
        """Flush whole partitions, those first that the other stream's arrivals look at least (000-17)."""
        freed = 0
        order = sorted((self.arrivals[i, p], i, p) for i in (LEFT, RIGHT) for p in range(self.partitions))
        for _, port, partition in order:
            if freed and freed >= self._settings.flush * self.memory:
                return
            freed += self._flush(1 - port, partition)

    def _flush(self, port: int, partition: int) -> int:
        window, blocks = self.windows[port], self.blocks.held[port][partition]
        if not blocks:
            return 0
        for block in blocks:
            self._open[port].close(block)
        size = sum(block.size for block in blocks)
        for together in self._writable(window, blocks):
            run = window.unite(together)
            window.dump(run, self._segment(port, run))
            window.save_births(run)
            window.evict(run, self._tick + 1)
            self.blocks.flushed[port][partition].append(run)
        self.blocks.held[port][partition] = []
        self.blocks.runs[port, partition] += 1
        self.tasks.flushed(port, partition)
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

    def run_task(self, task: Task) -> Iterator[Out]:
        """Join what a task is about; it owes nothing then."""
        if task.kind == "md":
            yield from self._memory_with_disk(task.port, task.partition)
        else:
            yield from self._disk_with_disk(task.partition)
        self.tasks.done(task)

    def _memory_with_disk(self, port: int, partition: int) -> Iterator[Out]:
        me, other = self.windows[port], self.windows[1 - port]
        fresh = [block for block in self.blocks.held[port][partition] if me.is_fresh(block)]
        if not fresh:
            return
        self._tick += 1
        births = fresh_births(me)
        for blocks, theirs in self._debts.reads(other, self.blocks.on_disk(1 - port, partition)):
            self._debts.count(births, other, theirs)
            for mine in me.slabs:
                admit = self._of(partition, theirs, self._debts.owed(me, mine, other, theirs, TIME_MAX))
                yield from self._pairing.meet(port, mine.batch, mine.met, theirs.batch, theirs.met, admit)
            other.save_marks_of(blocks, theirs)
        me.settle(fresh, self._tick)

    def _disk_with_disk(self, partition: int) -> Iterator[Out]:
        """Nested loops over the blocks of both disks; either's fresh rows may owe the other's a join."""
        left, right = self.windows
        outer, inner = self.blocks.on_disk(LEFT, partition), self.blocks.on_disk(RIGHT, partition)
        fresh = [[b for b in self.blocks.flushed[w.port][partition] if w.is_fresh(b)] for w in self.windows]
        if not any(fresh):
            return
        self._tick += 1
        for some, mine in self._debts.reads(left, outer):
            for others, theirs in self._debts.reads(right, inner):
                self._debts.count_either(left, mine, right, theirs)
                admit = self._of(partition, theirs, self._debts.owed_by_either(left, mine, right, theirs))
                yield from self._pairing.meet(LEFT, mine.batch, mine.met, theirs.batch, theirs.met, admit)
                right.save_marks_of(others, theirs)
            left.save_marks_of(some, mine)
        for window, blocks in zip(self.windows, fresh, strict=True):
            window.settle(blocks, self._tick)

    def _of(self, partition: int, theirs: Slab, admit: Admit) -> Admit:
        """Only pairs of one partition: blocks that another method left may hold several."""
        if not any(self.blocks.mixed):
            return admit
        ours = self.windows[LEFT].partitions_of(theirs.batch) == partition

        def both(i: Indices, j: Indices) -> Mask:
            due: Mask = ours[j]
            due[due] = admit(i[due], j[due])
            return due

        return both

    def settle(self, port: int) -> Iterator[Out]:
        """Stage 3: every task, whatever it yields; nothing is owed by either port then."""
        for task in self.tasks.all:
            yield from self.run_task(task)
        for window in self.windows:
            window.stays.forget(self._tick)

    def _react(self, work: Allowance) -> Iterator[Out]:
        """Stage 2: the most promising tasks while nothing arrives."""
        now = self._now()
        if self._idled > TIME_MIN and now - self._idled < self._gap:
            return
        while work.left() and (task := self.tasks.best()) is not None:
            self._idled = now
            yield from self.run_task(task)

    # Leaving

    def _edge(self, port: int, bound: Time) -> Time:
        """Rows leave at the slide, not before."""
        whole = bound if bound in (TIME_MIN, TIME_MAX) else bound // self._slide * self._slide
        return super()._edge(port, whole)

    def _expire(self, port: int) -> Iterator[Out]:
        if self.windows[port].going(self._dead[port]):
            yield from self.settle(port)
        yield from super()._expire(port)

    def _gone(self, port: int, block: Block) -> None:
        self.blocks.remove(port, block)

    def _probed(self, port: int, blocks: Sequence[Block], slab: Slab) -> None:
        """No block is kept for having been productive."""

    # State

    def _taken_up(self, port: int, block: Block) -> None:
        window = self.windows[port]
        if window.resident[block.number] and not block.mixed:
            block.role = "recent"
            self.blocks.held[port][block.partition].append(block)
            return
        if window.resident[block.number]:
            window.evict(block, self._tick)
        if block.mixed:
            self.blocks.mixed[port].append(block)
        else:
            self.blocks.flushed[port][block.partition].append(block)
            self.blocks.runs[port, block.partition] += 1

    def _saved(self, page: Page) -> Page:
        """Pages stay apart: a task is about one partition."""
        return page

    def _is_displaced(self, block: Block, window: Window) -> bool:
        return block.mixed
