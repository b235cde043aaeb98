"""Rows on their way through steps: a column is cut out of its struct, filtered and decoded when it is asked for.

A condition on a few columns would otherwise copy all others, most of which the next step drops. What is not asked for
is never copied, and what several conditions leave of a column is copied once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.files import decoded
from penstock.core.rows import Indices
from penstock.expressions.keep import Kept

_ENOUGH = 1 << 12
"""Rows from which on it is worth to compute once for each of the values that there are,"""

_FEWER = 4
"""if there are so many times fewer of them; of texts that are not encoded,"""

_SAMPLE = 8
"""this part of the rows tells whether that may be."""

_NEAR = 2
"""Rows that come after each other are mostly in so many minutes, which one comparison tells apart."""

_MINUTE = {"s": 60, "ms": 60_000, "us": 60_000_000, "ns": 60_000_000_000}


class Mask:
    """Which rows are kept; null is no."""

    def __init__(self, kept: pa.BooleanArray) -> None:
        self.kept = pc.fill_null(kept, fill_value=False) if kept.null_count else kept

    @cached_property
    def chosen(self) -> Kept:
        """What keeps them."""
        return Kept(self.kept)

    @property
    def rows(self) -> int:
        """How many are."""
        return self.chosen.count

    def then(self, other: Mask) -> Mask:
        """Which rows are kept if `other` says it of those that this one keeps.

        >>> Mask(pa.array([True, None, True])).then(Mask(pa.array([False, True]))).kept.to_pylist()
        [False, False, True]
        """
        stays = self.chosen.stays
        both = stays.copy()
        both[stays] = other.chosen.stays
        return Mask(pa.array(both))


class Column:
    """A column, or a field of a struct, of the rows that a mask keeps, in the type that it is declared in."""

    def __init__(
        self, held: pa.ChunkedArray, kind: pa.DataType, path: tuple[int, ...] = (), mask: Mask | None = None
    ) -> None:
        self._held = held
        self._path = path
        self._mask = mask
        self._plain: pa.ChunkedArray | None = None
        self.kind = kind

    def field(self, place: int) -> Column:
        """A field of this struct; null where that is."""
        if self._plain is not None:
            return Column(self._plain, self.kind.field(place).type, (place,))
        return Column(self._held, self.kind.field(place).type, (*self._path, place), self._mask)

    def kept(self, mask: Mask, whole: dict[Mask, Mask]) -> Column:
        """The rows of this column that are kept; `whole` remembers masks that were put together."""
        if self._plain is not None:
            return Column(self._plain, self.kind, (), mask)
        if self._mask is None:
            return Column(self._held, self.kind, self._path, mask)
        if self._mask not in whole:
            whole[self._mask] = self._mask.then(mask)
        return Column(self._held, self.kind, self._path, whole[self._mask])

    def plain(self) -> pa.ChunkedArray:
        """Its values."""
        if self._plain is None:
            found = self._found()
            self._plain = self._held = found if found.type == self.kind else found.cast(self.kind)
        return self._plain

    def at(self, places: Indices) -> pa.ChunkedArray:
        """Its values in some of the rows."""
        found = self._found().take(pa.array(places))
        return found if found.type == self.kind else found.cast(self.kind)

    def numbered(self) -> tuple[Indices, int] | None:
        """A number for each row, the same where its text is the same, and how many there may be; None if few repeat."""
        codes = self._codes()
        return None if codes is None else _numbered(codes)

    def _codes(self) -> pa.Array | None:
        found = self._found()
        if not pa.types.is_dictionary(found.type):
            text = found.combine_chunks()
            some = text.slice(0, max(_ENOUGH, len(text) // _SAMPLE))
            if 2 * pc.count_distinct(some).as_py() > len(some):
                return None
            return text.dictionary_encode().indices
        if found.num_chunks > 1:
            found = found.unify_dictionaries()
        return pa.concat_arrays([chunk.indices for chunk in found.chunks])

    def _found(self) -> pa.ChunkedArray:
        """Its values as they are held, in the rows that are kept."""
        found = self._held
        for place in self._path:
            found = pc.struct_field(found, [place])
        self._held = found if self._mask is None else self._mask.chosen.of_chunks(found)
        self._path, self._mask = (), None
        return self._held


class View:
    """Rows by columns of which each is copied only if it is asked for.

    >>> rows = View.of(pa.table({"n": [1, 2], "s": [{"a": "x"}, {"a": "y"}]}))
    >>> rows.kept(pa.array([False, True])).showing([("b", "s", ("a",))]).table().to_pylist()
    [{'b': 'y'}]
    """

    def __init__(self, columns: Sequence[tuple[str, Column]], num_rows: int) -> None:
        self._columns = columns
        self._by_name = dict(reversed(columns))
        self.num_rows = num_rows

    @classmethod
    def of(cls, rows: pa.Table, declared: pa.Schema | None = None) -> View:
        """All rows of a table. Those of a file may have texts that are encoded though they are not `declared` so."""
        plain = set() if declared is None else {field.name for field in declared if field.type == decoded(field.type)}
        columns = [
            (field.name, Column(column, decoded(field.type) if field.name in plain else field.type))
            for field, column in zip(rows.schema, rows.columns, strict=True)
        ]
        return cls(columns, rows.num_rows)

    @cached_property
    def schema(self) -> pa.Schema:
        """The names and types of the columns."""
        return pa.schema([(name, column.kind) for name, column in self._columns])

    def column(self, name: str, path: Iterable[str] = ()) -> Column:
        """A column, or a field of one."""
        found = self._by_name[name]
        for part in path:
            found = found.field(next(n for n, field in enumerate(found.kind) if field.name == part))
        return found

    def kept(self, mask: pa.BooleanArray) -> View:
        """The rows that a mask keeps."""
        kept, whole = Mask(mask), dict[Mask, Mask]()
        return View([(name, column.kept(kept, whole)) for name, column in self._columns], kept.rows)

    def showing(self, shown: Iterable[tuple[str, str | pa.ChunkedArray, Sequence[str]]]) -> View:
        """Other columns: of these rows, with the fields that lead to them, or new ones."""
        columns = [
            (name, self.column(what, path) if isinstance(what, str) else Column(what, what.type))
            for name, what, path in shown
        ]
        return View(columns, self.num_rows)

    def alike(self, names: Sequence[str], moments: Sequence[str] = ()) -> tuple[Indices, Indices] | None:
        """Rows that stand for all that have the same texts in some columns and the same minutes in others.

        Which they are, and for each row which of them; None if they are not much fewer.
        """
        if self.num_rows < _ENOUGH:
            return None
        whole: Indices | None = None
        for name in (*moments, *names):
            column = self.column(name)
            numbered = _numbered_minutes(column.plain()) if name in moments else column.numbered()
            if numbered is None:
                return None
            numbers, count = numbered
            if _FEWER * count > self.num_rows:
                return None
            whole = numbers if whole is None else _numbered(pa.array(whole * count + numbers))[0]
        if whole is None:
            return None
        firsts = np.empty(int(whole.max()) + 1, np.int64)
        firsts[whole[::-1]] = np.arange(self.num_rows - 1, -1, -1)
        return None if _FEWER * firsts.size > self.num_rows else (firsts, whole)

    def table(self) -> pa.Table:
        """The rows."""
        if not self._columns:
            return pa.table({})
        return pa.table([column.plain() for _, column in self._columns], schema=self.schema)


def _numbered(codes: pa.Array) -> tuple[Indices, int]:
    """Codes as numbers from 0 on, none left out but null, which is the last; and how many there may be."""
    encoded = codes.dictionary_encode()
    count = len(encoded.dictionary) + 1
    numbers: Indices = pc.fill_null(encoded.indices, fill_value=count - 1).to_numpy().astype(np.int64)
    return numbers, count


def minutes(times: pa.ChunkedArray) -> pa.Array:
    """In which minute each time is: floored, also before 1970."""
    whole, step = times.combine_chunks(), _MINUTE[times.type.unit]
    counted = pc.fill_null(whole.view(pa.int64()), fill_value=0).to_numpy() // step
    return pa.array(counted, mask=whole.is_null().to_numpy(zero_copy_only=False) if whole.null_count else None)


def _numbered_minutes(times: pa.ChunkedArray) -> tuple[Indices, int]:
    """A number for each row, the same where its time is in the same minute, and how many there may be."""
    whole, step = times.combine_chunks(), _MINUTE[times.type.unit]
    if not whole.null_count and len(whole):
        values: Indices = whole.view(pa.int64()).to_numpy()
        first, last = int(values.min()) // step, int(values.max()) // step
        if last - first < _NEAR:
            return (values >= (first + 1) * step).astype(np.int64), _NEAR
    return _numbered(minutes(times))
