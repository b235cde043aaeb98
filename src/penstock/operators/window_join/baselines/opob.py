"""OPOB-Join: order-preserving by an output buffer. Matches as OA-Join does, and gives results by the left row's time.

A result is held back until no earlier one can come: until the left bound of the results has passed it. Both inputs may
be in any order. What it costs against OA-Join is the buffer of results, which may be many times the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import HASH, TIME, Indices, RowType
from penstock.core.time import Time
from penstock.core.within import LEFT
from penstock.operators.progress.held import Held
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.methods import JoinMethod
from penstock.operators.window_join.oa import OAJoin
from penstock.operators.window_join.pairing import Pairing

OPOB_RESULTS = 2
"""The kind of pages that hold results back."""


@dataclass(frozen=True, slots=True)
class Opob(JoinMethod):
    """OPOB-Join has no parameters."""

    inner_only: ClassVar[bool] = True
    in_order: ClassVar[bool] = True
    holds: ClassVar[tuple[int, ...]] = (OPOB_RESULTS,)


class OPOBJoin:
    """OPOB-Join on one shard (spec 2.9, F20); order is that of the shard."""

    def __init__(
        self,
        config: WindowJoin,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        meter: Meter | None = None,
    ) -> None:
        self._config = config
        self._output = config.output(inputs)
        results = [page for page in state.pages if page.kind == OPOB_RESULTS]
        rows = tuple(page for page in state.pages if page.kind != OPOB_RESULTS)
        self._join = OAJoin(config, inputs, store, budget, State(rows), meter, _LedPairing)
        self._held = Held(_led(self._output), store, budget, results)

    @property
    def held(self) -> int:
        """How many results wait."""
        return self._held.rows

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Match; results wait."""
        self._hold(self._join.rows(port, rows))
        return iter(())

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Results below the left bound leave, by their left time."""
        self._hold(self._join.advance(port, bound))
        for results in self._held.take(self.bounds().individual[LEFT]):
            yield Out("results", pa.RecordBatch.from_arrays(results.columns[2:], schema=self._output))

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing is deferred."""
        self._hold(self._join.idle(work))
        return iter(())

    def bounds(self) -> Bounds:
        """What can still come out."""
        return self._join.bounds()

    def state(self) -> State:
        """Rows and results."""
        return State((*self._join.state().pages, *self._held.pages))

    def _hold(self, results: Iterator[Out]) -> None:
        for out in results:
            self._held.put(out.rows, OPOB_RESULTS)


class _LedPairing(Pairing):
    """Results led by their key's hash and their left time, as rows inside an operator are."""

    def _results(self, sides: dict[int, tuple[pa.RecordBatch, Indices]]) -> Out:
        rows, which = sides[LEFT]
        lead = [pc.take(rows.column(place), pa.array(which)) for place in (0, 1)]
        results = super()._results(sides).rows
        return Out("results", pa.RecordBatch.from_arrays([*lead, *results.columns], schema=_led(results.schema)))


def _led(output: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(HASH, pa.uint64()), pa.field(TIME, pa.int64()), *output])
