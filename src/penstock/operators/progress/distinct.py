"""Distinct: keeps a row unless one with its key was kept shortly before it, whatever the order of arrival.

Going through the rows of a key by event time, a row is kept iff the last one kept is `within` or more before it. Of
rows with the same key and time at most one is kept: the one whose other columns have the smallest hash. Nulls are
equal. So the result depends on the rows alone, not on when they arrive.

Whether a row is kept is known once the bound has passed it: rows wait until then, unless a kept row rules them out on
arrival. Kept rows are remembered, by key and time only, until the bound is `within` past them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.durations import Duration, TimeUnit
from penstock.core.errors import ConfigError
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Operator, Out, State
from penstock.core.pages import PageStore, read_page, write_page
from penstock.core.progress import Bounds
from penstock.core.rows import Hashes, Indices, RowType, concat, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time, Times, clamp
from penstock.kernels.distinct import firsts, leaders, same_rows, spaced
from penstock.kernels.hashing import can_hash, hash_keys
from penstock.kernels.match import expand, ranges
from penstock.kernels.segments import segment_of, starts_of
from penstock.kernels.sort import page_order
from penstock.operators.pieces import pieces
from penstock.operators.progress.groups import group_type
from penstock.operators.progress.held import ALL_HASHES, HashRange, Held, halves

WAITING, KEPT = 0, 1
"""The ports of its pages: rows that wait for the bound; keys and times of rows that were kept."""

_DECIDING = 256
"""Bytes that sorting, grouping and comparing one row takes besides its own."""

_AT_ONCE = 1 << 16
"""How many rows and kept keys are compared at a time, at most."""

Region = tuple[HashRange, tuple[Time, Time]]
"""A range of hashes and a span of time, all ends included."""


@dataclass(frozen=True, slots=True)
class Distinct(Operator):
    """Keep rows of equal keys only if they are `within` or more apart; by default, drop only those of the same time.

    >>> Distinct(within=Duration.of("10 min"), unit="microseconds").steps
    600000000
    """

    on: tuple[str, ...] = ()
    """The keys of its input."""
    within: Duration | None = None
    unit: TimeUnit = "ticks"

    def __post_init__(self) -> None:
        if self.steps <= 0:
            raise ConfigError(
                f"within={self.within} is not positive, so nothing would be a duplicate. Write how long a key "
                f"counts as seen, as in within='10 min', or leave it out to compare rows of the same time only."
            )

    def says(self, inputs: tuple[RowType, ...] = ()) -> str:
        """What it does, in words."""
        apart = "at the same time" if self.within is None else f"within {self.within}"
        return f"distinct: one row per {', '.join(self.on) or 'moment'} {apart}, once the bound has passed it"

    @property
    def steps(self) -> int:
        """How far apart in time kept rows of a key are at least."""
        return 1 if self.within is None else self.within.on(self.unit, "within")

    @property
    def compacts(self) -> bool:
        """Its pages may be merged between epochs."""
        return True

    def bounds(self, *ports: Time) -> Bounds:
        """The input's bound: all rows below it have left."""
        return Bounds.at(ports[0])

    def logic(
        self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State, meter: Meter | None = None
    ) -> Deciding:
        """The running operator."""
        return Deciding(self.steps, inputs[0], store, budget, state)


class Deciding:
    """The logic of Distinct."""

    def __init__(self, steps: int, rows: RowType, store: PageStore, budget: Budget, state: State) -> None:
        self._steps = steps
        self._type = rows
        self._keys = group_type(rows)
        self._store = store
        self._budget = budget
        self._waiting = Held(rows.inside, store, budget, (page for page in state.pages if page.kind == WAITING))
        self._kept = [page for page in state.pages if page.kind == KEPT]
        self._bound: Time = TIME_MIN
        held = set(rows.columns.names) - set(rows.keys)
        others = (field for field in rows.inside if field.name in held)
        self._tie = [field.name for field in others if can_hash(field.type)]

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Let rows wait, except those that can be ruled out now."""
        for piece in pieces(rows, self._budget, _DECIDING):
            with self._budget.hold(piece.nbytes + _DECIDING * piece.num_rows, "looking for rows of equal keys"):
                possible = self._not_ruled_out(self._one_of_each(piece))
                self._waiting.put(possible, WAITING)
        return iter(())

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Decide about the rows below `bound`, and emit those that are kept."""
        if bound <= self._bound:
            return
        regions: list[Region] = [(ALL_HASHES, span) for span in self._waiting.due(bound)]
        while regions:
            hashes, span = regions.pop()
            cost = self._waiting.cost(*span, hashes)
            # Gathering and deciding together take at most four times what gathering takes.
            if 4 * cost <= self._budget.room:
                with self._budget.hold(cost, "deciding which rows are kept"):
                    yield from self._decide(self._waiting.gather(*span, hashes))
            elif hashes[0] == hashes[1] and span[0] == span[1]:
                yield from self._decide(self._fold(hashes, span))
            else:
                regions += _parts(hashes, span)
        self._waiting.forget(bound)
        self._bound = bound
        self._forget()

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing is deferred."""
        return iter(())

    def bounds(self) -> Bounds:
        """The input's bound."""
        return Bounds.at(self._bound)

    def state(self) -> State:
        """Rows that wait, and keys of rows that were kept."""
        return State((*self._waiting.pages, *self._kept))

    def _decide(self, rows: pa.RecordBatch) -> Iterator[Out]:
        """Emit those of `rows` that are kept; all earlier rows must be decided."""
        if not rows.num_rows:
            return
        with self._budget.hold(_DECIDING * rows.num_rows, "deciding which rows are kept"):
            rows = self._by_key(rows)
            groups = leaders(_labels(hashes_of(rows)), self._key_columns(rows))
            # Rows of keys that share a hash are interleaved: group them by key.
            order = np.argsort(groups, kind="stable")
            groups = groups[order]
            heads = order[starts_of(groups)]
            since = self._since(rows.take(pa.array(heads)))[segment_of(starts_of(groups), groups.size)]
            kept = spaced(groups.view(np.uint64), times_of(rows)[order], self._steps, since)
            passed = rows.take(pa.array(np.sort(order[kept])))
            if passed.num_rows:
                self._kept.append(write_page(self._store, KEPT, self._keys_of(passed)))
                yield Out("results", self._type.leave(passed))

    def _fold(self, hashes: HashRange, span: tuple[Time, Time]) -> pa.RecordBatch:
        """One row of each key, for a hash and time with too many rows to decide at once."""
        best = concat([], self._type.inside)
        for part in self._waiting.page_by_page(*span, hashes):
            for piece in pieces(part, self._budget, _DECIDING):
                with self._budget.hold(piece.nbytes + _DECIDING * piece.num_rows, "looking for rows of equal keys"):
                    best = self._one_of_each(concat([best, piece], self._type.inside))
        return best

    def _one_of_each(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """One row of each key and time, sorted like pages."""
        ordered = self._by_key(rows)
        labels = _labels(hashes_of(ordered), times_of(ordered))
        first = firsts(labels, self._key_columns(ordered))
        return ordered if first.all() else ordered.filter(pa.array(first))

    def _not_ruled_out(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows without a kept row of their key less than `within` before them."""
        ruled_out = np.zeros(rows.num_rows, np.bool_)
        for i, _ in self._kept_before(rows):
            ruled_out[i] = True
        return rows.filter(pa.array(~ruled_out)) if ruled_out.any() else rows

    def _since(self, rows: pa.RecordBatch) -> Times:
        """The time from which each row's key may be kept again, according to the rows kept so far."""
        since = np.full(rows.num_rows, TIME_MIN)
        for i, times in self._kept_before(rows):
            np.maximum.at(since, i, np.where(times > TIME_MAX - self._steps, TIME_MAX, times + self._steps))
        return since

    def _kept_before(self, rows: pa.RecordBatch) -> Iterator[tuple[Indices, Times]]:
        """Indices of rows with a kept row of their key less than `within` before them, and the kept row's time."""
        times, hashes = times_of(rows), hashes_of(rows)
        low = np.where(times < TIME_MIN + self._steps, TIME_MIN, times - self._steps + 1)
        for page in self._kept:
            begin = int(hashes.searchsorted(np.uint64(page.min_hash)))
            alike = slice(begin, int(hashes.searchsorted(np.uint64(page.max_hash), "right")))
            near = begin + np.flatnonzero((low[alike] <= page.max_time) & (times[alike] >= page.min_time))
            if not near.size:
                continue
            held = read_page(self._store, page)
            needles = hashes[near], low[near], times[near]
            for some, j in expand(*ranges(hashes_of(held), times_of(held), *needles), self._chunk()):
                i = near[some]
                equal = same_rows(self._key_columns(rows), i, self._key_columns(held), j)
                yield i[equal], times_of(held)[j[equal]]

    def _forget(self) -> None:
        """Forget kept rows that are too old to rule out a row that can still arrive."""
        floor = clamp(self._bound - self._steps + 1)
        remembered = []
        for page in self._kept:
            if page.max_time < floor or self._bound == TIME_MAX:
                self._store.drop(page.name)
            else:
                remembered.append(replace(page, floor=floor) if page.min_time < floor else page)
        self._kept = remembered

    def _by_key(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows sorted by hash, time, and the hash of their other columns: the order of arrival has no effect."""
        tie: Hashes = (
            hash_keys([rows.column(name) for name in self._tie]) if self._tie else np.zeros(rows.num_rows, np.uint64)
        )
        return rows.take(pa.array(np.lexsort((tie, times_of(rows), hashes_of(rows)))))

    def _chunk(self) -> int:
        return max(1, min(_AT_ONCE, self._budget.room // _DECIDING))

    def _key_columns(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return [rows.column(key) for key in self._type.keys]

    def _keys_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = [rows.column(0), rows.column(1), *self._key_columns(rows)]
        keys = pa.RecordBatch.from_arrays(columns, schema=self._keys.inside)
        order = page_order(hashes_of(keys), times_of(keys))
        return keys.take(pa.array(order))


def _labels(*columns: npt.NDArray[np.generic]) -> Indices:
    """Labels that adjacent rows share if their values are equal."""
    return segment_of(starts_of(*columns), columns[0].size)


def _parts(hashes: HashRange, span: tuple[Time, Time]) -> list[Region]:
    """Split a region in two, by hash if it has several, else by time; the earlier half is last, on top of a stack.

    >>> _parts((0, 9), (5, 6))
    [((5, 9), (5, 6)), ((0, 4), (5, 6))]
    >>> _parts((7, 7), (5, 6))
    [((7, 7), (6, 6)), ((7, 7), (5, 5))]
    """
    if hashes[0] < hashes[1]:
        return [(half, span) for half in halves(*hashes)]
    return [(hashes, half) for half in halves(*span)]
