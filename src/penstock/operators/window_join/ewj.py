"""Exact Window Join (EWJ): a window larger than memory, whose fresh blocks join the disk in one sequential pass.

Each arrival meets what is in memory. When the fresh blocks of a stream fill their part of the recent segment they are
appended to disk together (a mature dump) and meet the other stream's disk; a recent block leaves memory only after
that, so there is never a join of disk with disk.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Out, State
from penstock.core.pages import PageStore
from penstock.core.rows import Indices, RowType
from penstock.operators.window_join.blocks import Block
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.methods import Ewj
from penstock.operators.window_join.segments import SegmentedJoin


class EWJoin(SegmentedJoin):
    """EWJ on one shard (spec: exact-window-joins §2.2, corrected by §6.1; 000-09…000-15)."""

    def __init__(
        self,
        config: WindowJoin,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        settings: Ewj,
        meter: Meter | None = None,
    ) -> None:
        self._gain = settings.gain
        self._probe = settings.probe
        super().__init__(config, inputs, store, budget, state, settings, meter)
        self.recent_size = int(settings.recent * self.memory / 2)

    def _beats(self, productivity: float, least: float) -> bool:
        return productivity > least + self._gain

    def _make_room(self, port: int, size: int) -> Iterator[Out]:
        """The oldest recent blocks leave; fresh ones are dumped and settled before."""
        window = self.windows[port]
        blocks = self.recent[port].get(0)
        while blocks and sum(block.size for block in blocks) + size > self.recent_size:
            oldest = blocks[0]
            if window.is_fresh(oldest):
                yield from self._dump_and_settle(port)
                continue
            self._open[port].close(oldest)
            window.dump(oldest, self._segment(port, oldest))
            blocks.popleft()
            window.evict(oldest, self._tick + 1)

    def _born(self, port: int, counts: Indices) -> Iterator[Out]:
        if sum(block.size for block in self._full(port)) >= self._probe * self.recent_size:
            yield from self._dump_and_settle(port)

    def _full(self, port: int) -> list[Block]:
        """The fresh blocks that nothing more is born into."""
        window = self.windows[port]
        opened = self._open[port].blocks.get(0)
        return [b for b in self.recent[port].get(0, ()) if window.is_fresh(b) and b is not opened]

    def _dump_and_settle(self, port: int) -> Iterator[Out]:
        for block in self._full(port):
            self.windows[port].dump(block, self._segment(port, block))
        yield from self.settle(port)

    _quiet = _dump_and_settle
