"""Follow a running operator and decide before each epoch by which method it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.core.pages import Page
from penstock.core.rows import RowType
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.core.windows import Slides
from penstock.operators.aggregate.config import WindowAggregate
from penstock.operators.aggregate.differential import is_differential
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.methods import MethodName
from penstock.planner.aggregate_costs import AggregateLoad, Sizes
from penstock.planner.aggregate_costs import Planned as PlannedAggregate
from penstock.planner.load import SMOOTHING, Measured, measure
from penstock.planner.machine import SERVER, Machine
from penstock.planner.window_aggregate import AggregateChoice, plan_window_aggregate
from penstock.planner.window_join import Choice, plan_window_join

_SECONDS = {"microseconds": 1e-6, "days": 86_400.0, "ticks": 1.0}
"""What a step of a time column is; a mere number is taken to count seconds."""


class Pilot:
    """Steers one join that was asked for with ``method="auto"``.

    `memory` and `machine` are those of the whole flow, over `tasks` at a time. The method changes at the boundary of
    an epoch only, with the state carried over, and only if it pays.

    >>> from penstock.core.within import band
    >>> pilot = Pilot(WindowJoin((("k", "k"),), band(before=5, after=5)), feeds_operator=False, memory=10**6, tasks=2)
    >>> pilot.decide().method
    'oa'
    """

    def __init__(
        self,
        config: WindowJoin,
        feeds_operator: bool,
        memory: int,
        tasks: int,
        machine: Machine = SERVER,
        current: MethodName | None = None,
    ) -> None:
        self._config = config
        self._feeds_operator = feeds_operator
        self._memory = max(1, memory // tasks)
        self._tasks = tasks
        self._machine = machine.shared(tasks)
        self._measured = Measured()
        self._epoch_seconds = 1.0
        self._current = current
        self.choice: Choice | None = None
        """The latest decision."""

    def decide(self) -> Choice:
        """How to run the next epoch."""
        load = self._measured.load
        self.choice = plan_window_join(
            None if load is None else load.shared(self._tasks),
            self._memory,
            self._feeds_operator,
            self._config.time,
            self._epoch_seconds,
            self._current,
            self._machine,
        )
        self._current = self.choice.method
        return self.choice

    def follow(self, method: MethodName) -> None:
        """The next epoch was planned before, by this method: it is run again as it was."""
        self._current = method

    def saw(self, before: Sequence[Time], after: Sequence[Time], rows: tuple[int, int], pages: Iterable[Page]) -> None:
        """An epoch is done: the bounds of the ports before and after it, the rows they brought, the state it left."""
        seconds = _passed(before, after) * _SECONDS[self._config.unit]
        state = [[0, 0], [0, 0]]
        for page in pages:
            state[page.port][0] += page.rows
            state[page.port][1] += page.nbytes
        sizes = [(float(state[0][n]), float(state[1][n])) for n in (0, 1)]
        self._measured = measure(self._measured, seconds, rows, sizes[0], sizes[1])
        if seconds > 0:
            self._epoch_seconds = seconds


class AggregatePilot:
    """Steers one aggregation of sliding windows that was asked for with ``method="auto"``.

    `memory` is that of the whole flow, over `tasks` at a time. `current` is the method that left the state there is,
    and `holds_state` whether there is some.

    >>> import pyarrow as pa
    >>> from penstock.core.windows import sliding
    >>> from penstock.operators.aggregate.functions import Count
    >>> rows = RowType(pa.schema({"k": pa.int64(), "t": pa.int64()}), ("k",), "t")
    >>> pilot = AggregatePilot(WindowAggregate(sliding(10, 5), ("k",), (("n", Count()),)), (rows,), 10**6, tasks=2)
    >>> pilot.decide().method
    'paned'
    """

    def __init__(
        self,
        config: WindowAggregate,
        inputs: tuple[RowType, ...],
        memory: int,
        tasks: int,
        current: PlannedAggregate | None = None,
        holds_state: bool = False,
    ) -> None:
        self._slides: Slides = config.window.on(config.unit)  # type: ignore[assignment]
        self._config, self._inputs = config, inputs
        self._subtracts = is_differential(config, inputs)
        self._memory = max(1, memory // tasks)
        self._tasks = tasks
        self._current = current
        self._holds_state = holds_state
        self._measured = (0.0, 0.0, 0.0, 0.0)
        """Windows that closed, rows, partials and results; each epoch counts less as others follow."""
        self._each: float | None = None
        """The bytes of each partial in the state there is."""
        self.choice: AggregateChoice | None = None
        """The latest decision."""

    def decide(self) -> AggregateChoice:
        """How to run the next epoch."""
        self.choice = plan_window_aggregate(
            self._slides,
            self._load,
            Sizes.of(self._config, self._inputs, self._each),
            self._memory,
            self._subtracts,
            self._current,
            self._holds_state,
        )
        self._current = self.choice.method
        return self.choice

    def follow(self, method: PlannedAggregate) -> None:
        """The next epoch was planned before, by this method: it is run again as it was."""
        self._current = method

    def saw(self, before: Time, after: Time, lifted: tuple[int, int], results: int, pages: Iterable[Page]) -> None:
        """An epoch is done: its bounds, its rows and what partials they became, its results, the state it left."""
        held = [(page.nbytes, page.rows) for page in pages]
        self._holds_state = bool(held)
        self._each = sum(size for size, _ in held) / sum(rows for _, rows in held) if held else self._each
        if TIME_MIN in (before, after) or after == TIME_MAX:
            return
        closed = self._slides.complete(after) - self._slides.complete(before)
        seen = (closed, *lifted, results)
        self._measured = tuple(
            (1 - SMOOTHING) * old + SMOOTHING * new for old, new in zip(self._measured, seen, strict=True)
        )  # type: ignore[assignment]

    @property
    def _load(self) -> AggregateLoad | None:
        """What is measured, once windows have closed and given results."""
        windows, rows, partials, results = self._measured
        if not windows or not partials or not results:
            return None
        per_window = AggregateLoad(rows / windows, partials / windows, results / windows)
        return per_window.shared(self._tasks)


def _passed(before: Sequence[Time], after: Sequence[Time]) -> int:
    """How much time passed on the ports; none while one of them has not begun, or has ended."""
    ends = (TIME_MIN, TIME_MAX)
    moved = [b - a for a, b in zip(before, after, strict=True) if a not in ends and b not in ends]
    return max(0, *moved) if len(moved) == len(before) else 0
