"""What EWJ, AH-EWJ and RPWJ have in common: windows in blocks, and deferred joins without lost or duplicate results.

A row is born when it meets the other stream's blocks in memory; it meets those on disk later, when its stream
*settles*: one pass over the other's disk for all fresh rows at once. Rows at the edge of their window never leave
before their last join: fresh ones are settled first, and rows to which fresh ones of the other stream owe a join meet
them on the way out. So the bounds of both streams hold for results as with OA-Join; only the moment at which a pair is
emitted differs.

The algorithms differ in what stays in memory, in what order blocks are written, and when to settle.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.durations import Duration, DurationLike
from penstock.core.meter import Granularity, Meter, Tally
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import Page, PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import Indices, RowType, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.core.within import LEFT, RIGHT, horizon
from penstock.kernels.sort import stable_order
from penstock.kernels.width import even_pieces
from penstock.operators.window_join.blocks import Block
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.debts import Collector, fresh_births, oldest_birth, span_of
from penstock.operators.window_join.methods import Deferring
from penstock.operators.window_join.pairing import Admit, Mask, Pairing
from penstock.operators.window_join.slabs import Slab, unborn
from penstock.operators.window_join.unborn import OpenBlocks, Unborn
from penstock.operators.window_join.way_out import WayOut
from penstock.operators.window_join.window import Window

_WINDOWS = 0.25
"""The part of a task's budget that blocks in memory take; arrivals, output and what is read from disk take the rest."""

_LARGEST_PAGE = 4_000_000

_MATCHING = 112
"""Bytes that sorting and matching one arrival takes besides its own."""


class DeferringJoin(abc.ABC):
    """A window join on one shard that defers joins with blocks on disk."""

    granularity: Granularity = "tuple"
    """How finely arrivals look for partners in memory."""

    def __init__(
        self,
        config: WindowJoin,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        settings: Deferring,
        meter: Meter | None,
    ) -> None:
        self._config = config
        self._budget = budget
        self._meter = meter or Tally()
        self._pairing = Pairing(config, inputs, budget)
        self.partitions = getattr(settings, "partitions", 1)
        self.memory = settings.memory or int(_WINDOWS * budget.limit)
        self.page = settings.page or max(1, min(_LARGEST_PAGE, self.memory // max(16, 4 * self.partitions)))
        self.chunk = settings.chunk or 16 * self.page
        keeps = self._pairing.keeps
        left, right = (Window(p, store, budget, keeps[p], settings.row, self.partitions) for p in (LEFT, RIGHT))
        self.windows = (left, right)
        self._open = [OpenBlocks(window, self.page, partial(self._placed, window.port)) for window in self.windows]
        self._unborn = [Unborn(window, budget) for window in self.windows]
        self._debts = Collector(self._pairing, budget, self._meter, self.chunk)
        self._way_out = WayOut(self.windows, self._unborn, self._pairing, self._debts, budget)
        self._bounds: list[Time] = [TIME_MIN, TIME_MIN]
        self._dead: list[Time] = [TIME_MIN, TIME_MIN]
        self._idled: Time = int(state.meta.get("idled", TIME_MIN))
        self._probes = [0, 0]
        self._take_up(state)
        self._displaced = [[b for b in window.fresh() if self._is_displaced(b, window)] for window in self.windows]
        self._debts.began = self._tick

    # The contract

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Meet what is in memory, owe what is not."""
        yield from self._settle_displaced()
        known, null = self._pairing.with_keys(port, rows)
        yield from self._pairing.unmatched(port, rows, null)
        for piece in self._pieces(port, known):
            with self._budget.hold(_MATCHING * piece.num_rows + piece.nbytes, "sorting and matching arrivals"):
                yield from self._arrive(port, piece)

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Let rows of the other port go that nothing at or after `bound` can meet, once all they owe is joined."""
        yield from self._settle_displaced()
        if bound > self._bounds[port]:
            self._bounds[port] = bound
            self._dead[1 - port] = max(self._dead[1 - port], self._edge(1 - port, bound))
        for other in (1 - port, port):
            yield from self._expire(other)

    def idle(self, work: Allowance) -> Iterator[Out]:
        """All that waits is born: no page delays results by being half full. Then to what else was put off."""
        yield from self._settle_displaced()
        for port in (LEFT, RIGHT):
            yield from self._bear_unborn(port)
        yield from self._react(work)

    def bounds(self) -> Bounds:
        """What its ports' bounds leave to come."""
        return self._config.bounds(self._bounds[LEFT], self._bounds[RIGHT])

    def state(self) -> State:
        """Every block as a page that says which joins it still owes; the memory is given back."""
        pages: list[Page] = []
        for port, window in enumerate(self.windows):
            for block in list(window):
                if window.resident[block.number]:
                    window.dump(block, self._segment(port, block))
                    window.save_marks(block)
                    window.save_births(block)
            oldest = oldest_birth(self.windows[1 - port], self._tick)
            order = {number: place for place, number in enumerate(window.disk)}
            blocks = sorted(window, key=lambda b: order[b.number])
            pages += [self._saved(window.described(block, oldest)) for block in blocks]
            pages += [window.pages.write_unborn(slab) for slab in self._unborn[port].take()]
        for window in self.windows:
            window.slabs.release()
        return State(tuple(pages), self._remember())

    # What an algorithm decides

    @abc.abstractmethod
    def _make_room(self, port: int, size: int) -> Iterator[Out]:
        """Before rows of so many bytes are born: let blocks leave memory until they fit."""

    @abc.abstractmethod
    def _born(self, port: int, counts: Indices) -> Iterator[Out]:
        """After rows were born, so many of each partition: settle if it is time to."""

    @abc.abstractmethod
    def _react(self, work: Allowance) -> Iterator[Out]:
        """Work for quiet times."""

    def _arrive(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Rows arrive: born at once, unless the algorithm lets them wait for a full block."""
        yield from self._bear(port, self._entering(port, rows))

    @abc.abstractmethod
    def _placed(self, port: int, block: Block) -> None:
        """A block was begun in memory."""

    @abc.abstractmethod
    def _gone(self, port: int, block: Block) -> None:
        """A block is over and must be forgotten."""

    @abc.abstractmethod
    def _taken_up(self, port: int, block: Block) -> None:
        """A block came from the state before."""

    @abc.abstractmethod
    def _probed(self, port: int, blocks: Sequence[Block], slab: Slab) -> None:
        """Blocks of `port` were read, into `slab`, by the other stream's settling."""

    def _is_displaced(self, block: Block, window: Window) -> bool:
        """Whether a fresh block of the state before is not where this algorithm would have left it."""
        return not window.resident[block.number]

    def _refill(self, port: int) -> Iterator[Out]:
        """Rows of `port` have left their window: what follows them may be brought to memory."""
        return iter(())

    def _edge(self, port: int, bound: Time) -> Time:
        """The time below which rows of `port` are over, given the other port's bound."""
        return horizon(self._pairing.reach, port, bound)

    def _segment(self, port: int, block: Block) -> str:
        """Where on disk a block is written."""
        return f"stream-{port}"

    def _saved(self, page: Page) -> Page:
        """A page as it goes into the state: plain, so that it may be merged with others, if that loses nothing."""
        debts = page.debts
        return replace(page, debts=None) if debts is not None and not (debts.fresh or debts.stays) else page

    def _remember(self) -> dict[str, object]:
        """What else is good, but not needed, to know in the next epoch."""
        return {"idled": self._idled}

    # Birth

    def _pieces(self, port: int, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Arrivals in order of time, in pieces small enough for the memory of the windows and the room there is."""
        if not rows.num_rows:
            return
        each = self.windows[port].size(rows) / rows.num_rows
        room = self._budget.room / 4 / (rows.nbytes / rows.num_rows + _MATCHING)
        size = max(1, int(min(max(self.page, self.memory / 16) / each, room)))
        order = stable_order(times_of(rows))
        for start in range(0, rows.num_rows, size):
            yield from even_pieces(rows.take(pa.array(order[start : start + size])), self._budget.room // 4, _MATCHING)

    def _entering(self, port: int, rows: pa.RecordBatch) -> Slab:
        return unborn(rows, np.zeros(rows.num_rows, np.bool_) if self._pairing.keeps[port] else None)

    def _bear(self, port: int, arrivals: Slab) -> Iterator[Out]:
        """Rows meet what is in memory and join it.

        A row that is over already, because the other port is ahead, gets a block of its own: it is not to be taken for
        one that has met the other's waiting rows on its way out; they are born first.
        """
        over = times_of(arrivals.batch) < self._dead[port]
        if not over.any():
            yield from self._bear_into(port, arrivals)
            return
        for waiting in self._unborn[1 - port].take():
            yield from self._bear_into(1 - port, waiting, apart=True)
        if not over.all():
            yield from self._bear_into(port, arrivals.take(np.flatnonzero(~over)))
        yield from self._bear_into(port, arrivals.take(np.flatnonzero(over)), apart=True)

    def _bear_into(self, port: int, arrivals: Slab, *, apart: bool = False) -> Iterator[Out]:
        yield from self._make_room(port, self.windows[port].size(arrivals.batch))
        # Room may have been made in the other window, to which nothing is added now.
        for window in self.windows:
            window.slabs.sweep()
        self._tick += 1
        arrivals = arrivals.sorted()
        other = self.windows[1 - port]
        counts = np.bincount(other.partitions_of(arrivals.batch), minlength=self.partitions)
        self._meter.probe(counts, other.resident_rows, self.granularity)
        for slab in other.slabs:
            admit = _in_memory(other, slab)
            yield from self._pairing.meet(port, arrivals.batch, arrivals.met, slab.batch, slab.met, admit)
        self._open[port].place(arrivals, self._tick, apart=apart)
        yield from self._born(port, counts)

    def _gather(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Let rows wait; those of partitions that can fill a block are born."""
        unborn = self._unborn[port]
        unborn.add(self._entering(port, rows))
        full = self._open[port].full(unborn.sizes)
        if full.size:
            (slab,) = unborn.take()
            born = np.isin(self.windows[port].partitions_of(slab.batch), full)
            with self._budget.hold(2 * slab.nbytes, "rows that waited"):
                if not born.all():
                    unborn.add(slab.take(np.flatnonzero(~born)))
                    slab = slab.take(np.flatnonzero(born))
                yield from self._bear(port, slab)

    def _bear_unborn(self, port: int) -> Iterator[Out]:
        for slab in self._unborn[port].take():
            with self._budget.hold(2 * slab.nbytes, "rows that waited"):
                yield from self._bear(port, slab)

    # Debts

    def settle(self, port: int) -> Iterator[Out]:
        """Let the fresh rows of a port meet what they owe a join to: one pass over the other's disk."""
        me, other = self.windows[port], self.windows[1 - port]
        fresh, births = me.fresh(), fresh_births(me)
        self._tick += 1
        if not any(part.size for part in births):
            me.settle(fresh, self._tick)  # their newest rows went to another shard
            return
        self._probes[port] += 1
        with self._debts.gathered(me) as mine:
            for blocks, theirs in self._debts.reads(other, other.unmet(*span_of(births))):
                yield from self._debts.pay_to_disk(me, mine, births, other, blocks, theirs)
                self._probed(1 - port, blocks, theirs)
        me.settle(fresh, self._tick)
        other.stays.forget(self._tick)

    def _settle_displaced(self) -> Iterator[Out]:
        """Fresh rows of the state before that are not in memory, as another method left them, meet all they owe."""
        for port, blocks in enumerate(self._displaced):
            if not blocks:
                continue
            self._displaced[port] = []
            self._tick += 1
            yield from self._debts.pay_from_disk(self.windows[port], blocks, self.windows[1 - port])
            self.windows[port].settle(blocks, self._tick)

    # The way out

    def _expire(self, port: int) -> Iterator[Out]:
        """Let the rows of a port below its edge go: what they owe, and what is owed to them, is joined first."""
        window, edge = self.windows[port], self._dead[port]
        if self._unborn[port].reaches(edge):
            yield from self._bear_unborn(port)
        going = window.going(edge)
        if not going:
            return
        if any(window.is_fresh(block) for block in going):
            yield from self.settle(port)
            going = window.going(edge)
        yield from self._way_out.meet(port, going, edge)
        for block in going:
            yield from self._way_out.unmatched(port, block, edge)
            if window.last[block.number] < edge or edge == TIME_MAX:
                self._open[port].close(block)
                self._gone(port, block)
                window.drop(block)
            else:
                window.floor[block.number] = edge
        window.slabs.sweep()
        yield from self._refill(port)

    # State

    def _take_up(self, state: State) -> None:
        debts = [page.debts for page in state.pages if page.debts is not None]
        ticks = [t for d in debts for t in (d.born, d.settled, *(t for stay in d.stays for t in stay if t < 1 << 62))]
        self._tick = 1 + max(ticks, default=0)
        room = [self.memory // 2, self.memory // 2]
        for page in state.pages:
            port, window = page.kind, self.windows[page.kind]
            if page.debts is not None and page.debts.role == "waiting":
                self._unborn[port].add(window.pages.read_unborn(page))
                continue
            # A host may remember bounds below those this shard went by; rows below a floor are over all the same.
            self._dead[port] = max(self._dead[port], page.floor)
            block = window.take_up(page, room[port], self._tick)
            if window.resident[block.number]:
                room[port] -= block.size
                self._open[port].keep_open(block)
            self._taken_up(port, block)

    # The clock

    def _steps(self, duration: DurationLike | None, default: str) -> int:
        """A duration in steps of the time column; where that counts days or is a mere number, the default is none."""
        if duration is not None:
            return Duration.of(duration).on(self._config.unit, "method")
        return Duration.of(default).on("microseconds") if self._config.unit == "microseconds" else 0

    def _now(self) -> Time:
        """How far both ports have got: the only clock there is."""
        return min(self._bounds)


def _in_memory(window: Window, slab: Slab) -> Admit:
    """Only rows whose block is still in memory, and which have not left their window."""
    times = times_of(slab.batch)

    def admit(i: Indices, j: Indices) -> Mask | None:
        numbers = slab.numbers[j]
        here: Mask = window.resident[numbers] & (times[j] >= window.floor[numbers])
        np.add.at(window.productivity, numbers[here], 1)
        return None if here.all() else here

    return admit
