"""What an epoch in tasks moves: rows and bytes on each edge, payload that is fetched, and what Spark counts itself.

Edges are counted where rows become blobs, and fetches where results get their payload, each in the task that does it.
Spark counts the bytes of its shuffles itself; `stage_writes` and `task_writes` ask for them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import pyarrow as pa

from penstock.flow.graph import StepNode
from penstock.runtime import steps
from penstock.runtime.entering import Entry
from penstock.runtime.steps import Fetch, Step
from penstock.spark import layout, tasks
from penstock.spark.blobs import Way
from penstock.spark.place import Place, Placement
from penstock.spark.tasks import EpochTasks
from penstock.storage.versioned import Plan


class Count(NamedTuple):
    """Rows that went over an edge or got payload in an epoch, their bytes, in how many values, and task seconds."""

    epoch: int
    kind: Literal["edge", "fetch"]
    operator: str
    port: int
    rows: int
    bytes: int
    values: int
    seconds: float

    @classmethod
    def read(cls, line: str) -> Count:
        """As a task has written it.

        >>> Count.read("3 edge join0 1 100 4096 2 0.25").rows
        100
        """
        epoch, kind, operator, port, rows, size, values, seconds = line.split()
        known: Literal["edge", "fetch"] = "edge" if kind == "edge" else "fetch"
        return cls(int(epoch), known, operator, int(port), int(rows), int(size), int(values), float(seconds))


@dataclass(frozen=True, slots=True)
class CountedWay(Way):
    """A way into an operator on which rows and blobs are counted."""

    folder: str = ""
    epoch: int = 0

    def blobs(
        self, rows: pa.Table, shards: int, share: int, declared: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows on this way, cut by shard."""
        for blob in Way.blobs(self, rows, shards, share, declared):
            content = blob.column(2)[0].as_buffer()
            with pa.ipc.open_stream(content) as stream:
                count = sum(part.num_rows for part in stream)
            _note(self.folder, Count(self.epoch, "edge", self.entry.operator, self.port, count, content.size, 1, 0.0))
            yield blob


@dataclass(frozen=True, slots=True)
class CountedFetch(Fetch):
    """Results that get their payload, which is counted and timed."""

    folder: str = ""
    epoch: int = 0

    def whole(self, rows: pa.Table, size: int = 1_000_000) -> pa.Table:
        """Some rows with their payload."""
        begun = time.perf_counter()
        made = Fetch.whole(self, rows, size)
        spent = time.perf_counter() - begun
        sources = [each for each in self.fetched if rows.column(each.row).null_count < rows.num_rows]
        moved = sum(made.column(name).nbytes for each in sources for name, _ in each.columns if name in self.columns)
        looked = sum(rows.num_rows - rows.column(each.row).null_count for each in sources)
        _note(self.folder, Count(self.epoch, "fetch", "results", 0, looked, moved, 1, spent))
        return made


def _note(folder: str, count: Count) -> None:
    with Path(folder, str(os.getpid())).open("a", encoding="ascii") as file:
        file.write(" ".join(map(str, count)) + "\n")


class Counting:
    """Counts of one run, epoch by epoch, in a folder that its tasks write to."""

    def __init__(self, folder: Path, spark: Any = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._spark = spark
        self._epoch = 0
        self.shuffled: list[int] = []
        """Bytes that shuffles had written after each epoch, as Spark counts them, if a session was given."""

    @contextmanager
    def watching(self, place: Place = "tasks") -> Iterator[None]:
        """While this lasts, epochs run at `place`, and those in tasks are counted."""
        deliver, step_of, before = EpochTasks.deliver, steps.step, self._written()

        def delivered(epoch: EpochTasks, batch: Any) -> Any:
            plan: Plan = epoch._plan
            self._epoch = plan.epoch
            told = deliver(epoch, batch)
            self.shuffled.append(self._written() - before)
            return told

        def way(steps: tuple[Step, ...], port: int, entry: Entry) -> CountedWay:
            return CountedWay(steps, port, entry, str(self._folder), self._epoch)

        def step(node: StepNode) -> Step:
            made = step_of(node)
            if not isinstance(made, Fetch):
                return made
            return CountedFetch(made.fetched, made.columns, str(self._folder), self._epoch)

        def chosen(placement: Placement, size: int) -> tuple[Place, str]:
            return placement.at_most(place), "the lab says so"

        with (
            patch.object(EpochTasks, "deliver", delivered),
            patch.object(tasks, "Way", way),
            patch.object(steps, "step", step),
            patch.object(layout, "step_of", step),
            patch.object(Placement, "choose", chosen),
        ):
            yield

    def counts(self) -> list[Count]:
        """What tasks have noted, added up by epoch and edge."""
        found: dict[tuple[int, str, str, int], Count] = {}
        for file in self._folder.iterdir():
            for line in file.read_text(encoding="ascii").splitlines():
                new = Count.read(line)
                key = new.epoch, new.kind, new.operator, new.port
                old = found.get(key, new._replace(rows=0, bytes=0, values=0, seconds=0.0))
                found[key] = _added(old, new)
        return [found[key] for key in sorted(found)]

    def _written(self) -> int:
        return 0 if self._spark is None else shuffle_bytes(self._spark)


def _added(one: Count, other: Count) -> Count:
    return one._replace(
        rows=one.rows + other.rows,
        bytes=one.bytes + other.bytes,
        values=one.values + other.values,
        seconds=one.seconds + other.seconds,
    )


class Written(NamedTuple):
    """What a stage or a task has written to a shuffle."""

    stage: int
    records: int
    bytes: int


def shuffle_bytes(spark: Any) -> int:
    """What all shuffles have written so far."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    executors = context.statusStore().executorList(False)
    return sum(executors.apply(place).totalShuffleWrite() for place in range(executors.size()))


def stage_writes(spark: Any, after: int = -1) -> list[Written]:
    """What each stage later than `after` wrote to its shuffle, as Spark's own status store has it."""
    store = spark.sparkContext._jsc.sc().statusStore()
    gateway = spark.sparkContext._gateway
    none, nothing = gateway.new_array(gateway.jvm.double, 0), gateway.jvm.java.util.ArrayList()
    stages = store.stageList(None, False, False, none, nothing)
    found = [stages.apply(place) for place in range(stages.size())]
    some = [Written(each.stageId(), each.shuffleWriteRecords(), each.shuffleWriteBytes()) for each in found]
    return sorted(each for each in some if each.stage > after)


def task_writes(spark: Any, stage: int) -> list[Written]:
    """What each task of a stage wrote to its shuffle."""
    tasks = spark.sparkContext._jsc.sc().statusStore().taskList(stage, 0, 1 << 20)
    found = []
    for place in range(tasks.size()):
        metrics = tasks.apply(place).taskMetrics()
        if metrics.isDefined():
            written = metrics.get().shuffleWriteMetrics()
            found.append(Written(stage, written.recordsWritten(), written.bytesWritten()))
    return found


def last_stage(spark: Any) -> int:
    """The latest stage there is, or -1."""
    return max((each.stage for each in stage_writes(spark)), default=-1)
