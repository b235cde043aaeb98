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
from penstock.core.windows import Wid, Wids
from penstock.kernels.segments import Mask
from penstock.kernels.width import even_pieces, row_widths
from penstock.operators.aggregate.lanes import Apart, Lane

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
    """The pages of one lane that have one role; `kind` tells roles apart."""

    lane: Lane
    kind: int
    store: PageStore
    budget: Budget
    pages: list[Page]

    def add(self, partials: pa.RecordBatch) -> None:
        """Keep a folded batch."""
        if partials.num_rows:
            self.pages.append(write_page(self.store, self.kind, self.lane.page_order(partials)))

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

    def remove(self, gone: Callable[[pa.RecordBatch], Mask]) -> None:
        """Let go of the partials that `gone` marks; pages that have none of them stay as they are."""
        kept: list[Page] = []
        for page in self.pages:
            rows = read_page(self.store, page)
            left = ~gone(rows)
            if left.all():
                kept.append(page)
                continue
            left &= times_of(rows) >= page.floor
            if left.any():
                with self.budget.hold(rows.nbytes, "letting go of partials"):
                    rows = rows.filter(pa.array(left))
                    kept.append(replace(write_page(self.store, self.kind, rows), maker=page.maker))
        self.take(kept)

    @property
    def grown(self) -> bool:
        """Whether what came after the first run is at least half as much: then folding everything is paid for."""
        sizes = [sum(page.rows for page in run) for run in _runs(self.pages)]
        return len(sizes) > 1 and 2 * sum(sizes[1:]) >= sizes[0]

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
            if not self.has_all(page):
                rows = rows.filter(pa.array(self.has(page, times_of(rows))))
            if rows.num_rows:
                yield rows

    def has_all(self, page: Page) -> bool:
        """Whether every number of a page is among these, by what is known without reading it."""
        return max(self.low, page.floor) <= page.min_time and (self.high > page.max_time or self.to_end)

    def has(self, page: Page, numbers: Wids) -> Mask:
        """Which numbers of a page are among these."""
        above: Mask = numbers >= max(self.low, page.floor)
        return above if self.to_end else above & (numbers < self.high)


Renumber = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Gives partials other numbers, perhaps several each."""


def pieces(sources: Sequence[Source], budget: Budget, growth: int = 1, within: Piece | None = None) -> Iterator[Piece]:
    """Ranges of hashes whose partials, each growing to `growth`, can be folded within half of the room.

    What sources have of a page is estimated: a piece may be too much at once, see `fits`, and `whole_pieces` for those
    that are not. What has one hash is not cut.
    """
    pages = [(source, page, _share(source, page)) for source in sources for page in source.pages()]
    if pages:
        yield from _cut(pages, within or Piece(*_HASHES), max(1, budget.room // 2), growth)


def whole_pieces(sources: Sequence[Source], budget: Budget, growth: int, within: Piece) -> Iterator[Piece]:
    """The same, as if sources had the whole of their pages: only what has one hash may be too much at once."""
    pages = [(source, page, 1.0) for source in sources for page in source.pages()]
    if pages:
        yield from _cut(pages, within, max(1, budget.room // 2), growth)


def fits(sources: Sequence[Source], piece: Piece, budget: Budget, growth: int = 1) -> bool:
    """Whether a piece can be folded at once within half of the room: if all its numbers can, or by those there are."""
    room = budget.room // (2 * growth)
    parts = [_part(source, page, piece) for source in sources for page in source.pages()]
    return sum(part.size for part in parts if part is not None) <= room or _held(sources, piece).size <= room


def folded(
    sources: Sequence[Source],
    piece: Piece,
    budget: Budget,
    renumber: Renumber | None = None,
    growth: int = 1,
    apart: Apart = "unknown",
) -> pa.RecordBatch:
    """One piece of some sources of one lane, folded; it may be known that its groups are `apart`.

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
            return lane.fold(pa.concat_batches([done, whole]) if done.num_rows else whole, apart)

    for part in (part for source in sources for rows in source.read(piece) for part in slices(rows, limit, growth)):
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
                written.append(write_page(target.store, target.kind, lane.page_order(rows)))
    return one_run(written)


def one_run(pages: Sequence[Page]) -> list[Page]:
    """Pages that were made together, as such."""
    run = pages[0].name if len(pages) > 1 else None
    return [replace(page, maker=run) for page in pages]


def by_number(sources: Sequence[Source], piece: Piece, budget: Budget) -> Iterator[Sequence[Source]]:
    """The same sources, some numbers at a time where all of them do not fit at once.

    It cuts between numbers that are there, so it takes about as many steps as there are at most; one number is not cut.
    """
    middle = None if fits(sources, piece, budget) else middle_of(sources, piece)
    if middle is None:
        yield sources
        return
    for low, high in ((TIME_MIN, middle), (middle, TIME_MAX)):
        half = [s._replace(low=max(s.low, low), high=min(s.high, high)) for s in sources]
        yield from by_number([s._replace(among=s.pages()) for s in half], piece, budget)


def middle_of(sources: Sequence[Source], piece: Piece) -> Wid | None:
    """The number to cut a piece at: some numbers lie below it, others do not. None if there is at most one."""
    held = _held(sources, piece)
    middle = (held.low + held.high) // 2 + 1
    return None if held.low >= held.high or middle == TIME_MAX else middle


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


def slices(rows: pa.RecordBatch, limit: int, growth: int = 1) -> Iterator[pa.RecordBatch]:
    """Rows, so many at a time as can be folded within a limit, but at least one."""
    return even_pieces(rows, limit, growth * _FOLDING, growth * _COPIES)


def cost(rows: pa.RecordBatch) -> int:
    """The bytes that folding takes."""
    return _cost(rows, 1)


def _cost(rows: pa.RecordBatch, growth: int) -> int:
    return growth * (_COPIES * int(rows.nbytes) + _FOLDING * int(rows.num_rows))


def _cut(pages: list[tuple[Source, Page, float]], piece: Piece, limit: int, growth: int) -> Iterator[Piece]:
    """Halve a range of hashes until what it holds, a share of each page, fits or has one hash."""
    parts = [(share, part) for source, page, share in pages if (part := _part(source, page, piece)) is not None]
    if not parts:
        return
    first, last = min(part.hashes.first for _, part in parts), max(part.hashes.last for _, part in parts)
    if growth * sum(math.ceil(share * part.size) for share, part in parts) <= limit or first >= last:
        yield piece
        return
    middle = (first + last) // 2
    for half in (Piece(piece.first, middle), Piece(middle + 1, piece.last)):
        yield from _cut([each for each in pages if _overlaps(each[1], half)], half, limit, growth)


class _Part(NamedTuple):
    """What a page has of a piece, whatever its numbers: which rows, their hashes, the bytes that folding one takes."""

    begin: int
    end: int
    hashes: Piece
    each: float

    @property
    def size(self) -> float:
        """The bytes that folding all of it takes, about."""
        return (self.end - self.begin) * self.each


def _part(source: Source, page: Page, piece: Piece) -> _Part | None:
    """A page's part of a piece, if it has one."""
    if not _overlaps(page, piece):
        return None
    if piece.first <= page.min_hash and page.max_hash <= piece.last:
        each = _COPIES * page.nbytes / page.rows + _FOLDING
        return _Part(0, page.rows, Piece(page.min_hash, page.max_hash), each)
    rows = read_page(source.table.store, page)
    begin, end = _between(rows, piece)
    if begin == end:
        return None
    some = rows.slice(begin, end - begin)
    hashes = hashes_of(some)
    return _Part(begin, end, Piece(int(hashes[0]), int(hashes[-1])), _cost(some, 1) / some.num_rows)


def _share(source: Source, page: Page) -> float:
    """How much of a page a source has, if its numbers are spread evenly; twice that to be safe."""
    low, high = max(source.low, page.floor, page.min_time), min(source.high, page.max_time + 1)
    return min(1.0, 2 * max(1, high - low) / (page.max_time - page.min_time + 1))


class _Held(NamedTuple):
    """What sources have of a piece: the bytes that folding it takes, and its first and last number, at the widest."""

    size: float
    low: Wid
    high: Wid


def _held(sources: Sequence[Source], piece: Piece) -> _Held:
    """By the numbers themselves where a source has not all of a page."""
    size, low, high = 0.0, TIME_MAX, TIME_MIN
    for source in sources:
        for page in source.pages():
            part = _part(source, page, piece)
            if part is None:
                continue
            if source.has_all(page):
                size, low, high = size + part.size, min(low, page.min_time), max(high, page.max_time)
                continue
            rows = read_page(source.table.store, page).slice(part.begin, part.end - part.begin)
            numbers = times_of(rows)
            which = np.flatnonzero(source.has(page, numbers))
            numbers = numbers[which]
            if numbers.size:
                size += _COPIES * int(row_widths(rows, which).sum()) + _FOLDING * numbers.size
                low, high = min(low, int(numbers.min())), max(high, int(numbers.max()))
    return _Held(size, low, high)


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
        runs.setdefault(page.maker or f"{page.name}:{page.begin}", []).append(page)
    return list(runs.values())
