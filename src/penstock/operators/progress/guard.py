"""Guard: blocks rows that an earlier punctuation excludes.

A row is a violator iff its time is below its stream's bound, or below the bound of its group. Violators leave through
the late outlet and are counted; all other rows pass unchanged, in order. The state has bounds only, no rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Operator, Out, State
from penstock.core.pages import PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import RowType, hashes_of, times_of
from penstock.core.time import TIME_MIN, Time, Times
from penstock.operators.aggregate.group_bounds import GroupBoundTable
from penstock.operators.progress.groups import group_type
from penstock.operators.progress.outlets import split

STATEMENTS = 1
"""The port that takes statements about groups: they hold from the end of the epoch on."""


@dataclass(frozen=True, slots=True)
class Guard(Operator):
    """Guard one stream; its groups, if punctuations are about groups, are given by its keys (F01).

    Port 0 takes the rows. Port 1, where a host has it, takes statements: the columns of a group, and as their time the
    bound of its later rows. An epoch's statements hold for the rows of later epochs, in whatever order they come.
    """

    method: str = "guard"

    def says(self, inputs: tuple[RowType, ...] = ()) -> str:
        """What it does, in words."""
        return f"rows below the bound of their own {', '.join(inputs[0].keys)} are late"

    @property
    def method_name(self) -> str:
        """The name of the only method."""
        return self.method

    @property
    def passes_updates(self) -> bool:
        """True: each row passes, or is late, by itself and at once."""
        return True

    @property
    def finds_late(self) -> bool:
        """True: this is its purpose."""
        return True

    @property
    def waits_for_bounds(self) -> bool:
        """False: rows pass at once."""
        return False

    def logic(
        self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State, meter: Meter | None = None
    ) -> Guarding:
        """The running operator."""
        return Guarding(inputs[0], store, budget, state)

    def bounds(self, *ports: Time) -> Bounds:
        """Rows pass at once: the bound is that of the rows."""
        return Bounds.at(ports[0])


class Guarding:
    """The logic of a guard."""

    def __init__(self, rows: RowType, store: PageStore, budget: Budget, state: State) -> None:
        self._type = rows
        self._bound: Time = state.meta.get("bound", TIME_MIN)
        self.violators: int = state.meta.get("violators", 0)
        """How many rows were late so far."""
        self._before = self.violators
        groups = group_type(rows)
        self._groups, self._said = (
            GroupBoundTable(groups, port, store, budget, [page for page in state.pages if page.kind == port])
            for port in (0, STATEMENTS)
        )

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Rows pass, or are late; statements wait for the end of the epoch."""
        if port == STATEMENTS:
            self._said.add(rows)
            return
        late = times_of(rows) < np.maximum(self._bound, self._bounds_of(rows))
        self.violators += int(np.count_nonzero(late))
        yield from split(self._type, rows, late)

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """A linear punctuation: it also holds for every group."""
        if port != STATEMENTS and bound > self._bound:
            self._bound = bound
            self._groups.purge(bound)
        return iter(())

    def idle(self, work: Allowance) -> Iterator[Out]:
        """The epoch is over: its statements hold from now on."""
        self._groups.take_over(self._said)
        return iter(())

    def bounds(self) -> Bounds:
        """The input's bound."""
        return Bounds.at(self._bound)

    def counts(self) -> dict[str, int]:
        """How many rows of this epoch were late."""
        return {"late": self.violators - self._before}

    def state(self) -> State:
        """The bounds, and how many violators there were."""
        self._groups.tidy()
        pages = (*self._groups.pages, *self._said.pages)
        return State(pages, {"bound": self._bound, "violators": self.violators})

    def _bounds_of(self, rows: pa.RecordBatch) -> Times:
        return self._groups.of(hashes_of(rows), [self._type.column(rows, key) for key in self._type.keys])
