"""The named steps of an epoch, and processes that die at one of them.

`watch` puts a hook at each step, in the driver and in the tasks that it sends out. Where the environment names one, as
in ``PENSTOCK_TEST_CRASH=/folder;written:2:jvm``, whoever first reaches it in epoch 2 or a later one kills the victim
with SIGKILL, and leaves the file ``/folder/crashed-written-2-jvm``. There may be several, each after a semicolon.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from penstock.spark import frames, here, segments, sinks, tasks
from penstock.spark.blobs import ScanTask
from penstock.spark.onward import Onward, Write
from penstock.spark.segmenting import Segmenting
from penstock.spark.segments import SpoolTask
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
        if name == step and epoch >= int(first) and is_first(folder, f"crashed-{name}-{first}-{victim}"):
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
    _watch_folders()
    _before(here, "read_placed", lambda files, part, *more: reached(READING, _epoch_of_file(part.path)))
    _after(here.EpochHere, "_fetched", lambda self, batch: reached(READING, self._plan.epoch))
    frames.Onward = _Onward  # type: ignore[misc]
    frames.Write = _Write  # type: ignore[misc]
    tasks.ScanTask = _ScanTask  # type: ignore[misc]
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
        epochs = [_epoch_of_file(portion.path) for work in self.work for _, portion in work]
        for blob in ScanTask.__call__(self, batches):
            reached(READING, min(epochs))
            yield blob


class _Onward(Onward):
    """A shard at work on what Spark has for it."""

    __slots__ = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return Onward.__call__(self, self._watched(batches))

    def _watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        again = TaskContext.get().attemptNumber() > 0
        _straggle(self.shard.checkpoint)
        for batch in batches:
            if not self.shard.blobs:
                reached(READING, self.shard.epoch)
            if self.shard.operator == SECOND:
                reached(ARRIVED, self.shard.epoch)
            # A shuffle is in no order: another attempt at a task sees its rows in another one.
            yield batch.take(pa.array(range(batch.num_rows)[::-1])) if again else batch

    def _tables(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        yield from Onward._tables(self, batches)
        reached(STAGED, self.shard.epoch)


class _Write(Write):
    """A task that writes its results."""

    __slots__ = ()

    def take(self, results: Iterator[pa.Table], share: int) -> Iterator[pa.RecordBatch]:
        for told in Write.take(self, results, share):
            reached(WRITTEN, int(self.folder.rpartition("=")[2]))
            yield told


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


def _watch_sweeping() -> None:
    drop, last = Checkpoint.drop, [-1]

    def watched(self: Checkpoint, operator: str, names: Any) -> None:
        for number, name in enumerate(sorted(names)):
            drop(self, operator, [name])
            if number == 0:
                reached(SWEEPING, last[0])

    Checkpoint.drop = watched  # type: ignore[method-assign]
    _after(Checkpoint, "commit", lambda self, ledger: last.append(ledger.epoch) or last.pop(0))


def _watch_folders() -> None:
    """What is written without Spark, and by it."""

    def epoch_in(path: str) -> int:
        return int(path.rpartition("epoch=")[2])

    _before(sinks._Staged, "__exit__", lambda self, kind, *more: kind is None and reached(MOVED, self._epoch))
    _before(sinks, "sync_tree", lambda path: reached(RENAMED, epoch_in(path)))
    _before(sinks._Folder, "rename", lambda self, source, target: reached(MOVED, epoch_in(target)))
    _after(sinks._Folder, "rename", lambda self, source, target: reached(RENAMED, epoch_in(target)))


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
