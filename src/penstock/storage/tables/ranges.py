"""Cut the rows of a table into partitions of one to two times θ rows, and find the partition of a key.

A partition is a range of an order: of the hash of the key, or of the key itself. Whole numbers (times, too) are cut
by slots: their domain falls into 2ⁿ slots of equal length, n as small as it can be with at most θ rows in a slot, and
consecutive slots are merged until they have θ. So a slot array tells a key's partition without a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import ConfigError
from penstock.core.rows import Hashes, Indices, hashes_of
from penstock.kernels.distinct import run_starts
from penstock.kernels.equal import same

By = Literal["hash", "range"]

_FINEST = 20
"""Domains are cut into at most 2 to the power of this many slots."""

_SLOTS = 1 << 16
"""A slot array has so many places or 8 per partition, whichever is more."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Where partitions end among rows that are sorted by the order, and the least and greatest value of each."""

    ends: Indices
    low: pa.Array
    high: pa.Array


class Route(Protocol):
    """Finds the place of a value among partitions."""

    def place(self, values: pa.Array) -> Indices:
        """The place of the partition that each value belongs to, whether it has it or not."""
        ...


def order_values(by: By, hashes: Hashes, keys: Sequence[pa.Array]) -> pa.Array:
    """What rows are ordered by: their hash, or their key as a number if it is one.

    >>> order_values("range", np.zeros(2, np.uint64), [pa.array([7, 3], pa.int16())]).type
    DataType(int64)
    """
    return pa.array(hashes) if by == "hash" else _comparable(keys[0])


def check_order(by: By, keys: Sequence[str], columns: pa.Schema) -> None:
    """Refuse keys that have no order."""
    if by not in ("hash", "range"):
        raise ConfigError(
            f"by={by!r} is not a way to partition a table. Write 'hash', or 'range' to keep keys in order."
        )
    if by == "range" and (len(keys) != 1 or not _has_order(columns.field(keys[0]).type)):
        kinds = ", ".join(f"{name} ({columns.field(name).type})" for name in keys)
        raise ConfigError(
            f"by='range' needs one key that is a number, a time or a string; this table's is {kinds}. "
            f"Write by='hash', which takes any keys."
        )


def sort_order(values: pa.Array) -> Indices:
    """The indices that sort rows by these values; equal ones stay in their order.

    >>> sort_order(pa.array(["b", "a"])).tolist()
    [1, 0]
    """
    if _is_number(values.type):
        return np.argsort(_numbers(values), kind="stable")
    return pc.sort_indices(values).to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def cut_rows(values: pa.Array, theta: int) -> Cut:
    """Cut rows, sorted by `values`, into partitions of at least `theta` rows and less than twice as many.

    A value with more rows than `theta` has a partition of its own; the last partition, or one before such a value,
    may have fewer.

    >>> cut = cut_rows(pa.array([1, 1, 2, 3, 4, 5]), theta=2)
    >>> cut.ends.tolist(), cut.low.to_pylist(), cut.high.to_pylist()
    ([2, 4, 6], [1, 2, 4], [1, 3, 5])
    """
    starts = _starts(values)
    sizes = np.diff(starts, append=len(values))
    if pa.types.is_int64(values.type) and starts.size:
        by_slots = _cut_slots(_whole(values)[starts], sizes, theta)
        if by_slots is not None:
            ends, low = by_slots
            return _cut(values, np.append(starts, len(values))[ends], pa.array(low))
    ends = np.append(starts, len(values))[merge_slots(sizes, theta)]
    first = np.concatenate([[0], ends[:-1]]) if ends.size else ends
    return _cut(values, ends, values.take(pa.array(first)))


def merge_slots(sizes: Indices, theta: int) -> Indices:
    """Merge consecutive slots until they have `theta` rows; the ends of what comes out, in slots.

    A slot that has more by itself stays alone. What falls short of `theta` joins what is before it if both have at
    most twice that.

    >>> merge_slots(np.array([1, 1, 1, 9, 2, 0, 1, 1]), theta=3).tolist()
    [3, 4, 8]
    >>> merge_slots(np.array([2, 2, 1]), theta=2).tolist()
    [1, 3]
    """
    total = np.cumsum(sizes)
    ends: list[int] = []
    start = behind = before = 0
    while start < sizes.size:
        stop = min(int(np.searchsorted(total, before + theta)) + 1, sizes.size)
        if sizes[stop - 1] > theta and stop - start > 1 and total[stop - 2] > before:
            stop -= 1
        after = int(total[stop - 1])
        if ends and after - before < theta and after - behind <= 2 * theta:
            ends[-1] = stop
        else:
            ends.append(stop)
            behind = before
        start, before = stop, after
    return np.array(ends, np.int64)


class SlotArray:
    """The partitions of whole numbers: ``slot[(a - least) // length]`` names a number's partition.

    A slot in which a partition begins – there is one only if domains would need too many slots – is bisected.

    >>> SlotArray(np.array([0, 16, 24])).of(np.array([-5, 15, 16, 24, 99])).tolist()
    [0, 0, 1, 2, 2]
    """

    def __init__(self, low: Indices) -> None:
        self._low = low
        span = _distance(low, low[0])
        bits = int(span[-1]).bit_length()
        aligned = int(np.bitwise_or.reduce(span))
        exact = (aligned & -aligned).bit_length() - 1 if aligned else 0
        finest = max(_SLOTS, 8 * low.size).bit_length() - 1
        self.shift = np.uint64(max(exact, bits - finest))
        """Two to the power of this is the length of a slot."""
        edge = np.arange((int(span[-1]) >> int(self.shift)) + 1, dtype=np.uint64) << self.shift
        last = edge + ((np.uint64(1) << self.shift) - np.uint64(1))
        self.slot = (np.searchsorted(span, edge, "right") - 1).astype(np.int32)
        self._several = self.slot != np.searchsorted(span, last, "right") - 1
        self._bisected = bool(self._several.any())

    def of(self, numbers: Indices) -> Indices:
        """The partition of each number."""
        low = self._low
        inside = np.clip(numbers, low[0], low[-1])
        at = _distance(inside, low[0]) >> self.shift
        place: Indices = self.slot[at].astype(np.int64)
        if self._bisected:
            unsure = np.flatnonzero(self._several[at])
            place[unsure] = np.searchsorted(low, inside[unsure], "right") - 1
        place[numbers >= low[-1]] = low.size - 1
        return place

    def place(self, values: pa.Array) -> Indices:
        """The same of an Arrow column."""
        return self.of(_whole(values))


class Bisection:
    """The partitions of hashes and of fractions.

    >>> Bisection(np.array([0.0, 2.5])).place(pa.array([-1.0, 2.5, float("nan")])).tolist()
    [0, 1, 1]
    """

    def __init__(self, low: npt.NDArray[np.generic]) -> None:
        self._low = low

    def place(self, values: pa.Array) -> Indices:
        """By bisection of the least values."""
        places = np.searchsorted(self._low, _numbers(values), "right") - 1
        return np.maximum(places, 0)


class Merged:
    """The partitions of anything that Arrow can sort.

    >>> Merged(pa.array(["a", "k"])).place(pa.array(["j", "k", "A"])).tolist()
    [0, 1, 0]
    """

    def __init__(self, low: pa.Array) -> None:
        self._low = low

    def place(self, values: pa.Array) -> Indices:
        """By sorting them among the least values, which come first where both are the same."""
        count = len(self._low)
        order = pc.sort_indices(pa.concat_arrays([self._low, values.cast(self._low.type)])).to_numpy()
        before = np.cumsum(order < count) - 1
        places = np.empty(order.size, np.int64)
        places[order] = before
        return np.maximum(places[count:], 0)


def route_over(low: pa.Array) -> Route:
    """How to find the partition of a value, by the least values of the partitions, of which there is at least one."""
    if pa.types.is_int64(low.type):
        return SlotArray(_whole(low))
    return Bisection(_numbers(low)) if _is_number(low.type) else Merged(low)


def sort_within(rows: pa.RecordBatch, cut: Cut, by: By) -> pa.RecordBatch:
    """Rows in their order, sorted by hash inside of each partition."""
    if by == "hash" or not rows.num_rows:
        return rows
    partition = np.repeat(np.arange(cut.ends.size), np.diff(cut.ends, prepend=0))
    return rows.take(pa.array(np.lexsort((hashes_of(rows), partition))))


def _cut(values: pa.Array, ends: Indices, low: pa.Array) -> Cut:
    return Cut(ends, low, values.take(pa.array(ends - 1)))


def _cut_slots(distinct: Indices, sizes: Indices, theta: int) -> tuple[Indices, Indices] | None:
    """Ends of partitions, in distinct numbers, and their least; None if slots would have to be too fine."""
    span = _distance(distinct, distinct[0])
    bits = int(span[-1]).bit_length()
    for n in range(min(bits, _FINEST) + 1):
        slot = (span >> np.uint64(bits - n)).astype(np.int64) if n else np.zeros(span.size, np.int64)
        first = run_starts(slot)
        rows = np.add.reduceat(sizes, first)
        if np.all((rows <= theta) | (np.diff(first, append=span.size) == 1)):
            dense = np.bincount(slot[first], rows, minlength=1).astype(np.int64)
            ends = merge_slots(dense, theta)
            edge = np.concatenate([[0], ends[:-1]]).astype(np.uint64) << np.uint64(bits - n if n else 0)
            return np.searchsorted(slot, ends), (edge + distinct[:1].view(np.uint64)).view(np.int64)
    return None


def _starts(values: pa.Array) -> Indices:
    """Where each value begins, among sorted ones."""
    if not len(values):
        return np.empty(0, np.int64)
    return np.flatnonzero(np.concatenate([[True], ~same(values.slice(0, len(values) - 1), values.slice(1))]))


def _distance(numbers: Indices, least: np.int64) -> npt.NDArray[np.uint64]:
    """How far numbers are above the least of them; the whole range of 64 bits fits."""
    return numbers.astype(np.int64, copy=False).view(np.uint64) - np.array([least], np.int64).view(np.uint64)


def _comparable(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_floating(kind):
        return column.cast(pa.float64())
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind) or pa.types.is_duration(kind):
        return column.view(pa.int64())
    if pa.types.is_uint64(kind):
        return column.view(pa.int64())  # from 2**63 on they come before the others: any order does that stays
    if pa.types.is_decimal(kind) and kind.bit_width < 128:
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    if pa.types.is_date32(kind):
        return column.view(pa.int32()).cast(pa.int64())
    return column.cast(pa.int64()) if pa.types.is_integer(kind) or pa.types.is_boolean(kind) else column


def _has_order(kind: pa.DataType) -> bool:
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    times = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_duration)
    return any(test(kind) for test in (*texts, *numbers, *times))


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_int64(kind) or pa.types.is_uint64(kind) or pa.types.is_float64(kind)  # type: ignore[no-any-return]


def _whole(values: pa.Array) -> Indices:
    return _numbers(values).astype(np.int64, copy=False)


def _numbers(values: pa.Array) -> npt.NDArray[np.generic]:
    filled = pc.fill_null(values, fill_value=0) if values.null_count else values
    return filled.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
