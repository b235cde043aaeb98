"""What all linear multi-way joins share: rows arrive, meet the stores of the other ports, and are stored.

Arrivals meet what is there and are stored before the next come, so that of the rows of a result the last one to arrive
finds the others: every result comes out once, whatever the order of arrivals. A row leaves its store when no row that
can still arrive would be in a result with it.
"""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import Page, PageStore, write_page
from penstock.core.progress import Bounds
from penstock.core.rows import RowType, hashes_of, times_of
from penstock.core.time import TIME_MIN, Time
from penstock.kernels.equal import null_keys
from penstock.kernels.sort import page_order
from penstock.operators.multi_way.config import MultiJoin
from penstock.operators.multi_way.expansion import Arrivals, Expansion
from penstock.operators.multi_way.stores import Stores
from penstock.operators.pieces import pieces

_MATCHING = 176
"""Bytes that sorting and matching one arrival takes besides its own: order, hash, window, ranges and their scratch."""


class LinearJoin(abc.ABC):
    """A linear multi-way join on one shard; a method says how arrivals look for results."""

    def __init__(
        self,
        config: MultiJoin,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        meter: Meter | None = None,
    ) -> None:
        self._config = config
        self._inputs = inputs
        self._pages = store
        self._budget = budget
        self._nearness = config.nearness
        self._ports = range(config.ports)
        self._expansion = Expansion(config, inputs, budget)
        self._bounds: list[Time] = [TIME_MIN] * config.ports
        self._counts: Counter[str] = Counter()
        self._stores = Stores(config.ports, store)
        self._take_up(state.pages, state.meta)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Meet what the other ports hold, then be held for what may still come; a null key meets nothing."""
        for piece in pieces(self._with_keys(port, rows), self._budget, _MATCHING):
            with self._budget.hold(piece.nbytes + _MATCHING * piece.num_rows, "sorting and matching arrivals"):
                self._counts["arrivals"] += piece.num_rows
                order = page_order(hashes_of(piece), times_of(piece))
                arrivals = Arrivals.of(port, piece.take(pa.array(order)))
                yield from self._meet(arrivals)
                alive = np.flatnonzero(arrivals.times >= self._nearness.dead(port, self._bounds))
                if alive.size:
                    self._keep(arrivals.taken(alive))

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Let go of the rows of other ports that nothing still to come can meet."""
        if bound > self._bounds[port]:
            self._bounds[port] = bound
            for other in self._ports:
                if other != port:
                    self._let_go(other)
        return iter(())

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing is deferred."""
        return iter(())

    def bounds(self) -> Bounds:
        """What its ports' bounds leave to come."""
        return self._config.bounds(*self._bounds)

    def state(self) -> State:
        """The pages of all ports; bounds are the host's to remember."""
        pages = [page for port in self._ports for stores in self._stores_of(port) for page in stores.pages(port)]
        return State(tuple(pages), self._meta())

    def counts(self) -> dict[str, int]:
        """Arrivals with a key, how often stores were probed for them, and whatever else a method counts."""
        return {**self._counts, "probes": self._counts["probes"] + self._expansion.probes}

    # What methods do in their own way.

    @abc.abstractmethod
    def _meet(self, arrivals: Arrivals) -> Iterator[Out]:
        """The results of arrivals with what is stored."""

    def _keep(self, arrivals: Arrivals) -> None:
        """Store arrivals."""
        self._stores.hold([write_page(self._pages, arrivals.port, arrivals.rows)])

    def _take_up(self, pages: Sequence[Page], meta: dict[str, Any]) -> None:
        """Go on from what this or another method has left."""
        self._stores.hold(pages)

    def _stores_of(self, port: int) -> Iterable[Stores]:
        """Where the rows of a port are."""
        return (self._stores,)

    def _meta(self) -> dict[str, Any]:
        """What to remember besides pages."""
        return {}

    # What they share.

    def _others(self, port: int) -> list[int]:
        return [other for other in self._ports if other != port]

    def _let_go(self, port: int) -> bool:
        """Let go of the rows of a port that are in no result to come; whether any were there."""
        dead, over = self._nearness.dead(port, self._bounds), self._nearness.over(port, self._bounds)
        gone = [stores.let_go(port, dead, over=over) for stores in self._stores_of(port)]
        return any(gone)

    def _with_keys(self, port: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that can match."""
        null = null_keys([self._inputs[port].column(rows, name) for name in self._inputs[port].keys])
        return rows.filter(pa.array(~null)) if null.any() else rows
