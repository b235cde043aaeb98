"""An operator in the lab: rows and bounds go in, results and what it holds are looked at.

Memory is ample and in one place, so that nothing but the operator's own needs shows in what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from lab.measures import Measure, Point
from penstock.core.budget import Budget
from penstock.core.meter import Tally
from penstock.core.operator import Logic, Out, Quiet, State
from penstock.core.pages import Page, read_page
from penstock.core.rows import TIME, RowType, hashes_of, times_of
from penstock.core.time import TIME_MAX, Time, Times, as_times
from penstock.kernels.hashing import hash_keys
from penstock.storage.memory import MemoryPages

_AMPLE = 1 << 50
"""Bytes that never run out."""

_CODE = ("penstock.core", "penstock.kernels", "penstock.operators", "penstock.storage", "lab.workloads")

SECOND = 1_000_000
"""A second of the packets' times."""


class Counted:
    """What trials of window queries have in common: they count, and there is nothing to see on the way."""

    __slots__ = ()

    @property
    def stem(self) -> str:
        """The name of the class."""
        return f"window-{type(self).__name__.lower()}"

    @property
    def code(self) -> tuple[str, ...]:
        """All operators, and the module that the trial is in."""
        return (*_CODE, "lab.feeding", type(self).__module__)

    @property
    def span(self) -> float:
        """Progress is not told."""
        return 1.0


class Fed:
    """An operator at work, its store and its counts.

    >>> from penstock.core.windows import sliding
    >>> from penstock.operators.aggregate.config import WindowAggregate
    >>> from penstock.operators.aggregate.functions import Count
    >>> config = WindowAggregate(sliding(10), by=("k",), aggregates=(("n", Count()),))
    >>> fed = Fed(config, RowType(pa.schema({"k": pa.int64(), "t": pa.int64()}), ("k",), "t"))
    >>> fed.rows(pa.table({"k": [1, 1, 2], "t": [0, 1, 2]})).num_rows, fed.held("partials")
    (0, 2)
    >>> fed.advance(10).column("n").to_pylist(), fed.held("partials"), fed.tally.updates
    ([2, 1], 0, 3)
    """

    def __init__(self, config: Any, *inputs: RowType) -> None:
        budget = Budget(_AMPLE)
        self.tally = Tally()
        self._inputs = inputs
        self._output = config.output(inputs)
        self._store = MemoryPages(budget)
        self.logic: Logic = config.logic(inputs, self._store, budget, State(), self.tally)

    def rows(self, rows: pa.Table, port: int = 0) -> pa.Table:
        """Rows arrive; what comes out."""
        kind = self._inputs[port]
        batch = kind.enter(
            rows.append_column(TIME, as_times(rows.column(kind.time))),
            hash_keys([rows.column(key).combine_chunks() for key in kind.keys])
            if kind.keys
            else np.zeros(rows.num_rows, np.uint64),
        )
        return self._table(self.logic.rows(port, batch))

    def advance(self, bound: Time, port: int = 0) -> pa.Table:
        """A punctuation arrives; what comes out."""
        return self._table(self.logic.advance(port, bound))

    def end(self) -> pa.Table:
        """The streams end, as hosts end them; what comes out."""
        ends = [self.advance(TIME_MAX, port) for port in range(len(self._inputs))]
        return pa.concat_tables([*ends, self._table(self.logic.idle(Quiet(rows=0)))])

    def held(self, what: Literal["rows", "partials"]) -> int:
        """How many rows are held; or how many partials, each group's in a window once."""
        parts = [self._live(page) for page in self.logic.state().pages]
        if what == "rows":
            return sum(len(times) for _, times in parts)
        if not parts:
            return 0
        hashes, numbers = (np.concatenate(column) for column in zip(*parts, strict=True))
        return int(np.unique(np.stack([hashes.view(np.int64), numbers]), axis=1).shape[1])

    def _live(self, page: Page) -> tuple[Any, Times]:
        rows = read_page(self._store, page)
        times = times_of(rows)
        live = times >= page.floor
        return hashes_of(rows)[live], times[live]

    def _table(self, outs: Iterable[Out]) -> pa.Table:
        return pa.Table.from_batches([out.rows for out in outs], schema=self._output)


def cut_at(rows: pa.Table, places: Sequence[int]) -> Iterator[pa.Table]:
    """Rows before each place, and those after the last.

    >>> [part.num_rows for part in cut_at(pa.table({"t": [1, 2, 3]}), [1, 1])]
    [1, 0, 2]
    """
    edges = [0, *places, rows.num_rows]
    for first, last in pairwise(edges):
        yield rows.slice(first, last - first)


def totals(measured: Mapping[Measure, float]) -> Point:
    """A point that has numbers only."""
    return Point({measure.name: float(value) for measure, value in measured.items()}, np.empty(0), {})
