"""Lanes: parallel tables of partials, and how their rows are folded.

A row of a lane is the partial of one group in one pane or window, whose number stands where pages keep their time.
The main lane has one row per number and group and all bounded functions. A value lane also has the value among its
keys and counts it; everything exact that is not bounded follows from such a table. All lanes of a query hold the
same numbers and groups, so that they line up when results are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import FlowError
from penstock.core.rows import HASH, MOMENT, SLIDE, TIME, Hashes, Indices, RowType, hashes_of, times_of
from penstock.core.time import Times
from penstock.core.windows import Wids
from penstock.kernels.equal import same
from penstock.kernels.segments import Codes, Mask, codes_of, sorted_by, starts_of, totals
from penstock.operators.aggregate.functions import Columns, Count, CountWhere, Edge, Function, OwnError, where_of

VALUE = "__value"
"""What a value lane calls its values."""

Apart = Literal["by hash", "unknown"]
"""Whether it is known that no two groups have the same hash."""

GROUP = "__group"
"""Group columns inside a lane: this, and their place."""


@dataclass(frozen=True, slots=True)
class Part:
    """One function of a lane: what its result is called, over which type of column, where its partials are."""

    name: str
    function: Function
    kind: pa.DataType
    first: int
    last: int

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Say of which result a function was that failed, if it is the user's own."""
        try:
            yield
        except OwnError as failed:
            raise FlowError.in_aggregate(
                self.name, str(self.function.column), failed.step, failed.said
            ) from failed.__cause__


@dataclass(frozen=True, slots=True)
class Lane:
    """The columns of one table of partials: group columns, other keys, partials.

    `keys` are the input columns that are keys besides the group; the stream's own time is written `TIME`.
    """

    groups: tuple[str, ...]
    keys: tuple[str, ...]
    parts: tuple[Part, ...]
    schema: pa.Schema

    @classmethod
    def of(
        cls,
        groups: Sequence[str],
        keys: Sequence[str],
        functions: Sequence[tuple[str, Function]],
        rows: RowType,
    ) -> Lane:
        """A lane over rows of a type."""
        fields = [pa.field(HASH, pa.uint64()), pa.field(TIME, pa.int64())]
        fields += [pa.field(f"{GROUP}{place}", rows.columns.field(name).type) for place, name in enumerate(groups)]
        fields += [_key_field(name, rows) for name in keys]
        parts = []
        for name, function in functions:
            kind = _kind(function.column, rows)
            mine = function.fields(kind)
            parts.append(Part(name, function, kind, len(fields), len(fields) + len(mine)))
            fields += [pa.field(f"{name}.{what}", partial) for what, partial in mine]
        return cls(tuple(groups), tuple(keys), tuple(parts), pa.schema(fields))

    @property
    def group_places(self) -> range:
        """Where the group columns are."""
        return range(2, 2 + len(self.groups))

    @property
    def key_places(self) -> range:
        """Where the other keys are."""
        return range(2 + len(self.groups), 2 + len(self.groups) + len(self.keys))

    def lift(self, rows: pa.RecordBatch, kind: RowType, numbers: Wids, apart: Apart = "unknown") -> pa.RecordBatch:
        """Rows as an operator gets them, each in the pane or window of its number, to partials in order."""
        keys = [clean(kind.column(rows, name)) for name in self.groups]
        moments = rows.column(MOMENT if MOMENT in kind.columns.names else 1)
        keys += [moments if name == TIME else clean(kind.column(rows, name)) for name in self.keys]
        order, starts = self.segments(hashes_of(rows), numbers, keys, apart)
        places, firsts = pa.array(order), order[starts]
        columns = [pa.array(hashes_of(rows)[firsts]), pa.array(numbers[firsts])]
        columns += [key.take(pa.array(firsts)) for key in keys]
        times, taken = moments.to_numpy()[order], dict[tuple[str | None, str | None], pa.Array]()
        edges = _Edges(order, starts)
        for part in self.parts:
            name = part.function.column
            if isinstance(part.function, Edge):
                found = edges.of(part.function, moments, kind.column(rows, part.function.column))
                if found is not None:
                    columns += found
                    continue
            where = where_of(part.function)
            if name is None and where is not None:
                columns.append(pa.array(totals(_marked(kind.column(rows, where))[order], starts)))
                continue
            if (name, where) not in taken:
                taken[name, where] = self._values(rows, kind, name, where, places)
            values = taken[name, where]
            with part.telling():
                columns += part.function.lift(values, times, starts)
        return self._batch(columns)

    @staticmethod
    def _values(rows: pa.RecordBatch, kind: RowType, name: str | None, where: str | None, places: pa.Array) -> pa.Array:
        """A column in some order, null in rows for which `where` is not true."""
        if where is None:
            return pa.nulls(0) if name is None else kind.column(rows, name).take(places)
        marked = kind.column(rows, where)
        values = marked if name is None else kind.column(rows, name)
        return pc.if_else(marked, values, pa.scalar(None, values.type)).take(places)

    def fold(self, partials: pa.RecordBatch, apart: Apart = "unknown") -> pa.RecordBatch:
        """Partials to one for each number, group and key, ordered by hash, group, number, key."""
        if not partials.num_rows:
            return partials
        keys = [partials.column(place) for place in (*self.group_places, *self.key_places)]
        order, starts = self.segments(hashes_of(partials), times_of(partials), keys, apart)
        places = None if _in_order(order) else pa.array(order)
        if starts.size == partials.num_rows:
            return partials if places is None else partials.take(places)
        firsts = pa.array(order[starts])
        columns = [partials.column(place).take(firsts) for place in range(self.key_places.stop)]
        edges = _Edges(order, starts)
        for part in self.parts:
            mine = partial_columns(part, partials)
            if isinstance(part.function, Edge) and (found := edges.of(part.function, *mine)) is not None:
                columns += found
                continue
            ordered = mine if places is None else tuple(column.take(places) for column in mine)
            with part.telling():
                columns += part.function.combine(ordered, starts)
        return self._batch(columns)

    def subtract(self, whole: pa.RecordBatch, part: pa.RecordBatch) -> pa.RecordBatch:
        """The partials of `whole` (folded) without those of `part` (folded), which holds no others; none is left empty.

        The first function of the lane counts rows: where nothing is left, the row goes.
        """
        if not part.num_rows:
            return whole
        both = pa.concat_batches([whole, part])
        keys = [both.column(place) for place in (*self.group_places, *self.key_places)]
        order, starts = self.segments(hashes_of(both), np.zeros(both.num_rows, np.int64), keys)
        sizes = np.diff(starts, append=both.num_rows)
        hit, missed = starts[sizes == 2], starts[sizes == 1]
        less = both.take(pa.array(order[hit])), both.take(pa.array(order[hit + 1]))
        columns = list(less[0].columns)
        for piece in self.parts:
            sides = [tuple(side.column(n) for n in range(piece.first, piece.last)) for side in less]
            with piece.telling():
                columns[piece.first : piece.last] = piece.function.subtract(sides[0], sides[1])
        left = self._batch(columns)
        kept = left.filter(pc.greater(left.column(self.parts[0].first), 0))
        return self.fold(pa.concat_batches([both.take(pa.array(order[missed])), kept]))

    def renumbered(self, partials: pa.RecordBatch, numbers: Wids | int) -> pa.RecordBatch:
        """The same partials under other numbers."""
        if isinstance(numbers, int):
            numbers = np.full(partials.num_rows, numbers, np.int64)
        return partials.set_column(1, self.schema.field(1), pa.array(numbers))

    def boundaries(self, partials: pa.RecordBatch) -> Indices:
        """Where each number and group begins in a folded batch."""
        starts = starts_of(hashes_of(partials), times_of(partials))
        groups = [partials.column(place) for place in self.group_places]
        other = differing(groups, hashes_of(partials))
        return starts if other is None else np.union1d(starts, other + 1)

    def look_up(
        self, known: pa.RecordBatch, hashes: Hashes, groups: Sequence[pa.Array], numbers: Wids | None = None
    ) -> Indices:
        """For each row's group, the row of `known`, which has each group once, that is of it; -1 if none is.

        With `numbers`, the row that has the number, too.
        """
        keys = [pa.concat_arrays([known.column(n), g]) for n, g in zip(self.group_places, groups, strict=True)]
        whole = np.concatenate([hashes_of(known), hashes])
        wids = np.zeros(whole.size, np.int64) if numbers is None else np.concatenate([times_of(known), numbers])
        order, starts = self.segments(whole, wids, keys)
        firsts = np.repeat(order[starts], np.diff(starts, append=whole.size))
        found = np.empty(whole.size, np.int64)
        found[order] = np.where(firsts < known.num_rows, firsts, -1)
        return found[known.num_rows :]

    def page_order(self, partials: pa.RecordBatch) -> pa.RecordBatch:
        """A folded batch as pages want it, by hash, then number: it differs only where groups share a hash."""
        hashes, numbers = hashes_of(partials), times_of(partials)
        if not ((hashes[1:] == hashes[:-1]) & (numbers[1:] < numbers[:-1])).any():
            return partials
        return partials.take(pa.array(sorted_by([hashes, numbers])))

    def apart(self, partials: pa.RecordBatch) -> Apart:
        """Whether each group of a folded batch has a hash of its own."""
        other = differing([partials.column(place) for place in self.group_places], hashes_of(partials))
        return "by hash" if other is None else "unknown"

    def segments(
        self, hashes: Hashes, numbers: Times, keys: Sequence[pa.Array], apart: Apart = "unknown"
    ) -> tuple[Indices, Indices]:
        """The order by hash, group, number and key, and where each of them begins."""
        groups, others = keys[: len(self.groups)], keys[len(self.groups) :]
        codes: list[Codes] = [hashes, numbers, *(code for key in others for code in codes_of(key))]
        order = _order(codes)
        if apart == "unknown" and differing([g.take(pa.array(order)) for g in groups], hashes[order]) is not None:
            codes[1:1] = [code for group in groups for code in codes_of(group)]
            order = sorted_by(codes)
        return order, starts_of(*(code[order] for code in codes))

    def _batch(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(cast, schema=self.schema)


class _Edges:
    """The first or last values of segments: most rows are neither, so their values need not be put in order.

    Several columns of the same rows mostly have the same times: which rows those are is then found once.
    """

    def __init__(self, order: Indices, starts: Indices) -> None:
        self._order = order
        self._starts = starts
        self._found: list[tuple[str, pa.Array, tuple[pa.Array, pa.Array] | None]] = []

    def of(self, edge: Edge, moments: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array] | None:
        """The partials of rows, or of partials, that are not in order yet; None if values decide, or may be null."""
        if values.null_count or moments.null_count:
            return None
        known = next((each for each in self._found if each[0] == edge.which and each[1].equals(moments)), None)
        if known is None:
            known = edge.which, moments, self._nearest(edge, moments)
            self._found.append(known)
        nearest = known[2]
        return None if nearest is None else (nearest[0], values.take(nearest[1]))

    def _nearest(self, edge: Edge, moments: pa.Array) -> tuple[pa.Array, pa.Array] | None:
        """The time of the row of each segment that is nearest, and its place; None if any has several."""
        times: Times = moments.to_numpy()[self._order]
        best, tied = edge.nearest(times, np.zeros(times.size, np.bool_), self._starts)
        return None if tied is not None else (pa.array(times[best]), pa.array(self._order[best]))


def counting(groups: Sequence[str], keys: Sequence[str], rows: RowType, where: Sequence[str] = ()) -> Lane:
    """A value lane: how often each key was there, and how often where each of some boolean columns is true."""
    marked = [(f"__n.{name}", CountWhere(None, name)) for name in where]
    return Lane.of(groups, keys, [("__n", Count()), *marked], rows)


def differing(groups: Sequence[pa.Array], hashes: Hashes) -> Indices | None:
    """Rows after which another group with the same hash follows; None if hashes tell all groups apart."""
    if not groups or hashes.size < 2:
        return None
    repeated = hashes[1:] == hashes[:-1]
    if not repeated.any():
        return None
    other = np.zeros(hashes.size - 1, np.bool_)
    for group in groups:
        other |= ~same(group.slice(0, len(group) - 1), group.slice(1))
    other &= repeated
    return np.flatnonzero(other) if other.any() else None


def partial_columns(part: Part, partials: pa.RecordBatch) -> Columns:
    """The partials of one function."""
    return tuple(partials.column(place) for place in range(part.first, part.last))


def _marked(column: pa.Array) -> Mask:
    """Where a boolean column is true."""
    known = pc.fill_null(column, fill_value=False) if column.null_count else column
    return known.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _order(codes: Sequence[Codes]) -> Indices:
    """The order by codes; what is in order already, as one page is, need not be sorted."""
    ahead = np.zeros(max(0, codes[0].size - 1), np.bool_)
    level = np.ones(ahead.size, np.bool_)
    for code in codes:
        ahead |= level & (code[1:] < code[:-1])
        level &= code[1:] == code[:-1]
        if ahead.any():
            return sorted_by(codes)
    return np.arange(codes[0].size)


def _in_order(order: Indices) -> bool:
    return bool((order[1:] > order[:-1]).all())


def clean(column: pa.Array) -> pa.Array:
    """A key column as Spark groups by it: -0.0 is 0.0, and there is one NaN."""
    if not pa.types.is_float32(column.type) and not pa.types.is_float64(column.type):
        return column
    floats: npt.NDArray[np.float64] = pc.fill_null(column, fill_value=0.0).to_numpy(zero_copy_only=False)
    clean = np.where(np.isnan(floats), floats.dtype.type("nan"), floats + 0)
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(clean, column.type, mask=mask)


def _key_field(name: str, rows: RowType) -> pa.Field:
    return pa.field(MOMENT, pa.int64()) if name == TIME else pa.field(VALUE, rows.columns.field(name).type)


def _kind(column: str | None, rows: RowType) -> pa.DataType:
    if column is None:
        return pa.null()
    return pa.int64() if column in (TIME, SLIDE) else rows.columns.field(column).type
