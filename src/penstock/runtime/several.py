"""Multi-way joins in a flow: counts of their edges, and lines about them for `explain()`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.flow.graph import Node, OperatorNode
from penstock.flow.joined import Joined, joins_of
from penstock.flow.report import OperatorReport
from penstock.planner.multi_way import JoinOutlook, Statistics, explain_chain, explain_join
from penstock.planner.payload import HomePilot
from penstock.runtime.homes import Homes
from penstock.storage.versioned import Plan

Counts = Mapping[str, Mapping[str, Any]]
"""By join, what a ledger has recorded."""


class SeveralStreams:
    """The joins of several streams that the operators of a flow are parts of."""

    def __init__(self, operators: Sequence[OperatorNode], ends: Sequence[Node], homes: Homes) -> None:
        self._joins = joins_of(operators, ends)
        self._homes = homes

    def counted(self, before: Counts, reports: Mapping[str, OperatorReport], plan: Plan) -> dict[str, dict[str, Any]]:
        """The counts of each join after the epoch of a plan; `reports` are added to those `before`."""
        return {
            each.join.name: self._counted(each, _seen(each, before), reports, plan).as_dict() for each in self._joins
        }

    def told(self, counts: Counts) -> dict[str, list[str]]:
        """Lines about each join, by the operator that emits its results."""
        return {each.root: self._told(each, _seen(each, counts)) for each in self._joins}

    def _counted(
        self, joined: Joined, seen: Statistics, reports: Mapping[str, OperatorReport], plan: Plan
    ) -> Statistics:
        """What was counted of a join, with the epoch of a plan, which has run."""
        counts = [seen]
        for name, part in joined.parts.items():
            report = reports.get(name, OperatorReport())
            counts.append(Statistics().joined(part.node.rels, report.rows_out))
            for tree, port in zip(part.ports, report.ports, strict=False):
                counts.append(Statistics().probed(tree.rels, port.rows, port.bytes))
                if not tree.children:
                    (rel,) = tree.rels
                    homes = self._homes_of(joined, rel)
                    stayed = sum(home.latest for name, home in homes.items() if name in plan.late)
                    # Columns that only later joins look at are keys all the same.
                    payload = max(0, port.payload - round(joined.later(rel) * port.rows))
                    keys = port.bytes - payload
                    counts.append(Statistics().arrived(rel, port.rows, keys, payload + round(stayed * port.rows)))
        return Statistics().merged(counts)

    def _told(self, joined: Joined, seen: Statistics) -> list[str]:
        join = joined.join
        travels = [rel for rel in join.plan.rels if not any(home.late for home in self._homes_of(joined, rel).values())]
        outlook = JoinOutlook(join.plan, join.why, join.keys, join.sizes, seen, travels)
        if join.instead:
            return explain_chain(outlook, join.instead)
        told = explain_join(outlook)
        return [*told, *(line for rel in join.plan.rels for line in self._payload(joined, rel))]

    def _homes_of(self, joined: Joined, rel: str) -> dict[str, HomePilot]:
        pilots = self._homes.pilots
        return {source.name: pilots[source.name] for source in joined.sources[rel] if source.name in pilots}

    def _payload(self, joined: Joined, rel: str) -> list[str]:
        """When rows of a stream of a join get their payload, and why."""
        homes = self._homes_of(joined, rel)
        if homes:
            return [
                f"{rel} is {'late' if home.late else 'early'}: payload of {name} {home.says()}"
                for name, home in homes.items()
            ]
        if joined.join.asked.get(rel) == "early":
            return [f"{rel} is early, as materialize= says"]
        if not all(source.files for source in joined.sources[rel]):
            return [f"{rel} is early: its rows are not read from files, so their payload could not be fetched"]
        if not joined.join.leaves_payload:
            return [
                f"{rel} is early: in process rows are sent nowhere, so they bring their payload unless asked not to"
            ]
        return [f"{rel} is early: it has too little that only results need to be worth leaving in the files"]


def _seen(joined: Joined, counts: Counts) -> Statistics:
    saved = counts.get(joined.join.name)
    return Statistics() if saved is None else Statistics.from_dict(saved)
