"""What EWJ, AH-EWJ and RPWJ have in common: windows in blocks, joins put off, and nothing lost or doubled by it.

A row is born when it meets the other stream's blocks in memory; what is on disk it meets later, when its stream
*settles*: one pass over the other's disk for all the fresh rows at once. Rows at the edge of their window never leave
before their last join: fresh ones are settled first, and those that fresh ones of the other stream owe a join meet
them on the way out. So the bound of either stream holds for results as it does for OA-Join; only the moment at which a
pair comes out differs.

The algorithms differ in what stays in memory, in what order blocks are written, and when to settle.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.durations import Duration, DurationLike
from penstock.core.meter import Meter, Tally
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import Page, PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import Indices, RowType, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.core.within import LEFT, RIGHT, horizon
from penstock.operators.window_join.blocks import Block, Slab, Window, joined, owed
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.methods import Deferring
from penstock.operators.window_join.pairing import Admit, Mask, Pairing, dying

_WINDOWS = 0.25
"""The part of a task's budget that blocks in memory take; arrivals, output and what is read from disk take the rest."""

_LARGEST_PAGE = 4_000_000
_READ_TOGETHER = 8192
"""Rows up to which pages are read into one batch."""

_MATCHING = 112
"""Bytes that sorting and matching one arrival takes besides its own."""


class DeferringJoin(abc.ABC):
    """A window join on one shard that puts off the joins with what is on disk."""

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
        self._inputs = inputs
        self._store = store
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
        self._open: tuple[dict[int, Block], dict[int, Block]] = ({}, {})
        self._waiting: tuple[list[Slab], list[Slab]] = ([], [])
        self._waiting_sizes = np.zeros((2, self.partitions))
        self._bounds: list[Time] = [TIME_MIN, TIME_MIN]
        self._dead: list[Time] = [TIME_MIN, TIME_MIN]
        self._idled: Time = int(state.meta.get("idled", TIME_MIN))
        self._probes = [0, 0]
        self._take_up(state)
        self._strangers = [[b for b in window.fresh() if self._is_stranger(b, window)] for window in self.windows]
        self._began = self._tick

    # The contract

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Meet what is in memory, owe what is not."""
        yield from self._settle_strangers()
        known, null = self._pairing.with_keys(port, rows)
        yield from self._pairing.unmatched(port, rows, null)
        for piece in self._pieces(port, known):
            with self._budget.hold(_MATCHING * piece.num_rows + piece.nbytes, "sorting and matching arrivals"):
                yield from self._arrive(port, piece)

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Let rows of the other port go that nothing at or after `bound` can meet, once all they owe is joined."""
        yield from self._settle_strangers()
        if bound > self._bounds[port]:
            self._bounds[port] = bound
            self._dead[1 - port] = max(self._dead[1 - port], self._edge(1 - port, bound))
        for other in (1 - port, port):
            yield from self._expire(other)

    def idle(self, work: Allowance) -> Iterator[Out]:
        """All that waits is born: no page delays results by being half full. Then to what else was put off."""
        yield from self._settle_strangers()
        for port in (LEFT, RIGHT):
            yield from self._bear_waiting(port)
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
            oldest = self._oldest_birth(1 - port)
            order = {number: place for place, number in enumerate(window.disk)}
            blocks = sorted(window, key=lambda b: order[b.number])
            pages += [self._saved(window.described(block, oldest)) for block in blocks]
            pages += self._save_waiting(port)
        for window in self.windows:
            window.release()
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
        yield from self._bear(port, self._unborn(port, rows))

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

    def _is_stranger(self, block: Block, window: Window) -> bool:
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
        order = np.argsort(times_of(rows), kind="stable")
        for start in range(0, rows.num_rows, size):
            yield rows.take(pa.array(order[start : start + size]))

    def _unborn(self, port: int, rows: pa.RecordBatch) -> Slab:
        met = np.zeros(rows.num_rows, np.bool_) if self._pairing.keeps[port] else None
        zeros = np.zeros(rows.num_rows, np.int64)
        return Slab(rows, zeros, zeros, met)

    def _bear(self, port: int, arrivals: Slab) -> Iterator[Out]:
        """Rows meet what is in memory and join it.

        A row that is over already, because the other port is ahead, gets a block of its own: it is not to be taken for
        one that has met the other's waiting rows on its way out; they are born first.
        """
        over = times_of(arrivals.batch) < self._dead[port]
        if not over.any():
            yield from self._bear_into(port, arrivals, self._open[port])
            return
        for waiting in self._taken_waiting(1 - port):
            yield from self._bear_into(1 - port, waiting, {})
        if not over.all():
            yield from self._bear_into(port, arrivals.take(np.flatnonzero(~over)), self._open[port])
        yield from self._bear_into(port, arrivals.take(np.flatnonzero(over)), {})

    def _bear_into(self, port: int, arrivals: Slab, into: dict[int, Block]) -> Iterator[Out]:
        yield from self._make_room(port, self.windows[port].size(arrivals.batch))
        # Room may have been made in the other window, to which nothing is added now.
        for window in self.windows:
            window.sweep()
        self._tick += 1
        arrivals = arrivals.sorted()
        other = self.windows[1 - port]
        partitions = self._partitions(arrivals.batch)
        counts = np.bincount(partitions, minlength=self.partitions)
        self._count_comparisons(counts, other.resident_rows)
        for slab in other.slabs:
            yield from self._pairing.meet(
                port, arrivals.batch, arrivals.met, slab.batch, slab.met, _in_memory(other, slab)
            )
        self._place(port, arrivals, partitions, into)
        yield from self._born(port, counts)

    def _place(self, port: int, arrivals: Slab, partitions: Indices, into: dict[int, Block]) -> None:
        """Give each row its block, in order of time: the open one of its partition until it is full, then new ones."""
        window, times = self.windows[port], times_of(arrivals.batch)
        each = window.size(arrivals.batch) / arrivals.rows
        numbers = np.empty(arrivals.rows, np.int64)
        for partition in np.unique(partitions).tolist():
            rows = np.flatnonzero(partitions == partition) if self.partitions > 1 else np.arange(arrivals.rows)
            rows = rows[np.argsort(times[rows], kind="stable")]
            while rows.size:
                block = into.get(partition)
                if block is None:
                    block = into[partition] = window.new(partition)
                    self._placed(port, block)
                window.unwrite(block)
                some = rows[: max(1, int((self.page - block.size) / each + 0.999))]
                rows = rows[some.size :]
                numbers[some] = block.number
                first, last = int(times[some[0]]), int(times[some[-1]])
                window.grow(block, some.size, max(1, round(each * some.size)), self._tick, first, last)
                if block.size >= self.page - 1:
                    del into[partition]
        window.add(Slab(arrivals.batch, numbers, np.full(arrivals.rows, self._tick, np.int64), arrivals.met))

    def _close(self, port: int, block: Block) -> None:
        """Nothing more is born into a block."""
        if self._open[port].get(block.partition) is block:
            del self._open[port][block.partition]

    # Waiting to be born

    def _gather(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Let rows wait; those of partitions that can fill a block are born."""
        self._wait(port, self._unborn(port, rows))
        sizes = self._waiting_sizes[port].copy()
        for partition, block in self._open[port].items():
            sizes[partition] += block.size
        full = np.flatnonzero(sizes >= self.page)
        if full.size:
            (slab,) = self._taken_waiting(port)
            born = np.isin(self._partitions(slab.batch), full)
            with self._budget.hold(2 * slab.nbytes, "rows that waited"):
                if not born.all():
                    self._wait(port, slab.take(np.flatnonzero(~born)))
                    slab = slab.take(np.flatnonzero(born))
                yield from self._bear(port, slab)

    def _wait(self, port: int, slab: Slab) -> None:
        self._budget.charge(slab.nbytes, "rows waiting for a full block")
        self._waiting[port].append(slab)
        each = self.windows[port].size(slab.batch) / slab.rows
        self._waiting_sizes[port] += each * np.bincount(self._partitions(slab.batch), minlength=self.partitions)

    def _taken_waiting(self, port: int) -> list[Slab]:
        """What waits, as one slab if there is any, and nothing waits any more."""
        slabs = self._waiting[port]
        if not slabs:
            return []
        size = sum(slab.nbytes for slab in slabs)
        with self._budget.hold(size, "rows that waited"):
            taken = [joined(slabs)]
        self._budget.release(size)
        slabs.clear()
        self._waiting_sizes[port] = 0
        return taken

    def _bear_waiting(self, port: int) -> Iterator[Out]:
        for slab in self._taken_waiting(port):
            with self._budget.hold(2 * slab.nbytes, "rows that waited"):
                yield from self._bear(port, slab)

    def _save_waiting(self, port: int) -> list[Page]:
        """Rows that a host did not let be born, as a page that says so."""
        return [self.windows[port].keep_waiting(slab) for slab in self._taken_waiting(port)]

    # Debts

    def settle(self, port: int) -> Iterator[Out]:
        """Let the fresh rows of a port meet what they owe a join to: one pass over the other's disk."""
        me, other = self.windows[port], self.windows[1 - port]
        fresh = me.fresh()
        self._tick += 1
        if not me.fresh_rows():
            me.settle(fresh, self._tick)  # their newest rows went to another shard
            return
        oldest, newest = self._births(me)
        self._probes[port] += 1
        births = self._fresh_births(me)
        unmet = [b for b in other.disk.values() if not (other.resident[b.number] or other.met_all(b, oldest, newest))]
        with _Fresh(me, self._budget) as mine:
            for blocks in self._chunks(unmet):
                with self._read(other, blocks) as theirs:
                    self._count_owed(births, other, theirs)
                    yield from self._pay(me, mine, other, theirs)
                    self._probed(1 - port, blocks, theirs)
        me.settle(fresh, self._tick)
        other.forget_stays(self._tick)

    def _pay(
        self, me: Window, slabs: Sequence[Slab], other: Window, theirs: Slab, until: Time = TIME_MAX
    ) -> Iterator[Out]:
        """Let my rows meet theirs, from disk, where they owe it; only their rows below `until` if it is given."""
        for mine in slabs:
            admit = self._owed(me, mine, other, theirs, until)
            yield from self._pairing.meet(me.port, mine.batch, mine.met, theirs.batch, theirs.met, admit)
        for number in np.unique(theirs.numbers).tolist() if theirs.met is not None else ():
            other.save_marks(other.blocks[number], theirs)

    def _owed(self, me: Window, mine: Slab, other: Window, theirs: Slab, until: Time) -> Admit:
        """Rows below their block's floor have met all on their way out."""
        times = times_of(theirs.batch)

        def admit(i: Indices, j: Indices) -> Mask:
            numbers = theirs.numbers[j]
            due = owed(me, mine, i, other, theirs, j) & dying(times[j], other.floor[numbers], until, TIME_MAX)
            np.add.at(other.productivity, numbers[due], 1)
            self._meter.defer(int(np.count_nonzero(mine.births[i[due]] <= self._began)))
            return due

        return admit

    def _settle_strangers(self) -> Iterator[Out]:
        """Fresh rows that came from the state before but are not in memory: another method left them, or more memory.

        Each meets all it owes, page by page.
        """
        for port, blocks in enumerate(self._strangers):
            if not blocks:
                continue
            self._strangers[port] = []
            me, other = self.windows[port], self.windows[1 - port]
            self._tick += 1
            for some in self._chunks(blocks):
                with self._read(me, some) as mine:
                    yield from self._pay_from(me, mine, other, other.slabs)
                    away = [block for block in other.disk.values() if not other.resident[block.number]]
                    for others in self._chunks(away):
                        with self._read(other, others) as theirs:
                            yield from self._pay_from(me, mine, other, [theirs])
                            for block in others if theirs.met is not None else ():
                                other.save_marks(block, theirs)
                    for block in some if mine.met is not None else ():
                        me.save_marks(block, mine)
            me.settle(blocks, self._tick)

    def _pay_from(self, me: Window, mine: Slab, other: Window, slabs: Sequence[Slab]) -> Iterator[Out]:
        for theirs in slabs:
            admit = self._owed(me, mine, other, theirs, TIME_MAX)
            yield from self._pairing.meet(me.port, mine.batch, mine.met, theirs.batch, theirs.met, admit)

    def _fresh_births(self, window: Window) -> list[Indices]:
        """When the fresh rows in memory were born, ascending, by partition."""
        parts = [(slab.births[which], self._partitions(slab.batch)[which]) for slab, which in window.fresh_rows()]
        births, partitions = (np.concatenate([part[k] for part in parts] or [np.zeros(0, np.int64)]) for k in (0, 1))
        order = np.lexsort((births, partitions))
        return np.split(births[order], np.searchsorted(partitions[order], np.arange(1, self.partitions)))

    def _births(self, window: Window) -> tuple[int, int]:
        """The oldest and the newest birth among the fresh rows in memory."""
        births = [slab.births[which] for slab, which in window.fresh_rows()]
        some = [(int(part.min()), int(part.max())) for part in births]
        return (min(a for a, _ in some), max(b for _, b in some)) if some else (0, 0)

    def _oldest_birth(self, port: int) -> int:
        """When the oldest fresh row of a port was born, or now if there is none; 0 if one is not in memory."""
        window = self.windows[port]
        fresh = window.fresh()
        if not all(window.resident[block.number] for block in fresh):
            return 0
        return self._births(window)[0] if fresh else self._tick

    # The way out

    def _expire(self, port: int) -> Iterator[Out]:
        """Let the rows of a port below its edge go: what they owe, and what is owed to them, is joined first."""
        window, edge = self.windows[port], self._dead[port]
        if any(int(times_of(slab.batch).min()) < edge for slab in self._waiting[port]):
            yield from self._bear_waiting(port)
        going = self._going(port)
        if not going:
            return
        if any(window.is_fresh(block) for block in going):
            yield from self.settle(port)
            going = self._going(port)
        yield from self._meet_on_the_way_out(port, going)
        for block in going:
            if self._pairing.keeps[port]:
                yield from self._leave_unmatched(port, block)
            if window.last[block.number] < edge or edge == TIME_MAX:
                self._close(port, block)
                self._gone(port, block)
                window.drop(block)
            else:
                window.floor[block.number] = edge
        window.sweep()
        yield from self._refill(port)

    def _going(self, port: int) -> list[Block]:
        """The blocks with rows below the edge that have not left yet."""
        window, edge = self.windows[port], self._dead[port]
        going = window.alive & ((window.first < edge) | (edge == TIME_MAX)) & (window.floor < edge)
        return [window.blocks[number] for number in np.flatnonzero(going).tolist()]

    def _meet_on_the_way_out(self, port: int, going: Sequence[Block]) -> Iterator[Out]:
        """Rows on disk that go meet the other port's fresh ones, and all that go meet its waiting ones (000-27)."""
        window, other, edge = self.windows[port], self.windows[1 - port], self._dead[port]
        waiting = self._waiting[1 - port]
        if waiting:
            waiting[:] = [joined(waiting).sorted()]
            for slab in window.slabs:
                yield from self._meet_waiting(window, slab, window.resident)
        away = {block.number for block in going if not window.resident[block.number]}
        if not away or not (waiting or other.fresh()):
            return
        births = self._fresh_births(other)
        oldest, newest = self._births(other)
        unmet = [
            block
            for number, block in window.disk.items()
            if number in away and (waiting or not window.met_all(block, oldest, newest))
        ]
        for blocks in self._chunks(unmet):
            with self._read(window, blocks) as theirs:
                if waiting:
                    yield from self._meet_waiting(window, theirs, window.alive)
                self._count_owed(births, window, theirs)
                yield from self._pay(other, other.slabs, window, theirs, edge)

    def _meet_waiting(self, window: Window, theirs: Slab, here: Mask) -> Iterator[Out]:
        """Rows that go, of the blocks that are `here`, meet the other port's waiting rows: they will not later."""
        (mine,) = self._waiting[1 - window.port]
        times, edge = times_of(theirs.batch), self._dead[window.port]

        def admit(i: Indices, j: Indices) -> Mask:
            numbers = theirs.numbers[j]
            return here[numbers] & dying(times[j], window.floor[numbers], edge, TIME_MAX)

        yield from self._pairing.meet(1 - window.port, mine.batch, mine.met, theirs.batch, theirs.met, admit)

    def _leave_unmatched(self, port: int, block: Block) -> Iterator[Out]:
        window = self.windows[port]
        slab = window.extract(block) if window.resident[block.number] else window.read([block])
        if slab.met is None:
            raise AssertionError("marks are not kept")
        with self._budget.hold(slab.nbytes, "looking for unmatched rows"):
            floor = int(window.floor[block.number])
            alone = dying(times_of(slab.batch), floor, self._dead[port], TIME_MAX) & ~slab.met
            yield from self._pairing.unmatched(port, slab.batch, np.flatnonzero(alone))

    # State

    def _take_up(self, state: State) -> None:
        debts = [page.debts for page in state.pages if page.debts is not None]
        ticks = [t for d in debts for t in (d.born, d.settled, *(t for stay in d.stays for t in stay if t < 1 << 62))]
        self._tick = 1 + max(ticks, default=0)
        room = [self.memory // 2, self.memory // 2]
        for page in state.pages:
            if page.debts is not None and page.debts.role == "waiting":
                self._wait(page.port, self.windows[page.port].read_waiting(page))
                continue
            window = self.windows[page.port]
            # A host may remember bounds below those this shard went by; rows below a floor are over all the same.
            self._dead[page.port] = max(self._dead[page.port], page.floor)
            block = window.take_up(page, room[page.port], self._tick)
            if window.resident[block.number]:
                room[page.port] -= block.size
                if block.role == "recent" and block.size < self.page - 1 and not block.mixed:
                    self._open[page.port][block.partition] = block
            self._taken_up(page.port, block)

    # Counting

    def _partitions(self, rows: pa.RecordBatch) -> Indices:
        if self.partitions == 1:
            return np.zeros(rows.num_rows, np.int64)
        return (hashes_of(rows) % np.uint64(self.partitions)).astype(np.int64)

    def _count_comparisons(self, mine: Indices, theirs: Indices) -> None:
        """What nested loops over the blocks of each partition would compare."""
        self._meter.compute(comparisons=int(np.dot(mine, theirs)))

    def _count_owed(self, births: Sequence[Indices], window: Window, slab: Slab) -> None:
        """What nested loops over fresh rows and those of `slab` would compare that leave out pairs which have met."""
        owing = sum(rows * window.missed(block, births[block.partition]) for block, rows in window.living(slab))
        self._meter.compute(comparisons=owing)

    def _chunks(self, blocks: Iterable[Block]) -> Iterator[list[Block]]:
        """Blocks to read together: those of a basic window, if they are small; a large one is better mapped alone."""
        some: list[Block] = []
        size = rows = held = 0
        for block in blocks:
            nbytes = block.page.nbytes if block.page is not None else 0
            full = size + block.size > self.chunk or rows + block.rows > _READ_TOGETHER
            if some and (full or 16 * (held + nbytes) > self._budget.room):
                yield some
                some, size, rows, held = [], 0, 0, 0
            some.append(block)
            size, rows, held = size + block.size, rows + block.rows, held + nbytes
        if some:
            yield some

    def _read(self, window: Window, blocks: Sequence[Block]) -> _Held:
        return _Held(window.read(blocks), self._budget, len(blocks) > 1)

    def _steps(self, duration: DurationLike | None, default: str) -> int:
        """A duration in steps of the time column; where that counts days or is a mere number, the default is none."""
        if duration is not None:
            return Duration.of(duration).on(self._config.unit, "method")
        return Duration.of(default).on("microseconds") if self._config.unit == "microseconds" else 0

    def _now(self) -> Time:
        """How far both ports have got: the only clock there is."""
        return min(self._bounds)


class _Fresh:
    """A window's fresh rows: copied into one slab if there is room for it, so that they are looked up once and not by
    slab; whom they met is written back. Else the slabs they are in.
    """

    def __init__(self, window: Window, budget: Budget) -> None:
        self._window = window
        self._budget = budget
        self._parts = window.fresh_rows()
        self._size = 0

    def __enter__(self) -> Sequence[Slab]:
        size = sum(slab.nbytes * which.size // slab.rows for slab, which in self._parts)
        if 4 * size > self._budget.room:
            return self._window.slabs
        self._size = size
        self._budget.charge(size, "fresh rows")
        with self._budget.hold(2 * size, "gathering fresh rows"):
            whole = joined([slab.take(which) for slab, which in self._parts])
            self._order = whole.order()
            self._slab = whole.take(self._order)
        return [self._slab]

    def __exit__(self, *_: object) -> None:
        self._budget.release(self._size)
        if self._size and self._slab.met is not None:
            met = np.empty_like(self._slab.met)
            met[self._order] = self._slab.met
            for slab, which in self._parts:
                slab.met[which], met = met[: which.size], met[which.size :]  # type: ignore[index]


class _Held:
    """Rows read from disk, charged while they are in use; pages read one by one are mapped and take little."""

    def __init__(self, slab: Slab, budget: Budget, copied: bool) -> None:
        self._slab = slab
        self._budget = budget
        self._size = 2 * slab.nbytes if copied else slab.nbytes - int(slab.batch.nbytes)

    def __enter__(self) -> Slab:
        self._budget.charge(self._size, "blocks read from disk")
        return self._slab

    def __exit__(self, *_: object) -> None:
        self._budget.release(self._size)


def _in_memory(window: Window, slab: Slab) -> Admit:
    """Only rows whose block is still in memory, and which have not left their window."""
    times = times_of(slab.batch)

    def admit(i: Indices, j: Indices) -> Mask | None:
        numbers = slab.numbers[j]
        here: Mask = window.resident[numbers] & (times[j] >= window.floor[numbers])
        np.add.at(window.productivity, numbers[here], 1)
        return None if here.all() else here

    return admit
