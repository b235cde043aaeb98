"""Five early joins of two streams of boxes on a simulated disk, and two variants that were rejected (§2.10).

Records are an id and a box. Pages, nodes of R-trees and blocks of records share the frames of one buffer; each page
that is read or written takes 8 ms, each test of two boxes some nanoseconds. Every join is a way to take in blocks of
one stream, of one record at least, in the order in which they are complete; the last block of a stream may be smaller.
A pair comes out once: with the block that is complete later.

They stand in the lab, not among the operators: what they do is told by pages and frames of this disk, and a block of
pages or a tree of nodes on it has no place in the contract by which streams run.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from lab.box_matching import Boxes, covers, meeting
from lab.page_buffer import PageBuffer, PageCounts
from lab.paged_rtree import PagedTree
from lab.simulated_disk import CpuModel, VirtualClock
from penstock.core.delays import Seconds
from penstock.core.errors import ConfigError
from penstock.core.rows import Indices

LEFT, RIGHT = 0, 1

BOX_TEST = 10e-9
"""Seconds to test two boxes, of a machine of that time; the source does not give it."""

_TREES = 3
"""Frames for each tree of summaries."""


@dataclass(frozen=True, slots=True)
class Room:
    """A buffer of so many `frames`, and how many `records` fit into a page: 4096 bytes of 20 each.

    >>> Room().blocks(1), Room().blocks(7)
    (63, 60)
    """

    frames: int = 128
    records: int = 204

    def blocks(self, others: int) -> int:
        """How many pages a block of either stream may have if `others` frames are kept for something else."""
        pages = (self.frames - others) // 2
        if pages < 1:
            raise ConfigError(f"frames={self.frames} leaves no page for a block: {others} are needed for the rest.")
        return pages

    def pages(self, rows: int) -> int:
        """How many pages so many records take."""
        return -(-rows // self.records)


class Streams(NamedTuple):
    """The boxes of both streams in the order in which they arrive, and when each does, in seconds."""

    boxes: tuple[Boxes, Boxes]
    moments: tuple[Seconds, Seconds]

    @classmethod
    def steady(cls, left: Boxes, right: Boxes) -> Streams:
        """One of each in turn, as fast as they are taken in: moments are numbers, and nobody waits for them."""
        turns = (np.arange(len(left), dtype=np.float64) * 2, np.arange(len(right), dtype=np.float64) * 2 + 1)
        return cls((left, right), (turns[0], turns[1]))


class Step(NamedTuple):
    """How far a join was when results came out: they and all before them, seconds, pages moved and compared."""

    results: int
    now: float
    cpu: float
    build: int
    join: int
    compared: int


@dataclass(frozen=True, slots=True)
class Joined:
    """What a join gave: the pairs, by the places in their streams, and the steps in which they came."""

    left: Indices
    right: Indices
    steps: tuple[Step, ...]
    counts: PageCounts

    @property
    def last(self) -> Step:
        """How far it was at the end."""
        return self.steps[-1]


class EarlyJoin(abc.ABC):
    """A join of two streams of boxes in a room, with a clock of its own.

    With `waits`, nothing is done with a record before it arrives; without, all are there when they are wanted.
    """

    def __init__(self, room: Room | None = None) -> None:
        self.room = room or Room()
        self.counts = PageCounts(VirtualClock(CpuModel(comparison=BOX_TEST)))
        self.compared = 0
        """Pairs of pages, or of nodes, whose records were tested against each other."""
        self._pairs: tuple[list[Indices], list[Indices]] = ([], [])
        self._steps: list[Step] = []
        self._results = 0
        self.streams = Streams.steady(np.zeros((0, 4)), np.zeros((0, 4)))

    @property
    @abc.abstractmethod
    def block(self) -> int:
        """How many records are taken in at once."""

    @abc.abstractmethod
    def take(self, side: int, first: int, last: int) -> None:
        """A block of a stream is complete: its records from `first` to before `last`."""

    def finish(self) -> None:  # noqa: B027 – most joins are done by then
        """Both streams have ended."""

    def run(self, streams: Streams, waits: bool = False) -> Joined:
        """Join two streams to their end."""
        self.streams = streams
        for side, first, last, moment in self._blocks():
            if waits:
                self.counts.clock.wait_until(moment)
            self.take(side, first, last)
        self.finish()
        self._note()
        none = [np.zeros(0, np.int64)]
        left, right = (np.concatenate(none + some) for some in self._pairs)
        return Joined(left, right, tuple(self._steps), self.counts)

    def boxes(self, side: int, first: int, last: int) -> Boxes:
        """Some records of a stream."""
        return self.streams.boxes[side][first:last]

    def emit(self, side: int, mine: Indices, theirs: Indices) -> None:
        """Pairs come out: places in the stream `side`, and in the other."""
        if mine.size:
            self._pairs[side].append(mine)
            self._pairs[1 - side].append(theirs)
            self._results += mine.size
            self._note()

    def _note(self) -> None:
        clock, pages = self.counts.clock, self.counts.by_phase
        self._steps.append(Step(self._results, clock.now, clock.cpu, pages["build"], pages["join"], self.compared))

    def _blocks(self) -> Iterator[tuple[int, int, int, float]]:
        """By the moment at which each is complete: of which stream, from where to where, and the moment."""
        ends = [np.arange(self.block, len(boxes) + self.block, self.block) for boxes in self.streams.boxes]
        ends = [np.minimum(some, len(boxes)) for some, boxes in zip(ends, self.streams.boxes, strict=True)]
        moments = [times[some - 1] for times, some in zip(self.streams.moments, ends, strict=True)]
        sides = np.repeat([LEFT, RIGHT], [some.size for some in ends])
        stops, when = np.concatenate(ends), np.concatenate(moments)
        starts = np.concatenate([np.append(0, some)[:-1] for some in ends])
        order = np.lexsort((sides, when))
        yield from zip(
            sides[order].tolist(),
            starts[order].tolist(),
            stops[order].tolist(),
            when[order].tolist(),
            strict=True,
        )


class _OverTrees(EarlyJoin):
    """A tree for each stream; all nodes share the frames that no block takes."""

    def __init__(self, room: Room | None = None) -> None:
        super().__init__(room)
        buffer = PageBuffer(self.room.frames - 2 * self._pages, self.counts)
        self.trees = tuple(PagedTree(name, buffer, self.room.records) for name in ("left", "right"))

    @property
    def block(self) -> int:
        """A record."""
        return 1

    @property
    def _pages(self) -> int:
        """How many pages a block of either stream takes."""
        return 0

    def insert(self, side: int, first: int, last: int) -> None:
        """Put records into their tree."""
        self.counts.phase = "build"
        for number, box in zip(range(first, last), self.boxes(side, first, last), strict=True):
            self.trees[side].insert(number, box)

    def probe(self, side: int, first: int, last: int) -> tuple[Indices, Indices]:
        """What records meet in the tree of the other stream."""
        self.counts.phase = "join"
        tree = self.trees[1 - side]
        before = tree.compared
        places, found = tree.probe(self.boxes(side, first, last))
        self.compared += tree.compared - before
        return first + places, found


class Static(_OverTrees):
    """Both trees are built to the end, and then joined from the top, depth first: nothing comes out before."""

    def take(self, side: int, first: int, last: int) -> None:
        """Insert."""
        self.insert(side, first, last)

    def finish(self) -> None:
        """Join."""
        self.counts.phase = "join"
        for mine, theirs in self.trees[LEFT].join(self.trees[RIGHT]):
            self.compared += 1
            self.emit(LEFT, mine, theirs)


class FullyDynamic(_OverTrees):
    """Each record is inserted, and looks for partners in the other tree."""

    def take(self, side: int, first: int, last: int) -> None:
        """Insert, then probe."""
        self.insert(side, first, last)
        self.emit(side, *self.probe(side, first, last))


class BlockDynamic(_OverTrees):
    """The records of a block are inserted, and then look for partners together: a node is read once for all.

    The blocks of both streams take half of the buffer.
    """

    @property
    def block(self) -> int:
        """As many records as a quarter of the frames holds."""
        return self._pages * self.room.records

    @property
    def _pages(self) -> int:
        return max(1, self.room.frames // 4)

    def take(self, side: int, first: int, last: int) -> None:
        """Insert all, then probe once."""
        self.insert(side, first, last)
        self.emit(side, *self.probe(side, first, last))


class JoiningTrees(BlockDynamic):
    """Rejected: after each block the two trees, as far as they are, are joined with each other.

    Pairs of a record that was there before have come out already and are passed over.
    """

    def take(self, side: int, first: int, last: int) -> None:
        """Insert all, then join the trees."""
        self.insert(side, first, last)
        self.counts.phase = "join"
        for mine, theirs in self.trees[side].join(self.trees[1 - side]):
            self.compared += 1
            new = mine >= first
            self.emit(side, mine[new], theirs[new])


class MarkingRecords(BlockDynamic):
    """Rejected: records are inserted as they arrive, and marked in their leaves once their block has been joined.

    A record whose block is not complete is in its tree already: without a mark it is no partner yet, because it will
    look for its partners itself.
    """

    def __init__(self, room: Room | None = None) -> None:
        super().__init__(room)
        self._marked = [0, 0]

    @property
    def block(self) -> int:
        """A record."""
        return 1

    def take(self, side: int, first: int, last: int) -> None:
        """Insert; with the last record of a block, probe once and mark its records."""
        self.insert(side, first, last)
        whole = super().block
        if last % whole and last < len(self.streams.boxes[side]):
            return
        start = self._marked[side]
        mine, theirs = self.probe(side, start, last)
        marked = theirs < self._marked[1 - side]
        self.emit(side, mine[marked], theirs[marked])
        self.trees[side].touch(self.boxes(side, start, last), start, last)
        self._marked[side] = last


class Sbnl(EarlyJoin):
    """SBNL: a block that is full is joined with every page that the other stream has stored, and then stored.

    It needs no index, and would do with any predicate. Pages whose last record arrived more than `keep` before the
    block was complete have expired: they are neither read nor joined.
    """

    others: ClassVar[int] = 1
    """Frames that are not a block's."""

    def __init__(self, room: Room | None = None, keep: float = math.inf) -> None:
        super().__init__(room)
        self.keep = keep
        self._stored = [0, 0]
        """Records of each stream that are on disk."""

    @property
    def block(self) -> int:
        """Half of the frames, but for one to read into."""
        return self.room.blocks(self.others) * self.room.records

    def take(self, side: int, first: int, last: int) -> None:
        """Join, then store."""
        self.counts.phase = "join"
        self.join(side, first, last, self.wanted(side, first, last))
        self.counts.phase = "build"
        for _ in range(self.room.pages(last - first)):
            self.counts.write()
        self._stored[side] = last

    def wanted(self, side: int, first: int, last: int) -> Indices:
        """The pages of the other stream that a block is joined with."""
        return self.unexpired(side, last, np.arange(self.room.pages(self._stored[1 - side])))

    def unexpired(self, side: int, last: int, pages: Indices) -> Indices:
        """Those of `pages` that are not too old for a block of `side` which ends before `last`."""
        ends = np.minimum((pages + 1) * self.room.records, self._stored[1 - side])
        moments = self.streams.moments
        kept: Indices = pages[moments[1 - side][ends - 1] >= moments[side][last - 1] - self.keep]
        return kept

    def join(self, side: int, first: int, last: int, pages: Indices) -> None:
        """Read pages of the other stream and test all their records against the block's."""
        block, size = self.boxes(side, first, last), self.room.records
        for some in np.array_split(pages, max(1, len(pages) // self.room.blocks(self.others))):
            rows = (some[:, None] * size + np.arange(size)).ravel()
            rows = rows[rows < self._stored[1 - side]]
            for _ in some:
                self.counts.read()
            self.compared += len(some) * self.room.pages(last - first)
            self.counts.clock.compute(comparisons=len(block) * rows.size)
            mine, theirs = meeting(block, self.streams.boxes[1 - side][rows])
            self.emit(side, first + mine, rows[theirs])


class Sibnl(Sbnl):
    """SIBNL: as SBNL, but only with pages that a tree of summaries finds: one box for each `pages` stored.

    A summary may be stale: of what it covers, expired pages are passed over.
    """

    others = 2 * _TREES + 1

    def __init__(self, room: Room | None = None, keep: float = math.inf, pages: int = 1) -> None:
        super().__init__(room, keep)
        self.pages = pages
        self.trees = tuple(
            PagedTree(name, PageBuffer(_TREES, self.counts), self.room.records) for name in ("left", "right")
        )
        self._covered: tuple[list[Indices], list[Indices]] = ([], [])
        """Of each stream, by entry of its tree: the pages that it covers."""

    def take(self, side: int, first: int, last: int) -> None:
        """Join, store, and enter the block's pages into the tree."""
        super().take(side, first, last)
        known = self._covered[side]
        pages = first // self.room.records + np.arange(self.room.pages(last - first))
        summaries = covers(self.boxes(side, first, last), self.room.records * self.pages)
        for box, covered in zip(summaries, np.split(pages, range(self.pages, len(pages), self.pages)), strict=True):
            self.trees[side].insert(len(known), box)
            known.append(covered)

    def wanted(self, side: int, first: int, last: int) -> Indices:
        """Those that the other stream's summaries say may have partners."""
        _, entries = self.trees[1 - side].probe(covers(self.boxes(side, first, last), self.room.records))
        none = np.zeros(0, np.int64)
        pages = np.concatenate([none, *(self._covered[1 - side][entry] for entry in np.unique(entries).tolist())])
        return self.unexpired(side, last, np.sort(pages))


JOINS: Mapping[str, type[EarlyJoin]] = {
    "static": Static,
    "fully dynamic": FullyDynamic,
    "block dynamic": BlockDynamic,
    "SBNL": Sbnl,
    "SIBNL": Sibnl,
    "joining trees": JoiningTrees,
    "marking records": MarkingRecords,
}
"""By name: the five, and the two that were rejected."""
