"""A lookup join on one shard: rows pass the front stage, and those that it cannot answer wait for the back end.

Each iteration lets in as many rows as may wait, and then reads the table once. Rows that wait when an epoch ends are
part of the state; they are answered when others share their read, when they are too old, when nothing else arrives, or
when the stream ends. The same holds for rows that were not let in because the quota of reads was used up, and for rows
that were put aside for that reason.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.master import charged_to
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import Indices, RowType
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.core.waits import Waits
from penstock.kernels.equal import null_keys
from penstock.operators.lookup.answers import Answers
from penstock.operators.lookup.back import Desk, MakeBack
from penstock.operators.lookup.backlog import INBOX, SHED, SHED_SEGMENT, Backlog
from penstock.operators.lookup.broadcast import WholeTableJoin
from penstock.operators.lookup.config import LookupJoin
from penstock.operators.lookup.counts import LookupCounts
from penstock.operators.lookup.front import FrontStage
from penstock.operators.lookup.overload import Overload
from penstock.operators.lookup.saving import Saving, name_of_back
from penstock.operators.lookup.waiting import Waiting

_LEAST = 64
"""The front stage is probed with at least this many rows: fewer cost as much."""

_INBOX, _SHED = 4, 16
"""Queued rows take up to 1/_INBOX of the budget and shed rows up to 1/_SHED; others are in pages."""

_OLDEST = 1.0


class LookupLogic:
    """One shard of a lookup join."""

    def __init__(
        self,
        config: LookupJoin,
        stream: RowType,
        store: PageStore,
        budget: Budget,
        state: State,
        meter: Meter | None,
        back: MakeBack,
    ) -> None:
        self._config = config
        self._bound: Time = TIME_MIN
        table = charged_to(config.table.open(config.version), budget)
        config.stages.check(table)
        answers = Answers(config, stream, budget)
        settings = config.stages.front
        self.front = None if settings is None else FrontStage(settings, answers, table.columns, budget)
        self.desk = Desk(table, answers, budget, self.front, meter)
        self.waiting = Waiting(stream.inside, budget)
        self.back = back(config.stages.back, self.desk, self.waiting, state.meta.get(name_of_back(config), {}))
        self.inbox = Backlog(stream.inside, INBOX, store, budget, _INBOX)
        self.shed = Backlog(stream.inside, SHED, store, budget, _SHED, SHED_SEGMENT)
        self.overload = Overload(config.shed, config.quota, self.back, self.inbox, self.shed)
        self.load = self.overload.load
        self._hits = 0
        parts = self.back, self.inbox, self.shed, self.overload
        self._saving = Saving(config, stream, store, self.desk, *parts)
        self._saving.restore(state)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Answer rows from the front stage, let the rest wait, and read the table while too many wait."""
        missing = null_keys(self.desk.answers.keys(rows)) if rows.num_rows else np.zeros(0, np.bool_)
        if missing.any():
            yield from self.desk.answers.alone(rows, np.flatnonzero(missing))
            rows = rows.filter(pa.array(~missing))
        if rows.num_rows:
            self.inbox.lend(self.overload.choose(rows))
        yield from self._serve()
        self.inbox.own()

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Answer rows that have waited too long, whatever the quota of reads; at the end of time, answer all."""
        self._bound = max(self._bound, bound)
        if bound == TIME_MAX:
            yield from self._answer_all()
            return
        age = self._config.max_age
        if age is not None and bound != TIME_MIN:
            oldest = bound - age.on(self._config.unit, "max_age")
            while self._earliest() < oldest:
                yield from self._hurry(oldest)
            self.inbox.own()

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Answer waiting rows without waiting for others, because nothing arrives."""
        if work.left():
            yield from self._serve()
        while len(self.waiting) and work.left() and self.load.may_read:
            yield from self._step(_OLDEST)

    def _answer_all(self) -> Iterator[Out]:
        """Answer all waiting rows, with as many reads of the table as that takes."""
        self.load.left = None
        yield from self._serve()
        while len(self.waiting):
            yield from self._step(_OLDEST)

    def grant(self, reads: int | None) -> None:
        """Begin another epoch, in which the table may be read this many times; None for no limit."""
        self.load.left = reads

    def tally(self) -> LookupCounts:
        """What it holds now, and what it has done since it was made."""
        desk, front = self.desk.stats, self.front
        return LookupCounts(
            waiting=len(self.waiting),
            queued=len(self.inbox),
            shed=len(self.shed),
            earliest=self._earliest(),
            put_aside=self.overload.put_aside,
            replayed=self.overload.replayed,
            hits=0 if front is None else front.stats.hits,
            misses=0 if front is None else front.stats.misses,
            finished=desk.finished,
            reads=desk.reads,
            bytes_read=desk.bytes_read,
            looked_up=desk.looked_up,
            shedding=int(self.load.shedding),
        )

    def waits(self) -> Waits:
        """How many rows wait, are queued or are put aside, and since when."""
        deferred = len(self.waiting) + len(self.inbox) + len(self.shed)
        return Waits(deferred, self._earliest(), self._bound, self._config.unit)

    def bounds(self) -> Bounds:
        """Bounds of the results: those of rows that arrive, and of rows that wait, are queued or are put aside."""
        least = min(self._bound, self._earliest())
        return Bounds.at(least)

    def counts(self) -> dict[str, int]:
        """What was done since this logic was made, and what there is now: for reports."""
        done = self.tally().to_json()
        del done["earliest"]
        if self.front is None:
            return {name: count for name, count in done.items() if name not in ("hits", "misses")}
        return {**done, "evictions": self.front.stats.evictions, "cached": self.front.rows}

    def state(self) -> State:
        """Waiting rows, the cache, and the counts of missed keys."""
        return self._saving.save()

    def _serve(self) -> Iterator[Out]:
        """Iterate, while the table may be read, until all rows that arrived or were put aside are answered or wait.

        If the number of reads is limited and rows are put aside, reads are not delayed for more rows to share them.
        """
        while (len(self.inbox) or len(self.shed) or self.back.at_once) and self.load.may_read:
            self.overload.balance()
            yield from self._let_in()
            hasty = self.load.left is not None and len(self.shed)
            if len(self.inbox) or self.back.at_once or hasty:
                yield from self._step(self.load.position)

    def _hurry(self, oldest: Time) -> Iterator[Out]:
        """Answer some of the rows from before `oldest`, whether they wait, are queued or are put aside."""
        if self.waiting.earliest() >= oldest:
            self.overload.replay_first(oldest)
            yield from self._let_in()
            if not len(self.inbox) and not self.back.at_once:
                return
        yield from self._step(_OLDEST)

    def _earliest(self) -> Time:
        return min(self.waiting.earliest(), self.inbox.earliest(), self.shed.earliest())

    def _let_in(self) -> Iterator[Out]:
        """Answer queued rows from the cache and let others wait, until no more may wait or none are queued."""
        while len(self.inbox) and (free := self.back.free(self.inbox.peek())) > 0:
            rows, attempts = self.inbox.take(free if self.front is None else max(_LEAST, self.front.asked_for(free)))
            rows, attempts = yield from self._misses(rows, attempts)
            self.inbox.lend_first(rows.slice(free), attempts[free:])
            rows = rows.slice(0, free)
            if rows.num_rows:
                if self.front is not None:
                    self.front.stats.misses += rows.num_rows
                self.desk.backlog = len(self.inbox)
                if isinstance(self.back, WholeTableJoin) and not len(self.waiting) and self.load.left is None:
                    yield from self.back.answer(rows)
                    continue
                self.back.put(rows, self.desk.answers.hashes(rows, self.desk.answers.keys(rows)), attempts[:free])

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
