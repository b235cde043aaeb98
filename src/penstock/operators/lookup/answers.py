"""Combines stream rows with the master rows that they match, in chunks that fit the budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.budget import Budget
from penstock.core.operator import Out
from penstock.core.rows import Hashes, Indices, RowType, hashes_of
from penstock.kernels.bisect import run_lengths
from penstock.kernels.distinct import same_rows
from penstock.kernels.hashing import hash_keys
from penstock.kernels.match import expand
from penstock.kernels.width import cut, row_widths
from penstock.operators.lookup.config import LookupJoin

Mask = npt.NDArray[np.bool_]

_LARGEST_CHUNK = 1 << 16

_AT_HAND = 1 << 20
"""Bytes of master rows that fit the processor's cache, so that they can be read in any order."""

_FEW = 4
"""New master rows are checked for unique keys only if there are at least this many times as many stream rows."""

_KEY = 48
"""Bytes that a master row's key takes while rows are looked up by it."""

_PAIR = 32
"""Bytes that a pair takes until it is emitted: two indices, and their copies."""


class Answers:
    """Makes results of one lookup join."""

    def __init__(self, config: LookupJoin, stream: RowType, budget: Budget) -> None:
        self._stream = stream
        self._columns = config.output_columns(stream)
        self._output = config.output((stream,))
        self._keeps = config.how == "left"
        self._table_keys = config.table_keys
        self._budget = budget
        self._met: pa.RecordBatch | None = None
        """The master rows that were joined last."""
        self._unique: bool | None = None
        """Whether the keys of `_met` are unique; None if unknown."""

    def keys(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """The key columns of stream rows."""
        return [self._stream.column(rows, name) for name in self._stream.keys]

    def master_keys(self, master: pa.RecordBatch) -> list[pa.Array]:
        """The key columns of master rows, in the order of the stream's."""
        return [master.column(name) for name in self._table_keys]

    def hashes(self, rows: pa.RecordBatch, keys: Sequence[pa.Array]) -> Hashes:
        """The hashes by which a table finds the keys of `rows`, which are stream rows or cached rows.

        Tables are laid out by `hash_keys`. In-process rows already have these hashes, whatever the type of the key.
        Rows from Spark have hashes by `xxhash64`, which is another function for every type: their keys are hashed again
        before they are looked up in the table; the cache uses the hashes that they have.
        """
        return hashes_of(rows) if self._stream.hashed_by == "hash_keys" else hash_keys(keys)

    def pairs(
        self, rows: pa.RecordBatch, hashes: Hashes | None, master: pa.RecordBatch
    ) -> Iterator[tuple[Indices, Indices]]:
        """Indices of stream rows, whose hashes may be given, and of the master rows with the same key, in chunks."""
        held = hashes_of(master)
        if not rows.num_rows or not held.size:
            return
        ours, theirs = self.keys(rows), self.master_keys(master)
        row = rows.nbytes // rows.num_rows + master.nbytes // master.num_rows + _PAIR
        limit = max(1, min(_LARGEST_CHUNK, int(self._budget.room / 3 / row)))
        if self._is_index(ours, theirs, master):
            yield from self._indexed(ours[0], theirs[0], limit)
            return
        if hashes is None:
            hashes = self.hashes(rows, ours)
        # Searching for sorted hashes is several times as fast: each is close to the one before.
        order = np.argsort(hashes)
        hashes = hashes[order]
        begin, count = run_lengths(held, hashes, held.searchsorted(hashes), np.full(hashes.size, held.size))
        # Master rows in the processor's cache can be read in any order; stream rows in their own order need no copy.
        in_order = master.nbytes <= _AT_HAND
        if in_order:
            begin, count = _unsorted(begin, order), _unsorted(count, order)
        with self._budget.hold(limit * _PAIR, "pairs of a lookup"):
            for place, j in expand(begin, begin + count, limit):
                i = place if in_order else order[place]
                equal = same_rows(ours, i, theirs, j)
                yield (i, j) if equal.all() else (i[equal], j[equal])

    def _is_index(self, ours: Sequence[pa.Array], theirs: Sequence[pa.Array], master: pa.RecordBatch) -> bool:
        """Whether to look rows up by key rather than hash: keys are unique, and Arrow compares them exactly.

        New master rows are checked if they are far fewer than the rows; the same ones again if they are not more.
        """
        before, self._met = self._met, master
        key = theirs[0]
        if before is not master:
            self._unique = None
            if _FEW * len(key) > len(ours[0]):
                return False
        if len(theirs) > 1 or ours[0].type != key.type or not _is_exact(key.type) or len(key) > len(ours[0]):
            return False
        if 2 * (_KEY * len(key) + _PAIR * len(ours[0])) > self._budget.room:
            return False
        if self._unique is None:
            with self._budget.hold(_KEY * len(key), "keys of a lookup"):
                self._unique = pc.count_distinct(key, "all").as_py() == len(key)
        return self._unique

    def _indexed(self, ours: pa.Array, key: pa.Array, limit: int) -> Iterator[tuple[Indices, Indices]]:
        """Indices of the rows that have a master row, and of that master row."""
        with self._budget.hold(_KEY * len(key) + _PAIR * len(ours), "keys of a lookup"):
            found = pc.index_in(ours, value_set=key)
            i = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
            j = found.drop_null().to_numpy().astype(np.int64)
            for start in range(0, i.size, limit):
                yield i[start : start + limit], j[start : start + limit]

    def found(self, rows: pa.RecordBatch, i: Indices, master: pa.RecordBatch, j: Indices) -> Iterator[Out]:
        """Stream rows with the master rows that they match."""
        for part in self._parts((rows, i), (master, j)):
            yield self._made(rows, i[part], master, j[part])

    def alone(self, rows: pa.RecordBatch, i: Indices) -> Iterator[Out]:
        """Stream rows without a match: only a left join emits them."""
        if self._keeps and i.size:
            for part in self._parts((rows, i)):
                yield self._made(rows, i[part], None, i[part])

    def _parts(self, *sides: tuple[pa.RecordBatch, Indices]) -> Iterator[slice]:
        widths: Indices = sum(row_widths(rows, which) for rows, which in sides) + _PAIR  # type: ignore[assignment]
        room = max(1, self._budget.room // 3)
        for part in cut(widths, room):
            with self._budget.hold(min(room, int(widths[part].sum())), "a chunk of output"):
                yield part

    def _made(self, rows: pa.RecordBatch, i: Indices, master: pa.RecordBatch | None, j: Indices) -> Out:
        arrays: list[pa.Array] = []
        for (ours, name), field in zip(self._columns, self._output, strict=True):
            if ours:
                arrays.append(_at(self._stream.column(rows, name), i))
            elif master is None:
                arrays.append(pa.nulls(i.size, field.type))
            else:
                arrays.append(master.column(name).take(pa.array(j)))
        return Out("results", pa.RecordBatch.from_arrays(arrays, schema=self._output))


def _is_exact(kind: pa.DataType) -> bool:
    """Whether Arrow finds two values of a type equal exactly if they are the same key."""
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind) or kind in (pa.string(), pa.binary()))


def _unsorted(values: Indices, order: Indices) -> Indices:
    """`values`, which were sorted by `order`, in their original order."""
    before = np.empty_like(values)
    before[order] = values
    return before


def _at(column: pa.Array, places: Indices) -> pa.Array:
    """The values at `places`; adjacent values are not copied."""
    if places.size and bool((places[1:] - places[:-1] == 1).all()):
        return column.slice(int(places[0]), places.size)
    return column.take(pa.array(places))
