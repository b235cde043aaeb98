"""A flow from epoch to epoch: what the last one left, what the next one is to do, and what is learned from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.core.budget import show_bytes
from penstock.core.master import TableSource
from penstock.core.operator import Operator, State
from penstock.core.rows import PLACE
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.flow.graph import Node, OperatorNode, SourceNode, ahead_of, sources_of, walk
from penstock.flow.joined import Joined, joins_of
from penstock.flow.report import OperatorReport
from penstock.flow.sinks import Sink, operators_needed
from penstock.planner.families import Asked, Steering, pilot_for
from penstock.planner.flown import Flown
from penstock.planner.multi_way import JoinOutlook, Statistics, explain_chain, explain_join
from penstock.planner.payload import HomePilot
from penstock.runtime.pace import AT_WORK, Paces
from penstock.runtime.records import ShardRecord, report_of, rows_by_input
from penstock.runtime.tracks import Tracks
from penstock.storage.versioned import Kept, Ledger, Plan, next_ledger

_RANGES = 256
"""Ranges of units of a source that a ledger tells apart, at most."""


class Course:
    """A flow between epochs. `tasks` of it run at a time and share its `memory`; `table` pins a master table."""

    def __init__(
        self,
        sinks: Sequence[Sink],
        memory: int,
        tasks: int,
        ledger: Ledger,
        table: Callable[[OperatorNode], TableSource],
    ) -> None:
        self._memory = memory
        self.tasks = tasks
        self.sources = sources_of(*(sink.node for sink in sinks))
        self.operators = operators_needed(sinks)
        self._ends = [sink.node for sink in sinks if sink.emits == "results"]
        self.ledger = ledger
        """What the last epoch left."""
        self.tables = {node.name: table(node) for node in self.operators if node.config.master is not None}
        pilots = {node.name: pilot_for(self._asked(node)) for node in self.operators}
        self.pilots: dict[str, Steering] = {name: pilot for name, pilot in pilots.items() if pilot is not None}
        """Who chooses for the operators whose method was left open."""
        self.homes = {
            source.name: HomePilot(source.payload, source.width, len(self._partials(source)))
            for source in self.sources
            if source.row is not None
        }
        """Who chooses whether rows of a source leave payload behind."""
        self.joins = joins_of(self.operators, [sink.node for sink in sinks])
        """Joins of several streams."""
        self._reports: dict[str, OperatorReport] = {}
        """What operators did in the running epoch."""
        self._paces = Paces()
        self._planned: tuple[Plan | None, dict[str, Operator]] = None, {}
        """The latest plan that was asked for, and what operators do by it."""

    @property
    def share(self) -> int:
        """The memory of each task."""
        return self._memory // self.tasks

    def share_of(self, node: OperatorNode) -> int:
        """The memory of one of an operator's tasks."""
        return min(self._memory, node.memory or self._memory) // self.tasks

    # Before an epoch.

    def methods(self) -> dict[str, Any]:
        """By which method each operator is to run whose method was left open."""
        return {name: pilot.decide().method for name, pilot in self.pilots.items()}

    def follow(self, methods: Mapping[str, Any]) -> None:
        """The next epoch was planned before, by these methods: it is run again as it was."""
        for name, method in methods.items():
            if name in self.pilots:
                self.pilots[name].follow(method)

    def versions(self) -> dict[str, str]:
        """Which version of its master table each operator sees now; its pilot looks at it if it is another."""
        return {node.name: self._version(node) for node in self.operators if node.name in self.tables}

    def quotas(self, trigger: float | None, in_turn: int = 1) -> dict[str, int]:
        """How often operators that shed load may read their table in `trigger` seconds, `in_turn` shards one by one."""
        sheds = [node.name for node in self.operators if node.config.sheds]
        quotas = {name: self._paces.quota(name, trigger, in_turn) for name in sheds}
        return {name: quota for name, quota in quotas.items() if quota is not None}

    def spare(self, trigger: float | None, in_turn: int) -> float | None:
        """Seconds that a shard has for work put off, of `trigger` seconds that `in_turn` share; None if no limit."""
        deferring = sum(node.config.defers or node.name in self.pilots for node in self.operators)
        return None if trigger is None else AT_WORK * trigger / max(1, in_turn * deferring)

    # In an epoch.

    def config(self, node: OperatorNode, plan: Plan) -> Operator:
        """What an operator does in an epoch: by the method, and in the version of its table, that were planned."""
        if self._planned[0] is not plan:
            self._planned = plan, {}
        _, configs = self._planned
        if node.name not in configs:
            configs[node.name] = self._config(node, plan)
        return configs[node.name]

    def _config(self, node: OperatorNode, plan: Plan) -> Operator:
        method = plan.methods.get(node.name)
        config = node.config if method is None else node.config.with_method(method)
        if node.name not in self.tables:
            return config
        return config.reading(self.tables[node.name], plan.versions[node.name], plan.quotas.get(node.name))

    def before(self, node: OperatorNode) -> tuple[Time, ...]:
        """The bounds of an operator's ports as the last epoch left them."""
        return tuple(self.ledger.ports.get(node.name, (TIME_MIN,) * len(node.inputs)))

    def held(self, node: OperatorNode) -> Sequence[State]:
        """The state of each shard of an operator as the last epoch left it."""
        return self.ledger.states.get(node.name, ())

    def bound(self, node: Node, plan: Plan, tracks: Tracks) -> Time:
        """How far a stream has got once an epoch's rows are in."""
        if isinstance(node, SourceNode):
            return tracks[node.name].bound
        if not isinstance(node, OperatorNode):
            return min(self.bound(part, plan, tracks) for part in node.inputs)
        config = self.config(node, plan)
        if config.has_enough(self.held(node)):
            return TIME_MAX
        if config.held_kinds and not plan.end:
            # Of the rows that arrive now some may wait: what this epoch leaves is known only when it is over.
            return min(self.before(node)[0], self._waits_since(node, config))
        return config.bound(config.bounds(*self.after(node, plan, tracks)))

    def after(self, node: OperatorNode, plan: Plan, tracks: Tracks) -> tuple[Time, ...]:
        """The bounds of an operator's ports once an epoch's rows are in."""
        return tuple(self.bound(part, plan, tracks) for part in node.inputs)

    # After an epoch.

    def report(
        self,
        node: OperatorNode,
        plan: Plan,
        tracks: Tracks,
        records: Sequence[ShardRecord],
        states: Sequence[State],
    ) -> OperatorReport:
        """What an operator did, and left, in an epoch; whoever steers it learns from it."""
        report = report_of(node, self.config(node, plan).method_name, records, states)
        work = report.phases["work"]
        if node.name in self.tables:
            self._paces.saw(node.name, work, report.counts["reads"])
        if node.name in self.pilots:
            lifted = tuple(map(sum, zip(*(record.lifted for record in records), strict=True)))
            epoch = Flown(
                before=self.before(node),
                after=self.after(node, plan, tracks),
                rows=rows_by_input(node, records),
                results=report.rows_out,
                lifted=(lifted[0], lifted[1]),
                seconds=work + report.phases.get("settle", 0.0),
                counts=report.counts,
                pages=[page for state in states for page in state.pages],
            )
            self.pilots[node.name].learn(epoch)
        self._reports[node.name] = report
        return report

    def learn_homes(self, rows: Mapping[str, int], operators: Mapping[str, OperatorReport]) -> None:
        """What an epoch showed of the rows of each source: how many there were, and what became of them."""
        for source in self.sources:
            if source.name in self.homes:
                out = {node: operators[node.name].rows_out for node in self._met(source)}
                partials = sum(out[node] for node in self._partials(source))
                self.homes[source.name].learn(rows[source.name], partials, sum(out.values()) - partials)

    def _met(self, source: SourceNode) -> list[OperatorNode]:
        """The operators that rows of a source come to."""
        return [node for node in self.operators if source in sources_of(node)]

    def _partials(self, source: SourceNode) -> list[OperatorNode]:
        """Those of them whose results go on to another one."""
        fed = {part for node in self._met(source) for part in walk(*node.inputs)}
        return [node for node in self._met(source) if node in fed]

    @property
    def homes_told(self) -> list[str]:
        """Where payload of sources is that may stay in them, in words."""
        return [
            f"payload of {source.name} ({', '.join(sorted('.'.join(path) for path in source.lets_go))}; about "
            f"{source.width:.0f} B a row) {self.homes[source.name].says()}{self._in_segments(source)}"
            for source in self.sources
            if source.name in self.homes
        ]

    @property
    def payload_bytes(self) -> dict[str, int]:
        """The bytes of the segments of each source that are kept for rows in state."""
        sizes = {name: sum(each.nbytes for each in some) for name, some in self.ledger.kept.items()}
        return {name: size for name, size in sizes.items() if size}

    def _in_segments(self, source: SourceNode) -> str:
        size = self.payload_bytes.get(source.name, 0)
        return f"; {show_bytes(size)} are in segments" if size else ""

    def left(
        self,
        plan: Plan,
        ran: Tracks,
        tracks: Tracks,
        states: Mapping[str, tuple[State, ...]],
        behind: Mapping[str, tuple[Time, int]] | None = None,
    ) -> Ledger:
        """The version that an epoch leaves: it `ran` with some bounds, its rows may have shown more.

        `behind` tells, of sources whose rows left payload behind, their latest time, and how many bytes were written.
        """
        joins = {each.join.name: self._counted(each, plan).as_dict() for each in self.joins}
        self._reports = {}
        ports = {node.name: self.after(node, plan, ran) for node in self.operators}
        return next_ledger(
            self.ledger,
            tracks=tracks,
            ports=ports,
            states=states,
            static=True,
            ended=plan.end or self._has_all(states, ports),
            methods=plan.methods,
            versions=plan.versions,
            batch=plan.batch,
            units={**self.ledger.units, **{name: first + count for name, (first, count) in plan.late.items()}},
            kept={source.name: self._kept(source, plan, states, behind or {}) for source in self.sources if source.row},
            joins=joins,
        )

    @property
    def has_all(self) -> bool:
        """Whether every sink has all the rows that it will ever get, whatever comes: each takes some head's rows."""
        return self._has_all(self.ledger.states, self.ledger.ports)

    def _has_all(self, states: Mapping[str, tuple[State, ...]], ports: Mapping[str, tuple[Time, ...]]) -> bool:
        def is_over(node: Node) -> bool:
            if isinstance(node, OperatorNode) and node.config.has_enough(states.get(node.name, ())):
                return True
            # An operator whose ports are at the end of time has been drained.
            drained = not isinstance(node, OperatorNode) or min(ports.get(node.name, (TIME_MIN,))) == TIME_MAX
            return drained and bool(node.inputs) and all(map(is_over, node.inputs))

        return bool(self._ends) and all(map(is_over, self._ends))

    def _kept(
        self,
        source: SourceNode,
        plan: Plan,
        states: Mapping[str, tuple[State, ...]],
        behind: Mapping[str, tuple[Time, int]],
    ) -> tuple[Kept, ...]:
        """The units of a source that rows may be in which an epoch leaves in state.

        A row in state has the time of its row of the source, or one that is not later by more than operators add. So
        units go whose rows are all earlier than that of any row in state. Without a window nothing limits it.
        """
        kept = list(self.ledger.kept.get(source.name, ()))
        if source.name in behind:
            first, count = plan.late[source.name]
            kept.append(Kept(first, first + count, *behind[source.name]))
        since = min((self._since(node, states[node.name]) for node in self._holds(source)), default=TIME_MAX)
        needed = [each for each in kept if each.latest >= since and since < TIME_MAX]
        return tuple(needed if len(needed) <= _RANGES else _paired(needed))

    def _holds(self, source: SourceNode) -> list[OperatorNode]:
        """The operators whose state may have places of rows of a source."""
        return [
            node
            for node in self.operators
            if source in sources_of(node)
            and any(n.startswith(PLACE) for rows in node.types for n in rows.columns.names)
        ]

    def _since(self, node: OperatorNode, states: Sequence[State]) -> Time:
        """The earliest time that a row of a source may have which is in the state of an operator, or in rows there."""
        times = [max(page.min_time, page.floor) for state in states for page in state.pages]
        if not times:
            return TIME_MAX
        ahead = ahead_of(node)
        return TIME_MIN if ahead is None else max(TIME_MIN, min(times) - ahead)

    def _seen(self, joined: Joined) -> Statistics:
        """What was counted of a join up to the last epoch."""
        saved = self.ledger.joins.get(joined.join.name)
        return Statistics() if saved is None else Statistics.from_dict(saved)

    def _counted(self, joined: Joined, plan: Plan) -> Statistics:
        """The same with the epoch of a plan, which has run."""
        seen = [self._seen(joined)]
        for name, part in joined.parts.items():
            report = self._reports.get(name, OperatorReport())
            seen.append(Statistics().joined(part.node.rels, report.rows_out))
            for tree, port in zip(part.ports, report.ports, strict=False):
                seen.append(Statistics().probed(tree.rels, port.rows, port.bytes))
                if not tree.children:
                    (rel,) = tree.rels
                    stayed = sum(source.width for source in joined.sources[rel] if source.name in plan.late)
                    # Columns that only later joins look at are keys all the same.
                    payload = max(0, port.payload - round(joined.later(rel) * port.rows))
                    keys = port.bytes - payload
                    seen.append(Statistics().arrived(rel, port.rows, keys, payload + round(stayed * port.rows)))
        return Statistics().merged(seen)

    @property
    def joins_told(self) -> dict[str, list[str]]:
        """What there is to say of joins of several streams, by the operators that their results leave."""
        return {each.root: self._told(each) for each in self.joins}

    def _told(self, joined: Joined) -> list[str]:
        join = joined.join
        travels = [rel for rel in join.plan.rels if not any(home.late for home in self._homes_of(joined, rel).values())]
        outlook = JoinOutlook(join.plan, join.why, join.keys, join.sizes, self._seen(joined), travels)
        if join.instead:
            return explain_chain(outlook, join.instead)
        told = explain_join(outlook)
        return [*told, *(line for rel in join.plan.rels for line in self._payload(joined, rel))]

    def _homes_of(self, joined: Joined, rel: str) -> dict[str, HomePilot]:
        return {source.name: self.homes[source.name] for source in joined.sources[rel] if source.name in self.homes}

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

    def _asked(self, node: OperatorNode) -> Asked:
        return Asked(
            config=node.config,
            types=node.types,
            feeds=any(node in walk(*other.inputs) for other in self.operators),
            memory=self._memory,
            tasks=self.tasks,
            share=self.share_of(node),
            table=lambda: self.tables[node.name],
            current=self.ledger.methods.get(node.name),
            holds_state=any(state.pages for state in self.held(node)),
        )

    def _version(self, node: OperatorNode) -> str:
        master, last = node.config.master, self.ledger.versions.get(node.name)
        if master is not None and master.freshness == "snapshot" and last is not None:
            return last
        table = self.tables[node.name].open()
        if table.version != last and node.name in self.pilots:
            self.pilots[node.name].sees(table)
        return table.version

    def _waits_since(self, node: OperatorNode, config: Operator) -> Time:
        """The earliest event time of the rows that wait in an operator since earlier epochs."""
        pages = (page for state in self.held(node) for page in state.pages)
        return min((page.min_time for page in pages if page.kind in config.held_kinds), default=TIME_MAX)


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
