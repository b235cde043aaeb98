"""Which method sliding windows are aggregated by: what is predicted to cost least, or, if that is too large, AdaptWID.

Panes come first: every other method can go on from them, but they from differences only. Others take over at the
boundary of an epoch, if that pays clearly; where open windows cannot be taken up, once there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.budget import show_bytes
from penstock.core.errors import ConfigError
from penstock.core.windows import Slides, Sliding, TupleWindow
from penstock.operators.aggregate.config import WindowAggregate
from penstock.operators.aggregate.roles import takes_up
from penstock.planner.aggregate_costs import (
    MEASURED,
    AggregateCost,
    AggregateLoad,
    Planned,
    Price,
    Sizes,
    Way,
    predict,
)
from penstock.planner.explain import aligned

_SAYS = {
    "wid": "each row updates every one of its windows",
    "paned": "each row updates its pane, windows are put together from panes",
    "differential": "windows slide by the panes that enter and leave",
    "adapt": "each group by its rows while they are few, by its windows once they are many",
    "buffering": "rows wait until a row past the end of their window closes it; late ones are lost",
}


_BY_TIME: tuple[Planned, ...] = ("paned", "wid", "differential")
"""What is chosen for the time it takes; AdaptWID, for the memory."""


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
                raise ConfigError(f"{name}={getattr(self, name)} is no part of a cost. Write 0 or more, below 1.")


DEFAULT = AggregatePreference()
"""What is preferred where nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class AggregateChoice:
    """The method, why, and of every method what it would cost and why it is not the one, once something is measured.

    >>> AggregateChoice("paned", "nothing is measured yet").costs
    {}
    """

    method: Planned
    reason: str
    costs: Mapping[Planned, AggregateCost] = field(default_factory=dict)
    why_not: Mapping[Planned, str] = field(default_factory=dict)


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
    current: Planned | None,
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
        raise ConfigError(f"memory={memory} leaves nothing to plan with. Write a number above 0.")
    if load is None:
        return _unmeasured(slides, current)
    costs = predict(slides, load, sizes, prices)
    case = _Case(slides, load, costs, memory, subtracts, current, preference)
    wanted = case.wanted()
    if current is None or not holds_state or takes_up(wanted.method, left_by=current):
        return wanted
    return case.choice(
        current,
        f"{wanted.method} cannot go on with the windows that {current} has open: it takes over once there are none",
    )


def _unmeasured(slides: Slides, current: Planned | None) -> AggregateChoice:
    if current not in (None, "paned"):
        return AggregateChoice(current, f"{current} runs already, and nothing is measured yet")
    if slides.range <= slides.slide:
        return AggregateChoice("paned", "windows do not overlap: a window is a pane, and nothing is cheaper than that")
    overlap = slides.range / slides.slide
    return AggregateChoice("paned", f"a row is in {overlap:g} windows, but in one pane; nothing is measured yet")


@dataclass(frozen=True, slots=True)
class _Case:
    """One decision: what each method would cost, which may be taken, which one runs."""

    slides: Slides
    load: AggregateLoad
    costs: Mapping[Planned, AggregateCost]
    memory: int
    subtracts: bool
    current: Planned | None
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

    def choice(self, method: Planned, reason: str) -> AggregateChoice:
        others = [other for other in self.costs if other != method]
        return AggregateChoice(method, reason, self.costs, {other: self._why_not(other, method) for other in others})

    @property
    def _able(self) -> list[Planned]:
        """What may be chosen for its time; windows that do not overlap are panes, and all methods do the same."""
        if self.slides.range <= self.slides.slide:
            return ["paned"]
        return [method for method in _BY_TIME if method != "differential" or self.subtracts]

    def _cheapest(self) -> Planned:
        able = self._able
        return min((m for m in able if self.current not in able or self._pays(m, self.current)), key=self._seconds)

    def _pays(self, method: Planned, current: Planned | None) -> bool:
        """Whether a method is enough cheaper than the one that runs, or is it."""
        if current is None or method == current:
            return True
        return self._seconds(method) <= (1 - self._gain(method, current)) * self._seconds(current)

    def _gain(self, method: Planned, current: Planned) -> float:
        """By which part a method must be cheaper to take over."""
        return self.preference.stay if takes_up(current, left_by=method) else self.preference.for_good

    def _seconds(self, method: Planned) -> float:
        return self.costs[method].seconds

    def _why(self, method: Planned) -> str:
        rows, overlap = self.load.rows / self.load.partials, self.slides.range / self.slides.slide
        seen = f"a pane has {rows:,.1f} rows of each group it has, a row is in {overlap:g} windows"
        cheaper = [other for other in self._able if self._seconds(other) < self._seconds(method)]
        if cheaper:
            return f"{seen}, {method} runs already, and {cheaper[0]} is not so much cheaper that a change pays"
        return f"{seen}, and {method} costs least: {1e3 * self._seconds(method):.1f} ms per window"

    def _why_not(self, method: Planned, chosen: Planned) -> str:
        theirs, ours = self.costs[method], self.costs[chosen]
        if method == "differential" and not self.subtracts:
            return "excluded: an aggregate cannot be undone exactly"
        if method == "adapt":
            costs = _times(theirs.seconds, ours.seconds)
            return f"costs {costs} as much and holds {_times(theirs.state, ours.state)}, if it fits the memory"
        if theirs.seconds < ours.seconds:
            less = f"{100 * (1 - theirs.seconds / ours.seconds):.0f} % cheaper"
            return less if chosen == "adapt" else f"{less}: a change takes {100 * self._gain(method, chosen):.0f} %"
        return f"costs {_times(theirs.seconds, ours.seconds)} as much"


def explain_aggregate(config: WindowAggregate, choice: AggregateChoice | None) -> list[str]:
    """The lines that `explain()` shows: the method, why, and a row for each once something was measured.

    >>> from penstock.core.windows import sliding
    >>> from penstock.operators.aggregate.functions import Count
    >>> config = WindowAggregate(sliding(60, 1), ("k",), (("n", Count()),), method="wid")
    >>> for line in explain_aggregate(config, None):
    ...     print(line)
    method wid (each row updates every one of its windows)
    because method='wid' was asked for
    """
    if not isinstance(config.window, Sliding | TupleWindow):
        return []
    asked = config.method if isinstance(config.method, str) else type(config.method).__name__
    if asked != "auto":
        return [
            f"method {asked} ({_SAYS.get(asked.lower(), 'as asked for')})",
            f"because method={asked!r} was asked for",
        ]
    if choice is None:
        choice = AggregateChoice("paned", _without_a_choice(config))
    lines = [f"method {choice.method} ({_SAYS[choice.method]})", f"because {choice.reason}"]
    if not choice.costs:
        return lines
    rows = [("predicted", "ms per window", "state", "")]
    for method in sorted(choice.costs, key=lambda method: method != choice.method):
        cost = choice.costs[method]
        said = choice.why_not.get(method, "chosen")
        rows.append((method, f"{1e3 * cost.seconds:.1f}", show_bytes(round(cost.state)), said))
    return [*lines, *aligned(rows)]


def _without_a_choice(config: WindowAggregate) -> str:
    if config.emit != "final":
        return "windows come out before they are complete, which only panes do"
    if not is_planned(config):
        return "windows count arrivals, whose numbers say nothing of time"
    return "nothing has run yet: the method is chosen anew before each epoch"


def _times(some: float, other: float) -> str:
    ratio = some / other if other else 0.0
    return f"{ratio:,.0f} ×" if ratio >= 10 else f"{ratio:.2g} ×"
