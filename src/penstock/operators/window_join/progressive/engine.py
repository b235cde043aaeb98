"""Progressive join: every pair ever, exactly once, and those of the rows in memory first (spec §2.1).

Active: arrivals probe the rows in memory on the other side; when memory is full, a policy decides what leaves it.
Blocked: in epochs without rows, pages on disk meet the rows in memory, then the disk of the other side. Clean-up: at
the end of both streams the remaining pairs are emitted, and the unmatched rows. Which pairs have met follows from when
rows arrived, left and met others (`met`); that is stored with the pages, so that state can be split, merged and moved
like them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.meter import Meter, Tally
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import Page, PageStore, read_page
from penstock.core.progress import Bounds
from penstock.core.rows import Indices, RowType, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.core.within import LEFT, RIGHT
from penstock.kernels.sort import page_order
from penstock.kernels.width import even_pieces
from penstock.operators.window_join.config import LEFT_ONLY, WindowJoin
from penstock.operators.window_join.match_pairing import pairing_of
from penstock.operators.window_join.pairing import Admit, Mask
from penstock.operators.window_join.progressive.counted import CountedPages
from penstock.operators.window_join.progressive.cutting import BUCKETS, Cut, number_of
from penstock.operators.window_join.progressive.expected import Expected
from penstock.operators.window_join.progressive.met import (
    Known,
    done,
    first_left,
    have_met,
    latest_tick,
    log_of,
    marked,
    read_marks,
    scanned,
)
from penstock.operators.window_join.progressive.parameters import Progressive
from penstock.operators.window_join.progressive.policies import RowRate, Victim
from penstock.operators.window_join.progressive.side import Side
from penstock.operators.window_join.slabs import NOBODY, Slab

_RESIDENT = 0.25
"""The part of a task's budget that rows in memory take; arrivals, output and what is read from disk take the rest."""

_MOST = 0.3
"""The part of it that they never exceed, whatever a row is said to count;"""

_OF_ROOM = 0.5
"""and of what is left of it beside the list of pages and what waits to enter."""

_MATCHING = 112
"""Bytes that sorting and matching one arrival takes besides its own."""

_PIECE, _LARGE_PIECE = 16, 4
"""Arrivals probe and enter memory in pieces of at most this part of it; where they meet all that is there, of that."""

_READ_TOGETHER = 8192
"""Rows up to which pages are read into one batch."""

_NOTED = 41
"""Bytes that what is known of a row on disk takes while it is read."""


class ProgressiveJoin:
    """A join without a window on one shard."""

    def __init__(
        self,
        config: WindowJoin,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        settings: Progressive,
        meter: Meter | None,
    ) -> None:
        self._config = config
        self.store = store = CountedPages(store, state.pages)
        self._budget = budget
        self._meter = meter or Tally()
        self._pairing = pairing_of(config, inputs, budget)
        self._crosses = self._pairing.crosses
        # Rows of different partitions may meet where it is not by equal keys.
        self._policy = settings.policy()
        self._row = settings.row
        self._flush = settings.flush
        self._memory = settings.memory or int(_RESIDENT * budget.limit)
        self._partitions = settings.partitions
        self._adapts = settings.cut == "adaptive"
        self._cut = self._cut_for(state)
        keeps, by_row = self._pairing.keeps, self._policy.by_row
        left, right = (
            Side(
                port,
                store,
                budget,
                marks=keeps[port],
                hits=by_row,
                cut=self._cut,
                crosses=self._crosses,
            )
            for port in (LEFT, RIGHT)
        )
        self.sides = (left, right)
        self._bounds: list[Time] = [TIME_MIN, TIME_MIN]
        self._asleep: list[Page] = []
        self._gathered: list[tuple[int, pa.RecordBatch]] = []
        self._gathered_size = 0
        self._expected = Expected()
        self._take_up(state)
        self._began = self._clock

    # The contract

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Meet what is in memory, then be there for what may still come."""
        known, null = self._pairing.with_keys(port, rows)
        yield from self._pairing.unmatched(port, rows, null)
        self._wake()  # arrivals come in pieces that fit beside these rows
        for piece in self._pieces(known):
            self._expected.arrive(port, hashes_of(piece))
            if self._policy.loads:
                yield from self._gather(port, piece)
            else:
                yield from self._enter(port, piece)

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Bounds say nothing but that a stream has ended: then nothing can come any more."""
        self._bounds[port] = max(self._bounds[port], bound)
        return iter(())

    def idle(self, work: Allowance) -> Iterator[Out]:
        """While there is allowance, let those meet that have not; at the end of both streams all of them."""
        yield from self._join_load()
        if min(self._bounds) == TIME_MAX:
            yield from self.finish()
            yield from self._unmatched()
            self._drop()
        else:
            yield from self._react(work)
            if not any(side.has_left for side in self.sides):
                self._expected.settle()

    def bounds(self) -> Bounds:
        """Any two rows may still come out together, until the end."""
        return self._config.bounds(self._bounds[LEFT], self._bounds[RIGHT])

    def state(self) -> State:
        """Pages that say whom they have met, those of rows in memory among them; the memory is given back."""
        for port, rows in self._take_load():
            self._put_away(port, rows)
        pages = [page for side in self.sides for page in side.save()]
        record = {
            "clock": self._clock,
            "policy": self._policy.to_json(),
            "expected": self._expected.to_json(),
            **({"cut": self._cut_record()} if self._adapts else {}),
        }
        return State(tuple(self._credited((*self._asleep, *pages))), record)

    def finish(self) -> Iterator[Out]:
        """Let all meet that have not."""
        yield from self._react(_Forever())

    def counts(self) -> dict[str, int]:
        """About how many pairs the rows so far have and are owed, of inner and outer joins; 1 where streams drift."""
        pairs = {} if self._config.matching is not None or self._config.how in LEFT_ONLY else self._expected.counts()
        return pairs | {"drifting": int(self._policy.drifts)}

    @property
    def resident(self) -> int:
        """How many rows are in memory."""
        return sum(side.living for side in self.sides)

    # In memory

    def _pieces(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Arrivals in pieces small enough for memory and for the room there is."""
        if not rows.num_rows:
            return
        each = self._row or rows.nbytes / rows.num_rows
        room = self._budget.room / 4 / (rows.nbytes / rows.num_rows + _MATCHING)
        parts = _LARGE_PIECE if self._crosses else _PIECE
        size = max(1, int(min(self._memory / parts / each, room)))
        for start in range(0, rows.num_rows, size):
            for piece in even_pieces(rows.slice(start, size), self._budget.room // 4, _MATCHING):
                yield piece.take(pa.array(page_order(hashes_of(piece), times_of(piece))))

    def _enter(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Probe, make room, insert: in this order, as what leaves has to be met first."""
        self._wake()
        with self._budget.hold(_MATCHING * rows.num_rows + rows.nbytes, "sorting and matching arrivals"):
            self._clock += 1
            came = self._clock
            met = np.zeros(rows.num_rows, np.bool_) if self._pairing.keeps[port] else None
            yield from self._probe(port, rows, met)
            if port == LEFT and self._config.how in LEFT_ONLY and met is not None and met.any():
                rest = np.flatnonzero(~met)
                rows, met = rows.take(pa.array(rest)), met[rest]
            if rows.num_rows:
                self._make_room(rows)
                self._policy.arrive(port, self.sides[port].hold(rows, came, met))

    def _probe(self, port: int, rows: pa.RecordBatch, met: Mask | None) -> Iterator[Out]:
        """Results are credited to the partition that was probed."""
        other = self.sides[1 - port]
        if not self._policy.resident[1 - port].any():
            return
        counts = np.bincount(other.partition(rows), minlength=self._partitions)
        self._meter.probe(counts, self._policy.resident[1 - port], by="tuple")
        for slab in other.slabs:
            yield from self._pairing.meet(port, rows, met, slab.batch, slab.met, self._crediting(other, slab))

    def _crediting(self, side: Side, slab: Slab) -> Admit:
        def admit(_: Indices, j: Indices) -> Mask:
            partitions = side.partitions_of(slab, j)
            alive: Mask = partitions >= 0
            self._policy.credit(side.port, np.bincount(partitions[alive], minlength=self._partitions))
            self._expected.pairs += int(np.count_nonzero(alive))
            if slab.hits is not None:
                np.add.at(slab.hits, j[alive], 1)
            return alive

        return admit

    def _size(self, rows: pa.RecordBatch) -> int:
        return self._row * rows.num_rows if self._row is not None else int(rows.nbytes)

    def _over(self, size: int | None, nbytes: int) -> float:
        """By which part of the memory rows would not fit; they must fit the budget, too, whatever they count."""
        held = sum(side.nbytes for side in self.sides)
        room = _OF_ROOM * (self._budget.room + held)
        over = (held + nbytes) / max(1.0, min(_MOST * self._budget.limit, room)) - 1
        if self._row is None or size is None:
            return max(over, (held + nbytes) / self._memory - 1)
        return max(over, (self._row * self.resident + size) / self._memory - 1)

    def _make_room(self, rows: pa.RecordBatch) -> None:
        """Let rows leave memory until these fit."""
        while self._policy.flushes and self.resident and (over := self._over(self._size(rows), rows.nbytes)) > 0:
            self._evict(max(1, int(np.ceil(max(over, self._flush) * self._capacity))))

    @property
    def _capacity(self) -> float:
        """About how many rows memory has room for."""
        if self._row is not None:
            return self._memory / self._row
        return self._memory * self.resident / max(1, sum(side.nbytes for side in self.sides))

    def _evict(self, rows: int) -> None:
        self._clock += 1
        if isinstance(self._policy, RowRate):
            self._evict_rows(self._policy, rows)
        else:
            victims = self._policy.victims(rows)
            for side in self.sides:
                side.evict(side.chosen([victim for victim in victims if victim.port == side.port]), self._clock)
            for victim in victims:
                self._policy.leave(victim)
        self._policy.flushed()
        for side in self.sides:
            side.slabs.sweep()

    def _evict_rows(self, policy: RowRate, rows: int) -> None:
        """Those rows leave that have had the fewest results, whichever partition they are of."""
        slabs = [(side, slab) for side in self.sides for slab in side.slabs]
        alive = [np.flatnonzero(slab.numbers != NOBODY) for _, slab in slabs]
        hits = [slab.hits[which] for (_, slab), which in zip(slabs, alive, strict=True) if slab.hits is not None]
        came = [slab.births[which] for (_, slab), which in zip(slabs, alive, strict=True)]
        going = np.zeros(sum(map(len, alive)), np.bool_)
        with self._budget.hold(24 * going.size, "ranking rows"):
            going[policy.order(np.concatenate(hits), np.concatenate(came))[:rows]] = True
        parts = np.split(going, np.cumsum([which.size for which in alive])[:-1])
        leaving: tuple[list[tuple[Slab, Indices]], ...] = ([], [])
        for (side, slab), which, part in zip(slabs, alive, parts, strict=True):
            if part.any():
                leaving[side.port].append((slab, which[part]))
                counts = np.bincount(side.partitions_of(slab, which[part]), minlength=self._partitions)
                for partition in np.flatnonzero(counts).tolist():
                    policy.leave(Victim(side.port, partition, int(counts[partition])))
        for side, some in zip(self.sides, leaving, strict=True):
            side.evict(some, self._clock)

    # Loads (PMJ)

    def _gather(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Let rows wait until they fill the memory."""
        if self._gathered_size + self._size(rows) > self._memory:
            yield from self._join_load()
            self._wake()
            if self.resident:
                self._evict(self.resident)
        self._budget.charge(rows.nbytes, "rows of a load")
        self._gathered.append((port, rows))
        self._gathered_size += self._size(rows)

    def _join_load(self) -> Iterator[Out]:
        """Rows that waited meet each other."""
        for port, rows in self._take_load():
            yield from self._enter(port, rows)

    def _take_load(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        gathered, self._gathered, self._gathered_size = self._gathered, [], 0
        for port, rows in gathered:
            self._budget.release(rows.nbytes)
            yield port, rows

    def _put_away(self, port: int, rows: pa.RecordBatch) -> None:
        """Rows that have met nobody leave: they owe a join to everybody."""
        self._clock += 1
        met = np.zeros(rows.num_rows, np.bool_) if self._pairing.keeps[port] else None
        self.sides[port].put_away(rows, self._clock, met)

    # From disk

    def _react(self, work: Allowance) -> Iterator[Out]:
        """First what is on disk with what is in memory, then with what is on disk."""
        for side in self.sides:
            side.merge(cut=True)
        for port in (LEFT, RIGHT):
            for partition in range(self._partitions + 1):
                yield from self._meet_memory(port, partition, work)
        for partition in range(self._partitions + 1):
            yield from self._meet_disk(partition, work)
        if work.left():
            self._expected.settle()

    def _meet_memory(self, port: int, partition: int, work: Allowance) -> Iterator[Out]:
        """Stage md of a partition: its pages on disk meet what is in memory on the other side."""
        mine, other = self.sides[port], self.sides[1 - port]
        mixed = self._crosses or partition == self._partitions
        pages = mine.disk[partition]
        newest = int(other.newest.max() if mixed else other.newest[partition])
        owing = [n for n, page in enumerate(pages) if newest > max(0, first_left(page), *log_of(page).scans)]
        if not owing or not work.left():
            return
        self._wake()
        here = self._policy.resident[1 - port]
        if not (here.any() if mixed else here[partition]):
            return
        gone = list(other.pages) if mixed else [*other.disk[partition], *other.disk[-1]]
        for some in self._chunks(pages, owing):
            if some[0] != owing[0] and not work.left():
                return
            self._clock += 1
            at = self._clock
            with self._reading(port, pages, some) as mine_known:
                for slab in other.slabs:
                    theirs = Known.in_memory(slab)
                    admit = self._owed(mine_known, theirs, slab)
                    yield from self._pairing.meet(port, mine_known.rows, mine_known.marks, slab.batch, slab.met, admit)
            for n in some:
                pages[n] = scanned(pages[n], at, gone)

    def _meet_disk(self, partition: int, work: Allowance) -> Iterator[Out]:
        """Stage dd of a partition: the pages of both sides on disk meet."""
        left, right = self.sides
        pages = left.disk[partition]
        mixed = self._crosses or partition == self._partitions
        others = right.disk if mixed else [right.disk[partition], right.disk[-1]]
        owing = [n for n, page in enumerate(pages) if any(not have_met(page, q) for qs in others for q in qs)]
        for some in self._chunks(pages, owing):
            if not work.left():
                return
            self._clock += 1
            at = self._clock
            with self._reading(LEFT, pages, some) as mine:
                for theirs_pages in others:
                    unmet = [m for m, q in enumerate(theirs_pages) if any(not have_met(pages[n], q) for n in some)]
                    for those in self._chunks(theirs_pages, unmet):
                        with self._reading(RIGHT, theirs_pages, those) as theirs:
                            admit = self._owed(mine, theirs)
                            yield from self._pairing.meet(LEFT, mine.rows, mine.marks, theirs.rows, theirs.marks, admit)
            for n in some:
                pages[n] = replace(pages[n], log=replace(log_of(pages[n]), met=at))

    def _owed(self, mine: Known, theirs: Known, slab: Slab | None = None) -> Admit:
        """Pairs that have not met; of a slab, only with rows that have not left it."""

        def admit(i: Indices, j: Indices) -> Mask:
            due: Mask = ~done(mine, i, theirs, j)
            if slab is not None:
                due &= slab.numbers[j] != NOBODY
            self._expected.pairs += int(np.count_nonzero(due))
            late = np.maximum(mine.arrived[i], theirs.arrived[j])[due] <= self._began
            self._meter.defer(int(np.count_nonzero(late)))
            return due

        return admit

    def _chunks(self, pages: Sequence[Page], which: Iterable[int]) -> Iterator[list[int]]:
        """Pages to read together: small ones, so that they are looked up once; a large one is better mapped alone."""
        some: list[int] = []
        rows = size = 0
        for n in which:
            page = pages[n]
            if some and (rows + page.rows > _READ_TOGETHER or 16 * (size + page.nbytes) > self._budget.room):
                yield some
                some, rows, size = [], 0, 0
            some.append(n)
            rows, size = rows + page.rows, size + page.nbytes
        if some:
            yield some

    @contextmanager
    def _reading(self, port: int, pages: list[Page], which: Sequence[int]) -> Iterator[Known]:
        """Pages on disk, charged while they are in use; whom their rows met is noted then. A single one is mapped."""
        some = [pages[n] for n in which]
        copied = 2 * sum(page.nbytes for page in some) if len(some) > 1 else 0
        with self._budget.hold(copied + _NOTED * sum(page.rows for page in some), "pages read from disk"):
            known = Known.on_disk(self.store, some, marked=self._pairing.keeps[port])
            yield known
            if known.marks is not None:
                for place, n in enumerate(which):
                    marks = known.marks[known.page == place]
                    if np.count_nonzero(marks) > np.count_nonzero(read_marks(self.store, pages[n])):
                        pages[n] = marked(self.store, pages[n], marks)

    # The end

    def _unmatched(self) -> Iterator[Out]:
        """Rows that nobody met."""
        for port, side in enumerate(self.sides):
            if not side.marks:
                continue
            for slab in side.slabs:
                if slab.met is not None:
                    alone = np.flatnonzero((slab.numbers != NOBODY) & ~slab.met)
                    yield from self._pairing.unmatched(port, slab.batch, alone)
            for page in (*side.pages, *(page for page in self._asleep if page.kind == port)):
                with self._budget.hold(_NOTED * page.rows, "looking for unmatched rows"):
                    rows = Known.on_disk(self.store, [page], marked=True)
                    assert rows.marks is not None
                    yield from self._pairing.unmatched(port, rows.rows, np.flatnonzero(~rows.marks))

    def _drop(self) -> None:
        for page in self._asleep:
            self.sides[page.kind].disk[-1].append(page)
        self._asleep = []
        for side in self.sides:
            side.drop()

    # State

    def _take_up(self, state: State) -> None:
        """Pages of rows that were in memory wait until they are needed there."""
        self._clock = max([2, int(state.meta.get("clock", 0)), *map(latest_tick, state.pages)])
        record = state.meta.get("policy")
        if isinstance(record, dict):
            self._policy.take_up(record)
        for page in state.pages:
            log = log_of(page)
            if log.left == 0:
                self._asleep.append(page)
                self.sides[page.kind].expect(self._partition_of(page), log.newest)
            else:
                listed = self.sides[page.kind].listed(self._partition_of(page))
                listed.append(page if page.log else replace(page, log=log))
            if record is None and page.log is not None:
                place = page.kind, self._partition_of(page)
                if place[1] < self._partitions:
                    self._policy.arrived[place] += page.rows
                    self._policy.results[place] += log.results
        self._take_up_expected(state)
        before = Cut.from_json(self._partitions, state.meta.get("cut", {}))
        if before != self._cut:
            self._policy.recut(before.moved(self._cut, self._expected.rows))
        self._counted = self._expected.rows.copy()

    def _cut_for(self, state: State) -> Cut:
        """How keys are cut in this epoch: as before, unless that has become uneven."""
        record = state.meta.get("cut", {})
        self._loads = np.array(record.get("loads", np.zeros(BUCKETS)))
        if not self._adapts:
            return Cut(self._partitions)
        cut = Cut.from_json(self._partitions, record)
        taken = [number_of(log_of(page).partitions) for page in state.pages]
        return cut.adapted(self._loads, max([cut.number, *taken]))

    def _cut_record(self) -> dict[str, Any]:
        """How keys are cut, and the rows that came to each bucket of late."""
        came = (self._expected.rows - self._counted).sum(axis=0)
        return {**self._cut.to_json(), "loads": (self._loads / 2 + came).round(2).tolist()}

    def _take_up_expected(self, state: State) -> None:
        """What was counted before; of shards that are cut otherwise, by the pages that came here."""
        if "expected" in state.meta:
            self._expected.take_up(state.meta["expected"])
            return
        for page in state.pages:
            with self._budget.hold(8 * page.rows, "counting rows by bucket"):
                self._expected.arrive(page.kind, hashes_of(read_page(self.store, page)))
        if any(page.log is None for page in state.pages):
            self._expected.pairs = round(self._expected.total)  # by a method that puts nothing off
            self._expected.settle()
        else:
            self._expected.pairs = round(sum(page.rows * log_of(page).given for page in state.pages))

    def _partition_of(self, page: Page) -> int:
        """The partition of all rows of a page, if keys are cut as they were when it was written; else that of none."""
        log = log_of(page)
        return log.partition if log.partitions == self._cut.code else self._partitions

    def _wake(self) -> None:
        """Bring the rows to memory that are to be there, the most productive first; what does not fit leaves."""
        if not self._asleep:
            return
        scores = np.append(self._policy.scores(), np.zeros((2, 1)), axis=1)
        pages = sorted(self._asleep, key=lambda page: -scores[page.kind, self._partition_of(page)])
        self._asleep = []
        self._clock += 1
        waking: tuple[list[Page], list[Page]] = ([], [])
        rows = size = 0
        for page in pages:
            more = self._row and self._row * (rows + page.rows)
            if self._policy.flushes and self._over(more, size + page.nbytes) > 0:
                left = replace(page, log=replace(log_of(page), left=self._clock))
                self.sides[page.kind].listed(self._partition_of(page)).append(left)
            else:
                waking[page.kind].append(page)
                rows, size = rows + page.rows, size + page.nbytes
        for side, some in zip(self.sides, waking, strict=True):
            for group in self._together(some):
                self._policy.resident[side.port] += np.bincount(side.load(group), minlength=self._partitions)

    def _together(self, pages: Sequence[Page]) -> Iterator[list[Page]]:
        """Pages that are brought to memory at a time, as there is room for their copies."""
        group: list[Page] = []
        size = 0
        for page in pages:
            if group and 8 * (size + page.nbytes) > self._budget.room:
                yield group
                group, size = [], 0
            group.append(page)
            size += page.nbytes
        if group:
            yield group

    def _credited(self, pages: Iterable[Page]) -> Iterator[Page]:
        """Pages with their part of the results of their partition: shards that are cut otherwise know no more."""
        rate = self._policy.results / np.maximum(self._policy.arrived, 1)
        pages = list(pages)
        given = self._expected.pairs / max(1, sum(page.rows for page in pages))
        for page in pages:
            partition = self._partition_of(page)
            results = page.rows * float(rate[page.kind, partition]) if partition < self._partitions else 0.0
            yield replace(page, log=replace(log_of(page), results=results, given=given))


class _Forever:
    """All the time there is."""

    def left(self) -> bool:
        return True
