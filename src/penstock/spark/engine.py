"""Epochs on Spark: planned, run, committed. An epoch is committed once its ledger is written, and not before."""

from __future__ import annotations

import logging
import time as clock
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from penstock.core.errors import BudgetError, CheckpointError, FlowError
from penstock.core.files import InputFile
from penstock.core.master import TableSource
from penstock.core.operator import State
from penstock.core.time import show_time
from penstock.flow.graph import OperatorNode, SourceNode, sources_of
from penstock.flow.report import EpochReport, OperatorReport
from penstock.flow.sinks import Sink
from penstock.runtime.course import Course
from penstock.runtime.epoch import taken_by_one
from penstock.runtime.records import ShardRecord
from penstock.runtime.tracks import ended, followed, woken
from penstock.spark.assembly import Assembly
from penstock.spark.file_stream import FileStream, path_in_log
from penstock.spark.frames import EpochFrames
from penstock.spark.here import EpochHere, columns_here
from penstock.spark.inputs import check_inputs
from penstock.spark.lateness import Counted
from penstock.spark.place import PLACES, Place, Placement
from penstock.spark.segmenting import Segmenting
from penstock.spark.session import Meant
from penstock.spark.tables import pinned_on_spark
from penstock.spark.tasks import EpochTasks
from penstock.storage.files import sync_tree
from penstock.storage.payload import width_in
from penstock.storage.scans import size_of
from penstock.storage.versioned import Checkpoint, Ledger, Plan, state_from_json

log = logging.getLogger("penstock")

_ATTEMPTS = 3
"""How often an epoch is tried while Spark loses results."""

_HERE: tuple[Place, ...] = ("driver", "pieces")
"""The places that are in the driver."""

_NO_ROOM = "it needs more than the memory of one task"
"""Why an epoch that was begun in the driver ran elsewhere."""


class Engine:
    """Runs the epochs of one flow against one checkpoint."""

    def __init__(
        self, spark: SparkSession, sinks: Sequence[Sink], checkpoint: Checkpoint, memory: int, shards: int | None
    ) -> None:
        self._spark = spark
        self.checkpoint = checkpoint
        self._memory = memory
        self._shards = shards
        ledger = checkpoint.latest()
        table = partial(self._pinned, begins=ledger.epoch < 0)
        self.course = Course(sinks, memory, self._count_slots(), ledger, table)
        columns = columns_here(self.course.operators, sinks, Meant.of(spark))
        known, why_not = (None, columns) if isinstance(columns, str) else (columns, None)
        self.assembly = Assembly.of(spark, sinks, checkpoint, self.course, known)
        self.placement = self._placement(why_not)
        self._rows = 0
        """How many rows the last epoch had."""
        self._old: Ledger | None = None
        self._writing: Future[None] | None = None
        """The plan of the running epoch on its way to disk."""
        self.trigger: float | None = None
        """Seconds from one epoch to the next, if they are given."""
        self.notes: Sequence[str] = ()
        """What there is to say of who reads sources, and of those whose payload cannot stay behind."""

    @property
    def ledger(self) -> Ledger:
        """What the last epoch left."""
        return self.course.ledger

    def next_plan(
        self,
        epoch: int,
        now: int,
        end: bool,
        files: dict[SourceNode, list[InputFile]],
        batch: DataFrame | None = None,
    ) -> Plan:
        """What to do in an epoch: as planned before if an earlier attempt was, else from what is known now.

        `files` are told of the segments that rows of sources were put into.
        """
        course, offsets = self.course, self.checkpoint.spark
        planned = self.checkpoint.planned(epoch)
        if not end:
            check_inputs(self._spark, course.sources, offsets, epoch, again=planned is not None)
        if planned is not None:
            offsets.compare(planned.batch, epoch)
            course.follow(planned.methods)
            self._take_again(planned, files, batch)
            return planned
        versions = course.versions()
        before = self.ledger.tracks
        put = Segmenting(self.assembly, self.ledger, not self.ledger.static)
        if not end:
            files |= put.rows(batch)
        size = self._rows if self.assembly.frames else sum(_size(file) for some in files.values() for file in some)
        place, why = self.placement.choose(size)
        late = {}
        if not end:
            files |= put.files(files, here=place in _HERE)
            late = put.noted() | self._leave_behind(files) | self._leave_where_scanned(epoch)
        shards = self._shards or course.tasks
        in_turn = shards if place in _HERE else -(-shards // course.tasks)
        plan = Plan(
            epoch,
            now,
            shards,
            ended(course.sources, before)
            if end
            else woken(course.sources, followed(course.sources, before, {}, now), now),
            static=not self.ledger.static,
            end=end,
            methods=course.methods(),
            versions=versions,
            quotas={} if end else course.quotas(self.trigger),
            spare=None if end else course.spare(self.trigger, in_turn),
            batch={} if end else offsets.batch(epoch),
            place=place,
            why=why,
            size=size,
            late=late,
            sites=course.sites(shards),
        )
        self._write(plan)
        return plan

    def _write(self, plan: Plan) -> None:
        """Write a plan. A disk takes its time: in the driver, rows are read in the meantime."""
        if plan.place not in _HERE or not self.checkpoint.records.local:
            self.checkpoint.plan(plan)
            return
        thread = ThreadPoolExecutor(1, "penstock-plan")
        self._writing = thread.submit(self.checkpoint.plan, plan)
        thread.shutdown(wait=False)

    def _written(self) -> None:
        """Wait until the plan is on disk: what others see of an epoch may not come before."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _leave_behind(self, files: Mapping[SourceNode, Sequence[InputFile]]) -> dict[str, tuple[int, int]]:
        """The sources whose rows are to leave payload behind; their files are numbered, and that is on record."""
        late = {}
        for source, some in files.items():
            stays = source.row is not None and source not in self.assembly.segmented
            if stays and some and self.course.homes.pilots[source.name].late:
                first = self.ledger.units.get(source.name, 0)
                late[source.name] = (first, source.home.note(first, [(file.path, file.values) for file in some]))
        return late

    def _leave_where_scanned(self, epoch: int) -> dict[str, tuple[int, int]]:
        """The same of DataFrames whose payload Spark does not scan."""
        late = {}
        for source, uris in self.assembly.placed_files(epoch).items() if self.assembly.placed else ():
            if uris:
                first = self.ledger.units.get(source.name, 0)
                paths = list(map(path_in_log, uris))
                late[source.name] = (first, source.home.note_whole(first, paths, source.data.left))
        return late

    def _take_again(self, plan: Plan, files: dict[SourceNode, list[InputFile]], batch: DataFrame | None) -> None:
        """Take the segments that an earlier attempt at an epoch has written; of other rows, write those anew.

        Rows that did not leave payload behind then do not now either: what is written has no numbers.
        """
        put = Segmenting(self.assembly, self.ledger, plan.static)
        known = {s: put.again(s, plan.late[s.name][0]) for s in self.assembly.segmented if s.name in plan.late}
        if not plan.end:
            unknown = {source for source in self.assembly.segmented if source not in known}
            files |= put.rows(batch, unknown) | {s: some for s, some in known.items() if some}

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
        if self.checkpoint.lease is not None:
            self.checkpoint.lease.check()

    def _run(self, batch: DataFrame | None, epoch: int, end: bool) -> EpochReport | None:
        if epoch == self.ledger.epoch:
            self.checkpoint.spark.compare(self.ledger.batch, epoch)
            return None
        if epoch != self.ledger.epoch + 1:
            raise CheckpointError.other_age(self.checkpoint.uri, epoch, self.ledger.epoch)
        begun = clock.perf_counter()
        self.course.tasks = self._count_slots()
        files = self.assembly.files(epoch, end)
        plan = self.next_plan(epoch, clock.time_ns() // 1000, end, files, batch)
        planned = clock.perf_counter()
        try:
            ran, frames, seen = self._attempt(plan, batch, files)
        finally:
            self._written()
        done = clock.perf_counter()
        ledger, operators = self._settle(plan, frames, seen, ran, files)
        self.checkpoint.commit(ledger)
        self._clean(ledger, frames.attempt)
        self._rows = sum(counted.seen.rows + counted.late + counted.no_time for counted in seen.values())
        size = self._rows if self.assembly.frames else plan.size
        self.placement.learn(ran, size, clock.perf_counter() - begun, self._alone(operators))
        for node in frames.native:
            rows = sum(seen[source.name].seen.rows for source in sources_of(node))
            self.assembly.experience.saw_partials(node, rows, epoch)
        return EpochReport(
            epoch=epoch,
            seconds=clock.perf_counter() - begun,
            rows_in={name: counted.seen.rows + counted.late + counted.no_time for name, counted in seen.items()},
            rows_out=frames.rows_out(operators, seen),
            late={name: counted.late + counted.turned_away for name, counted in seen.items()},
            no_time={name: counted.no_time for name, counted in seen.items()},
            bounds={n.name: show_time(ledger.tracks[n.name].bound, n.unit) for n in self.course.sources},
            operators=operators,
            place=f"{PLACES[ran]}: {plan.why}" if ran == plan.place else f"{PLACES[ran]}: {_NO_ROOM}",
            left_behind=tuple(plan.late),
            payload_bytes=self.course.payload_bytes,
            phases={"plan": planned - begun, "run": done - planned, "commit": clock.perf_counter() - done},
        )

    def _alone(self, operators: Mapping[str, OperatorReport]) -> float | None:
        """Seconds of an epoch in the driver in which one core worked; None if in all: files are read by more."""
        if self.assembly.frames:
            return None
        return sum(seconds for report in operators.values() for seconds in report.phases.values())

    def _attempt(
        self, plan: Plan, batch: DataFrame | None, files: Mapping[SourceNode, Sequence[InputFile]]
    ) -> tuple[Place, EpochFrames | EpochHere, dict[str, Counted]]:
        """Run what is planned, again if Spark has run a part of it again: what then came out may not fit together."""
        for _ in range(_ATTEMPTS):
            ran, frames, seen = self._once(plan, batch, files)
            repeated = [
                node.name
                for node in self.course.operators
                if self.course.config(node, plan).defers and self.assembly.runs.repeated(frames.attempt, node.name)
            ]
            if not repeated:
                return ran, frames, seen
            log.warning("Epoch %d begins again: Spark lost results of %s.", plan.epoch, ", ".join(repeated))
            self._forget(frames.attempt)
        raise FlowError.in_epoch(plan.epoch, "Spark", f"results of {', '.join(repeated)} were lost {_ATTEMPTS} times")

    def _once(
        self, plan: Plan, batch: DataFrame | None, files: Mapping[SourceNode, Sequence[InputFile]]
    ) -> tuple[Place, EpochFrames | EpochHere, dict[str, Counted]]:
        """Run what is planned where it is planned; with tasks if it takes too much memory in the driver."""
        attempt = _new_attempt(plan)
        place = self.placement.at_most(plan.place)
        if place == "driver" or place == "pieces":
            here = EpochHere(self.assembly, plan, attempt, files, in_pieces=place == "pieces")
            try:
                return place, here, here.deliver(batch, self._written)
            except BudgetError:
                self._written()
                self.placement.did_not_fit(place)
                self._forget(attempt)
                attempt, place = _new_attempt(plan), self.placement.elsewhere
        if place == "tasks":
            tasks = EpochTasks(self.assembly, plan, attempt, files)
            return place, tasks, tasks.deliver(batch)
        frames = EpochFrames(self.assembly, plan, attempt, files)
        return place, frames, frames.deliver(batch)

    def _placement(self, why_not: str | None) -> Placement:
        """How places are chosen for this flow; `why_not` says why its steps cannot run in the driver."""
        frames, operators = self.assembly.frames, self.course.operators
        if why_not is None and frames and not operators:
            why_not = f"source {frames[0].name!r} is a DataFrame, and no operator takes its rows"
        guarded = any(node.config.finds_late for node in operators)
        aggregates = all(node.config.prelude(node.types) is not None for node in operators)
        read_again = taken_by_one(self.assembly.sinks, operators)
        return Placement(
            why_not,
            blobs=not guarded and not frames,
            pieces=not guarded and not frames and not self.assembly.segmented and bool(read_again),
            tasks=self.course.tasks,
            unit="rows" if frames else "bytes of files",
            first="elsewhere" if frames and aggregates else "driver",
        )

    def _count_slots(self) -> int:
        return max(1, int(self._spark.sparkContext.defaultParallelism))

    def _pinned(self, node: OperatorNode, begins: bool) -> TableSource:
        if node.config.master is None:
            raise TypeError(node)
        folder = f"{self.checkpoint.uri}/tables/{node.name}"
        table = pinned_on_spark(node.config.master, folder, self._memory)
        if begins:
            sync_tree(folder)
        return table

    def _settle(
        self,
        plan: Plan,
        frames: EpochFrames | EpochHere,
        seen: Mapping[str, Counted],
        ran: Place,
        files: Mapping[SourceNode, Sequence[InputFile]],
    ) -> tuple[Ledger, dict[str, OperatorReport]]:
        """The version this epoch leaves, from what its shards staged."""
        states: dict[str, tuple[State, ...]] = {}
        reports: dict[str, OperatorReport] = {}
        for node in self.course.operators:
            name = node.name
            staged = self.assembly.staged(node, frames.attempt, plan.shards)
            states[name] = tuple(state_from_json(each.pop("state")) for each in staged)
            records = [ShardRecord.from_json(each) for each in staged]
            reports[name] = self.course.report(node, plan, frames.tracks, records, states[name])
            size = sum(record.bytes_in for record in records)
            self.assembly.experience.saw(node, reports[name].rows_in, size)
        came = {name: counted.seen.rows for name, counted in seen.items()}
        widths = {
            source.name: width
            for source, some in files.items()
            if source.row is not None and (width := _width(source, some)) is not None
        }
        self.course.homes.learn(came, reports, ran == "driver", widths)
        behind = {name: (seen[name].seen.max_time, size) for name, size in self._sizes(plan).items()}
        return self.course.left(plan, frames.tracks, frames.followed(seen), states, behind), reports

    def _sizes(self, plan: Plan) -> dict[str, int]:
        """The bytes of the segments of each source whose rows leave payload behind; of files, none."""
        homes = {source.name: source.home for source in self.course.sources}
        return {name: homes[name].size(first) for name, (first, _) in plan.late.items()}

    def _clean(self, ledger: Ledger, attempt: str) -> None:
        """Drop the pages that only the version before the last needed."""
        if self._old is not None:
            for name in (node.name for node in self.course.operators):
                gone = self._old.names(name) - self.ledger.names(name) - ledger.names(name)
                self.checkpoint.drop(name, gone)
            for name, kept in self._old.kept.items():
                if set(kept) - {*self.ledger.kept.get(name, ())} - {*ledger.kept.get(name, ())}:
                    self.checkpoint.retire(name, [self.ledger, ledger])
        self._forget(attempt)
        self.assembly.runs.forget()
        self._old, self.course.ledger = self.ledger, ledger

    def _forget(self, attempt: str) -> None:
        self.checkpoint.forget(attempt, [node.name for node in self.course.operators])


def _new_attempt(plan: Plan) -> str:
    """A name for an attempt at an epoch: what others have left is none of its business."""
    return f"{plan.epoch:08d}-{uuid.uuid4().hex[:8]}"


def _width(source: SourceNode, files: Sequence[InputFile]) -> float | None:
    """About how many bytes of payload a row of an epoch's files has, as they say themselves."""
    if not isinstance(source.data, FileStream):
        return None
    return width_in(source.data.files, [file.path for file in files], source.lets_go)


def _size(file: InputFile) -> int:
    return size_of(file.path) if file.nbytes is None else file.nbytes
