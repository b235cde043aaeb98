"""Pairs the rows of two batches by equal keys, or by a predicate."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.routes import SITE_BITS, Cells
from penstock.core.rows import Hashes, Indices, RowType, hashes_of, times_of
from penstock.core.within import LEFT
from penstock.kernels.match import gathered
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.matching import Looked, Matching
from penstock.operators.window_join.pairing import PAIR, Mask, Pairing, bounded

_GATHERED = 4096
"""Pairs that are gathered for a chunk of output."""


def pairing_of(config: WindowJoin, inputs: tuple[RowType, ...], budget: Budget) -> Pairing:
    """What lets batches of a join meet."""
    if config.matching is None:
        return Pairing(config, inputs, budget)
    return MatchPairing(config, inputs, budget, config.matching)


class MatchPairing(Pairing):
    """Pairs the rows of batches by a predicate."""

    def __init__(self, config: WindowJoin, inputs: tuple[RowType, ...], budget: Budget, by: Matching) -> None:
        super().__init__(config, inputs, budget)
        self._by = by
        route = config.route(LEFT)
        self._cells = route if isinstance(route, Cells) else None
        self.crosses = by.crosses(self._cells)

    def with_keys(self, port: int, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Indices]:
        """The rows that can match, with what sorts them in their hashes, and where the others are."""
        good, codes = self._by.known(self._looked_at(port, rows))
        known = rows if good.all() else rows.filter(pa.array(good))
        if not known.num_rows:
            return known, np.flatnonzero(~good)
        sites = hashes_of(known)
        hashes = pa.array(sites | (codes if self.crosses else _one_for_each(sites)))
        return known.set_column(0, known.schema.field(0), hashes), np.flatnonzero(~good)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Rows of a site may meet, whatever they are sorted by."""
        return first >> SITE_BITS << SITE_BITS, (last >> SITE_BITS << SITE_BITS) | ((1 << SITE_BITS) - 1)

    def _looked_at(self, port: int, rows: pa.RecordBatch) -> list[pa.Array]:
        return [self._inputs[port].column(rows, name) for name in self._by.columns(port)]

    def _pairs(self, port: int, mine: pa.RecordBatch, theirs: pa.RecordBatch) -> Iterator[tuple[Indices, Indices]]:
        if not mine.num_rows or not theirs.num_rows:
            return
        first, last = self.reach.of(port, times_of(mine))
        times = times_of(theirs)
        ours, others = (
            Looked(hashes_of(rows), self._looked_at(of, rows)) for of, rows in ((port, mine), (1 - port, theirs))
        )
        row = mine.nbytes // mine.num_rows + theirs.nbytes // theirs.num_rows
        limit = self._chunk(2 * (row + PAIR))
        room = limit * (row + PAIR)
        with self._budget.hold(room + 16 * mine.num_rows, "a chunk of output"):
            found = self._by.pairs(port, ours, others, self._cells, self._budget)
            near = (_where(i, j, (first[i] <= times[j]) & (times[j] <= last[i])) for i, j in found)
            for i, j in gathered(near, min(limit, _GATHERED)):
                for start in range(0, i.size, limit):
                    some, those = i[start : start + limit], j[start : start + limit]
                    for part in bounded(room, (mine, some), (theirs, those)):
                        yield some[part], those[part]


def _where(i: Indices, j: Indices, which: Mask) -> tuple[Indices, Indices]:
    return (i, j) if which.all() else (i[which], j[which])


def _one_for_each(sites: Hashes) -> Hashes:
    """The last 32 bits of hashes whose first ones are a site, such that sites are told apart by the very last."""
    return (sites >> np.uint64(64 - _LEADING)) | ((sites >> np.uint64(SITE_BITS - _LEADING)) & _OTHERS)


_LEADING = 6
_OTHERS = np.uint64((1 << SITE_BITS) - (1 << _LEADING))
