"""A lookup join at work on one shard: rows pass the front stage, what it misses waits for the back end.

Each iteration lets as many rows in as may wait, and then reads the table once. Rows that wait when an epoch ends are
part of the state; they are answered as others come that share their read, when they are too old, when nothing else
arrives, or when the stream ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.errors import StateError
from penstock.core.master import layout_of
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Out, State
from penstock.core.pages import Page, PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import RowType
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.kernels.hashing import hash_keys
from penstock.operators.lookup.answers import Answers, null_keys
from penstock.operators.lookup.back import BackEnd, Desk
from penstock.operators.lookup.broadcast import Broadcast, WholeTableJoin
from penstock.operators.lookup.config import LookupJoin
from penstock.operators.lookup.front import CACHED, FrontStage
from penstock.operators.lookup.hybridjoin import HybridJoin, OldestFirstJoin
from penstock.operators.lookup.inlj import MISSED, IndexJoin, Inlj
from penstock.operators.lookup.meshjoin import CyclicJoin, MeshJoin
from penstock.operators.lookup.partition_based import PartitionBased, WaitingAreasJoin
from penstock.operators.lookup.partitioned import Partitioned, PartitionedJoin
from penstock.operators.lookup.ssij import PhasedJoin, Ssij
from penstock.operators.lookup.waiting import WAITING, Waiting

_LEAST = 64
"""The front stage is asked for at least so many rows at once: fewer cost as much."""


HELD = (WAITING,)
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
        table = config.table.open(config.version)
        config.stages.check(table)
        answers = Answers(config, stream, budget)
        settings = config.stages.front
        self.front = None if settings is None else FrontStage(settings, answers, table.columns, budget)
        self.desk = Desk(table, answers, budget, self.front, meter)
        self.waiting = Waiting(stream.inside, budget)
        self.back = self._back_end(state)
        self._inbox: deque[pa.RecordBatch] = deque()
        self._restore(state)

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Answer what the front stage can, let the rest wait, and read the table as long as too many do."""
        missing = null_keys(self.desk.answers.keys(rows)) if rows.num_rows else np.zeros(0, np.bool_)
        if missing.any():
            yield from self.desk.answers.alone(rows, np.flatnonzero(missing))
            rows = rows.filter(pa.array(~missing))
        if rows.num_rows:
            self._inbox.append(rows)
        yield from self._serve()

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Rows that have waited too long are answered; at the end of time all are."""
        self._bound = max(self._bound, bound)
        if bound == TIME_MAX:
            yield from self.end()
            return
        age = self._config.max_age
        if age is not None and bound != TIME_MIN:
            oldest = bound - age.on(self._config.unit, "max_age")
            while len(self.waiting) and self.waiting.earliest() < oldest:
                yield from self._step()

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Rows that wait need not wait for others while nothing arrives."""
        while len(self.waiting) and work.left():
            yield from self._step()

    def end(self) -> Iterator[Out]:
        """All that waits is answered."""
        yield from self._serve()
        while len(self.waiting):
            yield from self._step()

    def bounds(self) -> Bounds:
        """What can still come out: rows that arrive, and rows that wait."""
        least = min(self._bound, self.waiting.earliest())
        return Bounds((least, least), (least, least))

    def counts(self) -> dict[str, int]:
        """What was done since this logic was made, and what there is now: for reports."""
        stats = self.desk.stats
        done = {"reads": stats.reads, "looked_up": stats.looked_up, "bytes_read": stats.bytes_read}
        if self.front is not None:
            done |= {"hits": self.front.stats.hits, "misses": self.front.stats.misses}
            done |= {"evictions": self.front.stats.evictions, "cached": self.front.rows}
        return {**done, "waiting": len(self.waiting)}

    def state(self) -> State:
        """Rows that wait, what is cached, and what is known of keys that are not."""
        pages = self.waiting.save(self._store, self._kind)
        meta: dict[str, object] = {"version": self.desk.table.version}
        if self.front is not None:
            pages += self.front.save(self._store)
            meta["threshold"] = self.front.threshold.value
        if isinstance(self.back, IndexJoin):
            pages += self.back.missed.save(self._store)
        meta |= {self._kind: self.back.meta(), "layout": layout_of(self.desk.table)}
        return State(tuple(pages), meta)

    @property
    def _kind(self) -> str:
        """The back end's name, under which rows wait."""
        return type(self._config.stages.back).__name__.lower()

    def _serve(self) -> Iterator[Out]:
        """Iterate until all that arrived is answered or waits."""
        while self._inbox or self.back.at_once:
            yield from self._let_in()
            if self._inbox or self.back.at_once:
                yield from self._step()

    def _let_in(self) -> Iterator[Out]:
        """Answer what is cached and let others wait, until no more may or no more are there."""
        while self._inbox and (free := self.back.free(self._inbox[0])) > 0:
            rows = self._inbox.popleft()
            some = rows.slice(0, max(free, _LEAST if self.front is not None else 1))
            rest = rows.slice(some.num_rows)
            some, spare = yield from self._misses(some, free)
            for part in (rest, spare):
                if part.num_rows:
                    self._inbox.appendleft(part)
            if some.num_rows:
                if self.front is not None:
                    self.front.stats.misses += some.num_rows
                self.desk.backlog = sum(rows.num_rows for rows in self._inbox)
                self.back.put(some, hash_keys(self.desk.answers.keys(some)))

    def _misses(self, rows: pa.RecordBatch, free: int) -> Generator[Out, None, tuple[pa.RecordBatch, pa.RecordBatch]]:
        """The rows that the front stage has no answer for: those that may wait now, and the rest of them."""
        if self.front is not None:
            hit = yield from self.front.probe(rows)
            rows = rows.filter(pa.array(~hit)) if hit.any() else rows
        return rows.slice(0, free), rows.slice(free)

    def _step(self) -> Iterator[Out]:
        before = 0 if self.front is None else self.front.stats.evictions
        yield from self.back.step()
        if self.front is not None:
            self.front.iterated(self.front.stats.evictions - before)

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
        by_port = {port: [p for p in state.pages if p.port == port] for port in (WAITING, CACHED, MISSED)}
        ours = [page for page in by_port[WAITING] if page.run in (None, self._kind)]
        self.waiting.restore(self._store, ours)
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
            self.back.put(rows, numbers["hash"].view(np.uint64))

    def _renew(self, since: str | None) -> None:
        """The table is not what it was: forget what changed, and find again where rows must look."""
        changes = None if since is None else self.desk.table.changes(since).keys
        if self.front is not None:
            keys = (
                None if changes is None else [changes.column(name).combine_chunks() for name in self._config.table_keys]
            )
            self.front.invalidate(keys)
        self.back.renew()
