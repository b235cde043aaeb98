"""From arrivals to results: store by store, what matches grows by a row, in chunks that fit the budget.

Partial results are rows of the arrivals and numbers of rows in the stores visited so far, never copies of rows. A chunk
of them goes through all the remaining stores before the next is made (depth first), so that a hot key with a cross
product larger than memory takes no more than a chunk for each store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.operator import Out
from penstock.core.rows import Hashes, Indices, RowType, hashes_of, times_of
from penstock.core.time import Times
from penstock.kernels.equal import same
from penstock.kernels.match import expand, take
from penstock.kernels.width import cut, row_widths
from penstock.operators.multi_way.config import MultiJoin
from penstock.operators.multi_way.stores import Found, Stores

Mask = npt.NDArray[np.bool_]

_LARGEST_CHUNK = 1 << 15
"""Partials in one chunk at most, however much room there is: larger ones gain nothing."""

_SEARCH = 160
"""Bytes that looking one partial up takes: its hash, its window in time, ranges and their scratch."""

_MEMBER = 16
"""Bytes that a partial takes for each of its rows: number and time."""

_COPIES = 4
"""A chunk is there as it is found, put together from several pages, and on its way into the next."""

_PUT_TOGETHER = 3
"""Rows of results that come from several pages are taken, put together and put in order."""

_MOST_KEYS, _MOST_RESULTS = 1 << 21, 1 << 23
"""Bytes of keys that are compared at a time, and of results that come out at a time, at most."""

_RESULT = 24
"""Bytes that one row of output takes besides its columns."""


class Partials(NamedTuple):
    """Partial results: a row of the arrivals each, and for every port visited the number and the time of its row."""

    origin: Indices
    numbers: Mapping[int, Indices]
    times: Mapping[int, Times]

    def taken(self, which: Indices) -> Partials:
        """Some of them."""
        return Partials(
            self.origin[which],
            {port: numbers[which] for port, numbers in self.numbers.items()},
            {port: times[which] for port, times in self.times.items()},
        )


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rows that arrived on a port, sorted as pages are."""

    port: int
    rows: pa.RecordBatch
    hashes: Hashes
    times: Times

    @classmethod
    def of(cls, port: int, rows: pa.RecordBatch) -> Arrivals:
        """Some sorted rows."""
        return cls(port, rows, hashes_of(rows), times_of(rows))

    @property
    def every(self) -> Indices:
        """All of them."""
        return np.arange(self.rows.num_rows)

    def taken(self, which: Indices) -> Arrivals:
        """Some of them, in ascending order."""
        return self if which.size == self.rows.num_rows else Arrivals.of(self.port, self.rows.take(pa.array(which)))


class Expansion:
    """Lets arrivals of one port meet the stores of the others."""

    def __init__(self, config: MultiJoin, inputs: tuple[RowType, ...], budget: Budget) -> None:
        self._nearness = config.nearness
        self._inputs = inputs
        self._output = config.output(inputs)
        self._origins = config.origins(inputs)
        self._budget = budget
        self._stages = config.ports - 1
        self._partial = _COPIES * (_MEMBER * config.ports + 8) + _SEARCH
        self._limit = 1
        self._key_room = self._out_room = 0
        self.probes = 0
        """How often an arrival, or a partial result, was looked up in a store."""

    def results(self, arrivals: Arrivals, which: Indices, stores: Stores, order: Sequence[int]) -> Iterator[Out]:
        """All results of some arrivals with rows of the stores, which are probed in this order of ports."""
        if which.size:
            with self._room():
                yield from self._on(arrivals, stores, order, Partials(which, {}, {}))

    def count(self, arrivals: Arrivals, which: Indices, stores: Stores, port: int) -> Indices:
        """How many rows of a port's store some arrivals match, if no two keys have one hash."""
        first, last = self._nearness.of(arrivals.port, arrivals.times[which], port)
        return stores.count(port, arrivals.hashes[which], first, last)

    @contextmanager
    def _room(self) -> Iterator[None]:
        """Divide the room there is: partials, keys to compare, results."""
        room = self._budget.room
        self._limit = max(1, min(_LARGEST_CHUNK, room // 4 // (self._stages * self._partial)))
        self._key_room = max(1, min(_MOST_KEYS, room // 8))
        self._out_room = max(1, min(_MOST_RESULTS, room // 4 // _PUT_TOGETHER))
        held = self._limit * self._stages * self._partial + self._key_room + self._out_room * _PUT_TOGETHER
        with self._budget.hold(held, "partial results"):
            yield

    def _on(self, arrivals: Arrivals, stores: Stores, order: Sequence[int], partials: Partials) -> Iterator[Out]:
        """Probe the first store of `order`; chunks of what matches go on to the others."""
        if not order:
            yield from self._put_together(arrivals, stores, partials)
            return
        self.probes += partials.origin.size
        chunk: list[Partials] = []
        count = 0
        for more in self._matches(arrivals, stores, order[0], partials):
            if count + more.origin.size > self._limit:
                yield from self._on(arrivals, stores, order[1:], _merged(chunk))
                chunk, count = [], 0
            chunk.append(more)
            count += more.origin.size
        if chunk:
            yield from self._on(arrivals, stores, order[1:], _merged(chunk))

    def _matches(self, arrivals: Arrivals, stores: Stores, port: int, partials: Partials) -> Iterator[Partials]:
        """What becomes of partials in a store, `limit` at most at a time."""
        first, last = self._nearness.of(arrivals.port, arrivals.times[partials.origin], port)
        for visited, times in partials.times.items():
            since, until = self._nearness.of(visited, times, port)
            first, last = np.maximum(first, since), np.minimum(last, until)
        for found in stores.search(port, arrivals.hashes[partials.origin], first, last):
            times_there = times_of(found.rows)
            for some, others in expand(found.begin, found.end, self._limit):
                which = found.needles[some]
                equal = self._same_keys(arrivals, partials.origin[which], found, port, others)
                if not equal.all():
                    which, others = which[equal], others[equal]
                if which.size:
                    mine = partials.taken(which)
                    numbers = {**mine.numbers, port: found.first + others}
                    yield Partials(mine.origin, numbers, {**mine.times, port: times_there[others]})

    def _same_keys(self, arrivals: Arrivals, origin: Indices, found: Found, port: int, others: Indices) -> Mask:
        """Whether the keys are equal, and not only their hashes. What equals the arrival's equals all in between."""
        ours, theirs = self._keys(arrivals.port, arrivals.rows), self._keys(port, found.rows)
        equal = np.ones(origin.size, np.bool_)
        for part in cut(row_widths(ours, origin) + row_widths(theirs, others), self._key_room):
            for left, right in zip(ours.columns, theirs.columns, strict=True):
                equal[part] &= same(take(left, origin[part]), take(right, others[part]))
        return equal

    def _keys(self, port: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        keys = [self._inputs[port].column(rows, key) for key in self._inputs[port].keys]
        return pa.RecordBatch.from_arrays(keys, names=list(map(str, range(len(keys)))))

    def _put_together(self, arrivals: Arrivals, stores: Stores, partials: Partials) -> Iterator[Out]:
        """The rows of results, in chunks that fit."""
        widths = row_widths(arrivals.rows, partials.origin) + _RESULT
        for port, numbers in partials.numbers.items():
            widths += stores.widths(port, numbers)
        for part in cut(widths, self._out_room):
            rows = {port: stores.take(port, numbers[part]) for port, numbers in partials.numbers.items()}
            rows[arrivals.port] = arrivals.rows.take(pa.array(partials.origin[part]))
            columns = [self._inputs[port].column(rows[port], column) for port, column in self._origins.values()]
            yield Out("results", pa.RecordBatch.from_arrays(columns, schema=self._output))


def _merged(chunk: Sequence[Partials]) -> Partials:
    if len(chunk) == 1:
        return chunk[0]
    return Partials(
        np.concatenate([each.origin for each in chunk]),
        {port: np.concatenate([each.numbers[port] for each in chunk]) for port in chunk[0].numbers},
        {port: np.concatenate([each.times[port] for each in chunk]) for port in chunk[0].times},
    )
