"""Policies of a join without a window: which rows leave memory when it is full.

A policy counts what arrives, what leaves, and how many results each partition of either side has had *as the one that
was probed*: a row that finds three partners in a partition adds three results to that partition, not to its own. It
ranks the partitions of both sides together, those to leave first; ties go left before right, then by number. The
engine and the lab's simulation run the same classes.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.rows import Indices

Scores = npt.NDArray[np.float64]
"""A number for each partition of either side: those with the lowest leave first."""

Per = Literal["arrived", "resident", "nothing"]
"""What results are divided by: all rows that have arrived in a partition, those still in memory, or nothing."""

_REMEMBERED = 0.8
"""How much predictions up to a flush weigh against the one after it."""


class Victim(NamedTuple):
    """The oldest `rows` of a partition of a port leave memory."""

    port: int
    partition: int
    rows: int


class Policy(abc.ABC):
    """Counts events of the partitions of both sides, and decides which rows leave memory.

    `arrived`, `resident` and `results` are arrays of two rows, one for each port, with a column for each partition.
    """

    by_row: ClassVar[bool] = False
    """Whether it chooses rows by the results that each has had, and not whole partitions."""
    loads: ClassVar[bool] = False
    """Whether rows are gathered until they fill the memory, then joined, and then leave together."""
    flushes: ClassVar[bool] = True
    """Whether rows leave memory at all."""
    kept: ClassVar[tuple[str, ...]] = ("arrived", "results")
    """What is remembered from epoch to epoch."""

    @property
    def drifts(self) -> bool:
        """Whether it has found that what is productive changes, and goes by what came last."""
        return False

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.arrived = np.zeros((2, partitions))
        self.resident = np.zeros((2, partitions), np.int64)
        self.results = np.zeros((2, partitions))

    @abc.abstractmethod
    def scores(self) -> Scores:
        """The worth of each partition: those with the lowest leave first."""

    def arrive(self, port: int, which: Indices) -> None:
        """Rows arrive in these partitions and are in memory from now on."""
        counts = np.bincount(which, minlength=self.partitions)
        self.arrived[port] += counts
        self.resident[port] += counts

    def credit(self, port: int, counts: Indices) -> None:
        """Arrivals of the other port found so many partners in each partition of `port`."""
        self.results[port] += counts

    def leave(self, victim: Victim) -> None:
        """Rows left memory."""
        self.resident[victim.port, victim.partition] -= victim.rows

    def flushed(self) -> None:  # noqa: B027 – most policies do not care
        """A flush is over: one epoch of the policy ends."""

    def victims(self, rows: int) -> list[Victim]:
        """What is to leave so that `rows` do: partitions one after the other, of the last one only as many as needed.

        >>> policy = ResultRate(2)
        >>> policy.arrive(0, np.array([0, 0, 0, 1]))
        >>> policy.credit(0, np.array([4, 0]))
        >>> policy.victims(3)
        [Victim(port=0, partition=1, rows=1), Victim(port=0, partition=0, rows=2)]
        """
        chosen = []
        resident = self.resident.ravel()
        for place in self.ranked(rows).tolist():
            count = min(rows, int(resident[place]))
            if count:
                port, partition = divmod(place, self.partitions)
                chosen.append(Victim(port, partition, count))
                rows -= count
            if not rows:
                break
        return chosen

    def ranked(self, rows: int) -> Indices:
        """The places of all partitions of both sides, those to leave first."""
        return np.argsort(self.scores().ravel(), kind="stable")

    def to_json(self) -> dict[str, Any]:
        """What the next epoch is to know."""
        return {name: getattr(self, name).tolist() for name in self.kept}

    def recut(self, moved: Scores) -> None:
        """Keys are in other partitions now: so much of each partition is in which, for either port."""
        for name in self.kept:
            known = getattr(self, name)
            if np.shape(known)[-2:] == (2, self.partitions):
                setattr(self, name, np.einsum("...po,pon->...pn", known, moved))

    def take_up(self, record: Mapping[str, Any]) -> None:
        """Go on from what an epoch before knew; another policy's record, or one of other partitions, says nothing."""
        for name in self.kept:
            known = np.array(record.get(name, ()), np.float64)
            if known.shape == getattr(self, name).shape:
                setattr(self, name, known)


class ResultRate(Policy):
    """RRPJ: results per row, R / N (spec Eq 3.3). Amortised (Eq 3.4), results fade by `sigma` with every flush.

    Per nothing it is JGradient, which knows no sizes.

    >>> policy = ResultRate(2, sigma=0.5)
    >>> policy.arrive(0, np.repeat([0, 1], 10))
    >>> for epoch in ([5, 45], [45, 5]):
    ...     policy.credit(0, np.array(epoch))
    ...     rates = policy.scores()[0].tolist()
    ...     policy.flushed()
    >>> rates
    [4.75, 2.75]
    """

    def __init__(self, partitions: int, sigma: float = 1.0, per: Per = "arrived") -> None:
        super().__init__(partitions)
        self.sigma, self.per = sigma, per

    def scores(self) -> Scores:
        """Results for each row."""
        return self._rates(self.results)

    def flushed(self) -> None:
        """What was counted so far fades; 0 leaves nothing of it."""
        self.results *= self.sigma

    def _rates(self, results: Scores) -> Scores:
        if self.per == "nothing":
            return results
        rows = self.arrived if self.per == "arrived" else self.resident
        return results / np.maximum(rows, 1)


class DriftRate(ResultRate):
    """RRPJ with a sigma that follows the streams: 1 while they are steady, 0 while they drift.

    From one flush to the next each of the two predicts which part of the results every partition will have: by its
    results so far for each row that was in memory, or by those since the last flush alone. The one that made the actual
    results more likely, of late, ranks the partitions. Steady streams are predicted better by all that was counted,
    drifting ones by what came last.

    >>> policy = DriftRate(2)
    >>> policy.arrive(0, np.repeat([0, 1], 10))
    >>> for epoch in [[90, 10]] * 4 + [[10, 90]] * 3:
    ...     policy.credit(0, np.array(epoch))
    ...     first = policy.victims(1)[0].partition
    >>> policy.drifts, first
    (True, 0)
    """

    kept = ("arrived", "results", "fresh", "latest", "exposed", "loss")

    def __init__(self, partitions: int, per: Per = "arrived") -> None:
        super().__init__(partitions, 1.0, per)
        self.fresh = np.zeros((2, partitions))
        """Results since the last flush."""
        self.latest = np.zeros((2, 2, partitions))
        """Results between the last two flushes, and the rows that were in memory then."""
        self.exposed = np.zeros((2, partitions))
        """Rows in memory, added up over all flushes."""
        self.loss = np.zeros(2)
        """How unlikely the results were, with sigma 1 and with sigma 0."""

    def credit(self, port: int, counts: Indices) -> None:
        """So many results more since the last flush."""
        super().credit(port, counts)
        self.fresh[port] += counts

    def scores(self) -> Scores:
        """Results for each row, by the sigma that predicts better."""
        return self._rates(self.latest[0] + self.fresh if self.drifts else self.results)

    def victims(self, rows: int) -> list[Victim]:
        """Compare the predictions with what came since the last flush, then choose."""
        self._judge()
        self.latest = np.stack([self.fresh, self.resident.astype(np.float64)])
        self.exposed += self.resident
        self.fresh = np.zeros_like(self.fresh)
        return super().victims(rows)

    def _judge(self) -> None:
        count = float(self.fresh.sum())
        if count and self.exposed.any():
            known = ((self.results - self.fresh, self.exposed), (self.latest[0], self.latest[1]))
            lost = [-float((self.fresh * np.log(self._predicted(*each))).sum()) / count for each in known]
            self.loss = _REMEMBERED * self.loss + (1 - _REMEMBERED) * np.array(lost)

    def _predicted(self, results: Scores, exposed: Scores) -> Scores:
        """The part of the results that each partition should have, going by those it had for each row in memory.

        Half a result more for each, of rows as productive as the others: none is ruled out by what came so far.
        """
        mean = max(float(results.sum()), 1.0) / max(float(exposed.sum()), 1.0)
        expected = (results + 0.5) / (exposed + 0.5 / mean) * np.maximum(self.resident, 0.5)
        return np.asarray(expected / expected.sum())

    @property
    def drifts(self) -> bool:
        """Whether what came last predicts better than all that came, of late."""
        return bool(self.loss[1] < self.loss[0])


class RowRate(Policy):
    """RRPJ-F: the results that each single row has had. The youngest `grace` of all rows leave last."""

    by_row = True

    def __init__(self, partitions: int, grace: float = 0.0) -> None:
        super().__init__(partitions)
        self.grace = grace

    def scores(self) -> Scores:
        """Results for each row of a partition: which pages to keep where not all of them fit."""
        return self.results / np.maximum(self.arrived, 1)

    def order(self, hits: Indices, arrived: Indices) -> Indices:
        """Rows that have had so many results and arrived so, those to leave first; equal ones, the older first.

        >>> RowRate(1).order(np.array([2, 0, 0]), np.array([1, 3, 2])).tolist()
        [2, 1, 0]
        >>> RowRate(1, grace=0.3).order(np.array([2, 0, 1]), np.array([1, 3, 2])).tolist()
        [2, 0, 1]
        """
        young = np.zeros(hits.size, np.bool_)
        spared = int(np.ceil(self.grace * hits.size))
        if spared:
            young[np.argsort(arrived, kind="stable")[hits.size - spared :]] = True
        return np.lexsort((arrived, hits, young))
