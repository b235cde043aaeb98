"""How deferred joins are done: rows meet the blocks on disk that they owe a join to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Out
from penstock.core.rows import Indices, times_of
from penstock.core.time import TIME_MAX, Time
from penstock.operators.window_join.blocks import Block
from penstock.operators.window_join.pairing import Admit, Mask, Pairing, dying
from penstock.operators.window_join.slabs import Slab, joined
from penstock.operators.window_join.window import Window, owed

_READ_TOGETHER = 8192
"""Rows up to which pages are read into one batch."""


class Collector:
    """Reads blocks, some at a time, and joins the rows that owe each other a join. It does not mark rows as settled."""

    def __init__(self, pairing: Pairing, budget: Budget, meter: Meter, chunk: int) -> None:
        self._pairing = pairing
        self._budget = budget
        self._meter = meter
        self._chunk = chunk
        self.began = 0
        """Pairs of rows that were born by this tick are told as deferred."""

    def reads(self, window: Window, blocks: Iterable[Block]) -> Iterator[tuple[list[Block], Slab]]:
        """Blocks from disk, some at a time; the rows are charged until the next are asked for."""
        for some in self._chunks(blocks):
            with self.reading(window, some) as slab:
                yield some, slab

    @contextmanager
    def reading(self, window: Window, blocks: Sequence[Block]) -> Iterator[Slab]:
        """Blocks from disk, charged while they are in use; pages read one by one are mapped and take little."""
        slab = window.read(blocks)
        size = 2 * slab.nbytes if len(blocks) > 1 else slab.nbytes - int(slab.batch.nbytes)
        with self._budget.hold(size, "blocks read from disk"):
            yield slab

    def _chunks(self, blocks: Iterable[Block]) -> Iterator[list[Block]]:
        """Blocks to read together: those of a basic window, if they are small; a large one is better mapped alone."""
        some: list[Block] = []
        size = rows = held = 0
        for block in blocks:
            nbytes = block.page.nbytes if block.page is not None else 0
            full = size + block.size > self._chunk or rows + block.rows > _READ_TOGETHER
            if some and (full or 16 * (held + nbytes) > self._budget.room):
                yield some
                some, size, rows, held = [], 0, 0, 0
            some.append(block)
            size, rows, held = size + block.size, rows + block.rows, held + nbytes
        if some:
            yield some

    def pay(
        self, me: Window, slabs: Iterable[Slab], other: Window, theirs: Iterable[Slab], until: Time = TIME_MAX
    ) -> Iterator[Out]:
        """Let my rows meet theirs where they owe it; only their rows below `until` if it is given."""
        others = list(theirs)
        for mine in slabs:
            for slab in others:
                admit = self.owed(me, mine, other, slab, until)
                yield from self._pairing.meet(me.port, mine.batch, mine.met, slab.batch, slab.met, admit)

    def pay_to_disk(
        self,
        me: Window,
        slabs: Iterable[Slab],
        births: Sequence[Indices],
        other: Window,
        blocks: Sequence[Block],
        theirs: Slab,
        until: Time = TIME_MAX,
    ) -> Iterator[Out]:
        """Let my fresh rows, which are those of `births`, meet blocks that were read into `theirs`."""
        self.count(births, other, theirs)
        yield from self.pay(me, slabs, other, [theirs], until)
        other.save_marks_of(blocks, theirs)

    def pay_from_disk(self, me: Window, blocks: Iterable[Block], other: Window) -> Iterator[Out]:
        """Let my rows on disk meet all that they owe a join to, in memory and on disk, page by page."""
        for some, mine in self.reads(me, blocks):
            yield from self.pay(me, [mine], other, other.slabs)
            away = [block for block in other.disk.values() if not other.resident[block.number]]
            for others, theirs in self.reads(other, away):
                yield from self.pay(me, [mine], other, [theirs])
                other.save_marks_of(others, theirs)
            me.save_marks_of(some, mine)

    def owed(self, me: Window, mine: Slab, other: Window, theirs: Slab, until: Time) -> Admit:
        """Rows below their block's floor have met all on their way out."""
        times = times_of(theirs.batch)

        def admit(i: Indices, j: Indices) -> Mask:
            numbers = theirs.numbers[j]
            due = owed(me, mine, i, other, theirs, j) & dying(times[j], other.floor[numbers], until, TIME_MAX)
            np.add.at(other.productivity, numbers[due], 1)
            self._meter.defer(int(np.count_nonzero(mine.births[i[due]] <= self.began)))
            return due

        return admit

    def owed_by_either(self, left: Window, mine: Slab, right: Window, theirs: Slab) -> Admit:
        """The same of rows of which either may owe the other."""
        here, there = times_of(mine.batch), times_of(theirs.batch)

        def admit(i: Indices, j: Indices) -> Mask:
            due: Mask = owed(left, mine, i, right, theirs, j) | owed(right, theirs, j, left, mine, i)
            due &= (here[i] >= left.floor[mine.numbers[i]]) & (there[j] >= right.floor[theirs.numbers[j]])
            self._meter.defer(int(np.count_nonzero(np.maximum(mine.births[i], theirs.births[j])[due] <= self.began)))
            return due

        return admit

    def count(self, births: Sequence[Indices], window: Window, slab: Slab) -> None:
        """Nested loops over fresh rows, born so, by partition, and those of `slab` leave out pairs which have met."""
        blocks = window.living(slab)
        owing = [window.stays.missed(block.number, births[block.partition]) for block, _ in blocks]
        self._meter.probe(np.array(owing, np.int64), np.array([rows for _, rows in blocks], np.int64), by="block")

    def count_either(self, left: Window, mine: Slab, right: Window, theirs: Slab) -> None:
        """The same of slabs of which either has fresh rows."""
        for me, slab, other, others in ((left, mine, right, theirs), (right, theirs, left, mine)):
            births = np.sort(slab.births[slab.births > me.settled[slab.numbers]])
            self.count([births] * len(other.resident_rows), other, others)

    @contextmanager
    def gathered(self, window: Window) -> Iterator[Iterable[Slab]]:
        """A window's fresh rows: copied into one slab if there is room for it, so that they are looked up once and not
        by slab; whom they met is written back. Else the slabs they are in.
        """
        parts = window.fresh_rows()
        size = sum(slab.nbytes * which.size // slab.rows for slab, which in parts)
        if 4 * size > self._budget.room:
            yield window.slabs
            return
        with self._budget.hold(size, "fresh rows"):
            with self._budget.hold(2 * size, "gathering fresh rows"):
                whole = joined([slab.take(which) for slab, which in parts])
                order = whole.order()
                gathered = whole.take(order)
            yield [gathered]
        if gathered.met is not None:
            met = np.empty_like(gathered.met)
            met[order] = gathered.met
            for slab, which in parts:
                slab.met[which], met = met[: which.size], met[which.size :]  # type: ignore[index]


def fresh_births(window: Window) -> list[Indices]:
    """When the fresh rows in memory were born, ascending, by partition."""
    parts = [(slab.births[which], window.partitions_of(slab.batch)[which]) for slab, which in window.fresh_rows()]
    births, partitions = (np.concatenate([part[k] for part in parts] or [np.zeros(0, np.int64)]) for k in (0, 1))
    order = np.lexsort((births, partitions))
    return np.split(births[order], np.searchsorted(partitions[order], np.arange(1, len(window.resident_rows))))


def span_of(births: Sequence[Indices]) -> tuple[int, int]:
    """The oldest and the newest of some births, each part of which is ascending."""
    some = [(int(part[0]), int(part[-1])) for part in births if part.size]
    return (min(a for a, _ in some), max(b for _, b in some)) if some else (0, 0)


def oldest_birth(window: Window, now: int) -> int:
    """When the oldest fresh row was born, or `now` if there is none; 0 if one is not in memory."""
    fresh = window.fresh()
    if not all(window.resident[block.number] for block in fresh):
        return 0
    return span_of(fresh_births(window))[0] if fresh else now
