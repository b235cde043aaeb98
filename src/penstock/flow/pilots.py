"""Who chooses the method of each operator that left it open, and what hosts tell them of each epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.master import MasterTable
from penstock.core.pages import Page
from penstock.core.time import Time
from penstock.flow.graph import AggregateNode, JoinNode, LookupNode, OperatorNode
from penstock.flow.lookups import lookup_pilot, stream_seconds
from penstock.planner import AggregatePilot, LookupPilot, Pilot, is_planned
from penstock.planner.machine import here

AnyPilot = Pilot | AggregatePilot | LookupPilot
"""Steers one operator."""


@dataclass(frozen=True, slots=True)
class Master:
    """The table of a lookup as it is now, the kind of place it is in, and the memory that a task has for it."""

    table: MasterTable
    store: str
    share: int


@dataclass(frozen=True, slots=True)
class Cockpit:
    """What a host gives all its pilots: the flow's memory, how many tasks run at a time, a lookup's table if asked."""

    memory: int
    tasks: int
    master: Callable[[LookupNode], Master]

    def pilot(
        self, node: OperatorNode, *, feeds: bool, current: str | None = None, holds_state: bool = False
    ) -> AnyPilot | None:
        """Who chooses an operator's method, if it was left open.

        `feeds` says whether its results go into another operator; `current` is the method that left the state there
        is, and `holds_state` whether there is some.
        """
        method: Any = current
        if isinstance(node, JoinNode) and node.config.method == "auto":
            return Pilot(node.config, feeds, self.memory, self.tasks, here(), method)
        if isinstance(node, AggregateNode) and is_planned(node.config):
            return AggregatePilot(node.config, node.types, self.memory, self.tasks, method, holds_state)
        if isinstance(node, LookupNode) and node.config.method == "auto":
            master = self.master(node)
            return lookup_pilot(node, master.table, master.store, master.share, self.tasks, method)
        return None


@dataclass(frozen=True, slots=True)
class Flown:
    """What an epoch showed of an operator, over all its shards: the bounds of its ports, and what went in and out."""

    before: tuple[Time, ...]
    after: tuple[Time, ...]
    rows: tuple[int, ...]
    """Rows that arrived, by port."""
    results: int
    lifted: tuple[int, int]
    """Rows of an aggregation, and the partials that they became."""
    seconds: float
    """Seconds of its tasks, at work and settling their state."""
    counts: Mapping[str, int]
    pages: Iterable[Page]
    """The state that it left."""


def look_at(table: MasterTable, pilot: AnyPilot | None) -> None:
    """Show a lookup's pilot, if it has one, its table in another version."""
    if isinstance(pilot, LookupPilot):
        pilot.sees(table)


def tell(pilot: AnyPilot, node: OperatorNode, epoch: Flown) -> None:
    """Let an operator's pilot know what an epoch showed."""
    if isinstance(pilot, AggregatePilot):
        pilot.saw(epoch.before[0], epoch.after[0], epoch.lifted, epoch.results, epoch.pages)
    elif isinstance(pilot, LookupPilot):
        passed = stream_seconds(epoch.before[0], epoch.after[0], node.unit)
        pilot.saw(epoch.rows[0], passed, epoch.seconds, epoch.counts)
    else:
        pilot.saw(epoch.before, epoch.after, (epoch.rows[0], epoch.rows[1]), epoch.pages)
