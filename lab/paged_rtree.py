"""An R-tree of libspatialindex whose nodes are pages: each that is read or written goes through a buffer of frames.

The library inserts and splits; it asks its storage for every node, and the storage is ours. Searches and the join of
two trees walk the same nodes here, because the library has neither a search for a list of boxes nor a join.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from lab.box_matching import Boxes, intersects, meeting
from lab.page_buffer import PageBuffer
from penstock.core.errors import FlowError
from penstock.core.rows import Indices

try:
    from rtree import index as library
except ImportError as error:
    raise FlowError("The early spatial joins need R-trees of a library: pip install 'penstock[lab]'.") from error

_ROOT = 0
"""The library stores the root first, and keeps it there when it splits."""
_HEADER = 1
"""Then a page about the tree, which it never reads again."""
_HEAD = 12
_ENTRY = np.dtype([("box", "<f8", 4), ("id", "<i8"), ("bytes", "<u4")])
"""An entry of a node: low and high corner, the id of a row or of a page, and the length of data, of which there is
none."""
_FILLED = 0.4
"""The least part of a node that a split leaves in it."""


class Node(NamedTuple):
    """A page of a tree, opened: its level, 0 for leaves, and its entries."""

    page: int
    level: int
    boxes: Boxes
    ids: Indices


class PagedTree:
    """An R-tree with quadratic splits and `capacity` entries in a node, read and written through `buffer`.

    Tests of boxes are charged to the clock: one for each entry of a node that an insertion passes, and a test of each
    pair of entries for a node that is split; those of searches one by one.

    >>> from lab.page_buffer import PageCounts
    >>> tree = PagedTree("r", PageBuffer(8, PageCounts()), capacity=4)
    >>> for number in range(30):
    ...     tree.insert(number, np.array([number, 0, number + 1, 1], float))
    >>> [(int(n), int(found)) for n, found in zip(*tree.probe(np.array([[3.5, 0, 4.5, 1], [7, 7, 8, 8]])))]
    [(0, 3), (0, 4)]
    >>> tree.height > 2, tree.buffer.counts.total > 0
    (True, True)
    """

    def __init__(self, name: str, buffer: PageBuffer, capacity: int) -> None:
        self.name = name
        self.buffer = buffer
        self.compared = 0
        """Nodes that searches looked at, once for each page that the boxes which reach them fill."""
        self._capacity = capacity
        self._pages = _Pages(name, buffer, capacity)
        properties = library.Property(
            variant=library.RT_Quadratic,
            leaf_capacity=capacity,
            index_capacity=capacity,
            near_minimum_overlap_factor=min(32, capacity - 1),
            fill_factor=_FILLED,
            # The library's own buffer would hide what is read: it has room for the page that was asked for last.
            buffering_capacity=1,
            writethrough=True,
        )
        self._tree = library.Index(self._pages, properties=properties)
        self._pages.charged = True

    @property
    def height(self) -> int:
        """Levels."""
        return self._pages.open(_ROOT).level + 1

    def insert(self, number: int, box: Boxes) -> None:
        """Add a box."""
        self._tree.insert(number, box.tolist())

    def probe(self, boxes: Boxes) -> tuple[Indices, Indices]:
        """The places of `boxes`, and the ids of what they meet. A node is read once for all that reach it."""
        places: list[Indices] = [np.zeros(0, np.int64)]
        ids: list[Indices] = [np.zeros(0, np.int64)]
        for node, mine, theirs in self._leaves(_ROOT, boxes, np.arange(len(boxes))):
            places.append(mine)
            ids.append(node.ids[theirs])
        return np.concatenate(places), np.concatenate(ids)

    def touch(self, boxes: Boxes, first: int, last: int) -> None:
        """Write each leaf that has one of the rows from `first` to before `last`, whose boxes are these."""
        for node, _, _ in self._leaves(_ROOT, boxes, np.arange(len(boxes))):
            if ((node.ids >= first) & (node.ids < last)).any():
                self.buffer.write((self.name, node.page))

    def join(self, other: PagedTree) -> Iterator[tuple[Indices, Indices]]:
        """The pairs of ids that meet, leaf by leaf: both trees from the top, depth first, only where nodes meet."""
        yield from _join(self, self._read(_ROOT), other, other._read(_ROOT))

    def levels(self) -> list[Boxes]:
        """What the nodes of each level cover, leaves first; read beside the buffer."""
        found: list[list[Boxes]] = [[] for _ in range(self.height)]
        waiting = [_ROOT]
        while waiting:
            node = self._pages.open(waiting.pop())
            found[node.level].append(np.hstack([node.boxes[:, :2].min(axis=0), node.boxes[:, 2:].max(axis=0)]))
            if node.level:
                waiting.extend(node.ids.tolist())
        return [np.array(some) for some in found]

    def _read(self, page: int) -> Node:
        self.buffer.read((self.name, page))
        return self._pages.open(page)

    def _leaves(self, page: int, boxes: Boxes, places: Indices) -> Iterator[tuple[Node, Indices, Indices]]:
        """The leaves that some boxes reach, with the places of boxes and entries that meet there."""
        node = self._read(page)
        self.compared += -(-len(places) // self._capacity)
        mine, theirs = _meeting(self.buffer, boxes[places], node.boxes)
        if not node.level:
            yield node, places[mine], theirs
            return
        if not mine.size:
            return
        order = np.argsort(theirs, kind="stable")
        entries, starts = np.unique(theirs[order], return_index=True)
        for entry, some in zip(entries.tolist(), np.split(mine[order], starts[1:]), strict=True):
            yield from self._leaves(int(node.ids[entry]), boxes, places[some])


def _join(left: PagedTree, mine: Node, right: PagedTree, theirs: Node) -> Iterator[tuple[Indices, Indices]]:
    places, others = _meeting(left.buffer, mine.boxes, theirs.boxes)
    if not mine.level and not theirs.level:
        yield mine.ids[places], theirs.ids[others]
    elif mine.level > theirs.level:
        for place in np.unique(places).tolist():
            yield from _join(left, left._read(int(mine.ids[place])), right, theirs)
    elif mine.level < theirs.level:
        for other in np.unique(others).tolist():
            yield from _join(left, mine, right, right._read(int(theirs.ids[other])))
    else:
        for place, other in zip(mine.ids[places].tolist(), theirs.ids[others].tolist(), strict=True):
            yield from _join(left, left._read(place), right, right._read(other))


_FEW = 1 << 16
"""Tests that are sooner made all at once than after sorting."""


def _meeting(buffer: PageBuffer, left: Boxes, right: Boxes) -> tuple[Indices, Indices]:
    buffer.counts.clock.compute(comparisons=len(left) * len(right))
    if len(left) * len(right) > _FEW:
        return meeting(left, right)
    places, others = np.nonzero(intersects(left[:, None], right[None]))
    return places, others


class _Pages(library.CustomStorage):
    """Where the library puts the nodes of a tree. Nothing is charged while it makes an empty one."""

    def __init__(self, name: str, buffer: PageBuffer, capacity: int) -> None:
        self.charged = False
        self._name = name
        self._buffer = buffer
        self._splitting = capacity * capacity
        self._bytes: dict[int, bytes] = {}
        self._open: dict[int, Node] = {}

    def open(self, page: int) -> Node:
        node = self._open.get(page)
        if node is None:
            data = self._bytes[page]
            _, level, count = np.frombuffer(data, "<u4", 3).tolist()
            entries = np.frombuffer(data, _ENTRY, count, _HEAD)
            node = self._open[page] = Node(page, level, entries["box"], entries["id"])
        return node

    def create(self, returnError: Any) -> None:  # noqa: N803
        pass

    def destroy(self, returnError: Any) -> None:  # noqa: N803
        pass

    def flush(self, returnError: Any) -> None:  # noqa: N803
        pass

    def loadByteArray(self, page: int, returnError: Any) -> bytes:  # noqa: N802, N803
        data = self._bytes[page]
        self._buffer.read((self._name, page))
        self._buffer.counts.clock.compute(comparisons=int.from_bytes(data[8:_HEAD], "little"))
        return data

    def storeByteArray(self, page: int, data: bytes, returnError: Any) -> int:  # noqa: N802, N803
        if page == self.NewPage:
            page = len(self._bytes)
            if self.charged:
                self._buffer.counts.clock.compute(comparisons=self._splitting)
        self._bytes[page] = data
        self._open.pop(page, None)
        if self.charged and page != _HEADER:
            self._buffer.write((self._name, page))
        return page

    def deleteByteArray(self, page: int, returnError: Any) -> None:  # noqa: N802, N803
        """Nothing is taken out of these trees."""
