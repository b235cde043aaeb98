"""One epoch on Spark: from a micro-batch to committed state and delivered rows.

Rows of all branches are hashed natively, shuffled to their shards, run through the operators in Python, and handed to
the sinks. Then, and only then, the epoch is committed.
"""

from __future__ import annotations

import time as clock
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from penstock.core.errors import CheckpointError
from penstock.core.master import TableSource
from penstock.core.operator import State
from penstock.core.progress import Punctuated, Seen, Track, follow, wake
from penstock.core.rows import HASH, TIME
from penstock.core.time import FARTHEST, TIME_MAX, TIME_MIN, Time, show_time
from penstock.flow.graph import (
    AggregateNode,
    GuardNode,
    JoinNode,
    LookupNode,
    Node,
    OperatorNode,
    SourceNode,
    StatementNode,
    late_columns,
    sources_of,
    windows_of,
)
from penstock.flow.pace import Paces
from penstock.flow.pilots import AnyPilot, Cockpit, Flown, Master, look_at, tell
from penstock.flow.report import EpochReport, OperatorReport, added_up, all_waits
from penstock.flow.sinks import Sink, operators_needed
from penstock.kernels.route import hash_range
from penstock.operators.aggregate.lanes import Lane
from penstock.operators.lookup import Waits
from penstock.operators.lookup.logic import HELD
from penstock.spark.branches import (
    MARK,
    TAG,
    TAG_TYPE,
    Branch,
    Edge,
    Layout,
    Schemas,
    edges,
    lane_name,
    lay_out,
    tagged,
    through,
    untagged,
    where_pairs,
    with_time,
)
from penstock.spark.inputs import check_inputs
from penstock.spark.late import missed
from penstock.spark.prelude import IN_TIME, LATE, OVER, TOP, Cap, at_most, is_native, partials, partials_and_counts
from penstock.spark.session import settings
from penstock.spark.shard import TURNED_AWAY, Inlet, PortBounds, ShardTask, packed
from penstock.spark.sinks import deliver, deliver_counted
from penstock.spark.tables import settled_on_spark
from penstock.spark.types import col, in_range, long, nulls, renamed, shard_of, signed, time_as_long, time_from_long
from penstock.storage.files import sync_tree
from penstock.storage.tables.reading import kind_of
from penstock.storage.versioned import Checkpoint, Ledger, Plan, next_ledger, state_from_json

_FEW = 50_000
"""Partials that are aggregated where the driver is: more are worth a task on each core."""

_HERE = 4
"""The part of a task's share that partials, or results, may take where the driver is: what is more goes to tasks."""

_SAVING = 2
"""So many rows must make one partial: with fewer, Spark's first half of an aggregation costs more than it saves."""

_SCANS = 4
"""Tasks per slot for all scans of an epoch's rows together: the more operators or late outlets scan, the fewer each."""

_VIEW = "__penstock_rows"
"""The epoch's rows, in queries."""

_TRY_AGAIN = 16
"""After so many epochs without Spark's first half it is tried again: streams change."""


class Engine:
    """Runs the epochs of one flow against one checkpoint."""

    def __init__(
        self, spark: SparkSession, sinks: Sequence[Sink], checkpoint: Checkpoint, memory: int, shards: int | None
    ) -> None:
        self._spark = spark
        self._sinks = sinks
        self._checkpoint = checkpoint
        self._memory = memory
        self._shards = shards
        self.slots = self._count_slots()
        """How many tasks run at a time, as of the latest epoch: Spark is asked once in each."""
        self.sources = sources_of(*(sink.node for sink in sinks))
        self.operators = operators_needed(sinks)
        self.schemas = Schemas()
        self.layout = lay_out(sinks, self.operators, self.schemas)
        self.ledger = checkpoint.latest()
        self.tables = {n.name: self._settled(n) for n in self.operators if isinstance(n, LookupNode)}
        cockpit = Cockpit(self._memory, self.slots, self._master)
        pilots = {node.name: self._pilot(node, cockpit) for node in self.operators}
        self.pilots = {name: pilot for name, pilot in pilots.items() if pilot is not None}
        self._run_id = uuid.uuid4().hex[:8]
        self._arrived: dict[str, tuple[int, int]] = {}
        """How many rows, or partials of rows, each operator took in the last epoch, and how many bytes they were."""
        self._as_rows: dict[str, int] = {}
        """Until which epoch an aggregation takes rows as they are: they make almost as many partials."""
        self._old: Ledger | None = None
        self.trigger: float | None = None
        """Seconds from one epoch to the next, if they are given."""
        self._paces = Paces()

    @property
    def share(self) -> int:
        """The memory of each of them."""
        return self._memory // self.slots

    def took_few(self, node: OperatorNode) -> bool:
        """Whether an operator's arrivals of the last epoch could have been handled where the driver is."""
        rows, size = self._arrived.get(node.name, (_FEW + 1, 0))
        return rows <= _FEW and size <= self.share // _HERE

    def stream(self) -> DataFrame:
        """The streaming sources' rows, tagged, and a heartbeat that keeps epochs coming when they are silent."""
        rows = [self._tagged(branch) for branch in self._scans]
        beat = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1)
        none = self._empty_columns()
        rows.append(beat.load().where("value < 0").select(*none))
        return _union(rows)

    @property
    def scanned(self) -> list[SourceNode]:
        """The sources as Spark reads them, one for each scan, in the order by which its offsets know them."""
        return [branch.edge.root for branch in self._scans if isinstance(branch.edge.root, SourceNode)]

    @property
    def _scans(self) -> list[Branch]:
        return [branch for branch in self.layout.branches if _streams(branch)]

    def next_plan(self, epoch: int, now: int, end: bool) -> Plan:
        """What to do in an epoch: as planned before if an earlier attempt was, else from what is known now."""
        planned = self._checkpoint.planned(epoch)
        if not end:
            check_inputs(self._spark, self.sources, self._checkpoint.spark, epoch, again=planned is not None)
        if planned is not None:
            self._checkpoint.spark.compare(planned.batch, epoch)
            for name, method in planned.methods.items():
                if name in self.pilots:
                    self.pilots[name].follow(method)  # type: ignore[arg-type]
            return planned
        versions = {node.name: self._version(node) for node in self.operators if isinstance(node, LookupNode)}
        methods = {name: pilot.decide().method for name, pilot in self.pilots.items()}
        tracks = self._tracks(now, end)
        shards = self._shards or self.slots
        plan = Plan(
            epoch,
            now,
            shards,
            tracks,
            static=not self.ledger.static,
            end=end,
            methods=methods,
            versions=versions,
            quotas={} if end else self._quotas(),
            batch={} if end else self._checkpoint.spark.batch(epoch),
        )
        self._checkpoint.plan(plan)
        return plan

    def run(self, batch: DataFrame | None, epoch: int, end: bool = False) -> EpochReport | None:
        """Run an epoch and commit it; None if it had been committed already."""
        self._check_lease()
        try:
            return self._run(batch, epoch, end)
        except Exception:
            # Whoever took the checkpoint over deletes files that this driver still needs: then that is the cause.
            self._check_lease()
            raise

    def _check_lease(self) -> None:
        if self._checkpoint.lease is not None:
            self._checkpoint.lease.check()

    def _run(self, batch: DataFrame | None, epoch: int, end: bool) -> EpochReport | None:
        if epoch == self.ledger.epoch:
            self._checkpoint.spark.compare(self.ledger.batch, epoch)
            return None
        if epoch != self.ledger.epoch + 1:
            raise CheckpointError.other_age(self._checkpoint.uri, epoch, self.ledger.epoch)
        begun = clock.perf_counter()
        self.slots = self._count_slots()
        plan = self.next_plan(epoch, clock.time_ns() // 1000, end)
        work = _EpochWork(self, plan, f"{epoch:08d}-{self._run_id}")
        seen = work.deliver(batch)
        ledger, operators = self._settle(plan, work, seen)
        self._checkpoint.commit(ledger)
        self._clean(ledger, work.attempt)
        self._weigh_partials(epoch, work, seen)
        return EpochReport(
            epoch=epoch,
            seconds=clock.perf_counter() - begun,
            rows_in={name: counted.seen.rows + counted.late + counted.no_time for name, counted in seen.items()},
            rows_out=work.rows_out(operators, seen),
            late={name: counted.late + counted.turned_away for name, counted in seen.items()},
            no_time={name: counted.no_time for name, counted in seen.items()},
            bounds={node.name: show_time(ledger.tracks[node.name].bound, node.unit) for node in self.sources},
            operators=operators,
        )

    def _pilot(self, node: OperatorNode, cockpit: Cockpit) -> AnyPilot | None:
        """Who chooses an operator's method, if it was left open; it goes on from what the ledger says."""
        return cockpit.pilot(
            node,
            feeds=any(branch.edge.root is node for branch in self.layout.branches),
            current=self.ledger.methods.get(node.name),
            holds_state=any(state.pages for state in self.ledger.states.get(node.name, ())),
        )

    def _master(self, node: LookupNode) -> Master:
        table = self.tables[node.name]
        return Master(table.open(), kind_of(table), self.share_of(node))

    def share_of(self, node: OperatorNode) -> int:
        """The memory of one of an operator's tasks."""
        asked = node.memory if isinstance(node, LookupNode) else None
        return min(self.share, (asked or self._memory) // self.slots)

    def _count_slots(self) -> int:
        return max(1, int(self._spark.sparkContext.defaultParallelism))

    def _settled(self, node: LookupNode) -> TableSource:
        folder = f"{self._checkpoint.uri}/tables/{node.name}"
        table = settled_on_spark(node, folder, self._memory)
        if self.ledger.epoch < 0:
            sync_tree(folder)
        return table

    def gains(self, node: AggregateNode, epoch: int) -> bool:
        """Whether an aggregation gains by partials made natively, as far as earlier epochs tell; of few it does."""
        return self._arrived.get(node.name, (0, 0))[0] <= _FEW or self._as_rows.get(node.name, epoch) <= epoch

    def _weigh_partials(self, epoch: int, work: _EpochWork, seen: Mapping[str, _Counted]) -> None:
        """See which aggregations took almost as many partials as there were rows."""
        for node in work.native:
            partials, _ = self._arrived[node.name]
            rows = sum(seen[source.name].seen.rows for source in sources_of(node))
            if partials > _FEW and partials * _SAVING > rows:
                self._as_rows[node.name] = epoch + 1 + _TRY_AGAIN

    def _tagged(self, branch: Branch) -> DataFrame:
        if not isinstance(branch.edge.root, SourceNode):
            raise TypeError(branch)
        return tagged(branch, self.layout, with_time(branch.edge.root), self.schemas)

    def _empty_columns(self) -> list[Column]:
        return [nulls(kind, name) for name, kind in self.layout.columns]

    def _tracks(self, now: int, end: bool) -> dict[str, Track]:
        """How far the sources are once the epoch's rows are in: what earlier epochs showed, and the clock."""
        before = [self.ledger.tracks.get(node.name, Track()) for node in self.sources]
        if end:
            return {n.name: replace(t, bound=TIME_MAX) for n, t in zip(self.sources, before, strict=True)}
        policies, units = [n.progress for n in self.sources], [n.unit for n in self.sources]
        after = [follow(t, p, u, Seen(), now) for t, p, u in zip(before, policies, units, strict=True)]
        woken = wake(after, policies, units, now)
        return {node.name: track for node, track in zip(self.sources, woken, strict=True)}

    def _settle(
        self, plan: Plan, work: _EpochWork, seen: Mapping[str, _Counted]
    ) -> tuple[Ledger, dict[str, OperatorReport]]:
        """The version this epoch leaves, from what its shards staged."""
        states: dict[str, tuple[State, ...]] = {}
        reports: dict[str, OperatorReport] = {}
        ports: dict[str, tuple[Time, ...]] = {}
        for node in self.operators:
            name = node.name
            records = self._checkpoint.staged(work.attempt, name, plan.shards)
            states[name] = tuple(state_from_json(record["state"]) for record in records)
            report = _report(records, states[name])
            reports[name] = replace(
                report, method=node.method(work.config(node)), rows_in=report.rows_in - _stated(node, records)
            )
            ports[name] = tuple(work.bound(part) for part in node.inputs)
            self._arrived[name] = reports[name].rows_in, sum(record["bytes_in"] for record in records)
            self._tell(node, ports[name], records, states[name], reports[name])
            if isinstance(node, LookupNode):
                self._paces.saw(name, reports[name].phases["work"], reports[name].counts["reads"])
        tracks = plan.tracks
        if not plan.end:
            tracks = {
                node.name: follow(plan.tracks[node.name], node.progress, node.unit, seen[node.name].seen, plan.now)
                for node in self.sources
            }
        ledger = next_ledger(
            self.ledger,
            tracks=tracks,
            ports=ports,
            states=states,
            static=True,
            ended=plan.end,
            methods=plan.methods,
            versions=plan.versions,
            batch=plan.batch,
        )
        return ledger, reports

    def _quotas(self) -> dict[str, int]:
        """How often lookups that shed load may read their table: as often as the time of an epoch allows."""
        sheds = [n.name for n in self.operators if isinstance(n, LookupNode) and n.config.shed.on]
        quotas = {name: self._paces.quota(name, self.trigger) for name in sheds}
        return {name: quota for name, quota in quotas.items() if quota is not None}

    def _version(self, node: LookupNode) -> str:
        """Which version of its master table a lookup sees now; its pilot looks at it if it is another."""
        last = self.ledger.versions.get(node.name)
        if last is not None and node.freshness == "snapshot":
            return last
        table = self.tables[node.name].open()
        if table.version != last:
            look_at(table, self.pilots.get(node.name))
        return table.version

    def waits_since(self, node: LookupNode) -> Time:
        """The earliest event time of the rows that wait in a lookup since earlier epochs."""
        pages = (page for state in self.ledger.states.get(node.name, ()) for page in state.pages)
        return min((page.min_time for page in pages if page.port in HELD), default=TIME_MAX)

    def _tell(
        self,
        node: OperatorNode,
        after: tuple[Time, ...],
        records: Sequence[Mapping[str, Any]],
        states: Sequence[State],
        report: OperatorReport,
    ) -> None:
        """Let an operator's pilot know what an epoch showed, if it has one."""
        pilot = self.pilots.get(node.name)
        if pilot is None:
            return
        rows, partials = (sum(numbers) for numbers in zip(*(record["lifted"] for record in records), strict=True))
        arrived = zip(*(record["rows_by_port"] for record in records), strict=True)
        epoch = Flown(
            before=self._ports(node),
            after=after,
            rows=tuple(map(sum, arrived)) if isinstance(node, JoinNode) else (report.rows_in,),
            results=report.rows_out,
            lifted=(rows, partials),
            seconds=report.phases["work"] + report.phases["settle"],
            counts=report.counts,
            pages=[page for state in states for page in state.pages],
        )
        tell(pilot, node, epoch)

    def _ports(self, node: OperatorNode) -> tuple[Time, ...]:
        """The bounds of an operator's ports as the last epoch left them."""
        return tuple(self.ledger.ports.get(node.name, (TIME_MIN,) * len(node.inputs)))

    def _clean(self, ledger: Ledger, attempt: str) -> None:
        """Drop the pages that only the version before the last needed."""
        if self._old is not None:
            for node in self.operators:
                gone = self._old.names(node.name) - self.ledger.names(node.name) - ledger.names(node.name)
                self._checkpoint.drop(node.name, gone)
        self._checkpoint.forget(attempt, [node.name for node in self.operators])
        self._old, self.ledger = self.ledger, ledger


@dataclass(frozen=True, slots=True)
class _Counted:
    """What an epoch brought from one source: the rows that count, and how many came late or without a time."""

    seen: Seen
    late: int
    no_time: int
    turned_away: int = 0
    """Rows that are late only by what was said of their group."""


class _EpochWork:
    """One attempt at an epoch: its DataFrames, each built once, and its bounds."""

    def __init__(self, engine: Engine, plan: Plan, attempt: str) -> None:
        self.attempt = attempt
        self._engine = engine
        self._plan = plan
        self._layout: Layout = engine.layout
        self._uses = self._count_uses()
        self.native = [node for node in engine.operators if isinstance(node, AggregateNode) and self._is_native(node)]
        """The aggregations whose first half is Spark's in this epoch."""
        self._results: dict[OperatorNode, DataFrame] = {}
        self._delivered: dict[Node, int] = {}
        """How many rows streams had for their sinks, where what is counted anyway does not tell."""
        self._partials: dict[OperatorNode, list[DataFrame]] = {}
        self._few: dict[OperatorNode, dict[int, pa.Table]] = {}
        self._many: set[OperatorNode] = set()
        """Operators that took few rows in the last epoch, but not in this one."""
        self._kept: list[DataFrame] = []
        self._turned_away: dict[SourceNode, DataFrame] = {}
        """What a guard made of a source's rows: those that pass, and those that do not."""
        self._tracks = plan.tracks

    def deliver(self, batch: DataFrame | None) -> dict[str, _Counted]:
        """Run every operator and hand every sink its rows; what each source showed comes back."""
        teller = self._teller()
        seen = None if teller is None else self._deliver_one(teller, self._rows(batch))
        if seen is not None:
            return seen
        counts = Observation()
        rows = self._rows(batch).observe(counts, *self._counters())
        closing = [node for node in self._engine.operators if isinstance(node, AggregateNode)]
        if self._uses["batch"] > 1 or (len(self.native) < len(self._engine.operators) and closing):
            rows = self._keep(self._gathered(rows, self._uses["batch"]))
        try:
            with self._partitions(rows.sparkSession) if self.native else nullcontext():
                if closing:
                    self._look_ahead(rows)
                    self._follow(self._seen(counts.get))
                self._deliver_results(rows)
            seen = self._with_turned_away(rows, self._seen(counts.get))
            self._deliver_late(rows, seen)
        finally:
            for kept in self._kept:
                kept.unpersist()
        return seen

    def bound(self, node: Node) -> Time:
        """How far a stream has got once this epoch's rows are in."""
        if isinstance(node, SourceNode):
            return self._tracks[node.name].bound
        if isinstance(node, LookupNode) and self.config(node).defers and not self._plan.end:
            # Of the rows that arrive now some may wait: what this epoch leaves is known only when it is over.
            return min(self._engine._ports(node)[0], self._engine.waits_since(node))
        if isinstance(node, OperatorNode):
            return node.bound(self.config(node), *(self.bound(part) for part in node.inputs))
        return min(self.bound(part) for part in node.inputs)

    def config(self, node: OperatorNode) -> Any:
        """An operator with the method that was planned for it."""
        method = self._plan.methods.get(node.name)
        config = node.config if method is None else replace(node.config, method=method)
        if isinstance(node, LookupNode):
            return replace(
                config,
                table=self._engine.tables[node.name],
                version=self._plan.versions[node.name],
                quota=self._plan.quotas.get(node.name),
            )
        return config

    def _partitions(self, session: SparkSession) -> AbstractContextManager[None]:
        """Aggregate natively into as many partitions as there are tasks to take them, not Spark's two hundred."""
        return settings(session, {"spark.sql.shuffle.partitions": str(self._engine.slots)})

    def _teller(self) -> AggregateNode | None:
        """The one operator of a flow that sees all rows of its one source and takes few partials of them.

        What is to be counted of the source is then counted with them: an observation of the rows costs half as much
        again as the aggregation.
        """
        engine = self._engine
        if len(engine.operators) != 1 or self._uses["batch"] != 1 or len(engine.sources) != 1:
            return None
        (node,) = engine.operators
        if not engine.took_few(node) or not isinstance(node, AggregateNode) or node not in self.native:
            return None
        into, (source,) = self._layout.into(node), engine.sources
        (lane, *more) = node.config.lanes(node.types)
        looks_at = {*lane.groups, *(part.function.column for part in lane.parts)}
        plain = len(into) == 1 and not into[0].edge.filtered and not isinstance(source.progress, Punctuated)
        return node if plain and not more and into[0].node.time not in looks_at else None

    def _deliver_one(self, node: AggregateNode, rows: DataFrame) -> dict[str, _Counted] | None:
        """An epoch of a flow that does nothing but one aggregation; None if it brings more than last time."""
        (source,), (branch,) = self._engine.sources, self._layout.into(node)
        (lane,) = node.config.lanes(node.types)
        inputs = {name: lane_name(place) for name, place in zip(branch.shipped, branch.lanes, strict=True)}
        with self._partitions(rows.sparkSession):
            ours = f"{TAG} = {branch.tag}"
            rows.createOrReplaceTempView(_VIEW)
            made = partials_and_counts(node, lane, _VIEW, inputs, ours)
            cap = self._cap(lane, more=(LATE, TOP))
            table = self._if_few(node, rows.sparkSession.sql(cap.of_query(made)))
            if table is None:
                return None
            seen = {source.name: _counted(table, lane)}
            self._few[node] = {1: table.filter(pc.equal(table[LATE], 0)).drop_columns([LATE, TOP])}
            self._follow(seen)
            self._deliver_results(rows)
        self._deliver_late(rows, seen)
        return seen

    def _look_ahead(self, rows: DataFrame) -> None:
        """See all of the epoch's rows before windows close, so that its own rows may close them.

        Where Spark aggregates rows by pane itself, the partials are what is kept, here if they are few; else the rows.
        """
        for node in self.native:
            lanes = self._lanes(node, rows)
            few = self._collected(node, lanes)
            if few is not None:
                self._few[node] = few
            else:
                self._partials[node] = [self._keep(lane) for lane in lanes]
        for lane in (lane for lanes in self._partials.values() for lane in lanes):
            lane.write.format("noop").mode("append").save()
        if not self.native:
            rows.write.format("noop").mode("append").save()

    def _collected(self, node: AggregateNode, lanes: Sequence[DataFrame]) -> dict[int, pa.Table] | None:
        """The partials of all lanes by port, if they are few."""
        if node in self._many or not self._engine.took_few(node):
            return None
        few = {}
        for port, (made, lane) in enumerate(zip(lanes, node.config.lanes(node.types), strict=True), start=1):
            table = self._if_few(node, self._cap(lane).of(made))
            if table is None:
                return None
            few[port] = table
        return few

    def _cap(self, lane: Lane, more: Sequence[str] = ()) -> Cap:
        return at_most(self._engine.share // _HERE, _FEW, lane.schema, more)

    def _if_few(self, node: AggregateNode, capped: DataFrame) -> pa.Table | None:
        """Partials, fetched here; None if it turns out that there are more than memory here is for."""
        table = capped.toArrow()
        if pc.any(table.column(OVER)).as_py():
            self._many.add(node)
            return None
        return table.drop_columns([OVER])

    def _follow(self, seen: Mapping[str, _Counted]) -> None:
        """How far the sources are once this epoch's rows are in; a rerun sees the same rows and comes to the same."""
        if not self._plan.end:
            self._tracks = {
                node.name: follow(
                    self._tracks[node.name], node.progress, node.unit, seen[node.name].seen, self._plan.now
                )
                for node in self._engine.sources
            }

    def _rows(self, batch: DataFrame | None) -> DataFrame:
        """The epoch's rows in the tagged union: the micro-batch, and once the sources that are not streams.

        Whether a row is late is decided here and nowhere else.
        """
        engine = self._engine
        parts = [] if batch is None else [batch]
        if self._plan.static:
            parts += [engine._tagged(branch) for branch in self._layout.branches if _is_static(branch)]
        if not parts:
            parts = [engine._spark.range(0).select(*engine._empty_columns())]
        return _union(parts).withColumn(IN_TIME, sf.expr(self._is_in_time))

    def _deliver_results(self, rows: DataFrame) -> None:
        sinks = [sink for sink in self._engine._sinks if sink.emits == "results"]
        for sink in sinks:
            stream, node = self._stream(sink.node, rows), sink.node
            if node in self._delivered or not any(map(_changes_number, edges(node))):
                deliver(sink, stream, self._plan.epoch)
            else:
                self._delivered[node] = deliver_counted(sink, stream, self._plan.epoch)
        if not sinks:
            rows.write.format("noop").mode("append").save()

    def rows_out(self, operators: Mapping[str, OperatorReport], seen: Mapping[str, _Counted]) -> int:
        """How many rows the streams had that sinks take, each stream counted once."""
        streams = dict.fromkeys(sink.node for sink in self._engine._sinks if sink.emits == "results")
        counted = sum(self._delivered.get(node, 0) for node in streams)
        roots = [edge.root for node in streams if node not in self._delivered for edge in edges(node)]
        return counted + sum(
            operators[root.name].rows_out if isinstance(root, OperatorNode) else seen[root.name].seen.rows
            for root in roots
        )

    def _deliver_late(self, rows: DataFrame, seen: Mapping[str, _Counted]) -> None:
        """Late rows are few and their outlet rarely has any: they are looked for only if some were counted."""
        for sink in self._engine._sinks:
            if sink.emits != "late":
                continue
            shown = [seen[node.name] for node in sources_of(sink.node)]
            if any(s.late or s.no_time or s.turned_away for s in shown) or self._plan.epoch == 0:
                columns, windows = late_columns(sink.node), windows_of(sink.node)
                parts = [
                    _widened(self._late_rows(node, rows, windows), node, columns) for node in sources_of(sink.node)
                ]
                deliver(sink, _union(parts, by_name=True).select(*map(col, columns.names)), self._plan.epoch)

    def _late_rows(self, source: SourceNode, rows: DataFrame, windows: AggregateNode | None) -> DataFrame:
        branch, schemas = self._layout.raw(source), self._engine.schemas
        if branch is None:
            raise TypeError(source)
        late = self._gathered(rows.where(f"{IN_TIME} IS NOT TRUE"), len(self._engine.sources))
        why = f"WHEN {TIME} IS NULL THEN 'no-time' WHEN {in_range(source.unit)} THEN 'late' ELSE 'out-of-range'"
        reason = sf.expr(f"CASE {why} END AS late_reason")
        more = [sf.lit(source.name).alias("late_source"), reason]
        if windows is not None:
            more += missed(windows, source, schemas.types_of(windows)[windows.config.start])
        found = untagged(branch, late, schemas, *more)
        return found.union(self._turned(source, more)) if source in self._turned_away else found

    def _turned(self, source: SourceNode, more: Sequence[Column]) -> DataFrame:
        """The rows of a source that its guard turned away, with what else is said of late rows."""
        time = time_as_long(col(str(source.time)), self._engine.schemas.types_of(source)[str(source.time)])
        rows = self._turned_away[source].where(TURNED_AWAY).withColumn(TIME, time)
        return rows.select(*map(col, source.columns.names), *more)

    def _stream(self, node: Node, rows: DataFrame) -> DataFrame:
        """The rows of a stream that a sink takes."""
        branches = iter(self._layout.of_sink(node))
        parts: list[DataFrame] = []
        for edge in edges(node):
            if isinstance(edge.root, OperatorNode):
                parts.append(through(edge, self._operate(edge.root, rows)))
            else:
                branch = next(branches)
                parts.append(untagged(branch, self._in_time([branch], rows), self._engine.schemas))
        return _union(parts)

    def _operate(self, node: OperatorNode, rows: DataFrame) -> DataFrame:
        if node not in self._results:
            if isinstance(node, AggregateNode) and node in self._few and not self._fits_here(node):
                self._partials[node] = self._lanes(node, rows)
            if node in self._partials:
                results = self._shards(node, *self._of_lanes(node))
            elif node in self._few:
                results = self._here(node)
            else:
                results = self._shards(node, *self._of_branches(node, rows))
            if isinstance(node, JoinNode) and node.where is not None:
                results = where_pairs(node, results, node.where)
            if self._uses[node.name] > 1:
                results = self._keep(results)
            self._results[node] = self._passing(node, results) if isinstance(node, GuardNode) else results
        return self._results[node]

    def _passing(self, node: GuardNode, rows: DataFrame) -> DataFrame:
        """The rows that a guard lets pass; the others are remembered for the late outlet."""
        self._turned_away[node.input] = rows
        return rows.where(f"NOT {TURNED_AWAY}").drop(TURNED_AWAY)

    def _with_turned_away(self, rows: DataFrame, seen: dict[str, _Counted]) -> dict[str, _Counted]:
        """What each source showed, with the rows that its guard turned away; every guard has run then."""
        engine = self._engine
        counted = dict(seen)
        for node in (node for node in engine.operators if isinstance(node, GuardNode)):
            if node not in self._results:
                self._operate(node, rows).write.format("noop").mode("append").save()
            records = engine._checkpoint.staged(self.attempt, node.name, self._plan.shards)
            late = added_up(record["counts"] for record in records)["late"]
            counted[node.input.name] = replace(counted[node.input.name], turned_away=late)
        return counted

    def _here(self, node: OperatorNode) -> DataFrame:
        """All shards of an operator in this process: its few rows are here, and tasks would cost more than they do."""
        results = self._task(node, [], roll_call=False).here(self._few[node])
        return self._engine._spark.createDataFrame(results, self._engine.schemas.of(node))

    def _fits_here(self, node: AggregateNode) -> bool:
        """Whether the results of this epoch are sure to be few, too: however few its rows, they may close windows."""
        state = (page.nbytes for part in self._engine.ledger.states.get(node.name, ()) for page in part.pages)
        arrived = (table.nbytes for table in self._few[node].values())
        before, after = self._engine._ports(node)[0], self.bound(node.inputs[0])
        return bool((sum(state) + sum(arrived)) * node.config.copies(before, after) <= self._engine.share // _HERE)

    def _of_branches(self, node: OperatorNode, rows: DataFrame) -> tuple[DataFrame, list[Inlet]]:
        """The rows that enter an operator, and by which inlets."""
        into = self._layout.into(node)
        direct = [branch for branch in into if branch.from_source]
        parts = [self._in_time(direct, rows)] if direct else []
        for branch in into:
            if isinstance(branch.edge.root, OperatorNode):
                results = self._timed(branch.edge.root, rows)
                tags = tagged(branch, self._layout, results, self._engine.schemas)
                parts.append(tags.where(f"{HASH} IS NOT NULL"))
        lanes = sorted({lane for branch in into for lane in branch.lanes})
        needed = [TAG, HASH, TIME, *map(lane_name, lanes)]
        place = {lane: number for number, lane in enumerate(lanes)}
        arriving = _union(parts)
        if needed != arriving.columns:
            arriving = arriving.select(*needed)
        return arriving, [Inlet(b.tag, b.port, tuple(place[lane] for lane in b.lanes)) for b in into]

    def _lanes(self, node: AggregateNode, rows: DataFrame) -> list[DataFrame]:
        """What Spark makes of the rows of an aggregation by itself: partials by pane, a table for each lane."""
        parts = []
        for branch in self._layout.into(node):
            place = dict(zip(branch.shipped, branch.lanes, strict=True))
            named = [renamed(lane_name(lane), name) for name, lane in place.items()]
            if branch.node.time is not None:
                kind = self._engine.schemas.types_of(branch.node)[branch.node.time]
                named.append(time_from_long(col(TIME), kind).alias(branch.node.time))
            parts.append(self._in_time([branch], rows).select(col(TIME), *named))
        arriving = _union(parts)
        return [partials(node, lane, arriving) for lane in node.config.lanes(node.types)]

    def _of_lanes(self, node: OperatorNode) -> tuple[DataFrame, list[Inlet]]:
        """Partials as the operator takes them: lane n enters by port 1 + n; lanes stand side by side in the columns."""
        if not isinstance(node, AggregateNode):
            raise TypeError(node)
        tables = self._partials[node]
        widths = [len(table.columns) - 2 for table in tables]
        parts: list[DataFrame] = []
        inlets: list[Inlet] = []
        for place, table in enumerate(tables):
            before = sum(widths[:place])
            columns = [sf.lit(place).cast(TAG_TYPE).alias(TAG), col(HASH), col(TIME)]
            for other, kept in enumerate(tables):
                for field in kept.schema.fields[2:]:
                    shown = lane_name(len(columns) - 3)
                    ours = other == place
                    columns.append(renamed(field.name, shown) if ours else nulls(field.dataType, shown))
            parts.append(table.select(*columns))
            inlets.append(Inlet(place, 1 + place, tuple(range(before, before + widths[place]))))
        return _union(parts), inlets

    def _is_native(self, node: AggregateNode) -> bool:
        """Whether an aggregation's first half is Spark's: rows come straight from sources, and Spark can and gains."""
        direct = all(branch.from_source for branch in self._layout.into(node))
        return direct and is_native(node, self.config(node)) and self._engine.gains(node, self._plan.epoch)

    def _shards(self, node: OperatorNode, arriving: DataFrame, inlets: Sequence[Inlet]) -> DataFrame:
        """The operator at work: rows to their shards, Python in each."""
        shards = self._plan.shards
        roll_call = self._shares_a_stage(node) or self._may_get_nothing(node)
        if roll_call:
            arriving = arriving.union(self._roll_call(arriving))
        task = self._task(node, inlets, roll_call)
        routed = arriving.repartitionById(shards, sf.expr(shard_of(HASH, shards)))
        columns = self._engine.schemas.of(node)
        told = st.StructType([*columns.fields, st.StructField(TURNED_AWAY, st.BooleanType())])
        return routed.mapInArrow(task, told if task.tells_late else columns)

    def _task(self, node: OperatorNode, inlets: Sequence[Inlet], roll_call: bool) -> ShardTask:
        engine, plan = self._engine, self._plan
        inside = [types.inside for types in node.types]
        if isinstance(node, AggregateNode):
            inside += [lane.schema for lane in node.config.lanes(node.types)]
        held = engine.ledger.states.get(node.name, ())
        return ShardTask(
            operator=node.name,
            config=self.config(node),
            types=node.types,
            inside=tuple(inside),
            inlets=tuple(inlets),
            ports=tuple(self._port(node, port) for port in range(len(node.inputs))),
            states=tuple(packed(state, listed=isinstance(node, LookupNode)) for state in held),
            shards=plan.shards,
            share=engine.share_of(node),
            checkpoint=engine._checkpoint.uri,
            epoch=plan.epoch,
            attempt=self.attempt,
            roll_call=roll_call,
            tells_late=isinstance(node, GuardNode),
        )

    def _shares_a_stage(self, node: OperatorNode) -> bool:
        """Whether Spark may run an operator's tasks beside others in one stage: what it gives meets a union."""
        if isinstance(node, GuardNode):
            return True
        sinks = [sink.node for sink in self._engine._sinks if sink.emits == "results"]
        feeds = [branch for branch in self._layout.branches if branch.edge.root is node]
        unions = [part for part in sinks if len(edges(part)) > 1 and any(e.root is node for e in edges(part))]
        return bool(feeds or unions)

    def _may_get_nothing(self, node: OperatorNode) -> bool:
        """Whether Spark may see, before tasks run, that none of an operator's rows arrive, and start no task for it."""
        roots = [branch.edge.root for branch in self._layout.into(node)]
        return all(root in self._few and root not in self._partials for root in roots)

    def _roll_call(self, arriving: DataFrame) -> DataFrame:
        """One row for each shard, under a tag that no branch has."""
        shards = self._plan.shards
        firsts = ", ".join(long(signed(hash_range(shard, shards)[0])) for shard in range(shards))
        told = {TAG: f"CAST(-1 AS {TAG_TYPE})", HASH: f"element_at(array({firsts}), CAST(id AS INT) + 1)"}
        columns = [
            sf.expr(f"{told[field.name]} AS {field.name}") if field.name in told else nulls(field.dataType, field.name)
            for field in arriving.schema
        ]
        return self._engine._spark.range(0, shards, 1, 1).select(*columns)

    def _port(self, node: OperatorNode, port: int) -> PortBounds:
        """A port's bounds; where one source alone feeds it, a shard may go further by the rows it sees."""
        part = node.inputs[port]
        before = self._engine._ports(node)[port]
        roots = [branch.edge.root for branch in self._layout.into(node) if branch.port == port]
        policy = roots[0].progress if len(roots) == 1 and isinstance(roots[0], SourceNode) else None
        return PortBounds(before, self.bound(part), policy, part.unit)

    def _timed(self, node: OperatorNode, rows: DataFrame) -> DataFrame:
        """An operator's results with the event time they have for the next one; null if they have lost it."""
        if not node.clock:
            return self._operate(node, rows).withColumn(TIME, sf.lit(None).cast("long"))
        kinds = self._engine.schemas.types_of(node)
        times = [time_as_long(col(name), kinds[name]) for name in node.clock]
        rule = node.timed_as
        if isinstance(rule, AggregateNode):
            times = [times[0] - 1]
        pick = sf.greatest if getattr(rule.config, "time", None) == "latest" else sf.least
        return self._operate(node, rows).withColumn(TIME, times[0] if len(times) == 1 else pick(*times))

    def _in_time(self, branches: Sequence[Branch], rows: DataFrame) -> DataFrame:
        """The rows of some branches that are not late, and have a key if they need one."""
        tags = ", ".join(str(branch.tag) for branch in branches)
        keyed = f" AND {HASH} IS NOT NULL" if branches[0].operator is not None else ""
        return rows.where(f"{TAG} IN ({tags}) AND {IN_TIME}{keyed}").drop(IN_TIME)

    @property
    def _is_in_time(self) -> str:
        """Whether a row is not below the bound that its source had when the epoch began, as SQL; null if out of range.

        Rows first, then bounds: those of this epoch say nothing of its rows.

        Looked up in an array and not compared with a literal, because Spark writes literals into the code it
        generates: every epoch would compile its own and start cold.
        """
        tracks = self._engine.ledger.tracks
        bounds, ends = [], []
        for branch in self._layout.branches:
            root = branch.edge.root
            rows_of_source = branch.from_source and not any(isinstance(s, StatementNode) for s in branch.edge.steps)
            end = FARTHEST[root.unit] if rows_of_source else TIME_MAX
            bounds.append(tracks.get(root.name, Track()).bound if branch.from_source else TIME_MIN)
            ends.append(end)
        bound, farthest = (f"element_at(array({', '.join(map(long, each))}), {TAG} + 1)" for each in (bounds, ends))
        return f"CASE WHEN {TIME} < {farthest} AND {TIME} > -{farthest} THEN {TIME} >= {bound} END"

    def _counters(self) -> list[Column]:
        """What to count of each source while its rows pass: those in time, late, without time, and how far they go."""
        counters = []
        for place, source in enumerate(self._engine.sources):
            ours = f"{TAG} = {self._layout.witness(source).tag}"
            counters += [
                f"count_if({ours} AND {IN_TIME}) AS rows{place}",
                f"count_if({ours} AND NOT {IN_TIME}) AS late{place}",
                f"count_if({ours} AND {IN_TIME} IS NULL) AS no_time{place}",
                f"max(CASE WHEN {ours} AND {IN_TIME} IS NOT NULL THEN {TIME} END) AS max_time{place}",
            ]
            if isinstance(source.progress, Punctuated) and source.progress.linear is not None:
                counters.append(f"max(CASE WHEN {ours} THEN {MARK} END) AS mark{place}")
        return [sf.expr(counter) for counter in counters]

    def _seen(self, counted: Mapping[str, Any]) -> dict[str, _Counted]:
        def of(name: str, place: int, otherwise: int) -> int:
            value = counted.get(f"{name}{place}")
            return otherwise if value is None else int(value)

        return {
            source.name: _Counted(
                Seen(of("rows", place, 0), of("max_time", place, TIME_MIN), of("mark", place, TIME_MIN)),
                late=of("late", place, 0),
                no_time=of("no_time", place, 0),
            )
            for place, source in enumerate(self._engine.sources)
        }

    def _count_uses(self) -> Counter[str]:
        """How often the micro-batch and each operator's results are needed in this epoch."""
        uses: Counter[str] = Counter()
        sinks = [sink for sink in self._engine._sinks if sink.emits == "results"]
        for node in self._engine.operators:
            into = self._layout.into(node)
            uses["batch"] += any(branch.from_source for branch in into)
            for branch in into:
                if isinstance(branch.edge.root, OperatorNode):
                    uses[branch.edge.root.name] += 1
            if isinstance(node, GuardNode):
                late = [s for s in self._engine._sinks if s.emits == "late" and node.input in sources_of(s.node)]
                # Once more to find out how many there are, if nothing else takes its rows.
                uses[node.name] += len(late) + bool(late)
        for sink in sinks:
            for edge in edges(sink.node):
                uses[edge.root.name if isinstance(edge.root, OperatorNode) else "batch"] += 1
        return uses

    def _gathered(self, rows: DataFrame, scans: int) -> DataFrame:
        """The epoch's rows in few partitions: there is one for each branch, and every scan has a task for each."""
        return rows.coalesce(max(1, _SCANS // scans) * self._engine.slots)

    def _keep(self, rows: DataFrame) -> DataFrame:
        self._kept.append(rows.persist())
        return rows


def _counted(table: pa.Table, lane: Lane) -> _Counted:
    """What partials say of the rows that they were made of."""
    counts = table.column(lane.schema.field(lane.parts[0].first).name)
    late = table.column(LATE)
    rows, too_late, timeless = (int(pc.sum(counts.filter(pc.equal(late, why))).as_py() or 0) for why in (0, 1, 2))
    top = pc.max(table.column(TOP)).as_py()
    return _Counted(Seen(rows, TIME_MIN if top is None else int(top)), too_late, timeless)


def _stated(node: OperatorNode, records: Sequence[Mapping[str, Any]]) -> int:
    """How many of the rows that an operator took are statements about groups."""
    ports = [port for port, part in enumerate(node.inputs) if isinstance(part, StatementNode)]
    return sum(record["rows_by_port"][port] for record in records for port in ports)


def _report(records: Sequence[Mapping[str, Any]], states: Sequence[State]) -> OperatorReport:
    pages = [page for state in states for page in state.pages]
    return OperatorReport(
        rows_in=sum(record["rows_in"] for record in records),
        rows_out=sum(record["rows_out"] for record in records),
        state_rows=sum(page.rows for page in pages),
        state_bytes=sum(page.nbytes for page in pages),
        pages=len(pages),
        phases={name: sum(record["seconds"][name] for record in records) for name in records[0]["seconds"]},
        peak_memory=max(record["peak"] for record in records),
        deferred=sum(record["deferred"] for record in records),
        bytes_read=sum(record["bytes_read"] for record in records),
        bytes_written=sum(record["bytes_written"] for record in records),
        counts=added_up(record["counts"] for record in records),
        waits=all_waits(Waits.from_json(record["waits"]) for record in records if record["waits"]),
    )


def _widened(late: DataFrame, source: SourceNode, columns: pa.Schema) -> DataFrame:
    """A source's late rows, as text where another source has a column of that name and another type."""
    clashing = [field.name for field in source.columns if columns.field(field.name).type != field.type]
    return late.withColumns({name: col(name).cast("string") for name in clashing}) if clashing else late


def _streams(branch: Branch) -> bool:
    return isinstance(branch.edge.root, SourceNode) and branch.edge.root.data.isStreaming


def _changes_number(edge: Edge) -> bool:
    """Whether fewer rows, or more, may leave an edge than its root is known to give."""
    return edge.filtered or (isinstance(edge.root, JoinNode) and edge.root.where is not None)


def _is_static(branch: Branch) -> bool:
    return isinstance(branch.edge.root, SourceNode) and not branch.edge.root.data.isStreaming


def _union(parts: Sequence[DataFrame], by_name: bool = False) -> DataFrame:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part, allowMissingColumns=True) if by_name else whole.union(part)
    return whole
