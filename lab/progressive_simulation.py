"""A join without a window by counts alone: how many results each policy gives from memory, and what it writes.

The policies are those that run; rows are counted by key, so that the full size of the source takes seconds. Between two
flushes nothing leaves memory: all arrivals of that time are counted at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.rows import Indices
from penstock.operators.window_join.progressive.policies import Policy, Victim

PAGE_SECONDS = 8e-3
"""To read or write a page."""

COMPARISON_SECONDS = 1e-6
"""To compare two rows while runs are merged."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What came of a stream: results from memory after each of some numbers of arrivals, and what was written.

    A run is what a flush writes of a partition; the clean-up reads all pages and merges the runs of each.
    """

    arrivals: Indices
    results: Indices
    flushed: int
    pages: int
    runs: int
    comparisons: float

    @property
    def total(self) -> int:
        """Results from memory."""
        return int(self.results[-1]) if self.results.size else 0

    @property
    def cleanup(self) -> float:
        """Seconds."""
        return self.pages * PAGE_SECONDS + self.comparisons * COMPARISON_SECONDS


def count_results(policy: Policy, side: Indices, keys: Indices, memory: int, flush: float, page: int = 85) -> Counted:
    """Join tuples in memory of so many rows, of which a `flush` part is freed at a time, but at least one row.

    >>> from penstock.operators.window_join.progressive.policies import ResultRate
    >>> side, keys = np.array([0, 0, 1, 1, 1]), np.array([4, 5, 4, 4, 5])
    >>> count_results(ResultRate(2), side, keys, memory=5, flush=0.2).total
    3
    """
    partitions = policy.partitions
    counts = np.zeros((2, int(keys.max(initial=0)) + 1), np.int64)
    held: list[Indices] = [np.zeros(0, np.int64), np.zeros(0, np.int64)]
    needed = max(1, round(flush * memory))
    at, done, marks, results = 0, 0, [], []
    pages = flushed = 0
    runs = np.zeros((2, partitions), np.int64)
    gone = np.zeros((2, partitions), np.int64)
    while at < keys.size:
        free = memory - held[0].size - held[1].size
        # The row that finds memory full has probed it before anything leaves.
        some, which = keys[at : at + free + 1], side[at : at + free + 1]
        found = counts[1 - which, some] + _before(which, some)
        for port in (0, 1):
            credits = np.bincount(some[which == 1 - port] % partitions, found[which == 1 - port], partitions)
            policy.credit(port, credits.astype(np.int64))
        done += int(found.sum())
        _insert(policy, held, counts, which[:free], some[:free])
        at += some.size
        if some.size > free:
            victims = policy.victims(needed)
            _evict(held, counts, policy, victims)
            for victim in victims:
                policy.leave(victim)
                pages += -(-victim.rows // page)
                flushed += victim.rows
                runs[victim.port, victim.partition] += 1
                gone[victim.port, victim.partition] += victim.rows
            policy.flushed()
            _insert(policy, held, counts, which[free:], some[free:])
        marks.append(at)
        results.append(done)
    merging = float((gone * np.log2(np.maximum(runs, 1))).sum())
    return Counted(np.array(marks), np.array(results), flushed, pages, int(runs.sum()), merging)


def complete(side: Indices, keys: Indices) -> int:
    """All results there are."""
    left, right = (np.bincount(keys[side == port], minlength=int(keys.max()) + 1) for port in (0, 1))
    return int(left @ right)


def _insert(policy: Policy, held: list[Indices], counts: Indices, which: Indices, keys: Indices) -> None:
    for port in (0, 1):
        mine = keys[which == port]
        if mine.size:
            held[port] = np.concatenate([held[port], mine])
            counts[port] += np.bincount(mine, minlength=counts.shape[1])
            policy.arrive(port, mine % policy.partitions)


def _evict(held: list[Indices], counts: Indices, policy: Policy, victims: Sequence[Victim]) -> None:
    """The oldest rows of each victim leave: of all but the last, that is all of them."""
    for port in (0, 1):
        partition = held[port] % policy.partitions
        whole = np.zeros(policy.partitions, np.bool_)
        leaving = np.zeros(partition.size, np.bool_)
        for victim in (each for each in victims if each.port == port):
            if victim.rows == policy.resident[port, victim.partition]:
                whole[victim.partition] = True
            else:
                leaving[np.flatnonzero(partition == victim.partition)[: victim.rows]] = True
        leaving |= whole[partition]
        counts[port] -= np.bincount(held[port][leaving], minlength=counts.shape[1])
        held[port] = held[port][~leaving]


def _before(which: Indices, keys: Indices) -> Indices:
    """Of each tuple, how many before it are of the other stream and have its key."""
    order = np.argsort(keys, kind="stable")
    sorted_keys, sides = keys[order], which[order]
    starts = np.flatnonzero(np.append(True, np.diff(sorted_keys) != 0)) if keys.size else np.zeros(0, np.int64)
    lengths = np.diff(np.append(starts, keys.size))
    found = np.zeros(keys.size, np.int64)
    for port in (0, 1):
        seen: npt.NDArray[np.int64] = np.cumsum(sides == port) - (sides == port)
        seen -= np.repeat(seen[starts], lengths)
        found[order] += np.where(sides == port, 0, seen)
    return found
