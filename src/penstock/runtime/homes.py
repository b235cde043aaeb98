"""Where the payload of sources is kept: the choice, and the units that rows in state may be in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.core.budget import show_bytes
from penstock.core.operator import State
from penstock.core.rows import PLACE
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.flow.graph import OperatorNode, SourceNode, ahead_of, sources_of, walk
from penstock.flow.report import OperatorReport
from penstock.planner.payload import HomePilot, cheapest_to_carry
from penstock.storage.versioned import Kept, Plan

_LESS = 0.8
"""How much of what did not fit the driver is taken to fit it."""

_RANGES = 256
"""Most ranges of units of a source that a ledger distinguishes."""


class Homes:
    """The sources of a flow whose rows may leave payload behind. `pilots` choose whether they do."""

    def __init__(
        self, sources: Sequence[SourceNode], operators: Sequence[OperatorNode], room: float = math.inf
    ) -> None:
        self._sources = [source for source in sources if source.row is not None]
        self._operators = operators
        self.pilots = {
            source.name: HomePilot(
                source.payload,
                source.width,
                len(_partials(source, operators)),
                source.why,
                columns=max(1, len(source.lets_go)),
                room=room,
            )
            for source in self._sources
        }

    def learn(
        self,
        rows: Mapping[str, int],
        operators: Mapping[str, OperatorReport],
        in_driver: bool = True,
        widths: Mapping[str, float] | None = None,
    ) -> None:
        """Learn from an epoch: how many rows each source had, how wide they were, and how many results they were in.

        An epoch that did not run in the driver shows that there is less room in it than assumed.
        """
        together = math.fsum(pilot.brings for pilot in self.pilots.values())
        noted = []
        for source in self._sources:
            pilot = self.pilots[source.name]
            out = {node: operators[node.name].rows_out for node in _met(source, self._operators)}
            partials = sum(out[node] for node in _partials(source, self._operators))
            if not in_driver and together:
                pilot.room = min(pilot.room, _LESS * together)
            if pilot.saw(rows[source.name], partials, sum(out.values()) - partials, (widths or {}).get(source.name)):
                noted.append(source.name)
        # Two sources that fit the driver alone may not fit together.
        carried = cheapest_to_carry(self.pilots)
        brought = {name: self.pilots[name].load()[0] for name in carried}
        for name in noted:
            self.pilots[name].decide(math.fsum(size for other, size in brought.items() if other != name))

    def saved(self) -> dict[str, Any]:
        """What was learned of each source, for a ledger."""
        return {name: pilot.as_dict() for name, pilot in self.pilots.items()}

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Go on with what an earlier start of the flow has learned."""
        for name in self.pilots.keys() & saved.keys():
            self.pilots[name].resume(saved[name])

    def told(self, in_segments: Mapping[str, int]) -> list[str]:
        """Lines for `explain()` on where payload is; `in_segments` are the bytes there, by source."""
        return [
            f"payload of {source.name} ({', '.join(sorted('.'.join(path) for path in source.lets_go))}; about "
            f"{self.pilots[source.name].width:.0f} B a row) {self.pilots[source.name].says()}"
            + (f"; {show_bytes(in_segments[source.name])} are in segments" if source.name in in_segments else "")
            for source in self._sources
        ]

    def kept(
        self,
        before: Mapping[str, Sequence[Kept]],
        plan: Plan,
        states: Mapping[str, tuple[State, ...]],
        behind: Mapping[str, tuple[Time, int]],
    ) -> dict[str, tuple[Kept, ...]]:
        """By source, the units that rows in state may be in after an epoch; `before` are those before it."""
        return {
            source.name: self._kept(source, before.get(source.name, ()), plan, states, behind)
            for source in self._sources
        }

    def _kept(
        self,
        source: SourceNode,
        before: Sequence[Kept],
        plan: Plan,
        states: Mapping[str, tuple[State, ...]],
        behind: Mapping[str, tuple[Time, int]],
    ) -> tuple[Kept, ...]:
        """The units of a source that rows may be in which an epoch leaves in state.

        A row in state has the time of its row of the source, or one that is not later by more than operators add. So
        units go whose rows are all earlier than that of any row in state. Without a window nothing limits it.
        """
        kept = list(before)
        if source.name in behind:
            first, count = plan.late[source.name]
            kept.append(Kept(first, first + count, *behind[source.name]))
        since = min((_since(node, states[node.name]) for node in self._holds(source)), default=TIME_MAX)
        needed = [each for each in kept if each.latest >= since and since < TIME_MAX]
        return tuple(needed if len(needed) <= _RANGES else _paired(needed))

    def _holds(self, source: SourceNode) -> list[OperatorNode]:
        """The operators whose state may have places of rows of a source."""
        return [
            node
            for node in self._operators
            if source in sources_of(node)
            and any(n.startswith(PLACE) for rows in node.types for n in rows.columns.names)
        ]


def guessed(source: SourceNode, width: float, columns: int, operators: Sequence[OperatorNode]) -> tuple[bool, str]:
    """Whether payload that Spark would scan is predicted to stay in its files before anything is known, and why.

    It has some columns, of so many bytes together. Spark's scans take about what tasks do.
    """
    pilot = HomePilot("auto", width, len(_partials(source, operators)), columns=columns, room=0.0)
    return pilot.late, pilot.guess


def _met(source: SourceNode, operators: Sequence[OperatorNode]) -> list[OperatorNode]:
    """The operators that rows of a source come to."""
    return [node for node in operators if source in sources_of(node)]


def _partials(source: SourceNode, operators: Sequence[OperatorNode]) -> list[OperatorNode]:
    """Those of them whose results go on to another one."""
    met = _met(source, operators)
    fed = {part for node in met for part in walk(*node.inputs)}
    return [node for node in met if node in fed]


def _since(node: OperatorNode, states: Sequence[State]) -> Time:
    """The earliest time that a row of a source may have which is in the state of an operator, or in rows there."""
    times = [max(page.min_time, page.floor) for state in states for page in state.pages]
    if not times:
        return TIME_MAX
    ahead = ahead_of(node)
    return TIME_MIN if ahead is None else max(TIME_MIN, min(times) - ahead)


def _paired(kept: Sequence[Kept]) -> list[Kept]:
    """Ranges of units, every two of which were one if both are of segments, or of files."""
    fewer: list[Kept] = []
    for each in kept:
        last = fewer[-1] if fewer else None
        if last is not None and last in kept and bool(last.nbytes) == bool(each.nbytes):
            latest, nbytes = max(last.latest, each.latest), last.nbytes + each.nbytes
            fewer[-1] = Kept(last.first, each.end, latest, nbytes)
        else:
            fewer.append(each)
    return fewer
