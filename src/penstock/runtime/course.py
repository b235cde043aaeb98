"""A flow from epoch to epoch: the state after the last one, the plan of the next one, and what is learned from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.core.master import TableSource
from penstock.core.operator import Operator, State
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.flow.graph import Node, OperatorNode, SourceNode, sources_of, walk
from penstock.flow.report import OperatorReport
from penstock.flow.sinks import Sink, operators_needed
from penstock.planner.families import Asked, Steering, pilot_for
from penstock.planner.flown import Flown
from penstock.runtime.homes import Homes
from penstock.runtime.pace import AT_WORK, Paces
from penstock.runtime.records import ShardRecord, report_of, rows_by_input
from penstock.runtime.several import SeveralStreams
from penstock.runtime.tracks import Tracks
from penstock.storage.versioned import Ledger, Plan, next_ledger

IN_FLIGHT = 2
"""The part of a task's share that an epoch's rows, and results that wait for another operator, take in the driver."""


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
        """The version after the last epoch."""
        self.tables = {node.name: table(node) for node in self.operators if node.config.master is not None}
        pilots = {node.name: pilot_for(self._asked(node)) for node in self.operators}
        self.pilots: dict[str, Steering] = {name: pilot for name, pilot in pilots.items() if pilot is not None}
        """The pilots of the operators whose method was left open."""
        self.homes = Homes(self.sources, self.operators, self.share // IN_FLIGHT)
        """Where the payload of sources is kept."""
        self.homes.resume(ledger.homes)
        self._joins = SeveralStreams(self.operators, [sink.node for sink in sinks], self.homes)
        self._reports: dict[str, OperatorReport] = {}
        """The reports of operators in the running epoch."""
        self._paces = Paces()
        self._planned: tuple[Plan | None, dict[str, Operator]] = None, {}
        """The latest plan, and the configs of operators that follow from it."""

    @property
    def share(self) -> int:
        """Memory budget of one task, in bytes."""
        return self._memory // self.tasks

    def share_of(self, node: OperatorNode) -> int:
        """Memory budget of one task of an operator, in bytes."""
        return min(self._memory, node.memory or self._memory) // self.tasks

    # Before an epoch.

    def methods(self) -> dict[str, Any]:
        """The method of each operator whose method was left open."""
        return {name: pilot.decide().method for name, pilot in self.pilots.items()}

    def follow(self, methods: Mapping[str, Any]) -> None:
        """Repeat an epoch that was planned before, with the same methods."""
        for name, method in methods.items():
            if name in self.pilots:
                self.pilots[name].follow(method)

    def versions(self) -> dict[str, str]:
        """The version of its master table that each operator sees now; its pilot inspects a new one."""
        return {node.name: self._version(node) for node in self.operators if node.name in self.tables}

    def quotas(self, trigger: float | None, in_turn: int = 1) -> dict[str, int]:
        """How often operators that shed load may read their table in `trigger` seconds, `in_turn` shards one by one."""
        sheds = [node.name for node in self.operators if node.config.sheds]
        quotas = {name: self._paces.quota(name, trigger, in_turn) for name in sheds}
        return {name: quota for name, quota in quotas.items() if quota is not None}

    def spare(self, trigger: float | None, in_turn: int) -> float | None:
        """Seconds that a shard has for deferred work, of `trigger` seconds that `in_turn` share; None if unlimited."""
        deferring = sum(node.config.defers or node.name in self.pilots for node in self.operators)
        return None if trigger is None else AT_WORK * trigger / max(1, in_turn * deferring)

    def sites(self, shards: int) -> int:
        """Number of sites for rows that may be anywhere: the number of shards at the first start.

        Rows are stored by site, so the number can never change. Shards beyond the number of sites have no work.
        """
        return self.ledger.sites or shards

    # In an epoch.

    def config(self, node: OperatorNode, plan: Plan) -> Operator:
        """The config of an operator in an epoch: with the planned method and version of its table."""
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
        """The bound of a stream after an epoch's rows."""
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
        """The bounds of an operator's ports after an epoch's rows."""
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
        """The report of an operator on an epoch; its pilot learns from it."""
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

    @property
    def homes_told(self) -> list[str]:
        """Lines for `explain()` on where the payload of sources is kept."""
        return self.homes.told(self.payload_bytes)

    @property
    def payload_bytes(self) -> dict[str, int]:
        """The bytes of the segments of each source that are kept for rows in state."""
        sizes = {name: sum(each.nbytes for each in some) for name, some in self.ledger.kept.items()}
        return {name: size for name, size in sizes.items() if size}

    @property
    def joins_told(self) -> dict[str, list[str]]:
        """Lines for `explain()` about multi-way joins, by the operators that emit their results."""
        return self._joins.told(self.ledger.joins)

    def left(
        self,
        plan: Plan,
        ran: Tracks,
        tracks: Tracks,
        states: Mapping[str, tuple[State, ...]],
        behind: Mapping[str, tuple[Time, int]] | None = None,
    ) -> Ledger:
        """The version after an epoch: it `ran` with some bounds, and its rows may have moved them on.

        `behind` has, for sources whose rows left payload behind, their latest time and the bytes written.
        """
        joins = self._joins.counted(self.ledger.joins, self._reports, plan)
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
            kept=self.homes.kept(self.ledger.kept, plan, states, behind or {}),
            joins=joins,
            homes=self.homes.saved(),
            sites=plan.sites,
        )

    @property
    def has_all(self) -> bool:
        """Whether every sink has all the rows that it will ever get: each takes the rows of a head."""
        return self._has_all(self.ledger.states, self.ledger.ports)

    def _has_all(self, states: Mapping[str, tuple[State, ...]], ports: Mapping[str, tuple[Time, ...]]) -> bool:
        def is_over(node: Node) -> bool:
            if isinstance(node, OperatorNode) and node.config.has_enough(states.get(node.name, ())):
                return True
            # An operator whose ports are at the end of time has been drained.
            drained = not isinstance(node, OperatorNode) or min(ports.get(node.name, (TIME_MIN,))) == TIME_MAX
            return drained and bool(node.inputs) and all(map(is_over, node.inputs))

        return bool(self._ends) and all(map(is_over, self._ends))

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
