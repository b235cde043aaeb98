"""Follows a running window join and chooses its method before each epoch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.core.master import MasterTable
from penstock.core.pages import Page
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.core.within import Always
from penstock.operators.window_join import WindowJoin
from penstock.planner.flown import SECONDS, Flown
from penstock.planner.machine import SERVER, Machine
from penstock.planner.window_join.always import plan_always
from penstock.planner.window_join.choice import Choice, plan_window_join
from penstock.planner.window_join.load import Measured, measure


class Pilot:
    """Steers one join that was asked for with ``method="auto"``.

    `memory` and `machine` are those of the whole flow, over `tasks` at a time. The method changes only between epochs,
    with the state carried over, and only if it pays.

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
        current: str | None = None,
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
        if self._config.matching is not None and not isinstance(self._config.within, Always):
            self.choice = Choice("oa", "other methods need equal keys")
            return self.choice
        load = self._measured.load
        plan = plan_always if isinstance(self._config.within, Always) else plan_window_join
        self.choice = plan(
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

    def follow(self, method: str) -> None:
        """The next epoch was planned before, by this method: it is run again as it was."""
        self._current = method

    def learn(self, epoch: Flown) -> None:
        """An epoch is done."""
        self.saw(epoch.before, epoch.after, (epoch.rows[0], epoch.rows[1]), epoch.pages)

    def sees(self, table: MasterTable) -> None:
        """A join of streams has no table."""

    def saw(self, before: Sequence[Time], after: Sequence[Time], rows: tuple[int, int], pages: Iterable[Page]) -> None:
        """An epoch is done: the bounds of the ports before and after it, the rows they brought, the state it left."""
        seconds = _passed(before, after) * SECONDS[self._config.unit]
        state = [[0, 0], [0, 0]]
        for page in pages:
            state[page.kind][0] += page.rows
            state[page.kind][1] += page.nbytes
        sizes = [(float(state[0][n]), float(state[1][n])) for n in (0, 1)]
        self._measured = measure(self._measured, seconds, rows, sizes[0], sizes[1])
        if seconds > 0:
            self._epoch_seconds = seconds


def _passed(before: Sequence[Time], after: Sequence[Time]) -> int:
    """How much time passed on the ports; none while one of them has not begun, or has ended."""
    ends = (TIME_MIN, TIME_MAX)
    moved = [b - a for a, b in zip(before, after, strict=True) if a not in ends and b not in ends]
    return max(0, *moved) if len(moved) == len(before) else 0
