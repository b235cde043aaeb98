"""From a method that defers joins to one that does not: deferred joins are done, and plain pages are left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.core.budget import Budget
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import Page, PageStore
from penstock.core.rows import Indices, RowType
from penstock.operators.window_join.blocks import Block
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.deferring import DeferringJoin
from penstock.operators.window_join.methods import Ewj
from penstock.operators.window_join.slabs import Slab


class Handover(DeferringJoin):
    """Another method's state, resumed without memory, so that all deferred joins are done at once."""

    def __init__(
        self, config: WindowJoin, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State
    ) -> None:
        super().__init__(config, inputs, store, budget, state, Ewj(memory=1), None)

    def run(self) -> Iterator[Out]:
        """Join what is owed."""
        return self._settle_displaced()

    def pages(self) -> list[Page]:
        """All blocks as plain pages, which owe nothing and are owed nothing."""
        blocks = [(window, block) for window in self.windows for block in window]
        return [replace(window.described(block, 0), debts=None) for window, block in blocks]

    def waiting(self, port: int) -> list[Slab]:
        """Rows that have not been born yet."""
        return self._unborn[port].take()

    def _make_room(self, port: int, size: int) -> Iterator[Out]:
        return iter(())

    def _born(self, port: int, counts: Indices) -> Iterator[Out]:
        return iter(())

    def _react(self, work: Allowance) -> Iterator[Out]:
        return iter(())

    def _placed(self, port: int, block: Block) -> None:
        """Nothing is placed."""

    def _gone(self, port: int, block: Block) -> None:
        """Nothing goes."""

    def _taken_up(self, port: int, block: Block) -> None:
        """All blocks are on disk."""

    def _probed(self, port: int, blocks: Sequence[Block], slab: Slab) -> None:
        """Nothing is chosen."""
