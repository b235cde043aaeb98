"""The named steps of an epoch, and processes that die at one of them.

`watch` puts a hook at each step, in the driver and in the tasks that it sends out. Where the environment names one, as
in ``PENSTOCK_TEST_CRASH=/folder;written:2:jvm``, whoever first reaches it in epoch 2 or a later one kills the victim
with SIGKILL, and leaves the file ``/folder/crashed-written-2-jvm``. There may be several, each after a semicolon. Only
tasks can kill their worker or executor, or fail.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext

from penstock.spark import frames, here, segments, sinks, tasks
from penstock.spark.blobs import Portions, ReadTask, ScanTask
from penstock.spark.first_half import FirstHalf
from penstock.spark.frames import EpochFrames
from penstock.spark.onward import Onward, Write
from penstock.spark.segmenting import Segmenting
from penstock.spark.segments import SpoolTask
from penstock.spark.task import ShardTask
from penstock.storage.versioned import Checkpoint

PLANNED, READING, STAGED, WRITTEN, MOVED, RENAMED, COMMITTED, SWEEPING = STEPS = (
    "planned",  # the plan is written
    "reading",  # rows are being read, by a task where there are tasks
    "staged",  # a task has said what its shard has become, and has not finished its results
    "written",  # a task has written its file, and has not told it
    "moved",  # the files are in the epoch's folder, which has not got its name
    "renamed",  # it has, but the epoch is not committed
    "committed",  # by its ledger, but Spark has not noted it
    "sweeping",  # old files are being deleted
)

ARRIVED = "arrived"
"""The second of two operators has got what the first one sent."""

SPOOLED, NOTED = "spooled", "noted"
"""A task has written its segments, and has not told them, in any epoch; and they are on record, without a plan."""

SECOND = "chained"
"""The name of such an operator."""

CRASH = "PENSTOCK_TEST_CRASH"
STRAGGLERS = "PENSTOCK_TEST_STRAGGLERS"

_ANY = 10**9
"""An epoch that is after all others."""

_PATIENCE = 10
"""Seconds that a straggler waits."""

_PIDS = "pids"
"""The file that says which processes the driver and its JVM are."""


class TaskFailedError(Exception):
    """A task that fails for no reason."""


def reached(step: str, epoch: int) -> None:
    """Kill whoever is to die at this step of this epoch; only the first to come does."""
    folder, *crashes = os.environ.get(CRASH, "").split(";")
    for crash in crashes:
        name, first, victim = crash.split(":")
        here = victim in ("driver", "jvm") or TaskContext.get() is not None
        if name == step and here and epoch >= int(first) and is_first(folder, f"crashed-{name}-{first}-{victim}"):
            if victim == "task":
                raise TaskFailedError(crash)
            driver, jvm = map(int, (Path(folder) / _PIDS).read_text().split())
            victims = {"worker": [os.getpid()], "jvm": [jvm], "driver": [jvm, driver], "executor": [_executor()]}
            for pid in victims[victim]:
                os.kill(pid, signal.SIGKILL)


def is_first(folder: str, name: str) -> bool:
    """Whether nobody has asked this before, in any process."""
    try:
        (Path(folder) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _executor() -> int:
    """The JVM of a task: the parent of the daemon that made this process."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])


def watch(folder: Path, jvm: int) -> None:
    """Put the hooks in their places."""
    (folder / _PIDS).write_text(f"{os.getpid()} {jvm}")
    _after(Checkpoint, "plan", lambda self, plan: reached(PLANNED, plan.epoch))
    _after(Checkpoint, "commit", lambda self, ledger: reached(COMMITTED, ledger.epoch))
    _watch_sweeping()
    _watch_folders(folder)
    _before(here, "read_placed", lambda files, part, *more: reached(READING, _epoch_of_file(part.path)))
    _after(here.EpochHere, "_fetched", lambda self, batch: reached(READING, self._plan.epoch))
    _after(FirstHalf, "told", lambda self, *more: reached(READING, self._course.ledger.epoch + 1))
    _after(
        FirstHalf, "look_ahead", lambda self, *more: self.preludes and reached(READING, self._course.ledger.epoch + 1)
    )
    _after(EpochFrames, "_here", lambda self, node: reached(STAGED, self._plan.epoch))
    _watch_shards()
    frames.Onward = _Onward  # type: ignore[misc]
    frames.Write = _Write  # type: ignore[misc]
    tasks.ScanTask = _ScanTask  # type: ignore[misc]
    tasks.ReadTask = _ReadTask  # type: ignore[misc]
    segments.SpoolTask = _SpoolTask  # type: ignore[misc]
    _after(Segmenting, "noted", lambda self: self._written and reached(NOTED, self._ledger.epoch + 1))


class _SpoolTask(SpoolTask):
    """A task that writes segments."""

    __slots__ = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for told in SpoolTask.__call__(self, batches):
            reached(SPOOLED, _ANY)
            yield told


class _ScanTask(ScanTask):
    """A task that reads files; each epoch has one of each source."""

    __slots__ = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        epoch = _epoch_of_work(self.work)
        for blob in _raced("scan", epoch, ScanTask.__call__(self, batches)):
            reached(READING, epoch)
            yield blob


class _ReadTask(ReadTask):
    """A task that reads files for a sink."""

    __slots__ = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        epoch = _epoch_of_work(self.work)
        for rows in _raced("read", epoch, ReadTask.__call__(self, batches)):
            reached(READING, epoch)
            yield rows


@dataclass(frozen=True, slots=True)
class RowTask:
    """A step of a DataFrame in Python that changes nothing: its times tell the epoch, as `killing` makes them."""

    name: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = list(batches)
        tops = [pc.max(batch.column("t")).as_py() // 20 for batch in rows if batch.num_rows]
        yield from _raced(f"{self.name}-rows", max(tops, default=_ANY), iter(rows))


@dataclass(frozen=True, slots=True)
class _Shard:
    """A shard whose results go to Spark."""

    task: ShardTask

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.task(_watched(self.task, batches))
        reached(STAGED, self.task.epoch)


class _Onward(Onward):
    """A shard at work on what Spark has for it."""

    __slots__ = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return Onward.__call__(self, _watched(self.shard, batches))

    def _tables(self, shard: ShardTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        yield from Onward._tables(self, shard, batches)
        reached(STAGED, self.shard.epoch)


def _watched(shard: ShardTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What comes to a shard."""
    again = TaskContext.get().attemptNumber() > 0
    _straggle(shard.checkpoint)
    for batch in batches:
        if not shard.blobs:
            reached(READING, shard.epoch)
        if shard.operator == SECOND:
            reached(ARRIVED, shard.epoch)
        # A shuffle is in no order: another attempt at a task sees its rows in another one.
        yield batch.take(pa.array(range(batch.num_rows)[::-1])) if again else batch


class _Write(Write):
    """A task that writes its results."""

    __slots__ = ()

    def take(self, results: Iterator[pa.Table], share: int) -> Iterator[pa.RecordBatch]:
        epoch = int(self.folder.rpartition("=")[2])
        for told in Write.take(self, results, share):
            reached(WRITTEN, epoch)
            yield from _raced("written", epoch, iter([told]))


def _raced(what: str, epoch: int, made: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task makes. If asked, the first to come waits until Spark's second attempt at it has given all it made.

    The environment says when, as in ``PENSTOCK_TEST_STRAGGLERS=scan:1,written:2``.
    """
    if f"{what}:{epoch}" not in os.environ.get(STRAGGLERS, "").split(","):
        yield from made
        return
    folder, task = os.environ[CRASH].partition(";")[0], TaskContext.get()
    overtaken = Path(folder) / f"overtaken-{what}-{epoch}-{task.partitionId()}"
    if task.attemptNumber() > 0:
        yield from made
        overtaken.touch()
        return
    if is_first(folder, f"slow-{what}-{epoch}"):
        end = time.monotonic() + _PATIENCE
        while not overtaken.exists() and time.monotonic() < end:
            time.sleep(0.001)
        is_first(folder, f"straggled-{what}-{epoch}-{'after' if time.monotonic() < end else 'alone'}")
    yield from made


def _straggle(checkpoint: str) -> None:
    """Let tasks be so slow that Spark starts another attempt at them, and stage their state right after that one has.

    The environment says which, as in ``PENSTOCK_TEST_STRAGGLERS=near:1,names:2``: shard 0 of `near` in epoch 1, etc.
    """
    stage = Checkpoint.stage
    if hasattr(stage, "straggles"):
        return

    def staged(self: Checkpoint, attempt: str, operator: str, shard: int, *more: Any) -> None:
        epoch = int(attempt.partition("-")[0])
        asked = f"{operator}:{epoch}" in os.environ.get(STRAGGLERS, "").split(",")
        slow = asked and shard == 0 and TaskContext.get().attemptNumber() == 0
        if slow:
            folder, end = Path(checkpoint) / "staged" / attempt, time.monotonic() + _PATIENCE
            while not list(folder.glob(f"{operator}-{shard:05d}*.json")) and time.monotonic() < end:
                time.sleep(0.001)
            is_first(checkpoint, f"../straggled-{operator}-{epoch}-{'after' if time.monotonic() < end else 'alone'}")
        stage(self, attempt, operator, shard, *more)
        if slow:
            time.sleep(_PATIENCE)

    staged.straggles = True  # type: ignore[attr-defined]
    Checkpoint.stage = staged  # type: ignore[method-assign]


def _watch_shards() -> None:
    run = EpochFrames._run

    def watched(self: EpochFrames, node: Any, task: Any, routed: Any, then: Any) -> Any:
        return run(self, node, _Shard(task) if then is None else task, routed, then)

    EpochFrames._run = watched  # type: ignore[method-assign]


def _watch_sweeping() -> None:
    drop, last = Checkpoint.drop, [-1]

    def watched(self: Checkpoint, operator: str, names: Any) -> None:
        for number, name in enumerate(sorted(names)):
            drop(self, operator, [name])
            if number == 0:
                reached(SWEEPING, last[0])

    Checkpoint.drop = watched  # type: ignore[method-assign]
    _after(Checkpoint, "commit", lambda self, ledger: last.append(ledger.epoch) or last.pop(0))


def _watch_folders(folder: Path) -> None:
    """What is written without Spark, and by it."""

    def epoch_in(path: str) -> int:
        return int(path.rpartition("epoch=")[2])

    def moved(self: sinks._Staged, kind: object, *more: object) -> None:
        if kind is None:
            # Complete files that no task has told of: they are not moved.
            if any(
                pq.read_metadata(path).num_rows for path in Path(self.by_tasks).glob("*.parquet") if _is_whole(path)
            ):
                is_first(str(folder), f"untold-{Path(self.folder).parts[-3]}-{self._epoch}")
            reached(MOVED, self._epoch)

    _before(sinks._Staged, "__exit__", moved)
    _before(sinks, "sync_tree", lambda path: reached(RENAMED, epoch_in(path)))
    _before(sinks._Folder, "rename", lambda self, source, target: reached(MOVED, epoch_in(target)))
    _after(sinks._Folder, "rename", lambda self, source, target: reached(RENAMED, epoch_in(target)))


def _is_whole(path: Path) -> bool:
    """Whether a Parquet file has its end."""
    return path.read_bytes()[-4:] == b"PAR1" and path.stat().st_size > 4


def _epoch_of_work(work: Portions) -> int:
    """The epoch of what tasks read; each has one file of each source."""
    return min((_epoch_of_file(portion.path) for some in work for _, portion in some), default=_ANY)


def _epoch_of_file(path: str) -> int:
    """The epoch of an input file; that of a segment is not known, and may be any."""
    name = Path(path).stem
    return int(name) if name.isdigit() else _ANY


def _before(owner: Any, name: str, hook: Callable[..., Any]) -> None:
    function = getattr(owner, name)

    def hooked(*arguments: Any, **named: Any) -> Any:
        hook(*arguments)
        return function(*arguments, **named)

    setattr(owner, name, hooked)


def _after(owner: Any, name: str, hook: Callable[..., Any]) -> None:
    function = getattr(owner, name)

    def hooked(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        hook(*arguments)
        return result

    setattr(owner, name, hooked)
