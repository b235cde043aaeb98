"""Top: the rows with the greatest values of a column in each window and group.

Once its window is complete, a row is emitted iff its value is not null and fewer than `n` rows of its window and group
have a greater one. So rows that tie for the last place are all emitted, and the result depends on the rows alone.
Windows follow one another without overlap or gap. Null is a group like any other; NaN is the greatest number.

Rows wait in pages; those with `n` greater rows among the rows that arrive with them are dropped at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.durations import TimeUnit
from penstock.core.errors import ConfigError
from penstock.core.meter import Meter
from penstock.core.operator import Allowance, Operator, Origin, Out, State
from penstock.core.pages import PageStore, write_page
from penstock.core.progress import Bounds
from penstock.core.rows import Indices, RowType, concat, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.core.windows import Slides, Sliding, Window, sliding
from penstock.kernels.distinct import leaders
from penstock.kernels.segments import Codes, codes_of, is_null, segment_of, sizes_of, sorted_by, starts_of
from penstock.kernels.sort import page_order
from penstock.operators.pieces import pieces
from penstock.operators.progress.held import ALL_HASHES, HashRange, Held, halves

_RANKING = 256
"""Bytes that sorting, grouping and ranking one row takes besides its own."""

Ties = Literal["all", "some"]
"""Whether all rows that tie for the last place count, or only as many as make `n`."""

Region = tuple[HashRange, tuple[Time, Time]]
"""A range of hashes and a span of time, all ends included."""


@dataclass(frozen=True, slots=True)
class Top(Operator):
    """Keep the rows of each window and group for which fewer than `n` rows have a greater value.

    >>> Top(on=("k",), n=3, of="v", window=sliding(10)).says()
    'top 3 of v by k in sliding(range=10, slide=10)'
    """

    on: tuple[str, ...] = ()
    """The keys of its input: the groups."""
    n: int = 1
    of: str = ""
    window: Window = field(default_factory=lambda: sliding(1))
    unit: TimeUnit = "ticks"

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise ConfigError(f"top({self.n!r}, …) takes a whole number of at least 1: how many rows of each window.")
        if not isinstance(self.window, Sliding) or self.window.range != self.window.slide:
            length = self.window.range if isinstance(self.window, Sliding) else None
            written = "…" if length is None else length.amount if length.kind == "ticks" else repr(str(length))
            raise ConfigError(
                f"top(…) needs windows that follow one another without overlap or gap, but the window is "
                f"{self.window}. Write .window(range={written}), without slide=."
            )
        self.slides  # noqa: B018 – raises if the window does not fit the unit

    def says(self, inputs: tuple[RowType, ...] = ()) -> str:
        """What it does, in words."""
        by = f" by {', '.join(self.on)}" if self.on else ""
        return f"top {self.n} of {self.of}{by} in {self.window}"

    @property
    def slides(self) -> Slides:
        """The windows."""
        return self.window.on(self.unit)  # type: ignore[return-value]

    @property
    def compacts(self) -> bool:
        """Its pages may be merged between epochs."""
        return True

    @property
    def sees_ahead(self) -> bool:
        """True: the rows of an epoch may complete windows."""
        return True

    @property
    def ahead(self) -> int | None:
        """The length of a window: rows wait for its end."""
        return self.slides.range

    def carries(self, inputs: tuple[RowType, ...]) -> dict[str, Origin]:
        """All columns but the groups, the values and the time."""
        looked_at = {*inputs[0].keys, inputs[0].time, self.of}
        return {name: origin for name, origin in self.origins(inputs).items() if name not in looked_at}

    def bounds(self, *ports: Time) -> Bounds:
        """Rows of the first open window are still to come."""
        return Bounds.at(self.edge(ports[0]))

    def edge(self, bound: Time) -> Time:
        """The start of the first window that is not complete.

        >>> Top(window=sliding(10)).edge(25)
        20
        """
        if bound in (TIME_MIN, TIME_MAX):
            return bound
        return self.slides.extent(self.slides.complete(bound))[0]

    def logic(
        self, inputs: tuple[RowType, ...], store: PageStore, budget: Budget, state: State, meter: Meter | None = None
    ) -> Ranking:
        """The running operator."""
        return Ranking(self, inputs[0], store, budget, state)


class Ranking:
    """The logic of Top."""

    def __init__(self, config: Top, rows: RowType, store: PageStore, budget: Budget, state: State) -> None:
        self._config = config
        self._slides = config.slides
        self._type = rows
        self._store = store
        self._budget = budget
        self._waiting = Held(rows.inside, store, budget, state.pages)
        self._bound: Time = TIME_MIN

    def rows(self, port: int, rows: pa.RecordBatch) -> Iterator[Out]:
        """Let rows wait, except those with too many greater rows already."""
        for piece in pieces(rows, self._budget, _RANKING):
            with self._budget.hold(piece.nbytes + _RANKING * piece.num_rows, "ranking arrivals"):
                best = self._best(piece)
                if best.size:
                    order = best[page_order(hashes_of(piece)[best], times_of(piece)[best])]
                    self._waiting.pages.append(write_page(self._store, 0, piece.take(pa.array(order))))
        return iter(())

    def advance(self, port: int, bound: Time) -> Iterator[Out]:
        """Emit the best rows of the windows that are complete."""
        if bound <= self._bound:
            return
        self._bound, edge = bound, self._config.edge(bound)
        regions: list[Region] = [(ALL_HASHES, span) for span in self._waiting.due(edge)]
        while regions:
            hashes, span = regions.pop()
            cost = self._waiting.cost(*span, hashes)
            # Gathering and ranking together take at most four times what gathering takes.
            if 4 * cost <= self._budget.room:
                with self._budget.hold(cost, "rows of complete windows"):
                    yield from self._leave(self._waiting.gather(*span, hashes))
            elif hashes[0] < hashes[1]:
                regions += [(half, span) for half in halves(*hashes)]
            elif self._middle(*span) is not None:
                middle = self._middle(*span)
                assert middle is not None
                regions += [(hashes, (middle, span[1])), (hashes, (span[0], middle - 1))]
            else:
                yield from self._leave_in_pieces(hashes, span)
        self._waiting.forget(edge)

    def idle(self, work: Allowance) -> Iterator[Out]:
        """Nothing is deferred."""
        return iter(())

    def bounds(self) -> Bounds:
        """The start of the first window that is not complete."""
        return self._config.bounds(self._bound)

    def state(self) -> State:
        """Rows that wait."""
        return State(tuple(self._waiting.pages))

    def _leave(self, rows: pa.RecordBatch) -> Iterator[Out]:
        if not rows.num_rows:
            return
        with self._budget.hold(_RANKING * rows.num_rows, "ranking the rows of complete windows"):
            best = self._best(rows)
            if best.size:
                yield Out("results", self._type.leave(rows.take(pa.array(best))))

    def _leave_in_pieces(self, hashes: HashRange, span: tuple[Time, Time]) -> Iterator[Out]:
        """Emit the best rows of a window and hash with too many rows to rank at once, in two passes over them."""
        last = self._last(hashes, span)
        for piece in self._piece_by_piece(hashes, span):
            both = concat([last, piece], self._type.inside)
            group = leaders(np.zeros(both.num_rows, np.int64), self._keys(both))
            (codes,) = codes_of(self._values(both))
            least = np.full(both.num_rows, codes.min(), codes.dtype)
            least[group[: last.num_rows]] = codes[: last.num_rows]
            passing = np.flatnonzero((codes >= least[group])[last.num_rows :])
            if passing.size:
                yield Out("results", self._type.leave(piece.take(pa.array(passing))))

    def _last(self, hashes: HashRange, span: tuple[Time, Time]) -> pa.RecordBatch:
        """For each group with at least `n` rows, a row with the least value that is emitted."""
        best = concat([], self._type.inside)
        for piece in self._piece_by_piece(hashes, span):
            both = concat([best, piece], self._type.inside)
            best = both.take(pa.array(self._best(both, "some")))
        starts = starts_of(leaders(np.zeros(best.num_rows, np.int64), self._keys(best)))
        ends = starts + sizes_of(starts, best.num_rows) - 1
        return best.take(pa.array(ends[sizes_of(starts, best.num_rows) == self._config.n]))

    def _piece_by_piece(self, hashes: HashRange, span: tuple[Time, Time]) -> Iterator[pa.RecordBatch]:
        for part in self._waiting.page_by_page(*span, hashes):
            for piece in pieces(part, self._budget, _RANKING):
                with self._budget.hold(piece.nbytes + _RANKING * piece.num_rows, "ranking rows"):
                    yield piece

    def _best(self, rows: pa.RecordBatch, ties: Ties = "all") -> Indices:
        """The rows with fewer than `n` greater ones in their window and group, by group, window, descending value."""
        values = self._values(rows)
        there = np.flatnonzero(~is_null(values))
        if there.size < rows.num_rows:
            places = self._best(rows.take(pa.array(there)), ties) if there.size else there
            return there[places]
        if not there.size:
            return there
        (codes,) = codes_of(values)
        columns: list[Codes] = [hashes_of(rows), self._slides.wids(times_of(rows))[0], ~codes]
        order = sorted_by(columns)
        hashes = hashes_of(rows)[order]
        if self._type.keys and (hashes[1:] == hashes[:-1]).any():
            runs = starts_of(hashes)
            group = leaders(segment_of(runs, order.size), [key.take(pa.array(order)) for key in self._keys(rows)])
            if (group != np.repeat(runs, sizes_of(runs, order.size))).any():
                # Rows of groups that share a hash are interleaved: sort them by group.
                columns[0] = np.empty(order.size, np.int64)
                columns[0][order] = group
                order = sorted_by(columns)
        windows, equals = (starts_of(*(column[order] for column in some)) for some in (columns[:2], columns))
        before = np.repeat(windows, sizes_of(windows, order.size))
        place = np.arange(order.size) if ties == "some" else np.repeat(equals, sizes_of(equals, order.size))
        return order[place - before < self._config.n]

    def _values(self, rows: pa.RecordBatch) -> pa.Array:
        values = self._type.column(rows, self._config.of)
        return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values

    def _keys(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return [self._type.column(rows, key) for key in self._type.keys]

    def _middle(self, first: Time, last: Time) -> Time | None:
        """The start of a window at which to split a span; None if the span is in one window."""
        low, high = (int(wid) for wid in self._slides.wids(np.array([first, last]))[0])
        return None if low == high else self._slides.extent((low + high) // 2 + 1)[0]
