"""Meld: the union of streams that progress, without order and without a buffer.

Rows pass as they come. The union has got as far as the slowest input: its bound is the least of the inputs' bounds.
A group has got, on each input, as far as the further of the input's bound and its own; in the union, as far as on the
slowest input. A punctuation is given out only if it says more than those before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lab.operators.group_bounds import GroupBounds, size_of
from penstock.core.budget import Budget
from penstock.core.errors import ConfigError
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import RowType, concat, hashes_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time, Times
from penstock.kernels.distinct import firsts
from penstock.operators.progress.groups import group_type


class News(NamedTuple):
    """What a union can say that it has not said: a `bound` for all, or None, and those of `groups` beyond it."""

    bound: Time | None
    groups: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Meld:
    """The union of `inputs` streams of the same columns (F21).

    >>> from penstock.storage.memory import MemoryPages
    >>> rows, budget = RowType(pa.schema({"t": pa.int64()}), keys=(), time="t"), Budget(1000)
    >>> meld = Meld(inputs=2).logic((rows, rows), MemoryPages(budget), budget, State())
    >>> _ = list(meld.advance(0, 7)), meld.news().bound
    >>> _ = list(meld.advance(1, 5))
    >>> meld.news().bound, meld.news().bound
    (5, None)
    """

    inputs: int

    def __post_init__(self) -> None:
        if self.inputs < 1:
            raise ConfigError(f"inputs={self.inputs} is a union of nothing. Write how many streams there are.")

    def output(self, inputs: tuple[RowType, ...]) -> pa.Schema:
        """The columns of the first; the others have the same."""
        return inputs[0].columns

    def logic(
        self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State, meter: Meter | None = None
    ) -> Melding:
        """At work."""
        return Melding(inputs, store, budget, state)


class Melding:
    """A union at work: it holds bounds, no rows."""

    def __init__(self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State) -> None:
        self._types = inputs
        self._store = store
        self._budget = budget
        self._inputs: list[Time] = state.meta.get("inputs", [TIME_MIN] * len(inputs))
        self._said: Time = state.meta.get("said", TIME_MIN)
        self._groups = [GroupBounds(rows, budget) for rows in inputs]
        self._said_of_groups = GroupBounds(inputs[0], budget)
        self._told = concat([], group_type(inputs[0]).inside)
        """Groups of which a punctuation has come that has not been thought over."""
        for port, groups in enumerate([*self._groups, self._said_of_groups]):
            groups.take_up(store, (page for page in state.pages if page.kind == port))
        self._tell(*(groups.batch for groups in self._groups))

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Rows pass."""
        if rows.num_rows:
            yield Out("results", self._types[port].leave(rows))

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """A linear punctuation: any group may profit."""
        if bound > self._inputs[port]:
            self._inputs[port] = bound
            self._groups[port].purge(bound)
            self._tell(*(groups.batch for groups in self._groups))
        return iter(())

    def advance_groups(self, port: int, bounds: pa.RecordBatch) -> Iterator[Out]:
        """Group-wise punctuations, see `group_batch`."""
        self._groups[port].rise(bounds)
        self._groups[port].purge(self._inputs[port])
        self._tell(bounds)
        return iter(())

    def news(self) -> News:
        """The punctuations to give out now; asked again, there are none."""
        bound = min(self._inputs)
        risen = bound > self._said
        self._said = max(self._said, bound)
        self._said_of_groups.purge(self._said)
        groups = self._group_news()
        self._said_of_groups.rise(groups)
        return News(bound if risen else None, groups)

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing is deferred."""
        return iter(())

    def bounds(self) -> Bounds:
        """The least of the inputs' bounds."""
        bound = min(self._inputs)
        return Bounds.at(bound)

    def state(self) -> State:
        """The bounds. What is news still is."""
        kept = [*self._groups, self._said_of_groups]
        pages = [page for port, groups in enumerate(kept) for page in groups.save(self._store, port)]
        self._tell_nothing()
        return State(tuple(pages), {"inputs": self._inputs, "said": self._said})

    def _tell(self, *groups: pa.RecordBatch) -> None:
        told = concat([self._told, *groups], self._told.schema)
        self._tell_nothing()
        self._budget.charge(size_of(told), "the groups that have news")
        self._told = told

    def _tell_nothing(self) -> None:
        self._budget.release(size_of(self._told))
        self._told = self._told.slice(0, 0)

    def _group_news(self) -> pa.RecordBatch:
        """The told groups, each once, that have got further than was said of them or of all."""
        order = np.argsort(hashes_of(self._told), kind="stable")
        told = self._told.take(pa.array(order))
        self._tell_nothing()
        keys = [told.column(key) for key in self._types[0].keys]
        told = told.filter(pa.array(firsts(hashes_of(told).view(np.int64), keys)))
        bounds = self._bounds_of(told)
        news = bounds > np.maximum(self._said, self._said_of_groups.of(told))
        return told.set_column(1, told.schema.field(1), pa.array(bounds)).filter(pa.array(news))

    def _bounds_of(self, groups: pa.RecordBatch) -> Times:
        """How far each group has got in the union."""
        bounds = np.full(groups.num_rows, TIME_MAX, np.int64)
        for linear, own in zip(self._inputs, self._groups, strict=True):
            bounds = np.minimum(bounds, np.maximum(linear, own.of(groups)))
        return bounds
