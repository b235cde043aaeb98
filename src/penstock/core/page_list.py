"""Descriptions of many pages in columns, in a third of the memory that they take one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
import pyarrow as pa

from penstock.core.pages import Page
from penstock.core.time import TIME_MAX, Time

_AT_ONCE = 256
"""Number of pages that are described individually at a time."""

_COLUMNS = pa.schema(
    {
        "name": pa.string(),
        "kind": pa.int64(),
        "begin": pa.int64(),
        "end": pa.int64(),
        "nbytes": pa.int64(),
        "min_time": pa.int64(),
        "max_time": pa.int64(),
        "min_hash": pa.uint64(),
        "max_hash": pa.uint64(),
        "floor": pa.int64(),
        "marks": pa.string(),
        "maker": pa.string(),
    }
)


class PageList(Sequence[Page]):
    """Pages that owe no joins, in their order.

    >>> pages = [Page(f"p{n}", kind=n % 2, begin=0, end=5, nbytes=40, min_time=n, max_time=9, min_hash=0, max_hash=7)
    ...          for n in range(4)]
    >>> listed = PageList.of(pages)
    >>> listed.of_kind(1).rows, listed[2:].earliest, listed[-1].name, listed == pages
    (10, 2, 'p3', True)
    """

    def __init__(self, columns: pa.Table) -> None:
        self._columns = columns

    @classmethod
    def of(cls, pages: Iterable[Page]) -> PageList:
        """A list of these pages."""
        if isinstance(pages, PageList):
            return pages
        rows = list(pages)
        columns = [pa.array([getattr(page, field.name) for page in rows], field.type) for field in _COLUMNS]
        return cls(pa.Table.from_arrays(columns, schema=_COLUMNS))

    @classmethod
    def joined(cls, lists: Iterable[Sequence[Page]]) -> PageList:
        """One list after the other, without a copy of those that are lists already."""
        return cls(
            pa.concat_tables([cls.of(pages)._columns for pages in lists if len(pages)] or [_COLUMNS.empty_table()])
        )

    def packed(self) -> PageList:
        """The same in one piece, to be sent."""
        return PageList(self._columns.combine_chunks())

    @property
    def rows(self) -> int:
        """Of all of them."""
        return int(np.sum(self._numbers("end") - self._numbers("begin")))

    @property
    def earliest(self) -> Time:
        """No event time in them is before this; the end of time if there are none."""
        return int(self._numbers("min_time").min(initial=TIME_MAX))

    def of_kind(self, kind: int) -> PageList:
        """Those of a kind; without a copy if they lie together."""
        places = np.flatnonzero(self._numbers("kind") == kind)
        if not places.size:
            return self[:0]
        if places[-1] - places[0] + 1 == places.size:
            return self[int(places[0]) : int(places[-1]) + 1]
        return PageList(self._columns.take(pa.array(places)))

    def __len__(self) -> int:
        return int(self._columns.num_rows)

    @overload
    def __getitem__(self, place: int) -> Page: ...

    @overload
    def __getitem__(self, place: slice) -> PageList: ...

    def __getitem__(self, place: int | slice) -> Page | PageList:
        if isinstance(place, slice):
            begin, end, step = place.indices(len(self))
            if step != 1:
                raise ValueError("Pages are taken as they follow each other.")
            return PageList(self._columns.slice(begin, max(0, end - begin)))
        (page,) = PageList(self._columns.slice(range(len(self))[place], 1))
        return page

    def __iter__(self) -> Iterator[Page]:
        for first in range(0, len(self), _AT_ONCE):
            for row in self._columns.slice(first, _AT_ONCE).to_pylist():
                yield Page(**row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def _numbers(self, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return self._columns.column(name).to_numpy()  # type: ignore[no-any-return]
