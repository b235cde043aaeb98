"""Joins by cells, from memory alone: how many results each policy gives on boxes or on points near each other.

The policies are those that run. A row is in every cell it touches, a copy in each; what leaves memory are copies.
Between two flushes nothing leaves: all arrivals of that time are counted at once, cell by cell as arrays.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lab.workloads.boxes import SIDE, Placed
from lab.workloads.vectors import Points, numbers
from penstock.core.errors import ConfigError
from penstock.core.rows import Indices
from penstock.operators.window_join.progressive.policies import Policy, RowRate, Victim

_TESTS = 20_000
"""Pairs that are tested together: fewer, and the calls take longer than the tests."""


@dataclass(frozen=True, slots=True)
class FromMemory:
    """Results from memory after each of some numbers of arrivals."""

    arrivals: Indices
    results: Indices

    @property
    def total(self) -> int:
        """At the end."""
        return int(self.results[-1]) if self.results.size else 0


class Copies(abc.ABC):
    """The rows of two streams as copies, one for each cell that a row touches, by row.

    `row`, `side` and `cell` are by copy; cells are numbers from 0 to before `cells`.
    """

    def __init__(self, side: Indices, row: Indices, cell: Indices, cells: int) -> None:
        self.rows = side.size
        self.row, self.cell, self.cells = row, cell, cells
        self.side = side[row]
        self.starts = np.searchsorted(row, np.arange(side.size + 1))
        """By row, its first copy; one more at the end."""

    @abc.abstractmethod
    def hits(self, probed: Indices, probing: Indices, ordered: bool = False) -> Indices:
        """Of each copy that is `probed`, how many of the others it makes a result with.

        `ordered`: only those of later rows.
        """


class BoxCopies(Copies):
    """Boxes in the cells of a grid. Two that meet are a result where their intersection's upper left corner is."""

    def __init__(self, placed: Placed) -> None:
        extent = placed.high - placed.low + 1
        count = extent[:, 0] * extent[:, 1]
        row = np.repeat(np.arange(count.size), count)
        nth = np.arange(row.size) - np.repeat(np.cumsum(count) - count, count)
        place = placed.low[row] + np.stack([nth % extent[row, 0], nth // extent[row, 0]], axis=1)
        super().__init__(placed.side, row, place[:, 0] + SIDE * place[:, 1], SIDE * SIDE)
        self._corners = placed.boxes.T[:, row]
        # The corner is in this cell if one of the two begins in its column, and one of them ends in its row.
        self._begins = placed.low[row, 0] == place[:, 0]
        self._ends = placed.high[row, 1] == place[:, 1]
        self._spread = bool((count > 1).any())

    def hits(self, probed: Indices, probing: Indices, ordered: bool = False) -> Indices:
        """Cell by cell, or several cells at a time if few rows are in one."""
        found = np.zeros(probed.size, np.int64)
        mine, theirs = (np.argsort(self.cell[some], kind="stable") for some in (probed, probing))
        a, b = probed[mine], probing[theirs]
        (x1, y1, x2, y2), (u1, v1, u2, v2) = self._corners[:, a], self._corners[:, b]
        wide = math.ceil(self.cells * math.sqrt(_TESTS / max(1, a.size * b.size)))
        for i, j in _together(self.cell[a], self.cell[b], self.cells, wide):
            meet = x1[i, None] <= u2[j]
            meet &= x2[i, None] >= u1[j]
            meet &= y1[i, None] <= v2[j]
            meet &= y2[i, None] >= v1[j]
            if wide > 1:
                meet &= self.cell[a[i]][:, None] == self.cell[b[j]]
            if self._spread:
                meet &= self._begins[a[i]][:, None] | self._begins[b[j]]
                meet &= self._ends[a[i]][:, None] | self._ends[b[j]]
            if ordered:
                meet &= self.row[a[i]][:, None] < self.row[b[j]]
            found[mine[i]] = np.count_nonzero(meet, axis=1)
        return found


class PointCopies(Copies):
    """Points no further than `distance` from each other, each in the cell that it is in."""

    def __init__(self, side: Indices, points: Points, distance: float) -> None:
        occupied, cell = np.unique(numbers(points), return_inverse=True)
        super().__init__(side, np.arange(side.size), cell, occupied.size)
        square = (points**2).sum(axis=1, keepdims=True)
        one = np.ones_like(square)
        # The product of two of these is their squared distance.
        self._probed = np.hstack([-2 * points, one, square])
        self._probing = np.hstack([points, square, one])
        self._points = points
        self._distance = distance

    def hits(self, probed: Indices, probing: Indices, ordered: bool = False) -> Indices:
        """Square by square of the last two dimensions, squares being no narrower than the distance."""
        found = np.zeros(probed.size, np.int64)
        across = int(min(1 / self._distance, (3 * probed.size * probing.size / _TESTS) ** 0.25))
        across = max(1, across)
        squares = [self._squares(some, across) for some in (probed, probing)]
        mine, theirs = (np.argsort(some, kind="stable") for some in squares)
        a, b = self._probed[probed[mine]], self._probing[probing[theirs]]
        limit = self._distance**2
        for i, j in _nearby(squares[0][mine], squares[1][theirs], across):
            near = a[i] @ b[j].T <= limit
            if ordered:
                near &= self.row[probed[mine[i]]][:, None] < self.row[probing[theirs[j]]]
            found[mine[i]] += np.count_nonzero(near, axis=1)
        return found

    def _squares(self, rows: Indices, across: int) -> Indices:
        place = np.clip((self._points[rows, -2:] * across).astype(np.int64), 0, across - 1)
        squares: Indices = place[:, 0] * across + place[:, -1]
        return squares


def count_from_memory(policy: Policy, copies: Copies, memory: int, flush: float) -> FromMemory:
    """Join rows in memory of so many copies, of which a `flush` part is freed at a time, but at least one.

    >>> from penstock.operators.window_join.progressive.policies import ResultRate
    >>> points = PointCopies(np.array([0, 1, 1]), np.array([[0.1], [0.15], [0.9]]).repeat(2, axis=1), 0.1)
    >>> count_from_memory(ResultRate(points.cells), points, memory=10, flush=0.1).total
    1
    """
    held: list[Indices] = [np.zeros(0, np.int64), np.zeros(0, np.int64)]
    worth = np.zeros(copies.row.size, np.int64)
    at, done = 0, 0
    marks: list[int] = []
    results: list[int] = []
    while at < copies.rows:
        free = memory - held[0].size - held[1].size
        first = int(copies.starts[at])
        # The row that finds memory full probes it before anything leaves.
        full = int(np.searchsorted(copies.starts, first + free, side="right")) - 1
        stop = min(full + 1, copies.rows)
        batch = np.arange(first, copies.starts[stop])
        new = [batch[copies.side[batch] == port] for port in (0, 1)]
        for port in (0, 1):
            probed = np.concatenate([held[port], new[port]])
            hits = np.concatenate(
                [copies.hits(held[port], new[1 - port]), copies.hits(new[port], new[1 - port], ordered=True)]
            )
            worth[probed] += hits
            policy.credit(port, np.bincount(copies.cell[probed], hits, copies.cells).astype(np.int64))
            done += int(hits.sum())
        _insert(policy, copies, held, np.arange(first, copies.starts[min(full, stop)]))
        if stop > full:
            last = np.arange(copies.starts[full], copies.starts[stop])
            _flush(policy, copies, held, worth, max(1, round(flush * memory), last.size - free))
            if last.size + held[0].size + held[1].size > memory:
                raise ConfigError(f"A row touches {last.size} cells, and memory has room for {memory} copies.")
            _insert(policy, copies, held, last)
        at = stop
        marks.append(at)
        results.append(done)
    return FromMemory(np.array(marks), np.array(results))


def _insert(policy: Policy, copies: Copies, held: list[Indices], new: Indices) -> None:
    for port in (0, 1):
        mine = new[copies.side[new] == port]
        if mine.size:
            held[port] = np.concatenate([held[port], mine])
            policy.arrive(port, copies.cell[mine])


def _flush(policy: Policy, copies: Copies, held: list[Indices], worth: Indices, needed: int) -> None:
    if isinstance(policy, RowRate):
        resident = np.concatenate(held)
        # Copies are by row: the lower, the older.
        gone = resident[policy.order(worth[resident], resident)[:needed]]
    else:
        gone = _leaving(copies, held, policy, policy.victims(needed))
    for port in (0, 1):
        leaving = gone[copies.side[gone] == port]
        held[port] = np.setdiff1d(held[port], leaving, assume_unique=True)
        counts = np.bincount(copies.cell[leaving], minlength=copies.cells)
        for cell in np.flatnonzero(counts).tolist():
            policy.leave(Victim(port, cell, int(counts[cell])))
    policy.flushed()


def _leaving(copies: Copies, held: list[Indices], policy: Policy, victims: list[Victim]) -> Indices:
    """The oldest copies of each victim: of all but the last, that is all of them."""
    gone = []
    for port in (0, 1):
        cell = copies.cell[held[port]]
        whole = np.zeros(copies.cells, np.bool_)
        for victim in (each for each in victims if each.port == port):
            if victim.rows == policy.resident[port, victim.partition]:
                whole[victim.partition] = True
            else:
                gone.append(held[port][np.flatnonzero(cell == victim.partition)[: victim.rows]])
        gone.append(held[port][whole[cell]])
    return np.concatenate(gone)


def _together(left: Indices, right: Indices, cells: int, wide: int) -> Iterator[tuple[slice, slice]]:
    """Slices of two sorted arrays of cells, so many cells at a time."""
    edges = np.append(np.arange(0, cells, wide), cells)
    bounds = [np.searchsorted(some, edges).tolist() for some in (left, right)]
    for group in range(edges.size - 1):
        i, j = (slice(some[group], some[group + 1]) for some in bounds)
        if i.start < i.stop and j.start < j.stop:
            yield i, j


def _nearby(left: Indices, right: Indices, across: int) -> Iterator[tuple[slice, slice]]:
    """Slices of two sorted arrays of squares: those of the right by square, with the left ones about each."""
    edges = np.arange(across * across + 1)
    lefts, rights = (np.searchsorted(some, edges).tolist() for some in (left, right))
    for square in range(across * across):
        j = slice(rights[square], rights[square + 1])
        if j.start == j.stop:
            continue
        up, right_of = divmod(square, across)
        for line in range(max(0, up - 1), min(across, up + 2)):
            first, last = max(0, right_of - 1), min(across - 1, right_of + 1)
            i = slice(lefts[line * across + first], lefts[line * across + last + 1])
            if i.start < i.stop:
                yield i, j
