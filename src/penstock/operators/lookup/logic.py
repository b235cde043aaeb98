"""A lookup join at work on one shard: rows pass the front stage, what it misses waits for the back end.

Each iteration lets as many rows in as may wait, and then reads the table once. Rows that wait when an epoch ends are
part of the state; they are answered as others come that share their read, when they are too old, when nothing else
arrives, or when the stream ends. So are rows that could not be let in because the table was read as often as it may
be, and rows that were put aside for that.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.errors import StateError
from penstock.core.master import charged_to, layout_of
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Out, State
from penstock.core.page_list import PageList
from penstock.core.pages import Page, PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import Indices, RowType
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.kernels.hashing import hash_keys
from penstock.operators.lookup.answers import Answers, null_keys
from penstock.operators.lookup.back import BackEnd, Desk
from penstock.operators.lookup.backlog import INBOX, SHED, SHED_SEGMENT, Backlog
from penstock.operators.lookup.broadcast import Broadcast, WholeTableJoin
from penstock.operators.lookup.config import LookupJoin
from penstock.operators.lookup.counts import LookupCounts, Waits
from penstock.operators.lookup.front import CACHED, FrontStage
from penstock.operators.lookup.hybridjoin import HybridJoin, OldestFirstJoin
from penstock.operators.lookup.inlj import MISSED, IndexJoin, Inlj
from penstock.operators.lookup.meshjoin import CyclicJoin, MeshJoin
from penstock.operators.lookup.partition_based import PartitionBased, WaitingAreasJoin
from penstock.operators.lookup.partitioned import Partitioned, PartitionedJoin
from penstock.operators.lookup.shedding import Load, lottery
from penstock.operators.lookup.ssij import PhasedJoin, Ssij
from penstock.operators.lookup.waiting import WAITING, Waiting

_LEAST = 64
"""The front stage is asked for at least so many rows at once: fewer cost as much."""

_INBOX, _SHED = 4, 16
"""Rows that are not let in yet and rows that are put aside take up to these parts of the share, then go to pages."""

_OLDEST = 1.0

_PORTS = (WAITING, CACHED, MISSED, INBOX, SHED)

HELD = (WAITING, INBOX, SHED)
"""The ports of pages whose rows have yet to come out."""


class LookupLogic:
    """One shard of a lookup join."""

    def __init__(
        self,
        config: LookupJoin,
        stream: RowType,
        store: PageStore,
        budget: Budget,
        state: State,
        meter: Meter | None = None,
    ) -> None:
        self._config = config
        self._stream = stream
        self._store = store
        self._bound: Time = TIME_MIN
        table = charged_to(config.table.open(config.version), budget)
        config.stages.check(table)
        answers = Answers(config, stream, budget)
        settings = config.stages.front
        self.front = None if settings is None else FrontStage(settings, answers, table.columns, budget)
        self.desk = Desk(table, answers, budget, self.front, meter)
        self.waiting = Waiting(stream.inside, budget)
        self.back = self._back_end(state)
        self.inbox = Backlog(stream.inside, INBOX, store, budget, _INBOX)
        self.shed = Backlog(stream.inside, SHED, store, budget, _SHED, SHED_SEGMENT)
        self.load = Load(config.shed, config.quota)
        self._considers = config.shed.policy == "considering" and isinstance(self.back, OldestFirstJoin)
        self._arrived = self._put_aside = self._replayed = self._hits = 0
        self._restore(state)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Answer what the front stage can, let the rest wait, and read the table as long as too many do."""
        missing = null_keys(self.desk.answers.keys(rows)) if rows.num_rows else np.zeros(0, np.bool_)
        if missing.any():
            yield from self.desk.answers.alone(rows, np.flatnonzero(missing))
            rows = rows.filter(pa.array(~missing))
        if rows.num_rows:
            self.inbox.lend(self._chosen(rows))
        yield from self._serve()
        self.inbox.settle()

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Rows that have waited too long are answered, however often the table was read; at the end of time all are."""
        self._bound = max(self._bound, bound)
        if bound == TIME_MAX:
            yield from self.end()
            return
        age = self._config.max_age
        if age is not None and bound != TIME_MIN:
            oldest = bound - age.on(self._config.unit, "max_age")
            while self._earliest() < oldest:
                yield from self._hurry(oldest)
            self.inbox.settle()

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Rows that wait need not wait for others while nothing arrives."""
        if work.left():
            yield from self._serve()
        while len(self.waiting) and work.left() and self.load.may_read:
            yield from self._step(_OLDEST)

    def end(self) -> Iterator[Out]:
        """All that waits is answered, however often the table must be read for it."""
        self.load.left = None
        yield from self._serve()
        while len(self.waiting):
            yield from self._step(_OLDEST)

    def grant(self, reads: int | None) -> None:
        """Another epoch begins: the table may be read so many times."""
        self.load.left = reads

    def tally(self) -> LookupCounts:
        """What it holds now, and what it did since it was made."""
        desk, front = self.desk.stats, self.front
        return LookupCounts(
            waiting=len(self.waiting),
            queued=len(self.inbox),
            shed=len(self.shed),
            earliest=self._earliest(),
            put_aside=self._put_aside,
            replayed=self._replayed,
            hits=0 if front is None else front.stats.hits,
            misses=0 if front is None else front.stats.misses,
            finished=desk.finished,
            reads=desk.reads,
            bytes_read=desk.bytes_read,
            looked_up=desk.looked_up,
            shedding=int(self.load.shedding),
        )

    def waits(self) -> Waits:
        """How many rows wait, wherever they do, and since when."""
        deferred = len(self.waiting) + len(self.inbox) + len(self.shed)
        return Waits(deferred, self._earliest(), self._bound, self._config.unit)

    def bounds(self) -> Bounds:
        """What can still come out: rows that arrive, and rows that wait, wherever they do."""
        least = min(self._bound, self._earliest())
        return Bounds((least, least), (least, least))

    def counts(self) -> dict[str, int]:
        """What was done since this logic was made, and what there is now: for reports."""
        done = self.tally().to_json()
        del done["earliest"]
        if self.front is None:
            return {name: count for name, count in done.items() if name not in ("hits", "misses")}
        return {**done, "evictions": self.front.stats.evictions, "cached": self.front.rows}

    def state(self) -> State:
        """Rows that wait, what is cached, and what is known of keys that are not."""
        pages: list[Sequence[Page]] = [self.waiting.save(self._store, self._kind), self.inbox.save(), self.shed.save()]
        meta: dict[str, object] = {"version": self.desk.table.version, "arrived": self._arrived}
        if self._config.shed.on:
            meta["load"] = self.load.to_json()
        if self.front is not None:
            pages.append(self.front.save(self._store))
            meta["threshold"] = self.front.threshold.value
        if isinstance(self.back, IndexJoin):
            pages.append(self.back.missed.save(self._store))
        meta |= {self._kind: self.back.meta(), "layout": layout_of(self.desk.table)}
        return State(PageList.joined(pages), meta)

    @property
    def _kind(self) -> str:
        """The back end's name, under which rows wait."""
        return type(self._config.stages.back).__name__.lower()

    def _serve(self) -> Iterator[Out]:
        """Iterate until all that arrived, and was put aside, is answered or waits; as long as the table may be read.

        Where the number of reads is limited and rows are put aside, no read is saved up for rows to share.
        """
        while (len(self.inbox) or len(self.shed) or self.back.at_once) and self.load.may_read:
            if len(self.inbox) or len(self.shed):
                self._balance()
            yield from self._let_in()
            hasty = self.load.left is not None and len(self.shed)
            if len(self.inbox) or self.back.at_once or hasty:
                yield from self._step(self.load.position)

    def _balance(self) -> None:
        """Put the oldest waiting rows aside if too many are queued, or let some come again that were put aside."""
        queued = len(self.inbox)
        free = self.back.free((self.inbox if queued else self.shed).peek())
        self.load.expect(free + len(self.waiting))
        excess = self.load.excess(queued, free)
        room = self.load.room(queued, free) if len(self.shed) else 1
        if excess and self._considers:
            self._shed_oldest(self.load.shed_now(excess))
        elif not excess:
            self._replay(room)
        self.load.judged(excess, room)

    def _shed_oldest(self, count: int) -> None:
        """Put the oldest waiting rows aside; their slots are free at once (fix C)."""
        rows, numbers = self.waiting.take(self.waiting.oldest(count))
        self._put_aside += rows.num_rows
        self.shed.put(rows, numbers["attempts"] + 1)

    def _replay(self, count: int) -> None:
        """Let rows that were put aside come again, behind those that arrived."""
        while count > 0 and len(self.shed):
            rows, attempts = self.shed.take(count)
            self._replayed += rows.num_rows
            count -= rows.num_rows
            self.inbox.put(rows, attempts)

    def _chosen(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The arrivals but for those that are put aside before they enter, where that is how load is shed."""
        first = self._arrived
        self._arrived += rows.num_rows
        if not self._config.shed.on or self._considers:
            return rows
        free = self.back.free(rows)
        self.load.expect(free + len(self.waiting))
        excess = min(rows.num_rows, self.load.excess(len(self.inbox) + rows.num_rows, free))
        if not excess:
            return rows
        aside = np.zeros(rows.num_rows, np.bool_)
        aside[lottery(first, rows.num_rows, excess)] = True
        self.load.shedding = True
        self._put_aside += excess
        self.shed.put(rows.filter(pa.array(aside)), np.ones(excess, np.int64))
        return rows.filter(pa.array(~aside))

    def _hurry(self, oldest: Time) -> Iterator[Out]:
        """Answer some of the rows from before `oldest`, wherever they wait."""
        if self.waiting.earliest() >= oldest:
            if self.shed.earliest() < oldest:
                rows, attempts = self.shed.take(max(1, self.back.free(self.shed.peek())))
                self._replayed += rows.num_rows
                self.inbox.lend_first(rows, attempts)
            yield from self._let_in()
            if not len(self.inbox) and not self.back.at_once:
                return
        yield from self._step(_OLDEST)

    def _earliest(self) -> Time:
        return min(self.waiting.earliest(), self.inbox.earliest(), self.shed.earliest())

    def _let_in(self) -> Iterator[Out]:
        """Answer what is cached and let others wait, until no more may or no more are there."""
        while len(self.inbox) and (free := self.back.free(self.inbox.peek())) > 0:
            rows, attempts = self.inbox.take(free if self.front is None else max(_LEAST, self.front.asked_for(free)))
            rows, attempts = yield from self._misses(rows, attempts)
            self.inbox.lend_first(rows.slice(free), attempts[free:])
            rows = rows.slice(0, free)
            if rows.num_rows:
                if self.front is not None:
                    self.front.stats.misses += rows.num_rows
                self.desk.backlog = len(self.inbox)
                self.back.put(rows, hash_keys(self.desk.answers.keys(rows)), attempts[:free])

    def _misses(self, rows: pa.RecordBatch, attempts: Indices) -> Generator[Out, None, tuple[pa.RecordBatch, Indices]]:
        """The rows that the front stage has no answer for."""
        if self.front is None:
            return rows, attempts
        hit = yield from self.front.probe(rows)
        if not hit.any():
            return rows, attempts
        self._hits += int(hit.sum())
        return rows.filter(pa.array(~hit)), attempts[~hit]

    def _step(self, position: float) -> Iterator[Out]:
        """Read the table once."""
        finished, evictions = self.desk.stats.finished, 0 if self.front is None else self.front.stats.evictions
        yield from self.back.step(position)
        self.load.read(self._hits, self.desk.stats.finished - finished)
        self._hits = 0
        if self.front is not None:
            self.front.iterated(self.front.stats.evictions - evictions, shedding=self.load.shedding)

    def _back_end(self, state: State) -> BackEnd:
        settings = self._config.stages.back
        if isinstance(settings, Inlj):
            return IndexJoin(settings, self.desk, self.waiting)
        if isinstance(settings, Broadcast):
            return WholeTableJoin(settings, self.desk, self.waiting)
        meta = state.meta.get(self._kind, {})
        if isinstance(settings, MeshJoin):
            return CyclicJoin(settings, self.desk, self.waiting, meta)
        if isinstance(settings, Partitioned):
            return PartitionedJoin(settings, self.desk, self.waiting, meta)
        if isinstance(settings, Ssij):
            return PhasedJoin(settings, self.desk, self.waiting, meta)
        if isinstance(settings, PartitionBased):
            return WaitingAreasJoin(settings, self.desk, self.waiting, meta)
        if isinstance(settings, HybridJoin):
            return OldestFirstJoin(settings, self.desk, self.waiting)
        raise TypeError(settings)

    def _restore(self, state: State) -> None:
        """Take up the state; where the table has changed meanwhile, what is cached of it goes."""
        listed = PageList.of(state.pages)
        by_port = {port: listed.of_port(port) for port in _PORTS}
        ours = [page for page in by_port[WAITING] if page.run in (None, self._kind)]
        self.waiting.restore(self._store, ours)
        self.inbox.restore(by_port[INBOX])
        self.shed.restore(by_port[SHED])
        self.load.restore(state.meta.get("load", {}))
        self._arrived = int(state.meta.get("arrived", 0))
        if isinstance(self.back, IndexJoin):
            self.back.missed.restore(self._store, by_port[MISSED])
        if self.front is not None:
            self.front.restore(self._store, by_port[CACHED])
            self.front.threshold.value = int(state.meta.get("threshold", self.front.threshold.value))
        if isinstance(self.back, CyclicJoin) and state.meta.get("layout") != layout_of(self.desk.table):
            self.back.cut_anew()
        known = state.meta.get("version")
        if known != self.desk.table.version:
            self._renew(None if known is None else str(known))
        self._take_over([page for page in by_port[WAITING] if page not in ours])

    def _take_over(self, pages: list[Page]) -> None:
        """Let rows wait here that waited in another back end; those that have matched there have met all they can."""
        if not pages:
            return
        others = Waiting(self._stream.inside, self.desk.budget)
        others.restore(self._store, pages)
        if others.matched.any() and not (self.desk.table.clustered or self.desk.table.unique):
            raise StateError(
                f"Rows that wait have met a part of the table by method={pages[0].run!r}, and which is known to that "
                f"method only. Start with it once more and let it drain, or with a new checkpoint directory."
            )
        others.take(others.matched)
        rows, numbers = others.take(np.ones(len(others), np.bool_))
        if rows.num_rows:
            self.back.put(rows, numbers["hash"].view(np.uint64), numbers["attempts"])

    def _renew(self, since: str | None) -> None:
        """The table is not what it was: forget what changed, and find again where rows must look."""
        changes = None if since is None else self.desk.table.changes(since).keys
        if self.front is not None:
            keys = (
                None if changes is None else [changes.column(name).combine_chunks() for name in self._config.table_keys]
            )
            self.front.invalidate(keys)
        self.back.renew()
