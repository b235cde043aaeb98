"""The partitions of a page table: slices of pages, and the list that says which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import ConfigError
from penstock.core.master import master_schema
from penstock.core.rows import HASH, Indices, concat, hashes_of
from penstock.kernels.distinct import firsts
from penstock.kernels.equal import null_keys
from penstock.kernels.hashing import hash_keys
from penstock.kernels.sort import stable_order
from penstock.storage.files import FilePages
from penstock.storage.tables.manifest import Layout
from penstock.storage.tables.ranges import Cut, cut_rows, order_values, sort_order, sort_within

_NEW = -1
"""The number of a partition that has none yet."""


def partition_list(kind: pa.DataType) -> pa.Schema:
    """The columns of the list of partitions; `kind` is what they are ordered by.

    >>> partition_list(pa.uint64()).names[:3]
    ['low', 'high', 'number']
    """
    ordered = [pa.field("low", kind), pa.field("high", kind)]
    whole = [pa.field(name, pa.int64()) for name in ("number", "begin", "end", "nbytes")]
    return pa.schema([*ordered, *whole, pa.field("page", pa.string()), pa.field("unique", pa.bool_())])


def enter(rows: pa.Table | pa.RecordBatch, layout: Layout) -> tuple[pa.RecordBatch, int]:
    """Rows as master rows, in any order, without those that have a null in their key; how many those were.

    >>> layout = Layout(pa.schema({"k": pa.int64()}), ("k",))
    >>> enter(pa.table({"k": [3, None]}), layout)[1]
    1
    """
    check_arrow(rows)
    columns = [_column(rows, entry, layout) for entry in layout.columns]
    arrays = [pa.array(np.zeros(rows.num_rows, np.uint64)), *columns]
    batch = pa.RecordBatch.from_arrays(arrays, schema=master_schema(layout.columns))
    null = null_keys([batch.column(name) for name in layout.keys])
    kept = batch.filter(pa.array(~null)) if null.any() else batch
    hashes = hash_keys([kept.column(name) for name in layout.keys])
    return kept.set_column(0, HASH, pa.array(hashes)), rows.num_rows - kept.num_rows


def check_arrow(rows: Any, argument: str = "rows") -> None:
    """Refuse what is no Arrow table, nor a batch."""
    if not isinstance(rows, pa.Table | pa.RecordBatch):
        raise ConfigError(
            f"{argument}={type(rows).__name__} is not an Arrow table. Write pa.table({{…}}), or "
            f"pa.Table.from_pandas(…) for a pandas DataFrame."
        )


def keys_of(rows: pa.RecordBatch, layout: Layout) -> list[pa.Array]:
    """The key columns of master rows."""
    return [rows.column(name) for name in layout.keys]


def order_of(rows: pa.RecordBatch, layout: Layout) -> pa.Array:
    """What the partitions of master rows are ranges of."""
    return order_values(layout.by, hashes_of(rows), keys_of(rows, layout))


def cut_batch(rows: pa.RecordBatch, layout: Layout, theta: int) -> tuple[pa.RecordBatch, Cut]:
    """Master rows in order of their partitions, by hash inside of them, and where those end."""
    values = order_of(rows, layout)
    order = pa.array(sort_order(values))
    rows, values = rows.take(order), values.take(order)
    cut = cut_rows(values, theta)
    return sort_within(rows, cut, layout.by), cut


@dataclass(slots=True)
class PageWriter:
    """Writes partitions, several to a page, and lists them. They come in their order."""

    store: FilePages
    layout: Layout
    listed: list[pa.RecordBatch] = field(default_factory=list)
    _open: list[tuple[pa.RecordBatch, Cut, Indices]] = field(default_factory=list)
    _size: int = 0

    def put(self, rows: pa.RecordBatch, cut: Cut, numbers: Sequence[int] = ()) -> None:
        """Write the partitions of `rows`; those that have `numbers` keep them."""
        given = np.full(cut.ends.size, _NEW)
        given[: len(numbers)] = numbers
        for part in _page_parts(rows, cut, self.layout.page_bytes):
            first = int(cut.ends[part.start - 1]) if part.start else 0
            slice_ = rows.slice(first, int(cut.ends[part.stop - 1]) - first)
            low, high = cut.low[part.start : part.stop], cut.high[part.start : part.stop]
            self._open.append((slice_, Cut(cut.ends[part] - first, low, high), given[part]))
            self._size += slice_.nbytes
            if self._size >= self.layout.page_bytes:
                self.flush()

    def flush(self) -> None:
        """Write what is open as one page."""
        if not self._open:
            return
        rows = concat([some for some, _, _ in self._open], self._open[0][0].schema)
        before = np.cumsum([0, *(some.num_rows for some, _, _ in self._open)])
        ends = np.concatenate([cut.ends + first for (_, cut, _), first in zip(self._open, before, strict=False)])
        low, high = (pa.concat_arrays([getattr(cut, name) for _, cut, _ in self._open]) for name in ("low", "high"))
        numbers = np.concatenate([given for _, _, given in self._open])
        self.listed.append(self._write(rows, Cut(ends, low, high), numbers))
        self._open, self._size = [], 0

    def _write(self, rows: pa.RecordBatch, cut: Cut, numbers: Indices) -> pa.RecordBatch:
        begin = np.concatenate([[0], cut.ends[:-1]])
        nbytes = [rows.slice(first, end - first).nbytes for first, end in zip(begin, cut.ends, strict=True)]
        columns = {
            "low": cut.low,
            "high": cut.high,
            "number": pa.array(numbers),
            "begin": pa.array(begin),
            "end": pa.array(cut.ends),
            "nbytes": pa.array(nbytes, pa.int64()),
            "page": pa.array([self.store.put(rows)] * begin.size, pa.string()),
            "unique": pa.array(_unique(rows, begin, cut.ends, self.layout)),
        }
        return pa.RecordBatch.from_pydict(columns, schema=partition_list(cut.low.type))


def in_order(parts: pa.RecordBatch) -> pa.RecordBatch:
    """A list of partitions in their order; those without a number get the next ones."""
    parts = parts.take(pa.array(sort_order(parts.column("low"))))
    numbers = parts.column("number").to_numpy().copy()
    fresh = np.flatnonzero(numbers == _NEW)
    numbers[fresh] = np.arange(fresh.size) + numbers.max(initial=-1) + 1
    place = parts.schema.get_field_index("number")
    return parts.set_column(place, "number", pa.array(numbers))


def distinct_keys(rows: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """Each key of master rows once, with its hash, sorted by it."""
    rows = rows.select([HASH, *layout.keys])
    rows = rows.take(pa.array(stable_order(hashes_of(rows))))
    first = firsts(hashes_of(rows).view(np.int64), keys_of(rows, layout))
    return rows if first.all() else rows.filter(pa.array(first))


def _unique(rows: pa.RecordBatch, begin: Indices, ends: Indices, layout: Layout) -> npt.NDArray[np.bool_]:
    if not rows.num_rows:
        return np.ones(begin.size, np.bool_)
    again = ~firsts(hashes_of(rows).view(np.int64), keys_of(rows, layout))
    before = np.concatenate([[0], np.cumsum(again)])
    return before[ends] == before[begin]  # type: ignore[no-any-return]


def _page_parts(rows: pa.RecordBatch, cut: Cut, page_bytes: int) -> Iterator[slice]:
    """Consecutive partitions that make up a page each."""
    width = max(1, rows.nbytes // max(1, rows.num_rows))
    start = 0
    while start < cut.ends.size:
        first = int(cut.ends[start - 1]) if start else 0
        stop = int(np.searchsorted(cut.ends, first + max(1, page_bytes // width))) + 1
        yield slice(start, min(stop, cut.ends.size))
        start = stop


def _column(rows: pa.Table | pa.RecordBatch, entry: pa.Field, layout: Layout) -> pa.Array:
    if entry.name not in rows.schema.names:
        argument = "keys" if entry.name in layout.keys else "rows"
        raise ConfigError(
            f"{argument}: column {entry.name!r} ({entry.type}) is not among {', '.join(rows.schema.names)}. "
            f"Pass all columns of the table: {', '.join(layout.columns.names)}."
        )
    column = rows.column(entry.name)
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if whole.type == entry.type:
        return whole
    try:
        return pc.cast(whole, entry.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as wrong:
        raise ConfigError(
            f"rows: column {entry.name!r} is {whole.type}, but {entry.type} in the table, and not every value can be "
            f"cast: {wrong}. Cast it first."
        ) from wrong
