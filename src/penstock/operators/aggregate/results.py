"""Results: the partials of complete windows, lowered and finished, in chunks that fit the budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.budget import Budget
from penstock.core.errors import FlowError
from penstock.core.operator import Out
from penstock.core.rows import Indices, RowType
from penstock.core.time import TIME_MIN, Times, from_times
from penstock.core.windows import Wid
from penstock.kernels.segments import Mask, numbers_of
from penstock.operators.aggregate.config import WindowAggregate, is_holistic
from penstock.operators.aggregate.functions import TooLargeError, where_of
from penstock.operators.aggregate.lanes import Apart, Lane, Part, partial_columns
from penstock.operators.aggregate.partials import Piece, Renumber, Source, fits, folded, pieces, whole_pieces

_LARGEST_CHUNK = 1 << 16
"""Rows in one chunk of output at most."""

_LONGEST_SHOWN = 40
"""Characters of a value in a message."""


class Read(NamedTuple):
    """What the results of some windows are made from: sources and new numbers for each lane, how much they grow."""

    sources: Sequence[Sequence[Source]]
    renumber: Sequence[Renumber | None]
    growth: int = 1
    keep: Callable[[pa.RecordBatch], Mask] | None = None
    """Which of the main lane's rows come out; None for all."""

    @property
    def all(self) -> list[Source]:
        """The sources of all lanes."""
        return [source for lane in self.sources for source in lane]


Reading = Callable[[Wid, Wid], Read]
"""What the windows from one until before another are made from."""

Ends = Callable[[pa.RecordBatch], tuple[Times, Times]]
"""Where the windows of the main lane's partials start and end."""


class Results:
    """Makes the results of one aggregation from its lanes."""

    def __init__(
        self, config: WindowAggregate, inputs: tuple[RowType, ...], lanes: Sequence[Lane], budget: Budget
    ) -> None:
        self._config = config
        self._schema = config.output(inputs)
        self._axis = config.axis(inputs)
        self._lanes = lanes
        self._budget = budget
        self.emitted = "final"
        """What the column that says so says of results that come out now."""

    def close(self, first: Wid, after: Wid, read: Reading, ends: Ends, within: Piece | None = None) -> Iterator[Out]:
        """The results of the windows from `first` until before `after`, `within` some range of hashes.

        Windows close together as far as memory goes: what one hash has too much of is taken some windows at a time.
        """
        reading = read(first, after)
        for piece in pieces(reading.all, self._budget, reading.growth, within):
            yield from self._piece(piece, first, after, reading, read, ends)

    def _piece(self, piece: Piece, first: Wid, after: Wid, reading: Read, read: Reading, ends: Ends) -> Iterator[Out]:
        if fits(reading.all, piece, self._budget, reading.growth):
            yield from self._folded(piece, reading, ends)
        elif after - first > 1:
            middle = (first + after) // 2
            for low, high in ((first, middle), (middle, after)):
                half = read(low, high)
                for part in pieces(half.all, self._budget, reading.growth, piece):
                    yield from self._piece(part, low, high, half, read, ends)
        else:
            for part in whole_pieces(reading.all, self._budget, reading.growth, piece):
                yield from self._folded(part, reading, ends)

    def _folded(self, piece: Piece, reading: Read, ends: Ends) -> Iterator[Out]:
        tables: list[pa.RecordBatch] = []
        apart: Apart = "unknown"
        for mine, renumber in zip(reading.sources, reading.renumber, strict=True):
            tables.append(folded(mine, piece, self._budget, renumber, reading.growth, apart))
            if len(tables) == 1 < len(self._lanes):
                # All lanes have these groups; the main one has the fewest partials.
                apart = self._lanes[0].apart(tables[0])
        with self._budget.hold(2 * sum(table.nbytes for table in tables), "results"):
            if reading.keep is not None:
                tables = self.only(tables, reading.keep(tables[0]))
            yield from self.out(tables, ends)

    def only(self, tables: Sequence[pa.RecordBatch], mask: Mask) -> list[pa.RecordBatch]:
        """Folded tables with the marked windows and groups only; the mask is over the main lane's rows."""
        if mask.all():
            return list(tables)
        kept = []
        for lane, table in zip(self._lanes, tables, strict=True):
            sizes = np.diff(lane.boundaries(table), append=table.num_rows)
            kept.append(table.filter(pa.array(np.repeat(mask, sizes))))
        return kept

    def out(self, tables: Sequence[pa.RecordBatch], ends: Ends) -> Iterator[Out]:
        """The results of folded partials, one table for each lane."""
        rows = tables[0].num_rows
        if not rows:
            return
        starts = [lane.boundaries(table) for lane, table in zip(self._lanes[1:], tables[1:], strict=True)]
        for first in range(0, rows, _LARGEST_CHUNK):
            last = min(rows, first + _LARGEST_CHUNK)
            chunk = [tables[0].slice(first, last - first)]
            cuts = []
            for table, begin in zip(tables[1:], starts, strict=True):
                low = int(begin[first])
                high = int(begin[last]) if last < begin.size else table.num_rows
                chunk.append(table.slice(low, high - low))
                cuts.append(begin[first:last] - low)
            yield Out("results", self._batch(chunk, cuts, ends))

    def _batch(self, tables: Sequence[pa.RecordBatch], starts: Sequence[Indices], ends: Ends) -> pa.RecordBatch:
        main = tables[0]
        columns = [main.column(place) for place in self._lanes[0].group_places]
        columns += [self._moments(edge) for edge in ends(main)]
        parts = {part.name: part for part in self._lanes[0].parts}
        for name, function in self._config.aggregates:
            if is_holistic(function):
                place = next(n for n, lane in enumerate(self._lanes) if lane.keys == function.keys)
                lane, table = self._lanes[place], tables[place]
                values = table.column(lane.key_places[-1])
                where = where_of(function)
                part = lane.parts[0] if where is None else next(p for p in lane.parts if where_of(p.function) == where)
                counts = numbers_of(table.column(part.first)).astype(np.int64, copy=False)
                if where is not None:
                    values = pc.if_else(pa.array(counts > 0), values, pa.scalar(None, values.type))
                columns.append(function.finish(values, counts, starts[place - 1]))
            else:
                columns.append(self._lowered(parts[name], main, columns[: len(self._config.by) + 2]))
        if self._config.emit != "final":
            columns.append(pa.array(np.repeat(self.emitted, main.num_rows), pa.string()))
        cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(cast, schema=self._schema)

    def _lowered(self, part: Part, main: pa.RecordBatch, window: Sequence[pa.Array]) -> pa.Array:
        """The results of one function; `window` are the columns that say of what."""
        try:
            with part.telling():
                return part.function.lower(partial_columns(part, main), part.kind)
        except TooLargeError as error:
            named = zip(self._schema.names, window, strict=False)
            where = ", ".join(f"{name}={_shown(column[error.row])}" for name, column in named)
            raise FlowError.too_large(part.name, str(part.function.column), error.kind, where) from None

    def _moments(self, times: Times) -> pa.Array:
        """Window edges in the type of the time column; the beginning of the axis is no moment: null."""
        endless = times == TIME_MIN
        mask = endless if endless.any() else None
        return from_times(pa.array(np.where(endless, 0, times), pa.int64(), mask=mask), self._axis)


def _shown(value: pa.Scalar) -> str:
    """A value in a message, if it is long only its beginning."""
    plain = value.as_py()
    text = repr(plain) if isinstance(plain, str | bytes) else str(plain)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
