"""An operator for tests that sites rows otherwise than by key: it joins intervals that have a number in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

import penstock as pk
from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Operator, Out, State
from penstock.core.pages import PageStore, read_page
from penstock.core.progress import Bounds
from penstock.core.routes import SITE_BITS, Anywhere, Cells, Everywhere, Route
from penstock.core.rows import Hashes, Indices, RowType, hashes_of
from penstock.core.time import TIME_MIN, Time
from penstock.flow.graph import OperatorNode
from penstock.operators.progress.held import Held

Way = Literal["cells", "left anywhere", "right anywhere"]

CELL = 10


@dataclass(frozen=True, slots=True)
class Tens(Cells):
    """Cells of ten numbers; a row touches those from that of `lo` to that of `hi`."""

    def touched(self, types: RowType, rows: pa.RecordBatch) -> tuple[Indices, Hashes]:
        """All of them."""
        first, last = (_numbers(rows, name) // CELL for name in ("lo", "hi"))
        counts = np.maximum(0, last - first + 1)
        which = np.repeat(np.arange(rows.num_rows), counts)
        cells = first[which] + np.arange(which.size) - np.repeat(np.cumsum(counts) - counts, counts)
        return which, _site(cells)


@dataclass(frozen=True, slots=True)
class Overlapping(Operator):
    """Pairs of intervals, from `lo` to `hi`, that overlap."""

    way: Way

    def output(self, inputs: tuple[RowType, ...]) -> pa.Schema:
        """Both ids."""
        return pa.schema({"l": pa.int64(), "r": pa.int64(), "t": pa.int64()})

    def route(self, port: int) -> Route:
        """As asked."""
        if self.way == "cells":
            return Tens()
        return Anywhere(("lo",)) if self.way == ("left anywhere", "right anywhere")[port] else Everywhere()

    def says(self, inputs: tuple[RowType, ...] = ()) -> str:
        """What it does."""
        return f"intervals that overlap, by {self.way}"

    def bounds(self, *ports: Time) -> Bounds:
        """Any pair may still come."""
        return Bounds.at(min(ports) if min(ports) == max(ports) else TIME_MIN)

    def logic(
        self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State, meter: Meter | None = None
    ) -> Joining:
        """At work."""
        return Joining(self, inputs, store, budget, state)


class Joining:
    """Rows wait in pages, and meet those of the other port."""

    def __init__(
        self, config: Overlapping, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State
    ) -> None:
        self._config, self._store, self._bounds = config, store, [TIME_MIN, TIME_MIN]
        self._held = [
            Held(inputs[port].inside, store, budget, [page for page in state.pages if page.kind == port])
            for port in (0, 1)
        ]

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Meet the others, then wait."""
        for page in self._held[1 - port].pages:
            sides = (rows, read_page(self._store, page))
            yield self._pairs(*(sides if port == 0 else sides[::-1]))
        self._held[port].put(rows, port)

    def _pairs(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Out:
        sites = [hashes_of(side) >> np.uint64(SITE_BITS) for side in (left, right)]
        first = np.maximum(_numbers(left, "lo")[:, None], _numbers(right, "lo"))
        last = np.minimum(_numbers(left, "hi")[:, None], _numbers(right, "hi"))
        found = (first <= last) & (sites[0][:, None] == sites[1])
        if self._config.way == "cells":
            found &= _site(first // CELL) == sites[0][:, None]
        i, j = np.nonzero(found)
        ids = [side.column("id").take(pa.array(which)) for side, which in ((left, i), (right, j))]
        return Out("results", pa.record_batch({"l": ids[0], "r": ids[1], "t": ids[0]}))

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Nothing waits for a bound."""
        self._bounds[port] = max(bound, self._bounds[port])
        return iter(())

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing is put off."""
        return iter(())

    def bounds(self) -> Bounds:
        """As the config says."""
        return self._config.bounds(*self._bounds)

    def state(self) -> State:
        """All rows."""
        return State(tuple(page for held in self._held for page in held.pages))


def overlapping(left: pk.Stream, right: pk.Stream, way: Way, name: str = "overlapping") -> pk.Stream:
    """The pairs of two streams that overlap."""
    config, nodes = Overlapping(way), (left._node, right._node)
    types = tuple(RowType(node.columns, (), node.time) for node in nodes)
    return left._made(
        OperatorNode(
            columns=config.output(types),
            time="t",
            unit="ticks",
            clock=("t",),
            name=name,
            config=config,
            inputs=nodes,
            types=types,
        )
    )


def _numbers(rows: pa.RecordBatch, name: str) -> Indices:
    return rows.column(name).to_numpy()  # type: ignore[no-any-return]


def _site(cells: Indices) -> Hashes:
    return (cells.astype(np.uint64) * np.uint64(0x9E3779B1)) & np.uint64(0xFFFFFFFF)
