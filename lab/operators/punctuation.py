"""Punctuation: a statement within a stream that no more rows of some kind will come.

A punctuation has the columns of its stream; each holds a pattern: anything (``*``), a constant, or a semi-open range.
A row matches it iff every column matches its pattern, and no row that matches may come after it. It is strict:
``ts=below(10)`` leaves a row at 10 to come.

*Linear* punctuations set the progressing column alone, to ranges without a start, and their ends never go back: they
are what bounds are. *Group-wise linear* ones also fix the columns of a group, and go on group by group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import PunctuationError

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Anything:
    """Every value, null among them."""

    def matches(self, column: pa.Array) -> Mask:
        """All of them."""
        return np.ones(len(column), np.bool_)

    def covers(self, other: Pattern) -> bool:
        """Always."""
        return True

    def __str__(self) -> str:
        return "*"


@dataclass(frozen=True, slots=True)
class Constant:
    """One value; None is null."""

    value: Any

    def matches(self, column: pa.Array) -> Mask:
        """The rows that have the value."""
        if self.value is None:
            return _mask(pc.is_null(column))
        return _mask(pc.equal(column, pa.scalar(self.value, column.type)))

    def covers(self, other: Pattern) -> bool:
        """Only itself."""
        return self == other

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Range:
    """The values from `start` on, up to but not including `stop`; an end that is None is open. Null is in no range.

    >>> Range(stop=10).matches(pa.array([9, 10, None])).tolist()
    [True, False, False]
    """

    start: Any = None
    stop: Any = None

    def __post_init__(self) -> None:
        if self.start is None and self.stop is None:
            raise PunctuationError("Range(None, None) is every value but null. Leave the column out: that is '*'.")
        if self.start is not None and self.stop is not None and not self.start < self.stop:
            raise PunctuationError(
                f"{self} holds nothing, so it says nothing. Write a start below the stop: the stop does not count."
            )

    def matches(self, column: pa.Array) -> Mask:
        """The rows within."""
        inside = _mask(pc.is_valid(column))
        if self.start is not None:
            inside &= _mask(pc.greater_equal(column, pa.scalar(self.start, column.type)))
        if self.stop is not None:
            inside &= _mask(pc.less(column, pa.scalar(self.stop, column.type)))
        return inside

    def covers(self, other: Pattern) -> bool:
        """A range within, or a constant."""
        if isinstance(other, Constant):
            value = other.value
            return value is not None and self._from(value) and (self.stop is None or value < self.stop)
        if isinstance(other, Range):
            return self._from(other.start) and self._until(other.stop)
        return False

    def _from(self, start: Any) -> bool:
        return self.start is None or (start is not None and self.start <= start)

    def _until(self, stop: Any) -> bool:
        return self.stop is None or (stop is not None and stop <= self.stop)

    def __str__(self) -> str:
        ends = ("" if end is None else repr(end) for end in (self.start, self.stop))
        return f"[{', '.join(ends)})"


Pattern = Anything | Constant | Range
"""What a column of a punctuation holds."""

ANYTHING = Anything()


def below(stop: Any) -> Range:
    """The range of everything below `stop`.

    >>> print(below(10))
    [, 10)
    """
    return Range(stop=stop)


@dataclass(frozen=True, slots=True)
class Punctuation:
    """No later row matches all of these patterns; columns that are not named may be anything.

    >>> done = Punctuation.of(ts=below(10), link="east")
    >>> rows = pa.record_batch({"ts": [9, 9, 10], "link": ["east", "west", "east"]})
    >>> done.matches(rows).tolist()
    [True, False, False]
    """

    patterns: tuple[tuple[str, Pattern], ...]

    @classmethod
    def of(cls, **patterns: Any) -> Self:
        """Patterns by column: a `Range`, ``'*'`` or `ANYTHING`, or a value, which is a constant."""
        read = {name: _pattern(value) for name, value in patterns.items()}
        return cls(tuple((name, pattern) for name, pattern in sorted(read.items()) if pattern != ANYTHING))

    def __getitem__(self, column: str) -> Pattern:
        return dict(self.patterns).get(column, ANYTHING)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that may not be just anything."""
        return tuple(name for name, _ in self.patterns)

    def matches(self, rows: pa.RecordBatch) -> Mask:
        """Which rows are of the kind that no longer comes."""
        matching = np.ones(rows.num_rows, np.bool_)
        for name, pattern in self.patterns:
            if name not in rows.schema.names:
                raise PunctuationError(
                    f"{self} speaks of {name!r}, which is not a column of its stream ({', '.join(rows.schema.names)})."
                )
            matching &= pattern.matches(rows.column(name))
        return matching

    def covers(self, other: Punctuation) -> bool:
        """Whether this says all that `other` says: every row that matches `other` matches this.

        >>> Punctuation.of(ts=below(10)).covers(Punctuation.of(ts=below(7), link="east"))
        True
        """
        return all(pattern.covers(other[name]) for name, pattern in self.patterns)

    def linear(self, on: str) -> Any | None:
        """Where the later rows start, if this speaks of `on` alone and of all that is below; else None.

        >>> Punctuation.of(ts=below(10)).linear("ts")
        10
        """
        return self._stop(on) if self.columns == (on,) else None

    def group_wise(self, on: str, groups: Sequence[str]) -> tuple[tuple[Any, ...], Any] | None:
        """The group and where its later rows start, if this speaks of all that is below in one of `groups`; else None.

        >>> Punctuation.of(ts=below(10), link="east").group_wise("ts", ["link"])
        (('east',), 10)
        """
        fixed = [self[name] for name in groups]
        if set(self.columns) != {on, *groups} or not all(isinstance(pattern, Constant) for pattern in fixed):
            return None
        stop = self._stop(on)
        return None if stop is None else (tuple(pattern.value for pattern in fixed), stop)  # type: ignore[union-attr]

    def _stop(self, on: str) -> Any | None:
        pattern = self[on]
        return pattern.stop if isinstance(pattern, Range) and pattern.start is None else None

    def __str__(self) -> str:
        return f"punctuation({', '.join(f'{name}={pattern}' for name, pattern in self.patterns) or '*'})"


def is_group_wise(punctuations: Iterable[Punctuation], on: str, groups: Sequence[str]) -> bool:
    """Whether all are group-wise linear on `on` over `groups`, and none goes back in its group.

    >>> east, west = Punctuation.of(ts=below(5), link="east"), Punctuation.of(ts=below(3), link="west")
    >>> is_group_wise([east, west], "ts", ["link"]), is_group_wise([east, west], "ts", [])
    (True, False)
    """
    reached: dict[tuple[Any, ...], Any] = {}
    for punctuation in punctuations:
        said = punctuation.group_wise(on, groups)
        if said is None or (said[0] in reached and said[1] < reached[said[0]]):
            return False
        reached[said[0]] = said[1]
    return True


def _pattern(value: Any) -> Pattern:
    if isinstance(value, Anything | Constant | Range):
        return value
    return ANYTHING if isinstance(value, str) and value == "*" else Constant(value)


def _mask(column: pa.BooleanArray) -> Mask:
    return pc.fill_null(column, fill_value=False).to_numpy(zero_copy_only=False).copy()  # type: ignore[no-any-return]
