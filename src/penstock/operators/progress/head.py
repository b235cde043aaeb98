"""Head: the first rows of a stream, and no more.

The first `rows` are emitted, or all if there are fewer, each in the epoch in which it arrived. If an epoch has more
than are wanted, the earliest by event time are taken, on ties those with the lowest hash over all columns: an epoch
that is run again emits the same rows, whatever the order of arrival. One shard does all the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.checks import is_whole
from penstock.core.errors import ConfigError
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Operator, Origin, Out, State
from penstock.core.pages import PageStore, read_page, write_page
from penstock.core.progress import Bounds
from penstock.core.rows import HASH, TIME, RowType, concat, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.kernels.hashing import can_hash, hash_keys
from penstock.kernels.sort import order_by
from penstock.kernels.width import even_pieces
from penstock.operators.progress.held import ALL_HASHES, Held

_COUNTER = 1
"""The kind of the page that counts emitted rows: as a page, it moves to the right shard if shards change."""

_PART = 4
"""Candidates take up to 1/_PART of a task's budget; others wait in pages."""

_RANKING = 64
"""Bytes that ranking one row takes besides its own."""


@dataclass(frozen=True, slots=True)
class Head(Operator):
    """Let the first rows of a stream pass.

    >>> Head(100).says()
    'the first 100 rows, then the stream ends'
    """

    rows: int

    def __post_init__(self) -> None:
        if not is_whole(self.rows) or self.rows < 1:
            raise ConfigError(f"head({self.rows!r}) is not a number of rows. Write how many to take, as in head(100).")

    def says(self, inputs: tuple[RowType, ...] = ()) -> str:
        """What it does, in words."""
        return f"the first {self.rows:,} rows, then the stream ends"

    def bounds(self, *ports: Time) -> Bounds:
        """The bound of the rows: none is held back beyond its epoch."""
        return Bounds.at(ports[0])

    def has_enough(self, states: Sequence[State]) -> bool:
        """Whether all wanted rows were emitted."""
        return sum(int(state.meta.get("given", 0)) for state in states) >= self.rows

    @property
    def waits_for_bounds(self) -> bool:
        """False: rows wait for nothing."""
        return False

    def carries(self, inputs: tuple[RowType, ...]) -> dict[str, Origin]:
        """All columns but the time: payload is fetched only for the rows that are taken."""
        (rows,) = inputs
        return {name: Origin(0, name) for name in rows.columns.names if name != rows.time}

    def tells(self, epochs: Sequence[Mapping[str, int]], waits: str) -> list[str]:
        """How many rows have come out."""
        given = [epoch["given"] for epoch in epochs if "given" in epoch]
        return [f"{given[-1]:,} of {self.rows:,} rows are out"] if given else []

    def logic(
        self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State, meter: Meter | None = None
    ) -> Taking:
        """The running operator."""
        return Taking(self, inputs[0], store, budget, state)


class Taking:
    """Gathers an epoch's rows, no more than are wanted, and emits them at its end."""

    def __init__(self, config: Head, rows: RowType, store: PageStore, budget: Budget, state: State) -> None:
        self._config = config
        self._type = rows
        self._store = store
        self._budget = budget
        counters = [page for page in state.pages if page.kind == _COUNTER]
        self._given = sum(int(read_page(store, page).column("given")[0].as_py()) for page in counters)
        self._hash = counters[0].min_hash if counters else None
        self._looked_at = [f.name for f in rows.inside if f.name not in (HASH, TIME) and can_hash(f.type)]
        self._first: list[pa.RecordBatch] = []
        """Candidates, each with the hash of all its columns instead of that of its key."""
        self._more = Held(rows.inside, store, budget)
        """Candidates that do not fit in memory."""
        self._bound = TIME_MIN

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Let rows wait for the end of the epoch, unless there are enough earlier ones."""
        if rows.num_rows and self._left:
            self._hash = int(hashes_of(rows)[0])
            reserved = self._budget.limit // _PART - self._charged
            for piece in even_pieces(rows, (self._budget.room - reserved) // 2, _RANKING, copies=2):
                self._gather(piece)
        return iter(())

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Record the bound; it does not affect which rows are emitted."""
        self._bound = max(self._bound, bound)
        return iter(())

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Emit the earliest of the epoch's rows."""
        if self._more.pages or not self._can_rank:
            self._put_away()
            yield from self._from_pages()
        elif self._first:
            with self._budget.hold(self._to_rank, "ranking rows"):
                rows = self._ranked(self._released())
            yield self._leave(rows)

    def bounds(self) -> Bounds:
        """As the config says."""
        return self._config.bounds(self._bound)

    def state(self) -> State:
        """How many rows have come out."""
        meta = {"given": self._given}
        if self._hash is None:
            return State((), meta)
        counted = {
            HASH: pa.array([self._hash], pa.uint64()),
            TIME: pa.array([TIME_MAX], pa.int64()),
            "given": [self._given],
        }
        return State((write_page(self._store, _COUNTER, pa.record_batch(counted)),), meta)

    def counts(self) -> dict[str, int]:
        """Rows that have come out since the flow began."""
        return {"given": self._given}

    @property
    def _left(self) -> int:
        """How many rows are still wanted."""
        return self._config.rows - self._given

    @property
    def _charged(self) -> int:
        return sum(batch.nbytes for batch in self._first)

    @property
    def _candidates(self) -> int:
        return sum(batch.num_rows for batch in self._first)

    @property
    def _to_rank(self) -> int:
        """Bytes that ranking the candidates in memory takes besides their own."""
        return self._charged + _RANKING * self._candidates

    @property
    def _can_rank(self) -> bool:
        return self._to_rank <= self._budget.room

    def _gather(self, rows: pa.RecordBatch) -> None:
        """Add the earliest of these rows to the candidates, in memory or else in pages."""
        with self._budget.hold(2 * rows.nbytes + _RANKING * rows.num_rows, "ranking rows"):
            looked_at = [rows.column(name) for name in self._looked_at]
            hashes = hash_keys(looked_at) if looked_at else np.zeros(rows.num_rows, np.uint64)
            best = self._ranked([rows.set_column(0, rows.schema.field(0), pa.array(hashes))])
        if self._charged + best.nbytes > self._budget.limit // _PART:
            self._put_away()
            self._more.put(best)
            return
        self._budget.charge(best.nbytes, "the first rows of an epoch")
        self._first.append(best)
        if not self._can_rank:
            self._put_away()
        elif self._candidates > 2 * self._left:
            with self._budget.hold(self._to_rank, "ranking rows"):
                best = self._ranked(self._released())
            self._budget.charge(best.nbytes, "the first rows of an epoch")
            self._first.append(best)

    def _ranked(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        """The earliest of these rows, as many as are wanted, in order."""
        rows = concat(batches, self._type.inside)
        return rows.take(pa.array(order_by([times_of(rows), hashes_of(rows)])[: self._left]))

    def _released(self) -> list[pa.RecordBatch]:
        """Remove the candidates from memory, release their charge, and return them."""
        self._budget.release(self._charged)
        first, self._first = self._first, []
        return first

    def _put_away(self) -> None:
        for batch in self._released():
            self._more.put(batch)

    def _from_pages(self) -> Iterator[Out]:
        """Emit the earliest rows in pages: all before a certain time, and of that time those up to a certain hash."""
        lowest, highest = ALL_HASHES
        wanted = min(self._left, self._count(TIME_MIN, TIME_MAX, highest))
        ((start, end),) = self._more.due(TIME_MAX)
        last = _lowest(start, end, lambda time: self._count(start, time, highest) >= wanted)
        rest = wanted - (self._count(start, last - 1, highest) if last > start else 0)
        up_to = _lowest(lowest, highest, lambda top: self._count(last, last, top) >= rest)
        if last > start:
            for rows in self._more.take(last):
                yield self._leave(rows)
        spans = [(lowest, up_to - 1), (up_to, up_to)] if up_to else [(up_to, up_to)]
        for span in spans:
            for rows in self._more.page_by_page(last, last, span):
                some = rows.slice(0, rest)
                rest -= some.num_rows
                if some.num_rows:
                    yield self._leave(some)
        self._more.forget(TIME_MAX)

    def _count(self, first: Time, last: Time, top: int) -> int:
        """How many rows in pages have times from `first` to `last` and hashes up to `top`."""
        return self._more.count(first, last, (ALL_HASHES[0], top))

    def _leave(self, rows: pa.RecordBatch) -> Out:
        self._given += rows.num_rows
        return Out("results", self._type.leave(rows))


def _lowest(low: int, high: int, enough: Callable[[int], bool]) -> int:
    """The lowest number from `low` to `high` that is enough; all above it must be, too.

    >>> _lowest(0, 100, lambda n: n * n >= 50)
    8
    """
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low
