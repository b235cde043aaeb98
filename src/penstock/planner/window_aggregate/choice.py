"""The method of sliding windows: the one with the lowest predicted cost or, if its state is too large, AdaptWID.

Panes come first: every other method can resume from them, but they can resume only from differences. Another method
takes over between epochs if that clearly pays; if it cannot continue open windows, once there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.budget import show_bytes
from penstock.core.errors import ConfigError
from penstock.core.windows import Slides, Sliding, TupleWindow
from penstock.operators.aggregate import METHODS, WindowAggregate
from penstock.operators.aggregate.roles import takes_up
from penstock.planner.window_aggregate.costs import (
    MEASURED,
    AggregateCost,
    AggregateLoad,
    Price,
    Sizes,
    Way,
    predict,
)


@dataclass(frozen=True, slots=True)
class AggregatePreference:
    """When to change the method.

    >>> AggregatePreference(stay=0.0).smaller
    0.67
    """

    stay: float = 0.15
    """By this part another method must be cheaper than the one that runs, to take over from it …"""
    for_good: float = 0.3
    """… and by this, if there is no way back while windows are open."""
    smaller: float = 0.67
    """To so much of the state, where that does not fit, AdaptWID must bring it …"""
    room: float = 0.5
    """… and to so much of the memory: it is slow where it does not fit itself."""

    def __post_init__(self) -> None:
        for name in ("stay", "for_good", "smaller", "room"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be in [0, 1).")


DEFAULT = AggregatePreference()
"""What is preferred where nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class AggregateChoice:
    """The method, why, and of every method what it would cost and why it is not the one, once something is measured.

    >>> AggregateChoice("paned", "nothing is measured yet").costs
    {}
    """

    method: str
    reason: str
    costs: Mapping[str, AggregateCost] = field(default_factory=dict)
    why_not: Mapping[str, str] = field(default_factory=dict)


def is_planned(config: WindowAggregate) -> bool:
    """Whether there is a method to choose: it was left open, windows slide by time, and leave when complete."""
    slides = isinstance(config.window, Sliding) or (
        isinstance(config.window, TupleWindow) and config.window.order is not None
    )
    return slides and config.method == "auto" and config.emit == "final"


def plan_window_aggregate(
    slides: Slides,
    load: AggregateLoad | None,
    sizes: Sizes,
    memory: int,
    subtracts: bool,
    current: str | None,
    holds_state: bool = True,
    prices: Mapping[Way, Price] = MEASURED,
    preference: AggregatePreference = DEFAULT,
) -> AggregateChoice:
    """Choose the method of sliding windows, before they run or at the boundary of an epoch.

    `load` and `memory` are those of one task; None stands for a load that is not known yet. `subtracts` says whether
    all aggregates can be undone exactly, `current` which method runs, if one does, and `holds_state` whether windows
    are open that another would have to go on with.

    >>> load = AggregateLoad(rows=1e6, partials=1e4, results=1e4)
    >>> choice = plan_window_aggregate(Slides(720, 1), load, Sizes(56, 0, 32, 32), 10**9, True, current="paned")
    >>> choice.method
    'differential'
    >>> plan_window_aggregate(Slides(720, 1), load, Sizes(56, 0, 32, 32), 10**9, False, current="paned").method
    'paned'
    """
    if not memory > 0:
        raise ConfigError(f"memory={memory} must be above 0.")
    if load is None:
        return _unmeasured(slides, current)
    costs = predict(slides, load, sizes, prices)
    case = _Case(slides, load, costs, memory, subtracts, current, preference)
    wanted = case.wanted()
    if current is None or not holds_state or takes_up(wanted.method, left_by=current):
        return wanted
    return case.choice(
        current,
        f"{wanted.method} cannot continue the windows that {current} has open: it takes over once they are closed",
    )


def _unmeasured(slides: Slides, current: str | None) -> AggregateChoice:
    if current not in (None, "paned"):
        return AggregateChoice(current, f"{current} runs already, and nothing is measured yet")
    if slides.range <= slides.slide:
        return AggregateChoice("paned", "windows do not overlap: a window is one pane, and nothing is cheaper")
    overlap = slides.range / slides.slide
    return AggregateChoice("paned", f"a row is in {overlap:g} windows, but in one pane; nothing is measured yet")


@dataclass(frozen=True, slots=True)
class _Case:
    """One decision: what each method would cost, which may be taken, which one runs."""

    slides: Slides
    load: AggregateLoad
    costs: Mapping[str, AggregateCost]
    memory: int
    subtracts: bool
    current: str | None
    preference: AggregatePreference

    def wanted(self) -> AggregateChoice:
        """The cheapest, or AdaptWID if the state of that is too much; whether it can take over or not."""
        method = self._cheapest()
        state, adapting = self.costs[method].state, self.costs["adapt"].state
        room = self.memory * (1 - self.preference.stay if self.current == "adapt" else 1)
        if state > room and adapting <= min(self.preference.smaller * state, self.preference.room * self.memory):
            return self.choice(
                "adapt",
                f"state of about {show_bytes(round(state))} by {method} does not fit the memory of one task "
                f"({show_bytes(self.memory)}), and AdaptWID holds {show_bytes(round(adapting))}",
            )
        return self.choice(method, self._why(method))

    def choice(self, method: str, reason: str) -> AggregateChoice:
        others = [other for other in self.costs if other != method]
        return AggregateChoice(method, reason, self.costs, {other: self._why_not(other, method) for other in others})

    @property
    def _able(self) -> list[str]:
        """What may be chosen for its time; windows that do not overlap are panes, and all methods do the same.

        AdaptWID is chosen for its memory.
        """
        if self.slides.range <= self.slides.slide:
            return ["paned"]
        return [name for name in self.costs if name != "adapt" and (self.subtracts or not _undoes(name))]

    def _cheapest(self) -> str:
        able = self._able
        return min((m for m in able if self.current not in able or self._pays(m, self.current)), key=self._seconds)

    def _pays(self, method: str, current: str | None) -> bool:
        """Whether a method is enough cheaper than the one that runs, or is it."""
        if current is None or method == current:
            return True
        return self._seconds(method) <= (1 - self._gain(method, current)) * self._seconds(current)

    def _gain(self, method: str, current: str) -> float:
        """By which part a method must be cheaper to take over."""
        return self.preference.stay if takes_up(current, left_by=method) else self.preference.for_good

    def _seconds(self, method: str) -> float:
        return self.costs[method].seconds

    def _why(self, method: str) -> str:
        rows, overlap = self.load.rows / self.load.partials, self.slides.range / self.slides.slide
        seen = f"a pane has {rows:,.1f} rows per group, a row is in {overlap:g} windows"
        cheaper = [other for other in self._able if self._seconds(other) < self._seconds(method)]
        if cheaper:
            cheapest = min(cheaper, key=self._seconds)
            return f"{seen}, {method} runs already, and {cheapest} is not cheaper by enough to switch"
        return f"{seen}, and {method} costs least: {1e3 * self._seconds(method):.1f} ms per window"

    def _why_not(self, method: str, chosen: str) -> str:
        theirs, ours = self.costs[method], self.costs[chosen]
        if _undoes(method) and not self.subtracts:
            return "excluded: an aggregate cannot be undone exactly"
        if method == "adapt":
            costs = _times(theirs.seconds, ours.seconds)
            return f"costs {costs} as much and holds {_times(theirs.state, ours.state)}, if it fits the memory"
        if theirs.seconds < ours.seconds:
            less = f"{100 * (1 - theirs.seconds / ours.seconds):.0f} % cheaper"
            return less if chosen == "adapt" else f"{less}, but a switch needs {100 * self._gain(method, chosen):.0f} %"
        return f"costs {_times(theirs.seconds, ours.seconds)} as much"


def _undoes(method: str) -> bool:
    return METHODS[method].parameters.subtracts


def _times(some: float, other: float) -> str:
    ratio = some / other if other else 0.0
    return f"{ratio:,.0f} ×" if ratio >= 10 else f"{ratio:.2g} ×"
