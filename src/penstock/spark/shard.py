"""What runs in a Spark task: one shard of one operator for one epoch. Arrow batches in, Arrow batches out.

State of the version before comes from page files; what the shard has become is staged when, and only when, all of
its output has been taken.
"""

from __future__ import annotations

import time as clock
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from penstock.core.budget import Budget
from penstock.core.durations import TimeUnit
from penstock.core.operator import Logic, Out, State
from penstock.core.pages import clip_page
from penstock.core.progress import Policy
from penstock.core.rows import RowType
from penstock.core.time import TIME_MIN, Time
from penstock.kernels.route import hash_range, shard_of
from penstock.operators.window_join import WindowJoin
from penstock.storage.compaction import compact
from penstock.storage.files import FilePages
from penstock.storage.versioned import Checkpoint, state_to_json

_PIECE = 6
"""Arrivals are gathered up to this part of the share before they are processed: sorting and matching take the rest."""


@dataclass(frozen=True, slots=True)
class Inlet:
    """A branch as the shard sees it: the tag of its rows, the port they enter, the lanes of its columns."""

    tag: int
    port: int
    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PortBounds:
    """How far a port had got before the epoch, and how far it has after; with a `policy`, rows seen may tell more."""

    before: Time
    after: Time
    policy: Policy | None
    unit: TimeUnit

    def given(self, max_time: Time) -> Time:
        """The bound after rows up to `max_time`. Sound: what one shard saw, the whole source has shown."""
        return self.after if self.policy is None else max(self.after, self.policy.bound_from_rows(max_time, self.unit))


@dataclass(frozen=True, slots=True)
class ShardTask:
    """Everything a task needs, pickled by the driver; calling it runs the shard that the task's partition is."""

    operator: str
    config: WindowJoin
    types: tuple[RowType, RowType]
    inlets: tuple[Inlet, ...]
    ports: tuple[PortBounds, PortBounds]
    states: tuple[State, ...]
    shards: int
    share: int
    checkpoint: str
    epoch: int
    attempt: str
    roll_call: bool
    """Whether each shard got a row that tells it which it is; a task's number does, unless its stage has other tasks."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the shard."""
        shard, batches = self._called(batches) if self.roll_call else (TaskContext.get().partitionId(), batches)
        checkpoint = Checkpoint(self.checkpoint)
        store = FilePages(checkpoint.pages(self.operator), prefix=f"{self.epoch:08d}-{shard:05d}")
        budget = Budget(self.share)
        logic = self.config.logic(self.types, store, budget, self._state(shard, store))
        work = _Work()
        yield from self._run(logic, batches, budget, work)
        begun = clock.perf_counter()
        state = logic.state()
        state = State(compact(state.pages, store, budget), state.meta)
        work.seconds["settle"] = clock.perf_counter() - begun
        record = {
            "state": state_to_json(state),
            "rows_in": work.rows_in - self.roll_call,
            "rows_out": work.rows_out,
            "seconds": {name: round(spent, 4) for name, spent in work.seconds.items()},
            "peak": budget.peak,
        }
        checkpoint.stage(self.attempt, self.operator, shard, record)

    def _called(self, batches: Iterator[pa.RecordBatch]) -> tuple[int, Iterator[pa.RecordBatch]]:
        first = next(batches)
        hashes = first.column(1).slice(0, 1).view(pa.uint64()).to_numpy()
        return int(shard_of(hashes, self.shards)[0]), chain([first], batches)

    def _state(self, shard: int, store: FilePages) -> State:
        """This shard's state in the version before, however many shards that had."""
        if len(self.states) == self.shards:
            return self.states[shard]
        first, last = hash_range(shard, self.shards)
        clipped = [clip_page(store, page, first, last) for state in self.states for page in state.pages]
        return State(tuple(page for page in clipped if page is not None))

    def _run(
        self, logic: Logic, batches: Iterator[pa.RecordBatch], budget: Budget, work: _Work
    ) -> Iterator[pa.RecordBatch]:
        tops = [TIME_MIN, TIME_MIN]
        for port, bounds in enumerate(self.ports):
            yield from work.out(logic.advance(port, bounds.before))
        for piece in work.pieces(batches, self.share // _PIECE):
            with budget.hold(2 * piece.nbytes, "rows in flight"):
                for inlet in self.inlets:
                    rows = self._entering(inlet, piece)
                    if rows.num_rows:
                        tops[inlet.port] = max(tops[inlet.port], pc.max(rows.column(1)).as_py())
                        yield from work.out(logic.rows(inlet.port, rows))
        for port, bounds in enumerate(self.ports):
            yield from work.out(logic.advance(port, bounds.given(tops[port])))

    def _entering(self, inlet: Inlet, piece: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of one inlet, in the columns its port expects; the types differ at most in a zone's name."""
        schema = self.types[inlet.port].inside
        columns = [
            piece.column(1).view(pa.uint64()),
            piece.column(2),
            *(piece.column(3 + lane) for lane in inlet.lanes),
        ]
        cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)]
        rows = pa.RecordBatch.from_arrays(cast, schema=schema)
        if len(self.inlets) == 1 and not self.roll_call:
            return rows
        ours = np.flatnonzero(piece.column(0).to_numpy() == inlet.tag)
        return rows.take(pa.array(ours))


class _Work:
    """Counts rows and where a task's time goes: waiting for input, working, handing over output, settling."""

    def __init__(self) -> None:
        self.rows_in = 0
        self.rows_out = 0
        self.seconds = {"input": 0.0, "work": 0.0, "output": 0.0, "settle": 0.0}

    def pieces(self, batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
        """Batches put together to pieces of at least `size` bytes (the last one less)."""
        held: list[pa.RecordBatch] = []
        begun = clock.perf_counter()
        for batch in batches:
            self.rows_in += batch.num_rows
            held.append(batch)
            if sum(part.nbytes for part in held) >= size:
                piece = pa.concat_batches(held) if len(held) > 1 else held[0]
                held.clear()
                self.seconds["input"] += clock.perf_counter() - begun
                yield piece
                begun = clock.perf_counter()
        if held:
            piece = pa.concat_batches(held) if len(held) > 1 else held[0]
            self.seconds["input"] += clock.perf_counter() - begun
            yield piece

    def out(self, outs: Iterator[Out]) -> Iterator[pa.RecordBatch]:
        """The rows of `outs`, counted and timed."""
        begun = clock.perf_counter()
        for out in outs:
            self.rows_out += out.rows.num_rows
            done = clock.perf_counter()
            self.seconds["work"] += done - begun
            yield out.rows
            begun = clock.perf_counter()
            self.seconds["output"] += begun - done
        self.seconds["work"] += clock.perf_counter() - begun
