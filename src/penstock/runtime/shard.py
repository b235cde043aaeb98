"""One epoch of an operator on one shard: bounds, rows, bounds, and the state after it."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.absent import is_absent
from penstock.core.budget import Budget
from penstock.core.durations import TimeUnit
from penstock.core.operator import Logic, Operator, Out, State
from penstock.core.pages import PageStore
from penstock.core.progress import Policy
from penstock.core.rows import PLACE, RowType
from penstock.core.time import TIME_MIN, Time
from penstock.storage.compaction import compact

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PortBounds:
    """The bounds of a port before and after the epoch; with a `policy`, rows may move the bound further."""

    before: Time
    after: Time
    policy: Policy | None = None
    unit: TimeUnit = "ticks"

    def given(self, max_time: Time) -> Time:
        """The bound after rows up to `max_time`. This is sound: what one shard has seen, the whole source has sent."""
        return self.after if self.policy is None else max(self.after, self.policy.bound_from_rows(max_time, self.unit))


class Spare:
    """Allows deferred work in epochs without rows, for `seconds` at most; None means no limit.

    The time begins when it is first asked for, so that each such epoch gets something done, however short it is.

    >>> Spare(rows=0).left(), Spare(rows=0, seconds=0.0).left(), Spare(rows=3, seconds=9.0).left()
    (True, False, False)
    """

    def __init__(self, rows: int, seconds: float | None = None) -> None:
        self._rows = rows
        self._seconds = seconds
        self._begun: float | None = None

    def left(self) -> bool:
        """Whether nothing arrived and there is time."""
        if self._rows or self._seconds is None:
            return not self._rows
        now = clock.perf_counter()
        if self._begun is None:
            self._begun = now
        return now - self._begun < self._seconds


@dataclass(frozen=True, slots=True)
class Arrived:
    """What arrived at each port: rows, their bytes, and the bytes of columns that are only passed on."""

    rows: list[int]
    nbytes: list[int]
    payload: list[int]
    passed: tuple[tuple[str, ...], ...]
    """The names of these columns."""

    @classmethod
    def at(cls, config: Operator, types: tuple[RowType, ...], ports: int) -> Arrived:
        """Nothing yet; ports after those of `types` take partials of rows."""
        passed: list[list[str]] = [[] for _ in range(ports)]
        for port, column in config.carries(types).values():
            if not column.startswith(PLACE):
                passed[port].append(column)
        return cls([0] * ports, [0] * ports, [0] * ports, tuple(map(tuple, passed)))

    def count(self, port: int, batch: pa.RecordBatch) -> None:
        """Some more rows. Columns without a value take no room (`core.absent`)."""
        self.rows[port] += batch.num_rows
        payload = list(map(batch.column, self.passed[port]))
        absent = sum(column.nbytes for column in payload if is_absent(column))
        self.nbytes[port] += batch.nbytes - absent
        self.payload[port] += sum(column.nbytes for column in payload) - absent


def run(
    logic: Logic,
    ports: Sequence[PortBounds],
    arrivals: Iterable[tuple[int, pa.RecordBatch]],
    arrived: Arrived,
    hand_over: Callable[[Iterator[Out]], Iterator[T]],
    rest: Callable[[], None] = lambda: None,
    spare: float | None = None,
) -> Iterator[T]:
    """Run an epoch, and yield what `hand_over` makes of the logic's output.

    The host stores bounds: a logic that resumes from its state first gets the bounds of its ports, then the rows, then
    the bounds after them. Rows are counted in `arrived`; after each piece of them comes a `rest`. If there are none,
    deferred work is done for `spare` seconds.
    """
    tops = [TIME_MIN] * len(arrived.rows)
    for port, bounds in enumerate(ports):
        yield from hand_over(logic.advance(port, bounds.before))
    for port, rows in arrivals:
        if rows.num_rows:
            tops[port] = max(tops[port], pc.max(rows.column(1)).as_py())
        arrived.count(port, rows)
        yield from hand_over(_made(logic, port, rows))
        del rows
        rest()
    for port, bounds in enumerate(ports):
        yield from hand_over(logic.advance(port, bounds.given(tops[port])))
    yield from hand_over(logic.idle(Spare(sum(arrived.rows), spare)))


def _made(logic: Logic, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
    """What a logic gives for rows; nothing is done before the first is asked for, so that all of it is timed."""
    yield from logic.rows(port, rows)


def settled(config: Operator, logic: Logic, store: PageStore, budget: Budget) -> State:
    """The state after an epoch, with its pages merged if the host does that."""
    state = logic.state()
    return replace(state, pages=compact(state.pages, store, budget)) if config.compacts else state
