"""The families of operators with several methods: the pilot of an operator, and the explanation of its method.

Hosts ask here, by an operator's config; they know neither families nor methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from penstock.core.master import MasterTable, TableSource
from penstock.core.operator import Operator
from penstock.core.rows import RowType
from penstock.operators.aggregate import WindowAggregate
from penstock.operators.lookup import METHODS as LOOKUP_METHODS
from penstock.operators.lookup import LookupJoin
from penstock.operators.multi_way import METHODS as MULTI_METHODS
from penstock.operators.multi_way import MultiJoin
from penstock.operators.window_join import METHODS, WindowJoin
from penstock.planner.flown import Flown
from penstock.planner.lookup import LookupPilot, explain_lookup
from penstock.planner.machine import here
from penstock.planner.window_aggregate import AggregatePilot, explain_aggregate, is_planned
from penstock.planner.window_join import Choice, Pilot, explain_choice


class Steering(Protocol):
    """Chooses the method of one operator, epoch by epoch."""

    def decide(self) -> Any:
        """How to run the next epoch: a choice with a `method`."""
        ...

    def follow(self, method: Any) -> None:
        """The next epoch was planned before, by this method: it is run again as it was."""
        ...

    def learn(self, epoch: Flown) -> None:
        """An epoch is done."""
        ...

    def sees(self, table: MasterTable) -> None:
        """The master table has another version."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """An operator, and what its pilot needs to know: its place in the flow, and its memory."""

    config: Operator
    types: tuple[RowType, ...]
    feeds: bool
    """Whether its results go into another operator."""
    memory: int
    """The flow's, over `tasks` at a time."""
    tasks: int
    share: int
    """What one of its own tasks has."""
    table: Callable[[], TableSource]
    """Its master table, if it has one."""
    current: Any = None
    """The method that left the state there is."""
    holds_state: bool = False


def pilot_for(asked: Asked) -> Steering | None:
    """Who chooses an operator's method, if it was left open."""
    family = _FAMILIES.get(type(asked.config))
    return None if family is None else family.pilot(asked)


def explain_method(config: Operator, pilot: Steering | None) -> Sequence[str]:
    """By which method an operator runs and why, in words; nothing where there is only one."""
    family = _FAMILIES.get(type(config))
    return () if family is None else family.explain(config, pilot)


class _Family(NamedTuple):
    pilot: Callable[[Asked], Steering | None]
    explain: Callable[[Any, Any], Sequence[str]]


def _join_pilot(asked: Asked) -> Pilot | None:
    config = asked.config
    if not isinstance(config, WindowJoin) or config.method != "auto":
        return None
    return Pilot(config, asked.feeds, asked.memory, asked.tasks, here(), asked.current)


def _explain_join(config: WindowJoin, pilot: Pilot | None) -> Sequence[str]:
    if pilot is not None and pilot.choice is not None:
        return explain_choice(pilot.choice)
    if config.method == "auto":
        return explain_choice(Choice("oa", "nothing has run yet: the method is chosen again before each epoch"))
    return METHODS.explained(config.method)


def _aggregate_pilot(asked: Asked) -> AggregatePilot | None:
    config = asked.config
    if not isinstance(config, WindowAggregate) or not is_planned(config):
        return None
    return AggregatePilot(config, asked.types, asked.memory, asked.tasks, asked.current, asked.holds_state)


def _explain_aggregate(config: WindowAggregate, pilot: AggregatePilot | None) -> Sequence[str]:
    lines = explain_aggregate(config, None if pilot is None else pilot.choice)
    if not config.punctuated:
        return lines
    return [
        *(f"{line}, because windows close group by group" for line in lines[:1]),
        f"the windows of each {', '.join(config.punctuated)} close once its own bound has passed them, independently "
        f"of the others",
    ]


def _lookup_pilot(asked: Asked) -> LookupPilot | None:
    config = asked.config
    if not isinstance(config, LookupJoin) or config.method != "auto":
        return None
    table = asked.table()
    return LookupPilot.of(config, asked.types[0], table.open(), table.store, asked.share, asked.tasks, asked.current)


def _explain_lookup(config: LookupJoin, pilot: LookupPilot | None) -> Sequence[str]:
    if pilot is not None:
        return explain_lookup(pilot.outlook(), pilot.keys)
    return LOOKUP_METHODS.explained(config.method)


_ONLY_MSJ = "it orders its probes by the matches that it measures; the other methods are baselines"


def _explain_multi(config: MultiJoin, pilot: None) -> Sequence[str]:
    if config.method == "auto":
        return MULTI_METHODS.explained("msj", _ONLY_MSJ)
    return MULTI_METHODS.explained(config.method)


_FAMILIES: dict[type[Operator], _Family] = {
    WindowJoin: _Family(_join_pilot, _explain_join),
    WindowAggregate: _Family(_aggregate_pilot, _explain_aggregate),
    LookupJoin: _Family(_lookup_pilot, _explain_lookup),
    MultiJoin: _Family(lambda asked: None, _explain_multi),
}
