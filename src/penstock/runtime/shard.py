"""An operator at work on one shard for one epoch: bounds, rows, bounds, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.budget import Budget
from penstock.core.durations import TimeUnit
from penstock.core.operator import Logic, Operator, Out, Quiet, State
from penstock.core.pages import PageStore
from penstock.core.progress import Policy
from penstock.core.time import TIME_MIN, Time
from penstock.storage.compaction import compact

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PortBounds:
    """How far a port had got before the epoch, and how far it has after; with a `policy`, rows seen may tell more."""

    before: Time
    after: Time
    policy: Policy | None = None
    unit: TimeUnit = "ticks"

    def given(self, max_time: Time) -> Time:
        """The bound after rows up to `max_time`. Sound: what one shard saw, the whole source has shown."""
        return self.after if self.policy is None else max(self.after, self.policy.bound_from_rows(max_time, self.unit))


def run(
    logic: Logic,
    ports: Sequence[PortBounds],
    arrivals: Iterable[tuple[int, pa.RecordBatch]],
    rows_by_port: list[int],
    hand_over: Callable[[Iterator[Out]], Iterator[T]],
    rest: Callable[[], None] = lambda: None,
) -> Iterator[T]:
    """Run an epoch: what the logic gives, as `hand_over` makes of it.

    Bounds are the host's to remember: a logic that takes up its state learns first how far it had got. Then come the
    rows, then the bounds after them. Rows are counted in `rows_by_port`; after each piece of them comes a `rest`.
    """
    tops = [TIME_MIN] * len(rows_by_port)
    for port, bounds in enumerate(ports):
        yield from hand_over(logic.advance(port, bounds.before))
    for port, rows in arrivals:
        if rows.num_rows:
            tops[port] = max(tops[port], pc.max(rows.column(1)).as_py())
        rows_by_port[port] += rows.num_rows
        yield from hand_over(logic.rows(port, rows))
        del rows
        rest()
    for port, bounds in enumerate(ports):
        yield from hand_over(logic.advance(port, bounds.given(tops[port])))
    yield from hand_over(logic.idle(Quiet(sum(rows_by_port))))


def settled(config: Operator, logic: Logic, store: PageStore, budget: Budget) -> State:
    """What a logic leaves, its pages merged if that is the host's to do."""
    state = logic.state()
    return replace(state, pages=compact(state.pages, store, budget)) if config.compacts else state
