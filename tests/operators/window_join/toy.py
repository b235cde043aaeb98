"""A join method for tests: what a contributor writes, and all of it. Nothing is let go of before both streams end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.errors import ConfigError
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import Page, PageStore, read_page, write_page
from penstock.core.progress import Bounds
from penstock.core.rows import RowType, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.kernels.sort import page_order
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.methods import JoinMethod
from penstock.operators.window_join.pairing import OneWay


@dataclass(frozen=True, slots=True)
class KeepAll(JoinMethod):
    """How many pages to keep at most."""

    pages: int = 1000

    inner_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.pages < 1:
            raise ConfigError(f"pages={self.pages} keeps nothing. Write 1 or more.")


class KeepAllJoin:
    """Every row meets all that came before it."""

    def __init__(
        self,
        config: WindowJoin,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        meter: Meter | None = None,
    ) -> None:
        self._config, self._store = config, store
        self._pairing = OneWay(config, inputs, budget)
        self._bounds: list[Time] = [TIME_MIN, TIME_MIN]
        self._pages: list[Page] = list(state.pages)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Meet, then be kept."""
        known, _ = self._pairing.with_keys(port, rows)
        known = known.take(pa.array(page_order(hashes_of(known), times_of(known))))
        for page in self._pages:
            if page.kind != port:
                yield from self._pairing.meet(port, known, None, read_page(self._store, page), None)
        if known.num_rows:
            self._pages.append(write_page(self._store, port, known))

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Let go of all at the end."""
        self._bounds[port] = bound
        if min(self._bounds) == TIME_MAX:
            for page in self._pages:
                self._store.drop(page.name)
            self._pages.clear()
        return iter(())

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing is put off."""
        return iter(())

    def bounds(self) -> Bounds:
        """As the join says."""
        return self._config.bounds(*self._bounds)

    def state(self) -> State:
        """All rows."""
        return State(tuple(self._pages))
