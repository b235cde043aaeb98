"""How rows look inside an operator: Arrow batches led by the key's hash and the row's time.

A `RowType` is one port's view: the user's columns, which of them is the time column, and the keys. Inside, the time
column travels as int64 only (`TIME`) and is put back, without a copy, when rows leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.time import Time, Times, from_times

HASH, TIME = "__hash", "__time"
"""The two columns that every row inside an operator starts with: the key's 64-bit hash, and its event time."""

MOMENT, SLIDE = "__moment", "__slide"
"""Columns that an aggregation adds to rows: their event time where `TIME` holds a row number, and whether a row slides
a window."""

PLACE = "__at_"
"""What leads the name of the column that says where a row is in its source."""

RESERVED = (HASH, TIME, "__tag", "__mark", "__late", "__source", MOMENT, SLIDE)
"""Names that a user's columns may not have: a host adds columns of its own beside them, too."""

Hashes = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]

HashedBy = Literal["hash_keys", "xxhash64"]
"""What made the hashes that rows bring: `kernels.hashing.hash_keys`, as the hosts in process do, or Spark."""


@dataclass(frozen=True, slots=True)
class RowType:
    """The rows of one port: the user's `columns`, the `keys` among them, and the column that `time` is, if one is.

    >>> rows = RowType(pa.schema({"k": pa.int64(), "ts": pa.timestamp("us")}), keys=("k",), time="ts")
    >>> rows.inside.names
    ['__hash', '__time', 'k']
    """

    columns: pa.Schema
    keys: tuple[str, ...]
    time: str | None = None
    hashed_by: HashedBy = "xxhash64"

    @property
    def inside(self) -> pa.Schema:
        """The schema of a batch inside the operator."""
        kept = [field for field in self.columns if field.name != self.time]
        return pa.schema([pa.field(HASH, pa.uint64()), pa.field(TIME, pa.int64()), *kept])

    def enter(self, rows: pa.Table, hashes: Hashes) -> pa.RecordBatch:
        """User rows, with their event time beside them as `TIME`, as a batch for the operator."""
        kept = [_one_chunk(rows.column(name)) for name in self.inside.names[1:]]
        return pa.RecordBatch.from_arrays([pa.array(hashes, pa.uint64()), *kept], schema=self.inside)

    def leave(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch inside the operator as user rows.

        >>> rows = RowType(pa.schema({"t": pa.int64(), "k": pa.int64()}), keys=("k",), time="t")
        >>> rows.leave(rows.enter(pa.table({TIME: [7], "k": [1]}), np.zeros(1, np.uint64))).to_pylist()
        [{'t': 7, 'k': 1}]
        """
        return pa.RecordBatch.from_arrays(
            [self.column(batch, name) for name in self.columns.names], schema=self.columns
        )

    def column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """A user column of a batch inside the operator."""
        if name == self.time:
            return from_times(batch.column(1), self.columns.field(name).type)
        return batch.column(name)


def show_keys(on: Iterable[tuple[str, str]]) -> str:
    """The keys of a join in words.

    >>> show_keys([("id", "id"), ("day", "date")])
    'id, day = date'
    """
    return ", ".join(ours if ours == theirs else f"{ours} = {theirs}" for ours, theirs in on)


def first_twice(names: Iterable[str]) -> str | None:
    """The first of some names that is there more than once, in time linear in their number.

    >>> first_twice(["a", "b", "a"])
    'a'
    """
    return next((name for name, times in Counter(names).items() if times > 1), None)


def hashes_of(batch: pa.RecordBatch) -> Hashes:
    """The hashes of a batch, as a view."""
    return batch.column(0).to_numpy(zero_copy_only=True)  # type: ignore[no-any-return]


def times_of(batch: pa.RecordBatch) -> Times:
    """The times of a batch, as a view."""
    return batch.column(1).to_numpy(zero_copy_only=True)  # type: ignore[no-any-return]


def with_times(batch: pa.RecordBatch, otherwise: Time) -> pa.RecordBatch:
    """The batch with `otherwise` as the time of rows that have none.

    >>> rows = RowType(pa.schema({"k": pa.int64()}), keys=("k",), time=None)
    >>> untimed = rows.enter(pa.table({TIME: pa.nulls(1, pa.int64()), "k": [1]}), np.zeros(1, np.uint64))
    >>> with_times(untimed, otherwise=7).column(TIME).to_pylist()
    [7]
    """
    return batch.set_column(1, batch.schema.field(1), batch.column(1).fill_null(otherwise))


def concat(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Batches of one schema as a single batch; copies unless there is only one."""
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
    return pa.concat_batches(batches)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
