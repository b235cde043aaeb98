"""Partials in pages: added as rows come, merged range by range of hashes, however many there are.

Whatever a window needs is the fold of some numbers of some tables. A sweep cuts the hash space so that each piece of
all the tables it reads fits the budget; pieces are folded one after the other and are gone before the next is read.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.pages import Page, PageStore, read_page, write_page
from penstock.core.rows import concat, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.core.windows import Wid
from penstock.operators.aggregate.lanes import Lane

_FOLDING = 96
"""Bytes that folding one partial takes besides its columns: codes, order, segments and their scratch."""

_COPIES = 3
"""How often a partial's columns exist while it is folded: as gathered, in order, and as results."""

_MERGE_AT = 4
"""So many runs of about the same size are merged into one."""

_HASHES = (0, 2**64 - 1)


class Piece(NamedTuple):
    """A range of hashes, both ends included."""

    first: int
    last: int


@dataclass(slots=True)
class Partials:
    """The pages of one lane that have one role; `port` tells roles apart."""

    lane: Lane
    port: int
    store: PageStore
    budget: Budget
    pages: list[Page]

    def add(self, partials: pa.RecordBatch) -> None:
        """Keep a folded batch."""
        if partials.num_rows:
            self.pages.append(write_page(self.store, self.port, self.lane.page_order(partials)))

    def numbers(self) -> tuple[Wid, Wid] | None:
        """The first number there may be, and the last; None if there is none."""
        if not self.pages:
            return None
        return min(max(page.min_time, page.floor) for page in self.pages), max(page.max_time for page in self.pages)

    def forget_below(self, number: Wid) -> None:
        """Let go of all numbers below this one."""
        kept = []
        for page in self.pages:
            if page.max_time < number:
                self.store.drop(page.name)
            else:
                kept.append(replace(page, floor=number) if page.min_time < number > page.floor else page)
        self.pages[:] = kept

    def clear(self) -> None:
        """Let go of everything."""
        for page in self.pages:
            self.store.drop(page.name)
        self.pages.clear()

    def take(self, pages: Iterable[Page]) -> None:
        """Hold these pages instead."""
        pages = list(pages)
        for name in {page.name for page in self.pages} - {page.name for page in pages}:
            self.store.drop(name)
        self.pages[:] = pages

    def tidy(self) -> None:
        """Fold the latest pages with older ones as long as those are not much larger.

        So a partial is rewritten a logarithmic number of times, and a number's partials of many epochs become one.
        """
        runs = _runs(self.pages)
        count, rows = 0, 0
        for run in reversed(runs):
            if count and sum(page.rows for page in run) > 2 * rows:
                break
            count, rows = count + 1, rows + sum(page.rows for page in run)
        if count < _MERGE_AT:
            return
        kept = [page for run in runs[:-count] for page in run]
        merged = [page for run in runs[-count:] for page in run]
        folded = write_folded(self, [Source(self, TIME_MIN, TIME_MAX, merged)])
        self.take([*kept, *folded])


class Table(Protocol):
    """Pages in a store."""

    store: PageStore
    pages: list[Page]


class Source(NamedTuple):
    """The rows of a table whose numbers lie from `low` until before `high`; `among` some of its pages."""

    table: Table
    low: Wid = TIME_MIN
    high: Wid = TIME_MAX
    among: Sequence[Page] | None = None

    def pages(self) -> list[Page]:
        """The pages that may hold some."""
        pages = self.table.pages if self.among is None else self.among
        return [page for page in pages if page.max_time >= self.low and (page.min_time < self.high or self.to_end)]

    @property
    def to_end(self) -> bool:
        """Whether the last number there is counts, too."""
        return self.high == TIME_MAX

    def read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The partials of a piece, page by page."""
        for page in self.pages():
            if not _overlaps(page, piece):
                continue
            rows = read_page(self.table.store, page)
            begin, end = _between(rows, piece)
            if begin == end:
                continue
            rows = rows.slice(begin, end - begin)
            low = max(self.low, page.floor)
            if low > page.min_time or (self.high <= page.max_time and not self.to_end):
                numbers = times_of(rows)
                held = numbers >= low if self.to_end else (numbers >= low) & (numbers < self.high)
                rows = rows.filter(pa.array(held))
            if rows.num_rows:
                yield rows


Renumber = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Gives partials other numbers, perhaps several each."""


def pieces(sources: Sequence[Source], budget: Budget, growth: int = 1, within: Piece | None = None) -> Iterator[Piece]:
    """Ranges of hashes whose partials, each growing to `growth`, can be folded within half of the room.

    What has one hash is not cut: such a piece may be too much at once, see `fits`.
    """
    pages = [(source, page) for source in sources for page in source.pages()]
    if pages:
        yield from _cut(pages, within or Piece(*_HASHES), max(1, budget.room // 2), growth)


def fits(sources: Sequence[Source], piece: Piece, budget: Budget, growth: int = 1) -> bool:
    """Whether a piece can be folded at once within half of the room."""
    parts = [_part(source, page, piece) for source in sources for page in source.pages()]
    return 2 * growth * sum(part.size for part in parts if part is not None) <= budget.room


def folded(
    sources: Sequence[Source], piece: Piece, budget: Budget, renumber: Renumber | None = None, growth: int = 1
) -> pa.RecordBatch:
    """One piece of some sources of one lane, folded.

    A single hash may have more partials than fit: they are folded as they come, as often as it takes.
    """
    lane = cast(Partials, sources[0].table).lane
    limit = max(1, budget.room // 2)
    raw: list[pa.RecordBatch] = []
    done, held = concat([], lane.schema), 0

    def fold() -> pa.RecordBatch:
        size = _cost(done, 1) + sum(_cost(rows, growth) for rows in raw)
        with budget.hold(size, "folding the partials of a window"):
            whole = concat(raw, lane.schema)
            whole = whole if renumber is None or not raw else renumber(whole)
            return lane.fold(pa.concat_batches([done, whole]) if done.num_rows else whole)

    for part in (part for source in sources for rows in source.read(piece) for part in _slices(rows, limit, growth)):
        if raw and held + _cost(part, growth) > limit:
            done, raw = fold(), []
            held = _cost(done, 1)
        raw.append(part)
        held += _cost(part, growth)
    return fold()


def write_folded(target: Partials, sources: Sequence[Source], number: Wid | None = None) -> list[Page]:
    """The fold of `sources`, all under `number` if one is given, as pages of `target`, which it does not yet hold."""
    lane, budget = target.lane, target.budget
    renumber = None if number is None else (lambda rows: lane.renumbered(rows, number))
    written: list[Page] = []
    for piece in pieces(sources, budget):
        for part in [sources] if number is not None else by_number(sources, piece, budget):
            rows = folded(part, piece, budget, renumber)
            if rows.num_rows:
                written.append(write_page(target.store, target.port, lane.page_order(rows)))
    run = written[0].name if len(written) > 1 else None
    return [replace(page, run=run) for page in written]


def by_number(sources: Sequence[Source], piece: Piece, budget: Budget) -> Iterator[Sequence[Source]]:
    """The same sources, some numbers at a time where all of them do not fit at once."""
    low = min((max(source.low, page.min_time) for source in sources for page in source.pages()), default=0)
    high = max((min(source.high - 1, page.max_time) for source in sources for page in source.pages()), default=0)
    if low >= high or fits(sources, piece, budget):
        yield sources
        return
    middle = (low + high) // 2 + 1
    for source_low, source_high in ((TIME_MIN, middle), (middle, TIME_MAX)):
        half = [s._replace(low=max(s.low, source_low), high=min(s.high, source_high)) for s in sources]
        yield from by_number([s._replace(among=s.pages()) for s in half], piece, budget)


def with_arrivals(cut: Iterator[Piece], rows: pa.RecordBatch | None) -> Iterator[tuple[Piece, pa.RecordBatch | None]]:
    """Ranges of hashes that cover everything, each with its rows."""
    firsts = [piece.first for piece in cut]
    bounds = [0, *firsts[1:], 2**64]
    for first, after in itertools.pairwise(bounds):
        piece = Piece(first, after - 1)
        if rows is None:
            yield piece, None
        else:
            hashes = hashes_of(rows)
            low = int(np.searchsorted(hashes, np.uint64(piece.first)))
            high = int(np.searchsorted(hashes, np.uint64(piece.last), side="right"))
            yield piece, rows.slice(low, high - low)


def cost(rows: pa.RecordBatch) -> int:
    """The bytes that folding takes."""
    return _cost(rows, 1)


def _slices(rows: pa.RecordBatch, limit: int, growth: int) -> Iterator[pa.RecordBatch]:
    count = -(-_cost(rows, growth) // limit)
    size = max(1, rows.num_rows // count)
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)


def _cost(rows: pa.RecordBatch, growth: int) -> int:
    return growth * (_COPIES * int(rows.nbytes) + _FOLDING * int(rows.num_rows))


def _cut(pages: list[tuple[Source, Page]], piece: Piece, limit: int, growth: int) -> Iterator[Piece]:
    """Halve a range of hashes until what it holds fits or has one hash."""
    parts = [part for source, page in pages if (part := _part(source, page, piece)) is not None]
    if not parts:
        return
    first, last = min(part.hashes.first for part in parts), max(part.hashes.last for part in parts)
    if growth * sum(part.size for part in parts) <= limit or first >= last:
        yield piece
        return
    middle = (first + last) // 2
    for half in (Piece(piece.first, middle), Piece(middle + 1, piece.last)):
        yield from _cut([(s, page) for s, page in pages if _overlaps(page, half)], half, limit, growth)


class _Part(NamedTuple):
    """What a page has of a piece: the bytes that folding it takes, about, and its hashes."""

    size: int
    hashes: Piece


def _part(source: Source, page: Page, piece: Piece) -> _Part | None:
    """A page's part of a piece, if it has one; by bytes, if its numbers are spread evenly, twice that to be safe."""
    if not _overlaps(page, piece):
        return None
    rows, hashes = page.rows, Piece(page.min_hash, page.max_hash)
    if page.min_hash < piece.first or page.max_hash > piece.last:
        held = read_page(source.table.store, page)
        begin, end = _between(held, piece)
        if begin == end:
            return None
        rows, hashes = end - begin, Piece(int(hashes_of(held)[begin]), int(hashes_of(held)[end - 1]))
    low, high = max(source.low, page.floor, page.min_time), min(source.high, page.max_time + 1)
    share = min(1.0, 2 * max(1, high - low) / (page.max_time - page.min_time + 1))
    return _Part(math.ceil(rows * share * (_COPIES * page.nbytes / page.rows + _FOLDING)), hashes)


def _overlaps(page: Page, piece: Piece) -> bool:
    return page.min_hash <= piece.last and page.max_hash >= piece.first


def _between(rows: pa.RecordBatch, piece: Piece) -> tuple[int, int]:
    hashes = hashes_of(rows)
    ends = np.array(piece, np.uint64)
    return int(np.searchsorted(hashes, ends[0])), int(np.searchsorted(hashes, ends[1], side="right"))


def _runs(pages: Sequence[Page]) -> list[list[Page]]:
    """Pages that were made together, in the order of the first."""
    runs: dict[str, list[Page]] = {}
    for page in pages:
        runs.setdefault(page.run or f"{page.name}:{page.begin}", []).append(page)
    return list(runs.values())
