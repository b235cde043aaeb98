"""From a join that puts pairs off to one that does not: those that are owed come out, and plain pages are left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.core.budget import Budget
from penstock.core.operator import Out, State
from penstock.core.pages import Page, PageStore
from penstock.core.rows import RowType
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.progressive.engine import ProgressiveJoin
from penstock.operators.window_join.progressive.parameters import Rrpj
from penstock.operators.window_join.slabs import Slab


class Settlement:
    """The state of a progressive join, until all its rows have met."""

    def __init__(
        self, config: WindowJoin, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State
    ) -> None:
        self._join = ProgressiveJoin(config, inputs, store, budget, state, Rrpj(), None)
        self.store = self._join.store
        """Pages share batches in it: they are to be dropped here."""

    def run(self) -> Iterator[Out]:
        """Let all meet that have not."""
        return self._join.finish()

    def state(self) -> State:
        """As it was left, if there was nothing to do."""
        return self._join.state()

    def pages(self) -> list[Page]:
        """All rows, in pages that owe nothing and are owed nothing."""
        return [replace(page, log=None) for page in self._join.state().pages]

    def waiting(self, port: int) -> list[Slab]:
        """No rows wait to come in."""
        return []
