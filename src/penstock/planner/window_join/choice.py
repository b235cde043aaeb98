"""The method of a window join: OA-Join while state is small, else the one with the lowest predicted cost.

OA-Join emits every result at once. The others defer joins with pages on disk, which costs less if state is many times
the memory, but holds results back. How much cheaper that must be is a `Preference`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.budget import show_bytes
from penstock.core.errors import ConfigError
from penstock.operators.window_join import METHODS, JoinTime
from penstock.planner.machine import SERVER, Machine
from penstock.planner.window_join.costs import COSTS, Cost
from penstock.planner.window_join.load import Load

_UNKNOWN = "nothing is measured yet; OA-Join defers nothing, and its state may outgrow the memory"
_FORCED = (
    "its results feed another operator by their later time, and a method that defers results would hold back its bound"
)
_HOLDS_BACK = "excluded: would hold back the bound of the operator that its results feed"


@dataclass(frozen=True, slots=True)
class Preference:
    """The value of immediate results, and the cost of a switch. These are preferences: change them at will.

    >>> Preference(prompt=1.0, worth=0.0).stay
    0.3
    """

    small: float = 4.0
    """State up to so many times the memory is OA-Join's, whatever the others would cost."""
    prompt: float = 1.5
    """So many times cheaper than OA-Join a method must be to be let put results off …"""
    worth: float = 0.1
    """… and so many seconds of work per second of stream it must save."""
    stay: float = 0.3
    """By this part the best must be cheaper than the method that runs, to take over from it."""
    tie: float = 0.05
    """Costs that differ by no more than this part are the same: the method that puts fewer results off is taken."""

    def __post_init__(self) -> None:
        for name, least in (("small", 1), ("prompt", 1), ("worth", 0), ("tie", 0)):
            if not getattr(self, name) >= least:
                raise ConfigError(f"{name}={getattr(self, name)} must be {least} or more.")
        if not 0 <= self.stay < 1:
            raise ConfigError(f"stay={self.stay} must be in [0, 1).")


DEFAULT = Preference()
"""What is preferred where nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A method that was not chosen, its cost, and the reason.

    >>> Alternative("ewj", Cost(0.4, 9300.0, 100.0, at_once=0.016), "costs 1.3 × as much").method
    'ewj'
    """

    method: str
    cost: Cost
    why: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The method, the reason, and the alternatives. There is no cost while the load is unknown.

    >>> Choice("oa", "nothing is measured yet").alternatives
    ()
    """

    method: str
    reason: str
    cost: Cost | None = None
    alternatives: tuple[Alternative, ...] = ()


def plan_window_join(
    load: Load | None,
    memory: int,
    feeds_operator: bool,
    time: JoinTime,
    epoch_seconds: float,
    current: str | None,
    machine: Machine = SERVER,
    preference: Preference = DEFAULT,
) -> Choice:
    """Choose the method of a window join, before it runs or at the boundary of an epoch.

    `load`, `memory` and `machine` are those of one task (see `Load.shared`, `Machine.shared`); None stands for a load
    that is not known yet. `epoch_seconds` is the stream time of an epoch, `current` the method that runs, if one does.
    Methods that put joins off hold the joint bound back: where the results feed an operator by the later of their
    times, OA-Join alone is allowed.

    >>> load = Load(rows_per_second=(15e3, 15e3), row_bytes=(100.0, 100.0), window_seconds=(600.0, 600.0))
    >>> choice = plan_window_join(load, 64_000_000, False, "left", epoch_seconds=2.0, current=None)
    >>> choice.method
    'ewj'
    >>> print(choice.reason)
    state of about 1.8 GB is 28 × the memory of one task (64.0 MB), and EWJ costs least: 0.45 s of work per second ...
    >>> plan_window_join(load, 64_000_000, True, "latest", epoch_seconds=2.0, current=None).method
    'oa'
    """
    for name, value in (("memory", memory), ("epoch_seconds", epoch_seconds)):
        if not value > 0:
            raise ConfigError(f"{name}={value} must be above 0.")
    running = None if current == "auto" else current
    only_oa = feeds_operator and time == "latest"
    if load is None:
        return Choice("oa", _FORCED) if only_oa else _unmeasured(running)
    case = _Case(load, memory, predict(load, memory, epoch_seconds, machine), running, preference)
    if only_oa:
        return case.choice("oa", _FORCED, dict.fromkeys(case.others("oa"), _HOLDS_BACK))
    return case.kept_small() if case.is_small() else case.cheapest()


def predict(load: Load, memory: int, epoch_seconds: float, machine: Machine = SERVER) -> dict[str, Cost]:
    """What each method of a join with a window would cost, by its default parameters.

    >>> idle = Load(rows_per_second=(0.0, 0.0), row_bytes=(100.0, 100.0), window_seconds=(600.0, 600.0))
    >>> {cost.seconds for cost in predict(idle, 64_000_000, epoch_seconds=2.0).values()}
    {0.0}
    """
    windowed = {method: cost for method, cost in COSTS.items() if not METHODS[method].parameters.windowless}
    return {method: cost(load, memory, epoch_seconds, machine) for method, cost in windowed.items()}


def _unmeasured(running: str | None) -> Choice:
    if running in (None, "oa"):
        return Choice("oa", _UNKNOWN)
    return Choice(running, f"{METHODS[running].title} runs already, and nothing is measured yet")


@dataclass(frozen=True, slots=True)
class _Case:
    """One decision: what is to be borne, what each method would cost, which one runs."""

    load: Load
    memory: int
    costs: dict[str, Cost]
    running: str | None
    preference: Preference

    @property
    def state(self) -> float:
        return sum(self.load.state_bytes)

    def others(self, method: str) -> list[str]:
        return [other for other in self.costs if other != method]

    def choice(self, method: str, reason: str, why: Mapping[str, str]) -> Choice:
        others = [Alternative(other, self.costs[other], why[other]) for other in self.others(method)]
        return Choice(method, reason, self.costs[method], tuple(others))

    def is_small(self) -> bool:
        """Whether OA-Join is to have it; what runs by another method must have shrunk by more than a little."""
        stays = 1.0 if self.running in (None, "oa") else 1 - self.preference.stay
        return self.state <= stays * self.preference.small * self.memory

    def kept_small(self) -> Choice:
        reason = f"{self._state()}: small enough to defer nothing"
        return self.choice("oa", reason, dict.fromkeys(self.others("oa"), "defers results without need"))

    def cheapest(self) -> Choice:
        best, running = self._best(), self.running
        if running is None or running == best or self._pays(best, running):
            return self._take(best, self._why(best))
        titles = METHODS[running].title, METHODS[best].title
        return self._take(
            running,
            f"{self._state()}, {titles[0]} runs already, and {titles[1]} is not cheaper by enough to switch",
        )

    def _pays(self, best: str, running: str) -> bool:
        return self._weighed(best) <= (1 - self.preference.stay) * self._weighed(running)

    def _best(self) -> str:
        """OA-Join wins ties only where it falls behind: else what its results at once are worth is weighed already."""
        other = self._cheapest_of(self.others("oa"))
        if not self.costs["oa"].keeps_up:
            return self._cheapest_of(["oa", other])
        return "oa" if self._weighed("oa") <= self._weighed(other) else other

    def _cheapest_of(self, methods: list[str]) -> str:
        least = min(map(self._weighed, methods))
        near = [method for method in methods if self._weighed(method) <= (1 + self.preference.tie) * least]
        return min(near, key=lambda method: (-self.costs[method].at_once, self._weighed(method)))

    def _weighed(self, method: str) -> float:
        """The cost, with what putting results off is held to cost; that counts for nothing if OA-Join falls behind."""
        seconds = self.costs[method].seconds
        if method == "oa" or not self.costs["oa"].keeps_up:
            return seconds
        return max(self.preference.prompt * seconds, seconds + self.preference.worth)

    def _take(self, method: str, reason: str) -> Choice:
        return self.choice(method, reason, {other: self._why_not(other, method) for other in self.others(method)})

    def _why(self, best: str) -> str:
        ours = self.costs[best]
        tail = "" if ours.keeps_up else ", and even that falls behind"
        if best == "oa" and ours.seconds > min(cost.seconds for cost in self.costs.values()):
            return (
                f"{self._state()}, but no method is {self.preference.prompt:g} × cheaper than OA-Join, which defers "
                f"nothing, and saves {self.preference.worth:g} s of work per second of stream{tail}"
            )
        work = f"{ours.seconds:.2f} s of work per second of stream"
        rival = f" against {self.costs['oa'].seconds:.2f} s by OA-Join" if best != "oa" else ""
        return f"{self._state()}, and {METHODS[best].title} costs least: {work}{rival}{tail}"

    def _why_not(self, method: str, chosen: str) -> str:
        theirs, ours = self.costs[method], self.costs[chosen]
        behind = "" if theirs.keeps_up else ", and falls behind"
        if self._weighed(method) < (1 - self.preference.tie) * self._weighed(chosen):
            less = 1 - self._weighed(method) / self._weighed(chosen)
            return (
                f"{_percent(less)} cheaper, all things considered, but a switch needs {_percent(self.preference.stay)}"
            )
        if theirs.seconds > (1 + self.preference.tie) * ours.seconds:
            return f"costs {_times(theirs.seconds, ours.seconds)} as much{behind}"
        if theirs.at_once < ours.at_once:
            saved = max(0.0, ours.seconds - theirs.seconds)
            return f"defers {_percent(1 - theirs.at_once)} of the results and saves {saved:.2f} s{behind}"
        return f"costs as much{behind}"

    def _state(self) -> str:
        size, task = show_bytes(round(self.state)), show_bytes(self.memory)
        if self.state <= self.memory:
            return f"state of about {size} fits the memory of one task ({task})"
        return f"state of about {size} is {_times(self.state, self.memory)} the memory of one task ({task})"


def _times(some: float, other: float) -> str:
    if not other:
        return "many ×"
    ratio = some / other
    return f"{ratio:,.0f} ×" if ratio >= 10 else f"{ratio:.1f} ×"


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"
