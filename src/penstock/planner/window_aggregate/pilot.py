"""Follows a running window aggregation and chooses its method before each epoch."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.master import MasterTable
from penstock.core.pages import Page
from penstock.core.rows import RowType
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.core.windows import Slides
from penstock.operators.aggregate.config import WindowAggregate
from penstock.planner.flown import Flown
from penstock.planner.smoothing import SMOOTHING
from penstock.planner.window_aggregate.choice import AggregateChoice, plan_window_aggregate
from penstock.planner.window_aggregate.costs import AggregateLoad, Sizes


class AggregatePilot:
    """Steers one aggregation of sliding windows that was asked for with ``method="auto"``.

    `memory` is that of the whole flow, over `tasks` at a time. `current` is the method that wrote the current state,
    and `holds_state` says whether there is any.

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
        current: str | None = None,
        holds_state: bool = False,
    ) -> None:
        self._slides: Slides = config.window.on(config.unit)  # type: ignore[assignment]
        self._config, self._inputs = config, inputs
        self._subtracts = config.undone(inputs)
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

    def follow(self, method: str) -> None:
        """The next epoch was planned before, by this method: it is run again as it was."""
        self._current = method

    def learn(self, epoch: Flown) -> None:
        """An epoch is done."""
        self.saw(epoch.before[0], epoch.after[0], epoch.lifted, epoch.results, epoch.pages)

    def sees(self, table: MasterTable) -> None:
        """An aggregation has no table."""

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
