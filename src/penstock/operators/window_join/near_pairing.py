"""Lets two batches meet as a join asks: by equal keys, or by how far apart vectors are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.rows import Hashes, Indices, RowType, hashes_of, times_of
from penstock.kernels.grid import BITS
from penstock.kernels.near import near_pairs
from penstock.kernels.vectors import is_list, lengths_of, usable
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.near import NearVectors
from penstock.operators.window_join.pairing import PAIR, Pairing, bounded

_AT_ONCE = 1024
"""Vectors whose cells are found at a time."""


def pairing_of(config: WindowJoin, inputs: tuple[RowType, ...], budget: Budget) -> Pairing:
    """What lets batches of a join meet."""
    if config.matching is None:
        return Pairing(config, inputs, budget)
    return NearPairing(config, inputs, budget, config.matching)


class NearPairing(Pairing):
    """Lets batches meet whose rows are matched by the distance of their vectors."""

    def __init__(self, config: WindowJoin, inputs: tuple[RowType, ...], budget: Budget, near: NearVectors) -> None:
        super().__init__(config, inputs, budget)
        self._by = near

    def with_keys(self, port: int, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Indices]:
        """The rows that can match, known by the cells they are in, and the places of those whose vector is nowhere."""
        vectors = self._vectors(port, rows)
        good = usable(vectors, directed=self._by.directed)
        known = rows if good.all() else rows.filter(pa.array(good))
        if not known.num_rows:
            return known, np.flatnonzero(~good)
        hashes = pa.array(hashes_of(known) | self._codes(self._vectors(port, known)))
        return known.set_column(0, known.schema.field(0), hashes), np.flatnonzero(~good)

    def _codes(self, vectors: Sequence[pa.Array]) -> Hashes:
        """The cells of rows, by which those of a shard are sorted."""
        lengths = lengths_of(vectors)
        codes = np.zeros(lengths.size, np.uint64)
        for length in np.unique(lengths).tolist():
            grid, rows = self._by.grid(length), np.flatnonzero(lengths == length)
            points = self._by.points([column.take(pa.array(rows)) for column in vectors])
            for start in range(0, rows.size, _AT_ONCE):
                codes[rows[start : start + _AT_ONCE]] = grid.codes(points.take(slice(start, start + _AT_ONCE)))
        return codes

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Rows of a place may meet, whatever their cells."""
        return first >> BITS << BITS, (last >> BITS << BITS) | ((1 << BITS) - 1)

    def _vectors(self, port: int, rows: pa.RecordBatch) -> list[pa.Array]:
        return [self._inputs[port].column(rows, name) for name in self._by.columns(port)]

    def _pairs(self, port: int, mine: pa.RecordBatch, theirs: pa.RecordBatch) -> Iterator[tuple[Indices, Indices]]:
        if not mine.num_rows or not theirs.num_rows:
            return
        lengths, others = (lengths_of(self._vectors(of, rows)) for of, rows in ((port, mine), (1 - port, theirs)))
        if lengths.min() == lengths.max() == others.min() == others.max():
            yield from self._compared(port, mine, theirs)
            return
        for length in np.intersect1d(lengths, others).tolist():
            some, those = np.flatnonzero(lengths == length), np.flatnonzero(others == length)
            size = mine.nbytes * some.size // mine.num_rows + theirs.nbytes * those.size // theirs.num_rows
            with self._budget.hold(size, "vectors of one length"):
                parts = mine.take(pa.array(some)), theirs.take(pa.array(those))
                for i, j in self._compared(port, *parts):
                    yield some[i], those[j]

    def _compared(self, port: int, mine: pa.RecordBatch, theirs: pa.RecordBatch) -> Iterator[tuple[Indices, Indices]]:
        ours, others = self._vectors(port, mine), self._vectors(1 - port, theirs)
        first, last = self.reach.of(port, times_of(mine))
        times = times_of(theirs)
        copied = _copied(ours) + _copied(others) + 16 * (mine.num_rows + theirs.num_rows)
        with self._budget.hold(copied, "vectors to compare"):
            a, b = self._by.points(ours), self._by.points(others)
            row = mine.nbytes // mine.num_rows + theirs.nbytes // theirs.num_rows
            limit = self._chunk(2 * (row + PAIR))
            room = limit * (row + PAIR)
            with self._budget.hold(room, "a chunk of output"):
                work = self._budget.room // 2
                with self._budget.hold(work, "comparing vectors"):
                    grid = self._by.grid(a.dimensions)
                    for i, j in near_pairs((hashes_of(mine), a), (hashes_of(theirs), b), grid, self._by.radius, work):
                        inside = (first[i] <= times[j]) & (times[j] <= last[i])
                        i, j = (i, j) if inside.all() else (i[inside], j[inside])
                        for start in range(0, i.size, limit):
                            some, those = i[start : start + limit], j[start : start + limit]
                            for part in bounded(room, (mine, some), (theirs, those)):
                                yield some[part], those[part]


def _copied(columns: Sequence[pa.Array]) -> int:
    """Bytes that numbers take in float64 which are neither float32 nor float64 where they are."""
    kinds = [column.type.value_type if is_list(column.type) else column.type for column in columns]
    if all(kind in (pa.float32(), pa.float64()) for kind in kinds):
        return 0
    return 8 * int(lengths_of(columns).sum())
