"""The policies that RRPJ is compared with: by chance, by size, by arrivals, all at once, and none at all."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from penstock.core.rows import Indices
from penstock.operators.window_join.progressive.policies import Policy, Scores


class ByChance(Policy):
    """Any partition, each as likely as the others; the same ones for the same `seed`."""

    kept = ("arrived", "results", "turns")

    def __init__(self, partitions: int, seed: int = 0) -> None:
        super().__init__(partitions)
        self.seed = seed
        self.turns = np.zeros(1)

    def scores(self) -> Scores:
        """New ones for each flush."""
        return np.random.default_rng([self.seed, int(self.turns[0])]).random((2, self.partitions))

    def flushed(self) -> None:
        """The next flush draws anew."""
        self.turns += 1


class Largest(Policy):
    """XJoin: the partition with most rows in memory.

    >>> policy = Largest(3)
    >>> policy.arrive(1, np.array([2, 2, 0]))
    >>> policy.victims(1)
    [Victim(port=1, partition=2, rows=1)]
    """

    def scores(self) -> Scores:
        """The more rows, the lower."""
        return -self.resident.astype(np.float64)


class LargestPair(Policy):
    """HMJ: a partition of both sides together, the pair with most rows; the side with more rows in all first.

    >>> policy = LargestPair(2)
    >>> policy.arrive(0, np.array([0, 1])), policy.arrive(1, np.array([1, 1]))
    (None, None)
    >>> [tuple(victim) for victim in policy.victims(4)]
    [(0, 1, 1), (1, 1, 2), (0, 0, 1)]
    """

    def scores(self) -> Scores:
        """The more rows in a pair, the lower."""
        return np.broadcast_to(-self.resident.sum(axis=0).astype(np.float64), (2, self.partitions))

    def ranked(self, rows: int) -> Indices:
        """Pair by pair."""
        pairs = np.argsort(self.scores()[0], kind="stable")
        first = 0 if self.resident[0].sum() >= self.resident[1].sum() else 1
        ranked: Indices = (pairs[:, None] + self.partitions * np.array([first, 1 - first])).ravel()
        return ranked


class ArrivalRate(Policy):
    """RPJ: what is least likely to be asked for, by the arrivals of the opposite side (spec Eq 5.1).

    With `sigma` below 1, what arrived before the last flush fades, as it does in amortised RRPJ. How fast either
    stream is at present is told by the arrivals since, of which `recent` is left after a flush.
    """

    kept: ClassVar[tuple[str, ...]] = ("arrived", "results", "weight", "rates")

    def __init__(self, partitions: int, sigma: float = 1.0, recent: float = 0.5) -> None:
        super().__init__(partitions)
        self.sigma, self.recent = sigma, recent
        self.weight = np.zeros((2, partitions))
        self.rates = np.zeros(2)

    def arrive(self, port: int, which: Indices) -> None:
        """Count them for the side and for the partition."""
        super().arrive(port, which)
        self.weight[port] += np.bincount(which, minlength=self.partitions)
        self.rates[port] += which.size

    def probabilities(self) -> Scores:
        """p_i(c): how likely the next row is one of port i and of partition c."""
        share = self.weight / np.maximum(self.weight.sum(axis=1, keepdims=True), 1e-300)
        likely: Scores = share * (self.rates / max(float(self.rates.sum()), 1e-300))[:, None]
        return likely

    def scores(self) -> Scores:
        """A partition is worth what the opposite one is likely to bring."""
        return self.probabilities()[::-1]

    def flushed(self) -> None:
        """Older arrivals fade."""
        self.weight *= self.sigma
        self.rates *= self.recent


class CellShare(Policy):
    """neRPJ: what the same cell of the opposite side has least of all its rows in, however recent they are (spec §2.6).

    >>> policy = CellShare(2)
    >>> policy.arrive(0, np.array([0, 0, 0, 1]))
    >>> policy.scores()[1].tolist()
    [0.75, 0.25]
    """

    def scores(self) -> Scores:
        """A cell is worth the share of the opposite one."""
        share: Scores = self.arrived / np.maximum(self.arrived.sum(axis=1, keepdims=True), 1)
        return share[::-1]


class LastSeen(ArrivalRate):
    """LA: as RPJ, but the last `history` arrivals of the opposite side count `1 - share` of the probability.

    ``Prob(next = t) = share · P(t) + Σ a_j · [the j-th last was t]``, the a_j being equal; utility is that of one more
    arrival.

    >>> policy = LastSeen(2, share=0.5, history=2)
    >>> policy.arrive(0, np.array([0, 0, 1, 1]))
    >>> policy.scores()[1].tolist()
    [0.25, 0.75]
    """

    kept = ("arrived", "results", "weight", "rates", "last")

    def __init__(self, partitions: int, sigma: float = 1.0, share: float = 0.5, history: int = 100) -> None:
        super().__init__(partitions, sigma)
        self.share = share
        self.last = np.full((2, history), -1.0)

    def arrive(self, port: int, which: Indices) -> None:
        """Remember the last ones."""
        super().arrive(port, which)
        history = self.last.shape[1]
        self.last[port] = np.concatenate([self.last[port], which])[-history:]

    def scores(self) -> Scores:
        """A partition is worth what the next row of the opposite side is likely to be."""
        total = self.weight / np.maximum(self.weight.sum(axis=1, keepdims=True), 1e-300)
        seen = [np.bincount(last[last >= 0].astype(np.int64), minlength=self.partitions) for last in self.last]
        next_one: Scores = self.share * total + (1 - self.share) * np.array(seen) / self.last.shape[1]
        return next_one[::-1]


class Everything(Policy):
    """PMJ: rows are gathered until memory is full, joined with each other, and all leave."""

    loads = True

    def scores(self) -> Scores:
        """All are alike."""
        return np.zeros((2, self.partitions))

    def ranked(self, rows: int) -> Indices:
        """In the order of their numbers."""
        return np.arange(2 * self.partitions)


class Nothing(Policy):
    """SHJ: nothing leaves."""

    flushes = False

    def scores(self) -> Scores:
        """All are alike."""
        return np.zeros((2, self.partitions))
