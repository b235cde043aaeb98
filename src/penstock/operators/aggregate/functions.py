"""Aggregate functions whose partials have a fixed size: count, sum, extremes, mean, spread, first and last, your own.

Each is three steps over segments of sorted rows: `lift` rows to one partial per segment, `combine` partials to one per
segment, `lower` partials to results. Combining is associative and knows no order, so a result is the same however
its rows were divided. The partials' columns are what Spark's own aggregates give, so the first step may be Spark's.

Nulls are left out, as Spark does: a count of none is 0, everything else of none is null. NaN is the largest number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import ConfigError
from penstock.core.rows import TIME, Indices
from penstock.core.time import Times
from penstock.kernels.segments import (
    Mask,
    Parts,
    Words,
    all_of,
    as_column,
    carried,
    codes_of,
    is_null,
    is_number,
    join_words,
    least_of,
    numbers_of,
    reduce_pairs,
    segment_of,
    starts_of,
    sum_decimals,
    sum_words,
    totals,
)

Columns = tuple[pa.Array, ...]
"""The partials of many segments, a column each."""

Fields = tuple[tuple[str, pa.DataType], ...]
"""Names and types of a function's partials."""


_LONGEST_SAFE_DECIMAL = 28
"""Digits of a decimal whose sums, of ten digits more, still fit 38: no window has enough rows for more."""


class Function(Protocol):
    """An aggregate with bounded partials over one column; `kind` is that column's type, null if there is none."""

    @property
    def column(self) -> str | None:
        """What it aggregates; None for rows as such."""
        ...

    def check(self, name: str, kind: pa.DataType) -> None:
        """Raise an error if `kind` cannot be aggregated so; `name` is what the result is called."""
        ...

    def result(self, kind: pa.DataType) -> pa.DataType:
        """The type of the results."""
        ...

    def fields(self, kind: pa.DataType) -> Fields:
        """The partials."""
        ...

    def in_sql(self, kind: pa.DataType, value: str) -> Sequence[str] | None:
        """The partials in Spark's SQL, of the column written `value`; None if Spark cannot make them."""
        ...

    def lift(self, values: pa.Array, times: Times, starts: Indices) -> Columns:
        """Rows to one partial per segment."""
        ...

    def combine(self, partials: Columns, starts: Indices) -> Columns:
        """Partials to one per segment."""
        ...

    def lower(self, partials: Columns, kind: pa.DataType) -> pa.Array:
        """Partials to results; `TooLargeError` if a result does not fit its type."""
        ...

    def subtracts(self, kind: pa.DataType) -> bool:
        """Whether `subtract` gives exactly the partial of the rows that are left."""
        ...

    def subtract(self, whole: Columns, part: Columns) -> Columns:
        """The partials of the rows of `whole` that are not in `part`, row by row."""
        ...


class _Unsubtractable:
    """A function whose partials cannot be undone exactly."""

    __slots__ = ()

    def subtracts(self, kind: pa.DataType) -> bool:
        """They cannot."""
        return False

    def subtract(self, whole: Columns, part: Columns) -> Columns:
        """They cannot."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Count:
    """How many rows; with a column, how many that are not null there."""

    column: str | None = None

    def check(self, name: str, kind: pa.DataType) -> None:
        """Everything can be counted."""

    def result(self, kind: pa.DataType) -> pa.DataType:
        """A long."""
        return pa.int64()

    def fields(self, kind: pa.DataType) -> Fields:
        """The count."""
        return (("n", pa.int64()),)

    def in_sql(self, kind: pa.DataType, value: str) -> Sequence[str]:
        """The same count."""
        return ["count(1)" if self.column is None else f"count({value})"]

    def lift(self, values: pa.Array, times: Times, starts: Indices) -> Columns:
        """Count rows that are there."""
        if self.column is None or not values.null_count:
            return (pa.array(np.diff(starts, append=times.size)),)
        return (pa.array(totals(~is_null(values), starts)),)

    def combine(self, partials: Columns, starts: Indices) -> Columns:
        """Add."""
        return (pa.array(totals(cast(Words, numbers_of(partials[0])), starts)),)

    def lower(self, partials: Columns, kind: pa.DataType) -> pa.Array:
        """As it is."""
        return partials[0]

    def subtracts(self, kind: pa.DataType) -> bool:
        """Counts are whole."""
        return True

    def subtract(self, whole: Columns, part: Columns) -> Columns:
        """Subtract."""
        return (pc.subtract(whole[0], part[0]),)


@dataclass(frozen=True, slots=True)
class CountWhere(Count):
    """The same, of the rows for which the boolean column `where` is true.

    The caller of `lift` sets its values to null in other rows.
    """

    where: str = ""

    def in_sql(self, kind: pa.DataType, value: str) -> Sequence[str]:
        """The same count."""
        marked = self.where.replace("`", "``")
        return [f"count(CASE WHEN `{marked}` THEN {'1' if self.column is None else value} END)"]

    def lift(self, values: pa.Array, times: Times, starts: Indices) -> Columns:
        """Count rows that are there and marked."""
        return (pa.array(totals(~is_null(values), starts)),)


def where_of(function: object) -> str | None:
    """The boolean column that says which rows an aggregate is of; None if it is of all.

    >>> where_of(CountWhere("x", "large")), where_of(Count("x"))
    ('large', None)
    """
    return getattr(function, "where", None)


class OwnError(Exception):
    """A function of a user's own aggregate failed; what it raised, if anything, is the cause."""

    def __init__(self, step: str, said: str) -> None:
        super().__init__(step, said)
        self.step, self.said = step, said


class TooLargeError(Exception):
    """A result that its type cannot hold: at which row of the partials, and of which type."""

    def __init__(self, row: int, kind: pa.DataType) -> None:
        super().__init__(row, kind)
        self.row = row
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of a column: long for integers (uint64 for uint64), double for floats, ten digits more for decimals.

    Partials hold what the result's type may not: 64-bit integers are summed in two words (see `sum_words`), decimals of
    more than 28 digits as decimal256. So only the sum of a whole window can be too large, whatever the order of its
    rows and the epochs they come in. Partials also count values, so that a sum of none stays null after a subtraction.
    """

    column: str

    def check(self, name: str, kind: pa.DataType) -> None:
        """Numbers only."""
        _check_number(name, "sum", self.column, kind, decimals="may")

    def result(self, kind: pa.DataType) -> pa.DataType:
        """As Spark widens it; Spark has no uint64."""
        if pa.types.is_decimal(kind):
            return pa.decimal128(min(38, kind.precision + 10), kind.scale)
        if pa.types.is_integer(kind):
            return kind if kind == pa.uint64() else pa.int64()
        return pa.float64()

    def fields(self, kind: pa.DataType) -> Fields:
        """The sum, or its two words, and how many values."""
        if _in_words(kind):
            return (("high", pa.int64()), ("low", pa.int64()), ("n", pa.int64()))
        outgrows = pa.types.is_decimal(kind) and kind.precision > _LONGEST_SAFE_DECIMAL
        return (("sum", pa.decimal256(76, kind.scale) if outgrows else self.result(kind)), ("n", pa.int64()))

    def in_sql(self, kind: pa.DataType, value: str) -> Sequence[str] | None:
        """The sum, unless it has more digits than Spark's decimals."""
        return sum_in_sql(self.fields(kind), kind, value)

    def lift(self, values: pa.Array, times: Times, starts: Indices) -> Columns:
        """Sum values, and count them."""
        counts = Count(self.column).lift(values, times, starts)
        if _in_words(values.type):
            numbers = cast(Words, numbers_of(values))
            return *map(pa.array, sum_words(numbers, starts)), *counts
        return _summed(values, self.fields(values.type)[0][1], starts), *counts

    def combine(self, partials: Columns, starts: Indices) -> Columns:
        """Add all."""
        *total, count = partials
        counts = Count().combine((count,), starts)
        if len(total) == 1:
            return _summed(total[0], total[0].type, starts), *counts
        high, low = (totals(cast(Words, numbers_of(word)), starts) for word in total)
        return *map(pa.array, carried(high, low)), *counts

    def lower(self, partials: Columns, kind: pa.DataType) -> pa.Array:
        """The sum, null if of nothing; `TooLargeError` if its type cannot hold it."""
        *total, count = partials
        return _null_where(self._whole(total, kind), numbers_of(count) == 0)

    def _whole(self, total: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
        result = self.result(kind)
        if len(total) == 2:
            high, low = (numbers_of(word).astype(np.int64, copy=False) for word in total)
            numbers, beyond = join_words(high, low, signed=result == pa.int64())
            if beyond.any():
                raise TooLargeError(int(np.argmax(beyond)), result)
            return pa.array(numbers)
        if total[0].type != result:
            beyond = pc.greater_equal(pc.abs(total[0]), _beyond(total[0].type)).fill_null(False)
            if pc.any(beyond).as_py():
                raise TooLargeError(beyond.index(True).as_py(), result)
        return total[0].cast(result)

    def subtracts(self, kind: pa.DataType) -> bool:
        """Whole numbers do, floats lose digits."""
        return bool(pa.types.is_integer(kind))

    def subtract(self, whole: Columns, part: Columns) -> Columns:
        """Subtract all."""
        return tuple(pc.subtract(pc.fill_null(a, 0), pc.fill_null(b, 0)) for a, b in zip(whole, part, strict=True))


@dataclass(frozen=True, slots=True)
class Extreme(_Unsubtractable):
    """The least or the greatest value of a column, of any type that has an order."""

    column: str
    which: Literal["min", "max"]

    def check(self, name: str, kind: pa.DataType) -> None:
        """Anything with an order."""
        _check_order(name, self.which, self.column, kind)

    def result(self, kind: pa.DataType) -> pa.DataType:
        """As the column."""
        return kind

    def fields(self, kind: pa.DataType) -> Fields:
        """The extreme."""
        return ((self.which, kind),)

    def in_sql(self, kind: pa.DataType, value: str) -> Sequence[str]:
        """Spark's own."""
        return [f"{self.which}({value})"]

    def lift(self, values: pa.Array, times: Times, starts: Indices) -> Columns:
        """The extreme of the values."""
        return self.combine((values,), starts)

    def combine(self, partials: Columns, starts: Indices) -> Columns:
        """The extreme of the extremes."""
        (values,) = partials
        if starts.size == len(values):
            return partials
        if not is_number(values.type):
            return (self._by_place(values, starts),)
        numbers, missing = numbers_of(values), is_null(values)
        if missing.any():
            numbers = np.where(missing, _neutral(numbers.dtype, self.which), numbers)
        # NaN is the largest number: max keeps it, min takes it only if there is nothing else.
        reduced = (np.fmin if self.which == "min" else np.maximum).reduceat(numbers, starts)
        return (as_column(reduced, values.type, all_of(missing, starts)),)

    def _by_place(self, values: pa.Array, starts: Indices) -> pa.Array:
        *missing, codes = codes_of(values)
        codes = codes if self.which == "min" else -codes
        return values.take(pa.array(least_of(starts, *missing, codes)))

    def lower(self, partials: Columns, kind: pa.DataType) -> pa.Array:
        """As it is."""
        return partials[0]


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a column, a double."""

    column: str

    def check(self, name: str, kind: pa.DataType) -> None:
        """Numbers that a double can hold."""
        _check_number(name, "mean", self.column, kind)

    def result(self, kind: pa.DataType) -> pa.DataType:
        """A double."""
        return pa.float64()

    def fields(self, kind: pa.DataType) -> Fields:
        """The sum, exact for integers of any size, and the number of values."""
        return Sum(self.column).fields(kind)

    def in_sql(self, kind: pa.DataType, value: str) -> Sequence[str] | None:
        """A sum and a count."""
        return sum_in_sql(self.fields(kind), kind, value)

    def lift(self, values: pa.Array, times: Times, starts: Indices) -> Columns:
        """Sum and count values."""
        return Sum(self.column).lift(values, times, starts)

    def combine(self, partials: Columns, starts: Indices) -> Columns:
        """Add all."""
        return Sum(self.column).combine(partials, starts)

    def lower(self, partials: Columns, kind: pa.DataType) -> pa.Array:
        """Divide."""
        *words, count = (numbers_of(partial) for partial in partials)
        total = words[-1].astype(np.float64)
        if len(words) == 2:
            total += words[0].astype(np.float64) * 2.0**32
        return as_column(total / np.maximum(count, 1), pa.float64(), count == 0)

    def subtracts(self, kind: pa.DataType) -> bool:
        """As sums do."""
        return Sum(self.column).subtracts(kind)

    def subtract(self, whole: Columns, part: Columns) -> Columns:
        """Subtract all."""
        return Sum(self.column).subtract(whole, part)


@dataclass(frozen=True, slots=True)
class Variance(_Unsubtractable):
    """Variance, or its root, of a sample or of the population. A sample of one has none: null."""

    column: str
    root: Literal["variance", "deviation"]
    of: Literal["sample", "population"]

    def __post_init__(self) -> None:
        if self.of not in ("sample", "population"):
            raise ConfigError(f"of={self.of!r} is not one of sample, population.")

    def check(self, name: str, kind: pa.DataType) -> None:
        """Numbers that a double can hold."""
        _check_number(name, self.root, self.column, kind)

    def result(self, kind: pa.DataType) -> pa.DataType:
        """A double."""
        return pa.float64()

    def fields(self, kind: pa.DataType) -> Fields:
        """How many values, their mean, and the sum of squared distances from it."""
        return (("n", pa.int64()), ("mean", pa.float64()), ("m2", pa.float64()))

    def in_sql(self, kind: pa.DataType, value: str) -> Sequence[str]:
        """Count, mean and sum of squares, from Spark's own."""
        value = f"CAST({value} AS DOUBLE)"
        return [f"count({value})", f"coalesce(avg({value}), 0D)", f"coalesce(var_pop({value}) * count({value}), 0D)"]

    def lift(self, values: pa.Array, times: Times, starts: Indices) -> Columns:
        """Each value is a mean of itself."""
        there = (~is_null(values)).astype(np.int64)
        return _spread(there, numbers_of(values).astype(np.float64), np.zeros(there.size), starts)

    def combine(self, partials: Columns, starts: Indices) -> Columns:
        """Distances from the means, and of the means from theirs."""
        count, mean, m2 = (numbers_of(column) for column in partials)
        return _spread(count, mean, m2, starts)  # type: ignore[arg-type]

    def lower(self, partials: Columns, kind: pa.DataType) -> pa.Array:
        """Divide by the degrees of freedom."""
        count, m2 = numbers_of(partials[0]), numbers_of(partials[2])
        freedom = count - np.int64(self.of == "sample")  # type: ignore[operator]
        variance = m2 / np.maximum(freedom, 1)
        return as_column(np.sqrt(variance) if self.root == "deviation" else variance, pa.float64(), freedom < 1)


@dataclass(frozen=True, slots=True)
class Edge(_Unsubtractable):
    """The value of the earliest or the latest row that has one; of several at the same time, the least."""

    column: str
    which: Literal["first", "last"]

    def check(self, name: str, kind: pa.DataType) -> None:
        """Anything with an order, to break ties by."""
        _check_order(name, self.which, self.column, kind)

    def result(self, kind: pa.DataType) -> pa.DataType:
        """As the column."""
        return kind

    def fields(self, kind: pa.DataType) -> Fields:
        """When it was, and the value."""
        return (("time", pa.int64()), ("value", kind))

    def in_sql(self, kind: pa.DataType, value: str) -> Sequence[str]:
        """The least of (time, value), or of (inverted time, value): of several at the same time the least value."""
        sign = "" if self.which == "first" else "~"
        best = f"min(CASE WHEN {value} IS NOT NULL THEN struct({sign}{TIME} AS towards, {value} AS value) END)"
        return [f"{sign}({best}.towards)", f"{best}.value"]

    def lift(self, values: pa.Array, times: Times, starts: Indices) -> Columns:
        """The earliest or latest."""
        return self.combine((pa.array(times), values), starts)

    def combine(self, partials: Columns, starts: Indices) -> Columns:
        """The earliest of the earliest, or the latest of the latest."""
        times, values = partials
        if starts.size == len(values):
            return partials
        rows, tied = self.nearest(numbers_of(times).astype(np.int64, copy=False), is_null(values), starts)
        if tied is not None:
            rows = rows[least_of(tied, *codes_of(values.take(pa.array(rows))))]
        best = pa.array(rows)
        return times.take(best), values.take(best)

    def nearest(self, moments: Times, missing: Mask, starts: Indices) -> tuple[Indices, Indices | None]:
        """The rows of each segment at its earliest or latest time, of those that have a value if any has.

        And where those of each segment begin, if one has several: only then do the values decide.
        """
        # Bitwise not turns the order of integers round without overflow at the ends.
        towards = moments if self.which == "first" else ~moments
        segments = segment_of(starts, towards.size)
        if missing.any():
            counts = ~missing | all_of(missing, starts)[segments]
            least = np.minimum.reduceat(np.where(counts, towards, np.iinfo(np.int64).max), starts)
            near = counts & (towards == least[segments])
        else:
            near = towards == np.minimum.reduceat(towards, starts)[segments]
        rows = np.flatnonzero(near)
        return rows, None if rows.size == starts.size else starts_of(segments[rows])

    def lower(self, partials: Columns, kind: pa.DataType) -> pa.Array:
        """The value."""
        return partials[1]


@dataclass(frozen=True, slots=True)
class UserDefined:
    """A user-defined aggregate, by three functions and an optional inverse.

    `lift` turns values into partials row by row, `combine` combines two columns of partials pairwise, and `lower` turns
    partials into results. All
    take and return tuples of NumPy arrays, one per partial in `partials`; `combine` must be associative
    and commutative. Null values are dropped before `lift`; the result of no values is null. With `subtract`, the
    inverse of `combine`, windows may also slide by subtraction.

    >>> import numpy as np
    >>> product = UserDefined(
    ...     column="x",
    ...     partials=(("log", pa.float64()),),
    ...     type=pa.float64(),
    ...     lift_values=lambda x: (np.log(x),),
    ...     combine_pairs=lambda a, b: (a[0] + b[0],),
    ...     lower_partials=lambda p: np.exp(p[0]),
    ... )
    >>> parts = product.lift(pa.array([2.0, 3.0]), np.array([0, 0]), np.array([0]))
    >>> round(product.lower(parts, pa.float64())[0].as_py(), 6)
    6.0
    """

    column: str
    partials: Fields
    type: pa.DataType
    lift_values: Callable[[npt.NDArray[np.generic]], Parts]
    combine_pairs: Callable[[Parts, Parts], Parts]
    lower_partials: Callable[[Parts], npt.NDArray[np.generic]]
    subtract_pairs: Callable[[Parts, Parts], Parts] | None = None

    def check(self, name: str, kind: pa.DataType) -> None:
        """Columns that NumPy can hold."""
        if not is_number(kind):
            raise _wrong_type(name, "a user-defined aggregate", self.column, kind, "numbers, times and booleans")

    def result(self, kind: pa.DataType) -> pa.DataType:
        """As declared."""
        return self.type

    def fields(self, kind: pa.DataType) -> Fields:
        """As declared, and how many values."""
        return (*self.partials, ("n", pa.int64()))

    def in_sql(self, kind: pa.DataType, value: str) -> None:
        """Spark does not know it."""

    def lift(self, values: pa.Array, times: Times, starts: Indices) -> Columns:
        """Lift the values that are there; a segment of none gets a partial that counts for nothing."""
        there = np.flatnonzero(~is_null(values))
        lifted = self._parts("lift_values", there.size, numbers_of(values)[there])
        counts = np.ones(there.size, np.int64)
        segment = np.searchsorted(starts, there, side="right") - 1
        return self._spread(lifted, counts, segment, starts.size)

    def combine(self, partials: Columns, starts: Indices) -> Columns:
        """Combine those that count."""
        counts = numbers_of(partials[-1])
        there = np.flatnonzero(counts)
        parts = tuple(numbers_of(part)[there] for part in partials[:-1])
        segment = np.searchsorted(starts, there, side="right") - 1
        return self._spread(parts, counts[there], segment, starts.size)  # type: ignore[arg-type]

    def _spread(self, parts: Parts, counts: npt.NDArray[np.int64], segment: Indices, segments: int) -> Columns:
        """One partial for each of so many segments, made from those that are there."""
        full, starts = np.unique(segment, return_index=True)
        reduced = reduce_pairs(parts, starts, self._combined) if full.size else parts
        columns = []
        for part, (_, kind) in zip(reduced, self.partials, strict=True):
            whole = np.zeros(segments, part.dtype)
            whole[full] = part
            columns.append(_declared("lift_values, or combine_pairs,", whole, kind))
        total = np.zeros(segments, np.int64)
        if full.size:
            total[full] = np.add.reduceat(counts, starts)
        return *columns, pa.array(total)

    def lower(self, partials: Columns, kind: pa.DataType) -> pa.Array:
        """Lower all, and leave those of nothing null."""
        counts = numbers_of(partials[-1])
        parts = tuple(numbers_of(part) for part in partials[:-1])
        with _told("lower_partials"):
            lowered = np.asarray(self.lower_partials(parts))
        if lowered.shape != counts.shape:
            wanted = f"an array of {counts.size:,} results, one for each of its partials"
            raise OwnError("lower_partials", f"it must return {wanted}, not {_shape(lowered)}")
        return _declared("lower_partials", lowered, self.type, counts == 0)

    def subtracts(self, kind: pa.DataType) -> bool:
        """If it was said how."""
        return self.subtract_pairs is not None

    def subtract(self, whole: Columns, part: Columns) -> Columns:
        """As declared."""
        assert self.subtract_pairs is not None
        both = (tuple(numbers_of(column) for column in side[:-1]) for side in (whole, part))
        left = self._parts("subtract_pairs", len(whole[-1]), *both)
        kept = [_declared("subtract_pairs", c, kind) for c, (_, kind) in zip(left, self.partials, strict=True)]
        return *kept, pc.subtract(whole[-1], part[-1])

    def _combined(self, some: Parts, others: Parts) -> Parts:
        return self._parts("combine_pairs", some[0].size, some, others)

    def _parts(self, step: str, rows: int, *given: object) -> Parts:
        """The partials that one of the user's functions makes of so many rows."""
        with _told(step):
            made = tuple(np.asarray(part) for part in getattr(self, step)(*given))
        if [part.shape for part in made] != [(rows,)] * len(self.partials):
            wanted = f"a tuple of {len(self.partials)}, an array of {rows:,} values for each of partials="
            raise OwnError(step, f"it must return {wanted}, not {', '.join(map(_shape, made)) or 'nothing'}")
        return made


@contextmanager
def _told(step: str) -> Iterator[None]:
    """Tell in which of the user's functions an error came up."""
    try:
        yield
    except Exception as error:
        said = str(error).strip()
        raise OwnError(step, f"{type(error).__name__}: {said}" if said else type(error).__name__) from error


def _declared(step: str, values: npt.NDArray[np.generic], kind: pa.DataType, missing: Mask | None = None) -> pa.Array:
    """What a user's function has returned, in the type that was declared for it."""
    with _told(step):
        return as_column(values, kind, missing)


def _shape(values: npt.NDArray[np.generic]) -> str:
    return f"an array of {' × '.join(f'{size:,}' for size in values.shape)}" if values.shape else "one value"


def sum_in_sql(fields: Fields, kind: pa.DataType, value: str) -> Sequence[str] | None:
    """A sum and a count of what is not null, in SQL.

    Longs in two words, as `sum_words` has them: Spark's sum of longs wraps around or fails, by its settings.
    """
    if any(pa.types.is_decimal256(partial) for _, partial in fields):
        return None
    if kind == pa.int64():
        return [f"sum(shiftright({value}, 32))", f"sum({value} & 4294967295L)", f"count({value})"]
    return [f"sum({value})", f"count({value})"]


def _in_words(kind: pa.DataType) -> bool:
    """Integers whose sums a long may not hold."""
    return bool(pa.types.is_integer(kind)) and kind.bit_width == 64


def _beyond(kind: pa.DataType) -> pa.Scalar:
    """The least decimal of 39 digits, as a decimal256."""
    return pa.scalar(Decimal((0, (1,), 38 - kind.scale)), kind)


def _summed(values: pa.Array, kind: pa.DataType, starts: Indices) -> pa.Array:
    if pa.types.is_decimal(values.type):
        return sum_decimals(values, starts, kind)
    missing = is_null(values)
    numbers = numbers_of(values).astype(np.int64 if kind == pa.int64() else np.float64, copy=False)
    with _as_floats_are():
        return as_column(np.add.reduceat(numbers, starts), kind, all_of(missing, starts))


def _as_floats_are() -> np.errstate:
    """Lets floats be infinite where they are too large, and NaN where infinities meet, without a warning."""
    return np.errstate(over="ignore", invalid="ignore")


def _spread(
    count: npt.NDArray[np.int64], mean: npt.NDArray[np.float64], m2: npt.NDArray[np.float64], starts: Indices
) -> Columns:
    """Counts, means and squared distances of segments, from those of their rows; a count of 0 counts for nothing."""
    weight = count.astype(np.float64)
    there = count > 0
    total = np.add.reduceat(count, starts)
    held = np.maximum(total, 1)
    with _as_floats_are():
        centre = np.add.reduceat(np.where(there, mean, 0.0) * weight, starts) / held
        apart = np.where(there, mean - np.repeat(centre, np.diff(starts, append=count.size)), 0.0)
        spread = np.add.reduceat(np.where(there, m2, 0.0) + weight * apart * apart, starts)
    return pa.array(total), pa.array(centre), pa.array(spread)


def _null_where(column: pa.Array, mask: npt.NDArray[np.bool_]) -> pa.Array:
    return pc.if_else(pa.array(mask), None, column) if mask.any() else column


def _neutral(kind: np.dtype[np.generic], which: str) -> float | int:
    """What changes no extreme."""
    if kind.kind == "f":
        return np.nan if which == "min" else -np.inf
    info = np.iinfo(kind)  # type: ignore[type-var]
    return int(info.max if which == "min" else info.min)


def _check_number(name: str, what: str, column: str, kind: pa.DataType, decimals: str = "must be cast") -> None:
    if pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return
    if pa.types.is_decimal(kind) and decimals == "may":
        return
    raise _wrong_type(name, f"a {what}", column, kind, "numbers", f"Select cast({column} AS DOUBLE) as a column first.")


def _check_order(name: str, what: str, column: str, kind: pa.DataType) -> None:
    if not is_flat(kind):
        raise _wrong_type(name, what, column, kind, "values with an order", instead_of(column, kind))


def is_flat(kind: pa.DataType) -> bool:
    """Whether values of a type can be compared, put in order and made groups of.

    >>> is_flat(pa.string()), is_flat(pa.list_(pa.string())), is_flat(pa.uuid())
    (True, False, False)
    """
    return not (pa.types.is_nested(kind) or pa.types.is_interval(kind) or isinstance(kind, pa.BaseExtensionType))


def instead_of(column: str, kind: pa.DataType) -> str:
    """What to write for a column that is not flat."""
    if isinstance(kind, pa.BaseExtensionType):
        return f"Cast it to {kind.storage_type} before flow.source(…)."
    if pa.types.is_interval(kind):
        return f"Cast {column!r} to a duration or a number before flow.source(…)."
    return "Select one of its fields as a column."


def _wrong_type(name: str, what: str, column: str, kind: pa.DataType, takes: str, hint: str = "") -> ConfigError:
    return ConfigError(f"{name}: {what} takes {takes}, but {column!r} is of type {kind}. {hint}".strip())
