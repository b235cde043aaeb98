"""Rows that leave their window first do their remaining joins, because it is impossible later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from penstock.core.budget import Budget
from penstock.core.operator import Out
from penstock.core.rows import Indices, times_of
from penstock.core.time import TIME_MAX, Time
from penstock.operators.window_join.blocks import Block
from penstock.operators.window_join.debts import Collector, fresh_births, span_of
from penstock.operators.window_join.pairing import Mask, Pairing, dying
from penstock.operators.window_join.slabs import Slab
from penstock.operators.window_join.unborn import Unborn
from penstock.operators.window_join.window import Window


class WayOut:
    """The last joins of the rows of blocks below an edge."""

    def __init__(
        self,
        windows: tuple[Window, Window],
        unborn: Sequence[Unborn],
        pairing: Pairing,
        debts: Collector,
        budget: Budget,
    ) -> None:
        self._windows = windows
        self._unborn = unborn
        self._pairing = pairing
        self._debts = debts
        self._budget = budget

    def meet(self, port: int, going: Sequence[Block], edge: Time) -> Iterator[Out]:
        """Rows on disk that go meet the other port's fresh ones, and all that go meet its waiting ones (000-27)."""
        window, other = self._windows[port], self._windows[1 - port]
        waiting = self._unborn[1 - port].sort()
        for slab in window.slabs if waiting else ():
            yield from self._meet_unborn(window, slab, window.resident, edge)
        away = {block.number for block in going if not window.resident[block.number]}
        if not away or not (waiting or other.fresh()):
            return
        births = fresh_births(other)
        unmet = list(window.disk.values()) if waiting else window.unmet(*span_of(births))
        for blocks, theirs in self._debts.reads(window, [block for block in unmet if block.number in away]):
            if waiting:
                yield from self._meet_unborn(window, theirs, window.alive, edge)
            yield from self._debts.pay_to_disk(other, other.slabs, births, window, blocks, theirs, edge)

    def _meet_unborn(self, window: Window, theirs: Slab, here: Mask, edge: Time) -> Iterator[Out]:
        """Rows that go, of the blocks that are `here`, meet the other port's waiting rows: they will not later."""
        (mine,) = self._unborn[1 - window.port].slabs
        times = times_of(theirs.batch)

        def admit(i: Indices, j: Indices) -> Mask:
            numbers = theirs.numbers[j]
            return here[numbers] & dying(times[j], window.floor[numbers], edge, TIME_MAX)

        yield from self._pairing.meet(1 - window.port, mine.batch, mine.met, theirs.batch, theirs.met, admit)

    def unmatched(self, port: int, block: Block, edge: Time) -> Iterator[Out]:
        """The rows of a block that go and have met nobody, if the join keeps them."""
        if not self._pairing.keeps[port]:
            return
        window = self._windows[port]
        slab = window.slabs.extract(block.number) if window.resident[block.number] else window.read([block])
        with self._budget.hold(slab.nbytes, "looking for unmatched rows"):
            floor = int(window.floor[block.number])
            alone = dying(times_of(slab.batch), floor, edge, TIME_MAX) & ~slab.met  # type: ignore[operator]
            yield from self._pairing.unmatched(port, slab.batch, np.flatnonzero(alone))
