"""Exact aggregates that need more than a partial of fixed size: they follow from the count of each value.

The table of value counts of a window is merged like any partials; only then is it finished: distinct values are its
rows, quantiles are found along it, heavy hitters and the mode by its counts. Values come in order, nulls last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.checks import check_quantile, is_number
from penstock.core.errors import ConfigError
from penstock.core.rows import TIME, Indices
from penstock.kernels.segments import Codes, as_column, is_null, least_of, numbers_of, segment_of
from penstock.operators.aggregate.functions import instead_of, is_flat

Counts = npt.NDArray[np.int64]


class Holistic(Protocol):
    """An aggregate made from value counts."""

    @property
    def column(self) -> str:
        """Whose values are counted."""
        ...

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its lane: the column, after the time if the order of rows matters."""
        ...

    def check(self, name: str, kind: pa.DataType) -> None:
        """Raise an error if `kind` cannot be aggregated so."""
        ...

    def result(self, kind: pa.DataType) -> pa.DataType:
        """The type of the results."""
        ...

    def finish(self, values: pa.Array, counts: Counts, starts: Indices) -> pa.Array:
        """One result per segment of values and how often each was there."""
        ...


@dataclass(frozen=True, slots=True)
class CountDistinct:
    """How many different values."""

    column: str

    @property
    def keys(self) -> tuple[str, ...]:
        """The values."""
        return (self.column,)

    def check(self, name: str, kind: pa.DataType) -> None:
        """Whatever can be told apart."""
        _check_flat(name, "count_distinct", self.column, kind)

    def result(self, kind: pa.DataType) -> pa.DataType:
        """A long."""
        return pa.int64()

    def finish(self, values: pa.Array, counts: Counts, starts: Indices) -> pa.Array:
        """Every row but that of null."""
        return pa.array(np.add.reduceat((~is_null(values)).astype(np.int64), starts))


@dataclass(frozen=True, slots=True)
class CountDistinctWhere(CountDistinct):
    """The same, of the rows for which the boolean column `where` is true."""

    where: str = ""


@dataclass(frozen=True, slots=True)
class Quantile:
    """The value below which `share` of the values lie, between two of them if need be: Spark's `percentile`."""

    column: str
    share: float

    def __post_init__(self) -> None:
        check_quantile(self.share)

    @property
    def keys(self) -> tuple[str, ...]:
        """The values."""
        return (self.column,)

    def check(self, name: str, kind: pa.DataType) -> None:
        """Numbers only."""
        if not (pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)):
            raise ConfigError(
                f"{name}: a quantile takes numbers, but {self.column!r} is of type {kind}. "
                f"Select cast({self.column} AS DOUBLE) as a column first."
            )

    def result(self, kind: pa.DataType) -> pa.DataType:
        """A double."""
        return pa.float64()

    def finish(self, values: pa.Array, counts: Counts, starts: Indices) -> pa.Array:
        """Weigh the two values nearest to the place."""
        counts = np.where(is_null(values), 0, counts)
        total = np.add.reduceat(counts, starts)
        upto = np.cumsum(counts)
        before = upto[starts] - counts[starts]
        place = self.share * np.maximum(total - 1, 0)
        low, high = np.floor(place), np.ceil(place)
        numbers = numbers_of(values).astype(np.float64)
        below, above = (numbers[_find(upto, before + end.astype(np.int64))] for end in (low, high))
        with np.errstate(invalid="ignore"):
            between = np.where(low == high, below, (high - place) * below + (place - low) * above)
        return as_column(between, pa.float64(), total == 0)


@dataclass(frozen=True, slots=True)
class Mode:
    """The most frequent value; of several, the smallest."""

    column: str

    @property
    def keys(self) -> tuple[str, ...]:
        """The values."""
        return (self.column,)

    def check(self, name: str, kind: pa.DataType) -> None:
        """Whatever can be told apart."""
        _check_flat(name, "mode", self.column, kind)

    def result(self, kind: pa.DataType) -> pa.DataType:
        """As the column."""
        return kind

    def finish(self, values: pa.Array, counts: Counts, starts: Indices) -> pa.Array:
        """The first of the most frequent: null counts for nothing and comes last."""
        frequency: Codes = np.where(is_null(values), 0, -counts)
        return values.take(pa.array(least_of(starts, frequency)))


@dataclass(frozen=True, slots=True)
class HeavyHitters:
    """The values that make up at least `share` of all, with their counts, the most frequent first.

    That is ``count / total >= share`` in doubles, without nulls in either: a quotient is rounded as the share was when
    it was written, so a value of exactly the share is one of them, be it written 0.07 or 5 / 6.
    """

    column: str
    share: float

    def __post_init__(self) -> None:
        if not is_number(self.share) or not 0 < self.share <= 1:
            raise ConfigError(f"share={self.share!r} must be above 0 and at most 1, such as 0.05 for 5 % of the rows.")

    @property
    def keys(self) -> tuple[str, ...]:
        """The values."""
        return (self.column,)

    def check(self, name: str, kind: pa.DataType) -> None:
        """Whatever can be told apart."""
        _check_flat(name, "heavy_hitters", self.column, kind)

    def result(self, kind: pa.DataType) -> pa.DataType:
        """A list of values and counts."""
        return pa.list_(pa.struct([("value", kind), ("count", pa.int64())]))

    def finish(self, values: pa.Array, counts: Counts, starts: Indices) -> pa.Array:
        """Those whose count reaches their share of the whole."""
        counts = np.where(is_null(values), 0, counts)
        segment = segment_of(starts, counts.size)
        total = np.add.reduceat(counts, starts)
        heavy = np.flatnonzero(counts)
        heavy = heavy[counts[heavy] / total[segment[heavy]] >= float(self.share)]
        heavy = heavy[np.lexsort((heavy, -counts[heavy], segment[heavy]))]
        pairs = pa.StructArray.from_arrays(
            [values.take(pa.array(heavy)), pa.array(counts[heavy])], fields=list(self.result(values.type).value_type)
        )
        return _lists(pairs, segment[heavy], starts.size)


@dataclass(frozen=True, slots=True)
class CollectSet:
    """The different values, in order."""

    column: str

    @property
    def keys(self) -> tuple[str, ...]:
        """The values."""
        return (self.column,)

    def check(self, name: str, kind: pa.DataType) -> None:
        """Whatever can be told apart."""
        _check_flat(name, "collect_set", self.column, kind)

    def result(self, kind: pa.DataType) -> pa.DataType:
        """A list."""
        return pa.list_(kind)

    def finish(self, values: pa.Array, counts: Counts, starts: Indices) -> pa.Array:
        """Every value but null."""
        there = np.flatnonzero(~is_null(values))
        return _lists(values.take(pa.array(there)), segment_of(starts, counts.size)[there], starts.size)


@dataclass(frozen=True, slots=True)
class CollectList:
    """All values, by time, then value."""

    column: str

    @property
    def keys(self) -> tuple[str, ...]:
        """Time and value."""
        return (TIME, self.column)

    def check(self, name: str, kind: pa.DataType) -> None:
        """Whatever can be told apart."""
        _check_flat(name, "collect_list", self.column, kind)

    def result(self, kind: pa.DataType) -> pa.DataType:
        """A list."""
        return pa.list_(kind)

    def finish(self, values: pa.Array, counts: Counts, starts: Indices) -> pa.Array:
        """Every value as often as it was there, but null."""
        repeated = np.repeat(np.arange(counts.size), np.where(is_null(values), 0, counts))
        return _lists(values.take(pa.array(repeated)), segment_of(starts, counts.size)[repeated], starts.size)


def _find(upto: Counts, place: Counts) -> Indices:
    """The row that holds the value at each place, counting from 0."""
    return np.minimum(np.searchsorted(upto, place, side="right"), upto.size - 1)


def _lists(values: pa.Array, segment: Indices, segments: int) -> pa.ListArray:
    """Values, in order of their segments, as one list for each."""
    offsets = np.searchsorted(segment, np.arange(segments + 1))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def _check_flat(name: str, what: str, column: str, kind: pa.DataType) -> None:
    if not is_flat(kind):
        raise ConfigError(
            f"{name}: {what} compares values, but {column!r} is of type {kind}. {instead_of(column, kind)}"
        )
