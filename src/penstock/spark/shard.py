"""What runs in a Spark task: one shard of one operator for one epoch. Arrow batches in, Arrow batches out.

State of the version before comes from page files; what the shard has become is staged when, and only when, all of
its output has been taken.
"""

from __future__ import annotations

import ctypes
import pickle
import resource
import tempfile
import time as clock
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from penstock.core.budget import Budget
from penstock.core.durations import TimeUnit
from penstock.core.kept import LEFT, hand_over
from penstock.core.meter import Tally
from penstock.core.operator import Logic, Out, Quiet, State, compacts
from penstock.core.page_list import PageList
from penstock.core.pages import clip_page
from penstock.core.progress import Policy
from penstock.core.rows import RowType, hashes_of, times_of, with_times
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.flow.report import counts_of, waits_of
from penstock.kernels.route import hash_range, shard_of
from penstock.operators.lookup import LookupJoin
from penstock.operators.window_join import WindowJoin
from penstock.spark.spool import SortedSpool
from penstock.storage.compaction import compact
from penstock.storage.fifo import SpillingQueue
from penstock.storage.files import FilePages
from penstock.storage.versioned import Checkpoint

_PIECE = 4
"""Arrivals are processed in pieces of this part of the share, less the list of pages: sorting and matching take the
rest."""


_SMALL_PIECE = 16
"""The same of lookups, which keep much of their share for the rows of the table."""

_QUEUE = 8
"""The part of the share that each port's queue takes, for a method whose arrivals are spooled."""

_AT_ONCE = 1 << 16
"""Rows taken from a queue at once, if they fit."""

_SMALL = 1 << 13
"""Batches of output are gathered up to so many rows,"""

_GATHERED = 32
"""or to this part of the share."""

_DESCRIBED = 512
"""Bytes that the description of a page takes;"""

_LISTED = 160
"""in a `PageList`, as lookups keep of those they do not touch. While it arrives it takes thrice that, but nothing else
is held then."""

_LARGE_STATE = 16
"""From so many times the share on, state is in so many pages that sorting arrivals first costs less than it saves."""

_LOOK, _KEPT = 8, 4
"""Whenever this part of the share was released, see whether the allocator keeps more than that one of it."""

_M_MMAP_THRESHOLD = -3
"""glibc's name for the size from which an allocation is mapped on its own."""


TURNED_AWAY = "__turned_away"
"""The last column of what leaves an operator that finds rows late: whether a row is."""

Arrivals = Callable[[Budget, "_Work"], Iterator[tuple[int, pa.RecordBatch]]]
"""Gives a task's rows port by port, in pieces."""


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
    config: Any
    types: tuple[RowType, ...]
    inside: tuple[pa.Schema, ...]
    """The columns that enter each port. An aggregation has more ports than inputs: some take partials of rows."""
    inlets: tuple[Inlet, ...]
    ports: tuple[PortBounds, ...]
    states: tuple[bytes, ...]
    """The state of each shard in the version before, pickled: a task unpacks those that concern it."""
    shards: int
    share: int
    checkpoint: str
    epoch: int
    attempt: str
    roll_call: bool
    """Whether each shard got a row that tells it which it is: its task's number does not if its stage has others."""
    tells_late: bool = False
    """Whether late rows leave with the results, told apart by a last column."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the shard."""
        _return_what_is_freed(self.share)
        shard, batches = self._called(batches) if self.roll_call else (TaskContext.get().partitionId(), batches)
        yield from self._one(shard, lambda state: self._arrivals(state, batches))

    def here(self, tables: Mapping[int, pa.Table]) -> pa.Table:
        """Run all the shards in this process, over few rows that are here already, by port."""
        batches = {port: _whole(table, self.inside[port]) for port, table in tables.items()}
        places = {port: shard_of(hashes_of(rows), self.shards) for port, rows in batches.items()}
        out: list[pa.RecordBatch] = []
        for shard in range(self.shards):
            mine = [
                (port, rows.take(pa.array(np.flatnonzero(places[port] == shard)))) for port, rows in batches.items()
            ]
            out += self._one(shard, partial(_given, mine, self.share // _PIECE))
        schema = self.config.output(self.types)
        # PySpark takes no list column that has no chunk at all, as one of no batches has.
        return pa.Table.from_batches(out, schema) if out else schema.empty_table()

    def _one(self, shard: int, arrivals: Callable[[State], Arrivals]) -> Iterator[pa.RecordBatch]:
        budget = _Trimmed(self.share)
        # What an earlier task has left here is paid for by this one, if that uses any such thing, or goes.
        hand_over(budget, self.share // LEFT if isinstance(self.config, LookupJoin) else 0)
        checkpoint = Checkpoint(self.checkpoint)
        elsewhere = self.config.elsewhere if isinstance(self.config, LookupJoin) else None
        store = FilePages(checkpoint.pages(self.operator), f"{self.epoch:08d}-{shard:05d}", elsewhere=elsewhere)
        tally = Tally()
        state = self._state(shard, store)
        each = _LISTED if isinstance(state.pages, PageList) else _DESCRIBED
        budget.charge(each * len(state.pages), "the list of this shard's pages")
        piece = budget.room // (_SMALL_PIECE if isinstance(self.config, LookupJoin) else _PIECE)
        logic = self.config.logic(self.types, store, budget, state, tally)
        blocks = isinstance(self.config, WindowJoin) and self.config.defers
        kept = 0 if blocks else self.share // 8
        work = _Work(budget, len(self.inside), piece, kept=kept, tells_late=self.tells_late)
        yield from self._run(logic, arrivals(state)(budget, work), work)
        begun = clock.perf_counter()
        _give_back()
        state = logic.state()
        if compacts(self.config):
            state = State(compact(state.pages, store, budget), state.meta)
        store.sync()
        _give_back()
        work.seconds["settle"] = clock.perf_counter() - begun
        waits = waits_of(logic)
        record = {
            "rows_in": work.rows_in - self.roll_call,
            "bytes_in": work.bytes_in,
            "rows_out": work.rows_out,
            "seconds": {name: round(spent, 4) for name, spent in work.seconds.items()},
            "rows_by_port": work.rows_by_port,
            "peak": budget.peak,
            "counts": counts_of(logic),
            "waits": None if waits is None else waits.to_json(),
            "deferred": tally.deferred,
            "lifted": [tally.rows_lifted, tally.lifted],
            "bytes_read": store.bytes_read + work.spooled,
            "bytes_written": store.bytes_written + work.spooled,
        }
        checkpoint.stage(self.attempt, self.operator, shard, record, state)

    def _called(self, batches: Iterator[pa.RecordBatch]) -> tuple[int, Iterator[pa.RecordBatch]]:
        first = next(batches)
        hashes = first.column(1).slice(0, 1).view(pa.uint64()).to_numpy()
        return int(shard_of(hashes, self.shards)[0]), chain([first], batches)

    def _state(self, shard: int, store: FilePages) -> State:
        """This shard's state in the version before, however many shards that had."""
        if len(self.states) == self.shards:
            return unpacked(self.states[shard])
        first, last = hash_range(shard, self.shards)
        pages = (page for state in self.states for page in unpacked(state).pages)
        clipped = (clip_page(store, page, first, last) for page in pages)
        kept = (page for page in clipped if page is not None)
        return State(PageList.of(kept) if isinstance(self.config, LookupJoin) else tuple(kept))

    def _run(
        self, logic: Logic, arrivals: Iterator[tuple[int, pa.RecordBatch]], work: _Work
    ) -> Iterator[pa.RecordBatch]:
        tops = [TIME_MIN] * len(self.inside)
        for port, bounds in enumerate(self.ports):
            yield from work.out(logic.advance(port, bounds.before))
        for port, rows in arrivals:
            tops[port] = max(tops[port], pc.max(rows.column(1)).as_py())
            work.rows_by_port[port] += rows.num_rows
            yield from work.out(logic.rows(port, rows))
            del rows
            work.trim()
        for port, bounds in enumerate(self.ports):
            yield from work.out(logic.advance(port, bounds.given(tops[port])))
        yield from work.out(logic.idle(Quiet(sum(work.rows_by_port))))

    def _arrivals(self, state: State, batches: Iterator[pa.RecordBatch]) -> Arrivals:
        """In which order rows are processed: as they come, unless something is gained by having seen them all."""
        order = self._streamed
        if isinstance(self.config, WindowJoin):
            large = sum(page.nbytes for page in state.pages) > _LARGE_STATE * self.share
            order = self._spooled if self.config.defers else self._sorted if large else self._streamed
        return partial(order, batches)

    def _streamed(
        self, batches: Iterator[pa.RecordBatch], budget: Budget, work: _Work
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Arrivals as they come, port and rows, in pieces."""
        for piece in self._pieces(batches, work):
            with budget.hold(sum(batch.nbytes for part in piece for batch in part), "rows in flight"):
                for inlet, part in zip(self.inlets, piece, strict=True):
                    if part:
                        with budget.hold(sum(batch.nbytes for batch in part), "gathering rows in flight"):
                            rows = _taken(part)
                        yield inlet.port, rows
                        del rows

    def _sorted(
        self, batches: Iterator[pa.RecordBatch], budget: Budget, work: _Work
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """All arrivals, sorted by hash on disk before the first is processed: each piece meets few of many pages."""
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            spool = SortedSpool(folder, len(self.types), budget, work.piece)
            for port, rows in self._streamed(batches, budget, work):
                spool.add(port, rows)
                del rows
                work.trim()
            yield from spool.pieces()
            work.spooled = spool.store.bytes_written

    def _spooled(
        self, batches: Iterator[pa.RecordBatch], budget: Budget, work: _Work
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """All arrivals wait in a queue of their port, on disk if they outgrow memory; the earliest come first.

        A method that keeps the recent rows in memory gains by seeing both ports at about the same time. What a
        shuffle delivers is in no order at all.
        """
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            spool = FilePages(folder)
            memory = self.share // _QUEUE
            queues = [SpillingQueue(types.inside, spool, budget, memory, port) for port, types in enumerate(self.types)]
            for batch in work.waited(batches):
                for inlet in self.inlets:
                    queues[inlet.port].put(self._entering(inlet, batch))
                del batch
            while any(queue.rows for queue in queues):
                heads = [times_of(queue.peek(1))[0] if queue.rows else TIME_MAX for queue in queues]
                port = int(np.argmin(heads))
                rows = queues[port].take(_AT_ONCE)
                with budget.hold(rows.nbytes, "rows in flight"):
                    yield port, rows
            for queue in queues:
                queue.close()

    def _pieces(self, batches: Iterator[pa.RecordBatch], work: _Work) -> Iterator[list[list[pa.RecordBatch]]]:
        """Arrivals by inlet, gathered until they fill a piece, which does not outlive its use."""
        held: list[list[pa.RecordBatch]] = [[] for _ in self.inlets]
        size = 0
        for batch in work.waited(batches):
            for inlet, part in zip(self.inlets, held, strict=True):
                rows = self._entering(inlet, batch)
                if rows.num_rows:
                    part.append(rows)
                    size += rows.nbytes
                del rows
            del batch
            if size >= work.piece:
                yield held
                held, size = [[] for _ in self.inlets], 0
        if size:
            yield held

    def _entering(self, inlet: Inlet, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of one inlet, in the columns its port expects; the types differ at most in a zone's name.

        Rows that have lost their event time enter at the bound of their port.
        """
        schema = self.inside[inlet.port]
        columns = [batch.column(1).view(pa.uint64()), batch.column(2), *(batch.column(3 + n) for n in inlet.lanes)]
        cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)]
        rows = pa.RecordBatch.from_arrays(cast, schema=schema)
        if len(self.inlets) > 1 or self.roll_call:
            rows = rows.take(pa.array(np.flatnonzero(batch.column(0).to_numpy() == inlet.tag)))
        return with_times(rows, self.ports[inlet.port].before) if rows.column(1).null_count else rows


def _given(rows: list[tuple[int, pa.RecordBatch]], size: int, state: State) -> Arrivals:
    """Rows that are here, port by port, in pieces of about `size` bytes."""

    def given(budget: Budget, work: _Work) -> Iterator[tuple[int, pa.RecordBatch]]:
        for port, batch in rows:
            work.rows_in += batch.num_rows
            work.bytes_in += batch.nbytes
            count = -(-batch.num_rows // max(1, batch.nbytes // size)) or 1
            for piece in (batch.slice(start, count) for start in range(0, batch.num_rows, count)):
                with budget.hold(piece.nbytes, "rows in flight"):
                    yield port, piece

    return given


def _whole(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """A table from Spark as one batch in the columns of a port; its hashes are signed there."""
    chunks = [_chunk(column) for column in table.columns]
    cast = [chunks[0].view(pa.uint64()), *(c.cast(f.type) for c, f in zip(chunks[1:], list(schema)[1:], strict=True))]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks else pa.array([], column.type)


def packed(state: State, *, listed: bool = False) -> bytes:
    """A shard's state in few bytes: every task gets those of all shards. Its pages may come as one list."""
    return zlib.compress(pickle.dumps(replace(state, pages=PageList.of(state.pages).packed()) if listed else state), 1)


def unpacked(state: bytes) -> State:
    """What was packed."""
    return pickle.loads(zlib.decompress(state))  # type: ignore[no-any-return]


def _told(out: Out) -> pa.RecordBatch:
    """Rows that leave, and whether they are late."""
    late = np.full(out.rows.num_rows, out.outlet == "late")
    return out.rows.append_column(TURNED_AWAY, pa.array(late))


def _taken(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """All the batches as one, and the list empty."""
    whole = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
    batches.clear()
    return whole


@cache
def _c_library() -> ctypes.CDLL:
    """Loaded once: each time makes types of its own, which only the garbage collector frees."""
    return ctypes.CDLL(None)


def _return_what_is_freed(share: int) -> None:
    """Let freed buffers go back to the system at once if they are large for this share; small ones are reused.

    Left to adapt its threshold, glibc keeps up to half a share for later.
    """
    adjust = getattr(_c_library(), "mallopt", None)
    if adjust is not None:
        adjust(_M_MMAP_THRESHOLD, max(1 << 17, min(1 << 25, share // 64)))


def _give_back() -> None:
    """Return what the allocator keeps for later: memory that is free must not count against the next phase."""
    trim = getattr(_c_library(), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _private_memory() -> int:
    """The bytes that this process has for itself; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as counts:
            _, resident, shared, *_ = counts.read().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * resource.getpagesize()


class _Trimmed(Budget):
    """A budget that also minds what is released but stays with the allocator: it is not free for others.

    Making windows folds piece after piece before anything comes out. Each leaves holes, which add up.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._before = _private_memory()
        self._released = 0

    def release(self, size: int) -> None:
        """Give `size` bytes back."""
        super().release(size)
        self._released += size
        if self._released >= self.limit // _LOOK:
            self._released = 0
            if _private_memory() - self._before - self.held > self.limit // _KEPT:
                _give_back()


class _Work:
    """Counts rows and where a task's time goes: waiting for input, working, handing over output, settling."""

    def __init__(self, budget: Budget, ports: int, piece: int, kept: int, tells_late: bool = False) -> None:
        self.piece = piece
        """Bytes of arrivals that are processed at a time."""
        self._tells_late = tells_late
        self._budget = budget
        self._kept = kept
        self.rows_in = 0
        self.bytes_in = 0
        self.rows_by_port = [0] * ports
        self.rows_out = 0
        self.spooled = 0
        """Bytes of arrivals that waited on disk."""
        self._freed = 0
        self.seconds = {"input": 0.0, "work": 0.0, "output": 0.0, "settle": 0.0}

    def waited(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, counted, and the time it took to get them."""
        begun = clock.perf_counter()
        for batch in batches:
            self.seconds["input"] += clock.perf_counter() - begun
            self.rows_in += batch.num_rows
            self.bytes_in += batch.nbytes
            self._freed += batch.nbytes
            yield batch
            del batch
            begun = clock.perf_counter()

    def out(self, outs: Iterator[Out]) -> Iterator[pa.RecordBatch]:
        """The rows of `outs`, counted and timed, small batches gathered: each costs the hop to Spark some time."""
        small: list[pa.RecordBatch] = []
        begun = clock.perf_counter()
        for out in outs:
            rows = _told(out) if self._tells_late else out.rows
            self.rows_out += 0 if out.outlet == "late" else rows.num_rows
            if not self._gather(small, rows):
                begun = yield from self._release(small, begun)
                begun = yield from self._hand_over(rows, begun)
        yield from self._release(small, begun)

    def trim(self) -> None:
        """Return what the allocator keeps, once more than `kept` bytes may have been freed since the last time.

        Methods that keep blocks in memory make many small ones, which leave holes: they keep nothing.
        """
        if self._freed >= self._kept:
            self._freed = 0
            _give_back()

    def _gather(self, small: list[pa.RecordBatch], rows: pa.RecordBatch) -> bool:
        """Whether rows can wait for more to join them."""
        waiting = sum(batch.num_rows for batch in small) + rows.num_rows
        size = sum(batch.nbytes for batch in small) + rows.nbytes
        if waiting > _SMALL or size > self._budget.limit // _GATHERED or 4 * rows.nbytes > self._budget.room:
            return False
        self._budget.charge(2 * rows.nbytes, "gathering output")
        small.append(rows)
        return True

    def _release(self, small: list[pa.RecordBatch], begun: float) -> Generator[pa.RecordBatch, None, float]:
        """Hand over what was gathered; it is charged until Spark has it."""
        if small:
            size = 2 * sum(batch.nbytes for batch in small)
            begun = yield from self._hand_over(_taken(small), begun)
            self._budget.release(size)
        return begun

    def _hand_over(self, rows: pa.RecordBatch, begun: float) -> Generator[pa.RecordBatch, None, float]:
        done = clock.perf_counter()
        self.seconds["work"] += done - begun
        self._freed += rows.nbytes
        yield rows
        del rows
        self.trim()
        begun = clock.perf_counter()
        self.seconds["output"] += begun - done
        return begun
