"""The rows of a window's blocks that are in memory, in a few sorted slabs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.rows import Indices, hashes_of, times_of
from penstock.kernels.sort import page_order
from penstock.operators.window_join.pairing import Mask

NOBODY = 0
"""The number of no block: rows in memory whose block has left, until they are swept."""

_ROW = 17
"""Bytes that a row in memory takes besides its columns: block, birth, mark."""

_LARGEST_SLAB = 1 << 16
"""Rows up to which slabs are merged."""


@dataclass(slots=True, eq=False)
class Slab:
    """Rows of some blocks, sorted as pages are: which block each is of, when it was born, whether it has met anyone.

    Births of rows that are settled do not matter and are 0.
    """

    batch: pa.RecordBatch
    numbers: Indices
    births: Indices
    met: Mask | None
    hits: Indices | None = None
    """How many results each row has had, where that is counted."""
    nbytes: int = field(init=False)
    """Bytes in memory."""

    def __post_init__(self) -> None:
        self.nbytes = int(self.batch.nbytes) + (_ROW + (8 if self.hits is not None else 0)) * self.rows

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.numbers)

    def order(self) -> Indices:
        """Where the rows are, as pages sort them."""
        return page_order(hashes_of(self.batch), times_of(self.batch))

    def sorted(self) -> Slab:
        """The same rows as pages sort them."""
        return self.take(self.order())

    def take(self, which: Indices) -> Slab:
        """Some of the rows, in the order given."""
        met = None if self.met is None else self.met[which]
        hits = None if self.hits is None else self.hits[which]
        return Slab(self.batch.take(pa.array(which)), self.numbers[which], self.births[which], met, hits)


def unborn(rows: pa.RecordBatch, met: Mask | None) -> Slab:
    """Rows of no block yet, which were born at no time."""
    zeros = np.zeros(rows.num_rows, np.int64)
    return Slab(rows, zeros, zeros, met)


def joined(slabs: Sequence[Slab]) -> Slab:
    """The rows of several slabs as one, one after the other."""
    if len(slabs) == 1:
        return slabs[0]
    met = None if slabs[0].met is None else np.concatenate([slab.met for slab in slabs])
    hits = None if slabs[0].hits is None else np.concatenate([slab.hits for slab in slabs])
    numbers, births = np.concatenate([s.numbers for s in slabs]), np.concatenate([s.births for s in slabs])
    return Slab(pa.concat_batches([slab.batch for slab in slabs]), numbers, births, met, hits)


def merged(slabs: Sequence[Slab]) -> Slab:
    """The rows of several sorted slabs as one, sorted."""
    return slabs[0] if len(slabs) == 1 else joined(slabs).sorted()


class Slabs:
    """Slabs that are charged to a budget. Each is at least twice its successor, so that rows are copied few times."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._slabs: list[Slab] = []
        self._holes = False

    def __iter__(self) -> Iterator[Slab]:
        return iter(self._slabs)

    def add(self, slab: Slab) -> None:
        """Hold some more rows."""
        self._budget.charge(slab.nbytes, "blocks in memory")
        self._slabs.append(slab)
        while len(self._slabs) > 1 and self._mergeable(*self._slabs[-2:]):
            pair = self._slabs[-2:]
            with self._budget.hold(sum(part.nbytes for part in pair), "merging blocks in memory"):
                whole = merged(pair)
            self._budget.release(sum(part.nbytes for part in pair))
            self._budget.charge(whole.nbytes, "blocks in memory")
            self._slabs[-2:] = [whole]

    def _mergeable(self, older: Slab, newer: Slab) -> bool:
        rows, size = older.rows + newer.rows, older.nbytes + newer.nbytes
        return 2 * newer.rows > older.rows and rows <= _LARGEST_SLAB and 8 * size <= self._budget.room

    def extract(self, number: int) -> Slab:
        """The rows of a block."""
        found = [(slab, np.flatnonzero(slab.numbers == number)) for slab in self._slabs]
        return merged([slab.take(which) for slab, which in found if which.size])

    def disown(self, number: int) -> None:
        """The rows of a block are nobody's from now on."""
        self._holes = True
        for slab in self._slabs:
            slab.numbers[slab.numbers == number] = NOBODY

    def sweep(self) -> None:
        """Give back the memory of rows that are nobody's: at once if a slab has no others, else from a quarter on."""
        if not self._holes:
            return
        self._holes = False
        kept: list[Slab] = []
        for slab in self._slabs:
            here = slab.numbers != NOBODY
            count = int(np.count_nonzero(here))
            if 4 * count > 3 * slab.rows:
                kept.append(slab)
                continue
            self._budget.release(slab.nbytes)
            if count:
                smaller = slab.take(np.flatnonzero(here))
                self._budget.charge(smaller.nbytes, "blocks in memory")
                kept.append(smaller)
        self._slabs = kept

    def release(self) -> None:
        """Give all memory back."""
        self._budget.release(sum(slab.nbytes for slab in self._slabs))
        self._slabs = []
