"""What runs in a Spark task: one shard of one operator for one epoch. Arrow batches in, Arrow batches out.

The previous version of its state comes from page files; its new state is staged when, and only when, all of its output
has been consumed.
"""

from __future__ import annotations

import pickle
import time as clock
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext

from penstock.core.budget import Budget
from penstock.core.kept import KEPT_PART, hand_over
from penstock.core.meter import Tally
from penstock.core.operator import Arrivals as Order
from penstock.core.operator import Operator, State
from penstock.core.page_list import PageList
from penstock.core.pages import clip_page
from penstock.core.rows import RowType, hashes_of
from penstock.kernels.route import hash_range, part_of, shard_of, sorted_by_shard
from penstock.runtime.records import ShardRecord
from penstock.runtime.shard import Arrived, PortBounds, run, settled
from penstock.spark.allocator import TrimmedBudget, return_what_is_freed
from penstock.spark.arrivals import Arrivals, Inlet, Pieces, given
from penstock.spark.collector import pass_over_modules
from penstock.spark.runs import Run, Runs
from penstock.spark.work import Work
from penstock.storage.files import FilePages
from penstock.storage.memory import IN_MEMORY, MemoryPages
from penstock.storage.versioned import Checkpoint

_DESCRIBED = 512
"""Bytes that the description of a page takes;"""

_LISTED = 160
"""in a `PageList`. While it arrives it takes thrice that, but nothing else is held then."""

_OWN, _OWN_PART = 1 << 22, 8
"""Bytes that NumPy and allocators keep in a process that has worked for long, and the most of a small share that is set
aside for them."""

_SORTED = 4
"""The part of a share that the rows of all shards may take to be sorted at once,"""

_LARGEST = 1 << 30
"""and the bytes: texts of a column must fit one array."""

Feed = Callable[[Order, Budget, Work], Pieces]
"""Gives a task's rows, in the order asked for."""


@dataclass(frozen=True, slots=True)
class ShardTask:
    """Everything a task needs, pickled by the driver; calling it runs the shard that the task's partition is."""

    operator: str
    config: Operator
    types: tuple[RowType, ...]
    inside: tuple[pa.Schema, ...]
    """The columns that enter each port. There may be more ports than inputs: the others take partials of rows."""
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
    blobs: bool = False
    """Whether rows come in blobs."""
    runs: Runs | None = None
    """Where a run of a shard is told that Spark may repeat."""
    spare: float | None = None
    """Seconds for work that was put off."""
    set_aside: int = 0
    """Bytes of the share that are left to what is done with results."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the shard."""
        pass_over_modules()
        return_what_is_freed(self.share)
        shard, batches = self._called(batches) if self.roll_call else (TaskContext.get().partitionId(), batches)
        before = tuple(bounds.before for bounds in self.ports)
        arrivals = Arrivals(self.inside, self.inlets, before, self.roll_call, self.blobs)
        yield from self._one(
            shard, self.share, lambda order, budget, work: arrivals.pieces(order, batches, budget, work)
        )

    def here(self, arrivals: Mapping[int, Iterable[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Run all the shards in this process, one after the other, over the batches of each port."""
        held = {port: some for port, some in arrivals.items() if isinstance(some, Sequence)}
        if len(held) == len(arrivals):
            yield from self._held_here(held)
            return
        for shard in range(self.shards):
            yield from self._one(shard, self.share, self._again(arrivals, shard))

    def _again(self, arrivals: Mapping[int, Iterable[pa.RecordBatch]], shard: int) -> Feed:
        """Take the rows of a shard out of batches, some of which are made anew for each."""

        def ours() -> Iterator[tuple[int, pa.RecordBatch]]:
            for port, some in arrivals.items():
                for rows in some:
                    yield port, part_of(rows, shard_of(hashes_of(rows), self.shards) == shard)

        return lambda _, budget, work: given(ours(), budget, work)

    def _held_here(self, arrivals: Mapping[int, Sequence[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        size = sum(rows.nbytes for some in arrivals.values() for rows in some)
        # As long as they are sorted, no shard runs; then what all of them share is not for any.
        at_once = self.config.sorts_arrivals and size <= min(self.share // _SORTED, _LARGEST)
        share = self.share - size if at_once else self.share
        rows_of = _sorted_rows(arrivals, self.shards) if at_once else _rows(arrivals, self.shards)

        def feed(shard: int) -> Feed:
            return lambda _, budget, work: given(rows_of(shard), budget, work)

        for shard in range(self.shards):
            yield from self._one(shard, share, feed(shard))

    def partials_here(self, tables: Mapping[int, pa.Table]) -> pa.Table:
        """The same over few partials that came from Spark, by port."""
        out = list(self.here({port: [_whole(table, self.inside[port])] for port, table in tables.items()}))
        schema = self.config.output(self.types)
        # PySpark takes no list column that has no chunk at all, as one of no batches has.
        return pa.Table.from_batches(out, schema) if out else schema.empty_table()

    def _one(self, shard: int, share: int, feed: Feed) -> Iterator[pa.RecordBatch]:
        config, budget, tally = self.config, TrimmedBudget(share), Tally()
        # What an earlier task has left here is paid for by this one, if that uses any such thing, or goes.
        hand_over(budget, share // KEPT_PART if config.keeps_between_epochs else 0)
        budget.charge(min(share // _OWN_PART, _OWN), "what a process keeps for itself")
        budget.charge(self.set_aside, "what is done with results")
        checkpoint = Checkpoint(self.checkpoint)
        pages = checkpoint.pages(self.operator)
        name = f"{self.epoch:08d}-{shard:05d}"
        files = FilePages(pages, name, elsewhere=config.elsewhere or None, share=self.share)
        state = self._state(shard, files)
        each = _LISTED if isinstance(state.pages, PageList) else _DESCRIBED
        budget.charge(each * len(state.pages), "the list of this shard's pages")
        size = sum(page.nbytes for page in state.pages)
        order = config.arrivals(size, share)
        # What an epoch drops again need not be written. State that outgrows memory gains nothing by it, and would miss
        # the room; methods that mind memory themselves are left to do so.
        in_memory = order == "streamed" and not config.lists_pages and size <= share // IN_MEMORY
        memory = MemoryPages(budget, files) if in_memory else None
        piece = (budget.room - (share // IN_MEMORY if in_memory else 0)) // config.piece
        store = memory or files
        logic = config.logic(self.types, store, budget, state, tally)
        # Methods that like their rows spooled make many small blocks, which leave holes: nothing is kept of those.
        kept = 0 if order == "spooled" else share // 8
        arrived = Arrived.at(config, self.types, len(self.inside))
        work = Work(budget, arrived, piece, kept=kept, tells_late=config.finds_late)
        yield from run(logic, self.ports, feed(order, budget, work), arrived, work.out, work.trim, self.spare)
        begun = clock.perf_counter()
        budget.give_back()
        state = settled(config, logic, store, budget)
        if memory is not None:
            state = replace(state, pages=memory.saved(state.pages))
        files.sync()
        budget.give_back()
        work.seconds["settle"] = clock.perf_counter() - begun
        record = ShardRecord.of(
            logic,
            tally,
            budget,
            arrived,
            rows_out=work.rows_out,
            seconds={name: round(spent, 4) for name, spent in work.seconds.items()},
            bytes_in=work.bytes_in,
            bytes_read=files.bytes_read + work.spooled,
            bytes_written=files.bytes_written + work.spooled,
        )
        name = "" if self.runs is None else uuid.uuid4().hex[:12]
        checkpoint.stage(self.attempt, self.operator, shard, record.to_json(), state, name)
        if self.runs is not None:
            self.runs.tell(Run(self.attempt, self.operator, shard, name))

    def _called(self, batches: Iterator[pa.RecordBatch]) -> tuple[int, Iterator[pa.RecordBatch]]:
        first = next(batches)
        if self.blobs:
            return int(first.column(0)[0].as_py()), chain([first], batches)
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
        return State(PageList.of(kept) if self.config.lists_pages else tuple(kept))


def _rows(
    arrivals: Mapping[int, Sequence[pa.RecordBatch]], shards: int
) -> Callable[[int], Iterator[tuple[int, pa.RecordBatch]]]:
    """What tells the rows of a shard and their ports, as they come."""
    batches = [(port, rows) for port, some in arrivals.items() for rows in some]
    places = [shard_of(hashes_of(rows), shards) for _, rows in batches]

    def of_shard(shard: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        for (port, rows), place in zip(batches, places, strict=True):
            yield port, part_of(rows, place == shard)

    return of_shard


def _sorted_rows(
    arrivals: Mapping[int, Sequence[pa.RecordBatch]], shards: int
) -> Callable[[int], Iterator[tuple[int, pa.RecordBatch]]]:
    """The same for rows that may be sorted: they are copied once instead of thrice."""
    parts = {port: sorted_by_shard(some, shards) for port, some in arrivals.items() if some}
    return lambda shard: ((port, rows[shard]) for port, rows in parts.items())


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
