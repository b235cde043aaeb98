"""The DataFrames of an epoch: from a micro-batch to the rows of sinks.

Rows of all branches are hashed natively, shuffled to their shards, run through the operators in Python, and handed to
the sinks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from penstock.core.files import InputFile
from penstock.core.routes import Keyed
from penstock.core.rows import HASH, TIME
from penstock.core.time import Time
from penstock.flow.graph import (
    FetchNode,
    Node,
    OperatorNode,
    SourceNode,
    guarded_by,
    late_columns,
    sources_of,
    windows_of,
)
from penstock.flow.report import OperatorReport
from penstock.flow.sinks import Sink
from penstock.kernels.route import hash_range
from penstock.runtime.entering import Entry
from penstock.runtime.records import added_up
from penstock.runtime.shard import PortBounds
from penstock.runtime.steps import ways_to
from penstock.runtime.tracks import Tracks, followed
from penstock.spark.arrivals import Arrivals, Inlet
from penstock.spark.assembly import Assembly
from penstock.spark.blobs import BLOBS, ROLL_CALL
from penstock.spark.first_half import FirstHalf
from penstock.spark.lateness import (
    REASON,
    Counted,
    counted,
    counted_by_ends,
    counters,
    ends,
    in_time,
    judged,
    missed,
)
from penstock.spark.layout import (
    IN_TIME,
    LATE,
    LATENESS,
    TAG,
    TAG_TYPE,
    Branch,
    Edge,
    edges,
    tagged,
    tagged_as_they_came,
    through,
    untagged,
    where_pairs,
    with_payload,
)
from penstock.spark.onward import Count, Give, Onward, Then, Write
from penstock.spark.placing import PlaceTask
from penstock.spark.sinks import deliver, deliver_counted, deliver_dropped, deliver_written, drops, writes_here
from penstock.spark.source_rows import SourceRows
from penstock.spark.task import ShardTask
from penstock.spark.types import (
    arrow_columns,
    col,
    column_name,
    long,
    nulls,
    run,
    shard_of,
    signed,
    time_as_long,
    union,
)
from penstock.spark.work import TURNED_AWAY
from penstock.storage.scans import Portion, stamped
from penstock.storage.versioned import Plan

_BRANCHES = 3
"""So many branches are made of an epoch's rows after these were kept; for fewer, they are read once for each."""

_SCANS = 4
"""Tasks per slot for all scans of an epoch's rows together: the more operators or late outlets scan, the fewer each."""


class EpochFrames:
    """One attempt at an epoch: its DataFrames, each built once, and its bounds."""

    def __init__(
        self, flow: Assembly, plan: Plan, attempt: str, files: Mapping[SourceNode, Sequence[InputFile]] | None = None
    ) -> None:
        self.attempt = attempt
        self._files = {source: stamped(some) for source, some in (files or {}).items()}
        """What Arrow reads, by source; each file more than once, in several jobs."""
        self._flow = flow
        self._session = flow.spark
        self._plan = plan
        self._course = flow.course
        self._layout = flow.layout
        self._uses = self._count_uses()
        self._first = FirstHalf(flow, plan)
        self._results: dict[OperatorNode, DataFrame] = {}
        self._delivered: dict[Node, int] = {}
        """How many rows streams had for their sinks, where what is counted anyway does not tell."""
        self._kept: list[DataFrame] = []
        self._turned_away: dict[SourceNode, DataFrame] = {}
        """What a guard made of a source's rows: those that pass, and those that do not."""
        self.tracks = plan.tracks
        """How far the sources are, as far as operators are told."""

    @property
    def native(self) -> list[OperatorNode]:
        """The operators whose first half is Spark's in this epoch."""
        return list(self._first.preludes)

    def deliver(self, batch: DataFrame | None) -> dict[str, Counted]:
        """Run every operator and hand every sink its rows; what each source showed comes back."""
        with self._first.partitions(self._flow.spark if batch is None else batch.sparkSession):
            return self._deliver_one(batch) or self._deliver_all(batch)

    def _deliver_one(self, batch: DataFrame | None) -> dict[str, Counted] | None:
        """An epoch of a flow that does nothing but one aggregation of few rows; None if this is none."""
        node = self._first.teller() if self._uses["batch"] == 1 else None
        if node is None:
            return None
        rows = self._tagged(self._rows(batch))
        told = self._first.told(node, rows)
        if told is None:
            return None
        seen = {self._course.sources[0].name: told}
        self.tracks = self.followed(seen)
        self._deliver_results(rows)
        self._deliver_late(rows, seen)
        return seen

    def _deliver_all(self, batch: DataFrame | None) -> dict[str, Counted]:
        course, experience = self._course, self._flow.experience
        counts = _Counts(self._flow.source_rows, course.ledger.tracks, self._rows(batch), experience.late_rows)
        rows = self._tagged(counts.rows)
        closing = any(node.config.sees_ahead for node in course.operators)
        if self._uses["batch"] > 1 or (len(self.native) < len(course.operators) and closing):
            rows = self._keep(self._gathered(rows, self._uses["batch"]))
        try:
            if closing:
                self._first.look_ahead(rows, self._keep)
                self.tracks = self.followed(counts.seen)
            self._deliver_results(rows)
            experience.late_rows = any(each.late for each in counts.seen.values())
            seen = self._with_turned_away(rows, counts.seen)
            self._deliver_late(rows, seen)
        finally:
            self._let_go()
        return seen

    def followed(self, seen: Mapping[str, Counted]) -> Tracks:
        """How far the sources are once this epoch's rows are in; a rerun sees the same rows and comes to the same."""
        if self._plan.end:
            return self._plan.tracks
        shown = {name: counted.seen for name, counted in seen.items()}
        return followed(self._course.sources, self._plan.tracks, shown, self._plan.now)

    def _rows(self, batch: DataFrame | None) -> DataFrame:
        """The epoch's rows as they came: the micro-batch, files, and once the sources that are not streams.

        Whether a row is late is decided here and nowhere else.
        """
        sources = self._flow.source_rows
        parts = [self._flow.unsegmented(batch, self._plan)] if batch is not None and self._flow.brings_rows else []
        for source, files in self._files.items():
            if files:
                read = self._portions(source, files)
                rows = source.data.rows(read, source.lets_go, self._course.tasks)
                parts.append(sources.gathered(source, rows))
        if self._plan.static:
            static = [source for source in self._flow.frames if not source.data.isStreaming]
            parts += [self._flow.rows_given(source) for source in static]
        return judged(union(parts or [self._flow.no_rows()]), sources, self._course.ledger.tracks)

    def _portions(self, source: SourceNode, files: Sequence[InputFile]) -> list[Portion]:
        """What tasks read of a source for Spark: whole files, unless their parts have numbers."""
        if source.name in self._plan.late:
            return self._flow.portions(source, self._plan, files)
        return [Portion(f.path, 0, values=f.values, segment=f.segment, stamp=f.stamp) for f in files]

    def _tagged(self, rows: DataFrame) -> DataFrame:
        """What every branch from a source makes of the epoch's rows, in the tagged union."""
        of_sources = [branch for branch in self._layout.branches if branch.from_source]
        others = [branch for branch in of_sources if not branch.direct]
        if len(others) >= _BRANCHES:
            rows = self._keep(rows)
        parts = [self._branch(branch, rows) for branch in others]
        if len(others) < len(of_sources):
            parts.insert(0, tagged_as_they_came(self._layout, rows, self._flow.source_rows))
        return union(parts)

    def _branch(self, branch: Branch, rows: DataFrame) -> DataFrame:
        source = branch.edge.root
        if not isinstance(source, SourceNode):
            raise TypeError(branch)
        ours = self._flow.source_rows.given_back(source, rows, (TIME, LATENESS))
        return tagged(branch, self._layout, ours, self._flow.schemas)

    def _deliver_results(self, rows: DataFrame) -> None:
        sinks = [sink for sink in self._flow.sinks if sink.emits == "results"]
        for sink in sinks:
            node = sink.node
            if self._is_written_by_tasks(sink):
                write = partial(self._written, node, rows)
                self._delivered[node] = deliver_written(sink, write, self._columns_of(node), self._plan.epoch)
                continue
            if drops(sink) and self._goes_on_in_tasks(node):
                self._delivered[node] = deliver_dropped(sink, partial(self._counted, node, rows), self._plan.epoch)
                continue
            stream = self._stream(node, rows)
            if node in self._delivered or not any(map(_changes_number, edges(node))):
                deliver(sink, stream, self._plan.epoch)
            else:
                self._delivered[node] = deliver_counted(sink, stream, self._plan.epoch)
        if not sinks:
            run(rows)

    def _is_written_by_tasks(self, sink: Sink) -> bool:
        """Whether the tasks of an operator can write what a sink takes themselves."""
        return writes_here(sink) and self._goes_on_in_tasks(sink.node)

    def _goes_on_in_tasks(self, node: Node) -> bool:
        """Whether the tasks of an operator can take its results to a stream themselves.

        They can if its results go nowhere else and what follows it is known in process.
        """
        root = edges(node)[0].root
        return (
            len(edges(node)) == 1
            and isinstance(root, OperatorNode)
            and self._uses[root.name] == 1
            and root not in self.native
            and not root.config.finds_late
            and self._flow.in_process
        )

    def _columns_of(self, node: Node) -> pa.Schema:
        return arrow_columns(self._flow.schemas.of(node))

    def _written(self, node: Node, rows: DataFrame, folder: str) -> list[tuple[str, int]]:
        """The files that tasks wrote into a folder, and how many rows each has."""
        ((root, steps),) = ways_to(node)
        if not isinstance(root, OperatorNode):
            raise TypeError(root)
        write = Write(steps, self._columns_of(node), folder)
        found = self._sent_on(root, rows, write).collect()
        return [(file, count) for file, count in found]

    def _counted(self, node: Node, rows: DataFrame) -> int:
        """How many rows of a stream tasks have made."""
        ((root, steps),) = ways_to(node)
        if not isinstance(root, OperatorNode):
            raise TypeError(root)
        return sum(count for (count,) in self._sent_on(root, rows, Count(steps)).collect())

    def _sent_on(self, node: OperatorNode, rows: DataFrame, then: Then) -> DataFrame:
        """An operator at work, and what its tasks do with the results."""
        return self._shards(node, *self._of_branches(node, rows), then)

    def rows_out(self, operators: Mapping[str, OperatorReport], seen: Mapping[str, Counted]) -> int:
        """How many rows the streams had that sinks take, each stream counted once."""
        streams = dict.fromkeys(sink.node for sink in self._flow.sinks if sink.emits == "results")
        counted = sum(self._delivered.get(node, 0) for node in streams)
        roots = [edge.root for node in streams if node not in self._delivered for edge in edges(node)]
        return counted + sum(
            operators[root.name].rows_out if isinstance(root, OperatorNode) else seen[root.name].seen.rows
            for root in roots
        )

    def _deliver_late(self, rows: DataFrame, seen: Mapping[str, Counted]) -> None:
        """Late rows are few and their outlet rarely has any: they are looked for only if some were counted."""
        for sink in self._flow.sinks:
            if sink.emits != "late":
                continue
            shown = [seen[node.name] for node in sources_of(sink.node)]
            if any(s.late or s.no_time or s.turned_away for s in shown) or self._plan.epoch == 0:
                columns, windows = late_columns(sink.node), windows_of(sink.node)
                parts = [
                    _widened(self._late_rows(node, rows, windows), node, columns) for node in sources_of(sink.node)
                ]
                deliver(sink, union(parts, by_name=True).select(*map(col, columns.names)), self._plan.epoch)

    def _late_rows(self, source: SourceNode, rows: DataFrame, windows: OperatorNode | None) -> DataFrame:
        branch, schemas = self._layout.raw(source), self._flow.schemas
        if branch is None:
            raise TypeError(source)
        late = self._gathered(rows.where(f"{LATENESS} > {IN_TIME}"), len(self._course.sources))
        more = [sf.lit(source.name).alias("late_source"), sf.expr(f"{REASON} AS late_reason")]
        if windows is not None:
            more += missed(windows, source, schemas.types_of(windows)[str(windows.config.window_start)])
        found = untagged(branch, late, schemas, *more)
        if source.row is not None:
            found = with_payload(found, source) if source.name in self._plan.late else found.drop(source.row)
        return found.union(self._turned(source, more)) if source in self._turned_away else found

    def _turned(self, source: SourceNode, more: Sequence[Column]) -> DataFrame:
        """The rows of a source that its guard turned away, with what else is said of late rows."""
        time = time_as_long(col(str(source.time)), self._flow.schemas.types_of(source)[str(source.time)])
        rows = self._turned_away[source].where(TURNED_AWAY).withColumns({TIME: time, LATENESS: sf.lit(LATE)})
        return rows.select(*map(col, source.columns.names), *more)

    def _stream(self, node: Node, rows: DataFrame) -> DataFrame:
        """The rows of a stream that a sink takes."""
        branches = iter(self._layout.of_sink(node))
        parts: list[DataFrame] = []
        for edge in edges(node):
            if isinstance(edge.root, OperatorNode):
                parts.append(self._after(node, edge, edge.root, rows))
            else:
                branch = next(branches)
                parts.append(untagged(branch, in_time([branch], rows), self._flow.schemas))
        return union(parts)

    def _after(self, node: Node, edge: Edge, root: OperatorNode, rows: DataFrame) -> DataFrame:
        """What an operator gives after the steps of an edge; what payload they fetch, its own tasks get if they can."""
        fetches = any(isinstance(step, FetchNode) for step in edge.steps)
        if fetches and self._goes_on_in_tasks(node):
            ((_, steps),) = ways_to(node)
            return self._sent_on(root, rows, Give(steps, self._flow.schemas.of(node)))
        return through(edge, self._operate(root, rows))

    def _operate(self, node: OperatorNode, rows: DataFrame) -> DataFrame:
        if node not in self._results:
            partials = self._first.arriving(node, rows, self._bound(node.inputs[0]))
            if node in self._first.few:
                results = self._here(node)
            else:
                results = self._shards(node, *(partials or self._of_branches(node, rows)))
            if node.pairs is not None:
                results = where_pairs(results, node.pairs)
            if self._uses[node.name] > 1:
                results = self._keep(results)
            self._results[node] = self._passing(node, results) if node.config.finds_late else results
        return self._results[node]

    def _passing(self, node: OperatorNode, rows: DataFrame) -> DataFrame:
        """The rows that a guard lets pass; the others are remembered for the late outlet."""
        self._turned_away[guarded_by(node)] = rows
        return rows.where(f"NOT {TURNED_AWAY}").drop(TURNED_AWAY)

    def _with_turned_away(self, rows: DataFrame, seen: dict[str, Counted]) -> dict[str, Counted]:
        """What each source showed, with the rows that its guard turned away; every guard has run then."""
        counted = dict(seen)
        for node in (node for node in self._course.operators if node.config.finds_late):
            if node not in self._results:
                run(self._operate(node, rows))
            records = self._flow.staged(node, self.attempt, self._plan.shards)
            late = added_up(record["counts"] for record in records)["late"]
            source = guarded_by(node).name
            counted[source] = replace(counted[source], turned_away=late)
        return counted

    def _here(self, node: OperatorNode) -> DataFrame:
        """All shards of an operator in this process: its few rows are here, and tasks would cost more than they do."""
        results = self._task(node, [], roll_call=False).partials_here(self._first.few[node])
        return self._flow.spark.createDataFrame(results, self._flow.schemas.of(node))

    def _bound(self, node: Node) -> Time:
        return self._course.bound(node, self._plan, self.tracks)

    def _of_branches(self, node: OperatorNode, rows: DataFrame) -> tuple[DataFrame, list[Inlet]]:
        """The rows that enter an operator, and by which inlets."""
        into = self._layout.into(node)
        direct = [branch for branch in into if branch.from_source]
        parts = [in_time(direct, rows)] if direct else []
        for branch in into:
            if isinstance(branch.edge.root, OperatorNode):
                results = self._timed(branch.edge.root, rows)
                tags = tagged(branch, self._layout, results, self._flow.schemas)
                parts.append(tags.where(f"{HASH} IS NOT NULL"))
        used = sorted({place for branch in into for place in branch.places})
        needed = [TAG, HASH, TIME, *map(column_name, used)]
        among = {place: number for number, place in enumerate(used)}
        arriving = union(parts)
        if needed != arriving.columns:
            arriving = arriving.select(*needed)
        return arriving, [Inlet(b.tag, b.port, tuple(among[place] for place in b.places)) for b in into]

    def _shards(
        self, node: OperatorNode, arriving: DataFrame, inlets: Sequence[Inlet], then: Then | None = None
    ) -> DataFrame:
        """The operator at work: rows to their shards, Python in each."""
        if not all(isinstance(node.config.route(port), Keyed) for port in range(len(node.inputs))):
            return self._placed(node, arriving, inlets, then)
        shards = self._plan.shards
        roll_call = self._shares_a_stage(node) or self._may_get_nothing(node)
        if roll_call:
            arriving = arriving.union(self._roll_call(arriving))
        task = self._task(node, inlets, roll_call)
        return self._run(node, task, arriving.repartitionById(shards, sf.expr(shard_of(HASH, shards))), then)

    def _placed(
        self, node: OperatorNode, arriving: DataFrame, inlets: Sequence[Inlet], then: Then | None = None
    ) -> DataFrame:
        """The same where rows are not placed by key: Python sends them, or copies of them, to their shards."""
        shards, inside = self._plan.shards, tuple(types.inside for types in node.types)
        arrivals = Arrivals(inside, tuple(inlets), self._course.before(node), called=False)
        entries = tuple(Entry.of(node, port, self._plan.sites) for port in range(len(node.inputs)))
        blobs = arriving.mapInArrow(PlaceTask(arrivals, entries, shards, self._course.share_of(node)), BLOBS)
        roll_call = self._shares_a_stage(node)
        if roll_call:
            blobs = blobs.union(self._blob_call())
        task = replace(self._task(node, [], roll_call), blobs=True)
        return self._run(node, task, blobs.repartitionById(shards, sf.col("shard")), then)

    def _run(self, node: OperatorNode, task: ShardTask, routed: DataFrame, then: Then | None) -> DataFrame:
        """Run the shards of an operator over what has come to each."""
        if then is not None:
            return routed.mapInArrow(Onward(task, node.columns, then, node.pairs), then.declared)
        columns = self._flow.schemas.of(node)
        told = st.StructType([*columns.fields, st.StructField(TURNED_AWAY, st.BooleanType())])
        return routed.mapInArrow(task, told if node.config.finds_late else columns)

    def _task(self, node: OperatorNode, inlets: Sequence[Inlet], roll_call: bool) -> ShardTask:
        ports = [self._port(node, port) for port in range(len(node.inputs))]
        partials = [lane.schema for lane in self._first.lanes(node)]
        return self._flow.shard_task(node, self._plan, ports, self.attempt, partials, inlets, roll_call)

    def _shares_a_stage(self, node: OperatorNode) -> bool:
        """Whether Spark may run an operator's tasks beside others in one stage: what it gives meets a union."""
        if node.config.finds_late:
            return True
        sinks = [sink.node for sink in self._flow.sinks if sink.emits == "results"]
        feeds = [branch for branch in self._layout.branches if branch.edge.root is node]
        unions = [part for part in sinks if len(edges(part)) > 1 and any(e.root is node for e in edges(part))]
        return bool(feeds or unions)

    def _may_get_nothing(self, node: OperatorNode) -> bool:
        """Whether Spark may see, before tasks run, that none of an operator's rows arrive, and start no task for it."""
        roots = [branch.edge.root for branch in self._layout.into(node)]
        return all(root in self._first.few for root in roots)

    def _roll_call(self, arriving: DataFrame) -> DataFrame:
        """One row for each shard, under a tag that no branch has."""
        shards = self._plan.shards
        firsts = ", ".join(long(signed(hash_range(shard, shards)[0])) for shard in range(shards))
        told = {TAG: f"CAST(-1 AS {TAG_TYPE})", HASH: f"element_at(array({firsts}), CAST(id AS INT) + 1)"}
        columns = [
            sf.expr(f"{told[field.name]} AS {field.name}") if field.name in told else nulls(field.dataType, field.name)
            for field in arriving.schema
        ]
        return self._flow.spark.range(0, shards, 1, 1).select(*columns)

    def _blob_call(self) -> DataFrame:
        """The same where rows come in blobs."""
        called = f"CAST(id AS INT) AS shard, CAST({ROLL_CALL} AS SHORT) AS port, CAST(NULL AS BINARY) AS batch"
        return self._session.range(0, self._plan.shards, 1, 1).selectExpr(*called.split(", "))

    def _port(self, node: OperatorNode, port: int) -> PortBounds:
        """A port's bounds; where one source alone feeds it, a shard may go further by the rows it sees."""
        part = node.inputs[port]
        before = self._course.before(node)[port]
        roots = [branch.edge.root for branch in self._layout.into(node) if branch.port == port]
        policy = roots[0].progress if len(roots) == 1 and isinstance(roots[0], SourceNode) else None
        return PortBounds(before, self._bound(part), policy, part.unit)

    def _timed(self, node: OperatorNode, rows: DataFrame) -> DataFrame:
        """An operator's results with the event time they have for the next one; null if they have lost it."""
        if not node.clock:
            return self._operate(node, rows).withColumn(TIME, sf.lit(None).cast("long"))
        kinds = self._flow.schemas.types_of(node)
        times = [time_as_long(col(name), kinds[name]) for name in node.clock]
        if node.timing == "before end":
            times = [times[0] - 1]
        pick = sf.greatest if node.timing == "latest" else sf.least
        return self._operate(node, rows).withColumn(TIME, times[0] if len(times) == 1 else pick(*times))

    def _count_uses(self) -> Counter[str]:
        """How often the micro-batch and each operator's results are needed in this epoch."""
        uses: Counter[str] = Counter()
        sinks = [sink for sink in self._flow.sinks if sink.emits == "results"]
        for node in self._course.operators:
            into = self._layout.into(node)
            uses["batch"] += any(branch.from_source for branch in into)
            for branch in into:
                if isinstance(branch.edge.root, OperatorNode):
                    uses[branch.edge.root.name] += 1
            if node.config.finds_late:
                source = guarded_by(node)
                late = [s for s in self._flow.sinks if s.emits == "late" and source in sources_of(s.node)]
                # Once more to find out how many there are, if nothing else takes its rows.
                uses[node.name] += len(late) + bool(late)
        for sink in sinks:
            for edge in edges(sink.node):
                uses[edge.root.name if isinstance(edge.root, OperatorNode) else "batch"] += 1
        return uses

    def _gathered(self, rows: DataFrame, scans: int) -> DataFrame:
        """The epoch's rows in few partitions: there is one for each branch, and every scan has a task for each."""
        return rows.coalesce(max(1, _SCANS // scans) * self._course.tasks)

    def _let_go(self) -> None:
        for kept in self._kept:
            kept.unpersist()

    def _keep(self, rows: DataFrame) -> DataFrame:
        self._kept.append(rows.persist())
        return rows


class _Counts:
    """What was seen of each source, known once the `rows` have been consumed; `late` says whether some may be late."""

    def __init__(self, sources: SourceRows, tracks: Tracks, rows: DataFrame, late: bool) -> None:
        self._sources = sources
        self._tracks = tracks
        self._given = rows
        self._noted = Observation()
        self._alone = sources.sources[0] if len(sources.sources) == 1 and not late else None
        self.rows = rows.observe(self._noted, *(counters(sources) if self._alone is None else ends(sources)))

    @cached_property
    def seen(self) -> dict[str, Counted]:
        """By source; rows of a source that has the first late ones are counted in a job of its own."""
        sources, noted = self._sources.sources, self._noted.get
        if self._alone is None:
            return counted(sources, noted)
        found = counted_by_ends(self._alone, self._tracks, noted)
        if found is not None:
            return {self._alone.name: found}
        return counted(sources, self._given.agg(*counters(self._sources)).collect()[0].asDict())


def _widened(late: DataFrame, source: SourceNode, columns: pa.Schema) -> DataFrame:
    """A source's late rows, as text where another source has a column of that name and another type."""
    clashing = [field.name for field in source.given if columns.field(field.name).type != field.type]
    return late.withColumns({name: col(name).cast("string") for name in clashing}) if clashing else late


def _changes_number(edge: Edge) -> bool:
    """Whether fewer rows, or more, may leave an edge than its root is known to give."""
    return edge.filtered or (isinstance(edge.root, OperatorNode) and edge.root.pairs is not None)
