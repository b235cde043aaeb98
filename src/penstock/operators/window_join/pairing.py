"""Pairs of rows of two batches: found, verified, marked as met, and combined into results.

All window joins use this, whenever they join two batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.operator import Out
from penstock.core.rows import Indices, RowType, hashes_of, times_of
from penstock.core.time import Time, Times, as_times
from penstock.core.within import LEFT, Always
from penstock.kernels.equal import null_keys, same
from penstock.kernels.match import expand, ranges, same_hash, take
from penstock.kernels.width import cut, row_widths
from penstock.operators.window_join.config import KEEPS_LEFT, KEEPS_RIGHT, LEFT_ONLY, WindowJoin

Mask = npt.NDArray[np.bool_]
Admit = Callable[[Indices, Indices], Mask | None]
"""Which of the pairs (my row, their row) may come out; None if all may."""

PAIR = 48
"""Bytes that one row of output takes besides its columns: indices and the comparison of its keys."""

_LARGEST_CHUNK = 1 << 17
"""Rows in one chunk of output at most, however much room there is: larger ones gain nothing."""

_MANY = 4
"""Whoever has so many times fewer rows is looked up in the other."""


class Pairing:
    """Joins batches of the two ports of one join; output comes in chunks that fit the budget."""

    def __init__(self, config: WindowJoin, inputs: tuple[RowType, ...], budget: Budget) -> None:
        self.reach = config.within.reach(config.unit)
        self.keeps = (config.how in KEEPS_LEFT, config.how in KEEPS_RIGHT)
        """Whether a port's rows may come out alone, so that it must be known which have met a partner."""
        self.crosses = False
        """Whether rows with different hashes may meet."""
        self._how = config.how
        self._always = isinstance(config.within, Always)
        self._inputs = inputs
        self._columns = config.columns(inputs)
        self._output = config.output(inputs)
        self._budget = budget
        self._near_columns = [(left, right, band.reach(config.unit)) for left, right, band in config.near]

    def meet(
        self,
        port: int,
        mine: pa.RecordBatch,
        my_met: Mask | None,
        theirs: pa.RecordBatch,
        their_met: Mask | None,
        admit: Admit | None = None,
    ) -> Iterator[Out]:
        """Let `mine`, of `port`, meet `theirs`, both sorted as pages are; rows that meet are marked where asked."""
        for i, j in self._pairs(port, mine, theirs):
            if admit is not None and (admitted := admit(i, j)) is not None:
                i, j = i[admitted], j[admitted]
            if not i.size:
                continue
            newly = {port: _mark(my_met, i), 1 - port: _mark(their_met, j)}
            if self._how not in LEFT_ONLY:
                yield self._results({port: (mine, i), 1 - port: (theirs, j)})
            elif self._how == "semi":
                yield from self.alone(LEFT, mine if port == LEFT else theirs, newly[LEFT])

    def alone(self, port: int, rows: pa.RecordBatch, which: Indices) -> Iterator[Out]:
        """Rows of one port with nothing on the other."""
        if not which.size:
            return
        row = rows.nbytes // rows.num_rows
        limit = self._chunk(row + PAIR)
        room = limit * (row + PAIR)
        with self._budget.hold(room, "a chunk of output"):
            for start in range(0, which.size, limit):
                some = which[start : start + limit]
                for part in bounded(room, (rows, some)):
                    yield self._results({port: (rows, some[part])})

    def unmatched(self, port: int, rows: pa.RecordBatch, which: Indices) -> Iterator[Out]:
        """Rows that nothing has met or will: they come out unless the join is one that drops them."""
        if self.keeps[port] and self._how != "semi":
            yield from self.alone(port, rows, which)

    def with_keys(self, port: int, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Indices]:
        """The rows that can match, and the places of the others: a null key never does."""
        null = null_keys([self._inputs[port].column(rows, key) for key in self._inputs[port].keys])
        return rows.filter(pa.array(~null)) if null.any() else rows, np.flatnonzero(null)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """The first and the last hash of rows that may meet those from one hash to another."""
        return first, last

    def _pairs(self, port: int, mine: pa.RecordBatch, theirs: pa.RecordBatch) -> Iterator[tuple[Indices, Indices]]:
        """Index arrays of the pairs that match, from looking the fewer rows up in the others."""
        if not mine.num_rows or not theirs.num_rows:
            return
        if mine.num_rows > _MANY * theirs.num_rows:
            for j, i in self._found(1 - port, theirs, mine):
                yield i, j
        else:
            yield from self._found(port, mine, theirs)

    def _found(self, port: int, needles: pa.RecordBatch, held: pa.RecordBatch) -> Iterator[tuple[Indices, Indices]]:
        begin, end = self._ranges(port, needles, held)
        row = needles.nbytes // needles.num_rows + held.nbytes // held.num_rows
        limit = self._chunk(row + PAIR)
        room = limit * (row + PAIR)
        with self._budget.hold(room, "a chunk of output"):
            for some, others in expand(begin, end, limit):
                for part in bounded(room, (needles, some), (held, others)):
                    i, j = some[part], others[part]
                    equal = self._same_keys(port, needles, i, held, j)
                    yield (i, j) if equal.all() else (i[equal], j[equal])

    def _ranges(self, port: int, needles: pa.RecordBatch, held: pa.RecordBatch) -> tuple[Indices, Indices]:
        """Where the rows begin and end that each needle can meet, by hash and time."""
        if self._always:
            return same_hash(hashes_of(held), hashes_of(needles))
        return ranges(hashes_of(held), times_of(held), hashes_of(needles), *self._near(port, needles))

    def _near(self, port: int, needles: pa.RecordBatch) -> tuple[Times, Times]:
        """The first and the last time on the other port that each needle can meet."""
        return self.reach.of(port, times_of(needles))

    def _same_keys(self, port: int, mine: pa.RecordBatch, i: Indices, theirs: pa.RecordBatch, j: Indices) -> Mask:
        equal = np.ones(i.size, np.bool_)
        for ours, others in zip(self._inputs[port].keys, self._inputs[1 - port].keys, strict=True):
            left = take(self._inputs[port].column(mine, ours), i)
            right = take(self._inputs[1 - port].column(theirs, others), j)
            equal &= same(left, right)
        for *columns, reach in self._near_columns:
            ours, others = (columns[port], columns[1 - port])
            first, last = reach.of(port, self._times(port, mine, ours)[i])
            times = self._times(1 - port, theirs, others)[j]
            equal &= (first <= times) & (times <= last)
        return equal

    def _times(self, port: int, rows: pa.RecordBatch, column: str) -> Times:
        """The times that a column shows."""
        if column == self._inputs[port].time:
            return times_of(rows)
        return as_times(rows.column(column)).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    def _results(self, sides: dict[int, tuple[pa.RecordBatch, Indices]]) -> Out:
        count = next(iter(sides.values()))[1].size
        arrays = []
        for column, field in zip(self._columns, self._output, strict=True):
            port, name = column.port, column.column
            if port not in sides and column.twin is not None:
                port, name = 1 - port, column.twin
            if port in sides:
                rows, which = sides[port]
                arrays.append(take(self._inputs[port].column(rows, name), which))
            else:
                arrays.append(pa.nulls(count, field.type))
        return Out("results", pa.RecordBatch.from_arrays(arrays, schema=self._output))

    def _chunk(self, row: int) -> int:
        """How many rows of output fit a third of the room."""
        return max(1, min(_LARGEST_CHUNK, int(self._budget.room / 3 / row)))


class OneWay(Pairing):
    """Always probes theirs with mine, so that pairs are in the order of mine."""

    def _pairs(self, port: int, mine: pa.RecordBatch, theirs: pa.RecordBatch) -> Iterator[tuple[Indices, Indices]]:
        if mine.num_rows and theirs.num_rows:
            yield from self._found(port, mine, theirs)


def not_below(floor: Time, held: pa.RecordBatch) -> Admit:
    """Only pairs with rows of a page that have not left."""
    times = times_of(held)
    return lambda _, j: times[j] >= floor


def dying(times: Times, since: Times | int, until: int, last: int) -> Mask:
    """Which rows leave as their window's edge moves from `since` to `until`; at `last`, the end of time, all do."""
    return (times >= since) & ((times < until) | (until == last))


def _mark(met: Mask | None, which: Indices) -> Indices:
    """Mark rows as met; those that were not before."""
    if met is None:
        return which[:0]
    newly: Indices = np.unique(which[~met[which]])
    met[newly] = True
    return newly


def bounded(room: int, *sides: tuple[pa.RecordBatch, Indices]) -> Iterator[slice]:
    """Parts of a chunk that fit `room`: the whole, but where some rows are much wider than the average."""
    if not any(_varies(rows) for rows, _ in sides):
        yield slice(None)
        return
    yield from cut(sum(row_widths(rows, which) for rows, which in sides) + PAIR, room)  # type: ignore[arg-type]


def _varies(rows: pa.RecordBatch) -> bool:
    return any(not pa.types.is_primitive(kind) for kind in rows.schema.types)
