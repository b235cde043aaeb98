"""How keys are cut into partitions by hash: once, or again when partitions have become uneven (E6).

The literature leaves open how partitions should follow streams that change. Here keys are hashed into 1,024 buckets,
and a partition is a set of buckets. The rows of each bucket are counted, and the counts halved at the end of each
epoch; when the largest partition has much more than its share, buckets are redistributed, the fullest first, each to
the partition with the fewest rows. A bucket is never split: one as full as several partitions fills one alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from penstock.core.rows import Hashes, Indices

Cutting = Literal["fixed", "adaptive"]
"""Whether keys stay in the partition they are in, or move when partitions have become uneven."""

BUCKETS = 1024

UNEVEN = 1.5
"""The largest partition may have so many times the rows of the average one before they are dealt out anew."""

_GAIN = 0.8
"""and only if it gets down to this part of that."""

_ENOUGH = 8
"""So many rows for each partition must have come before it is judged."""

_NUMBER_BITS = 16

Loads = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cut:
    """The partition of each bucket; by default a hash modulo their number.

    >>> Cut(4).of(np.array([5, 6], np.uint64)).tolist()
    [1, 2]
    """

    partitions: int
    number: int = 0
    """How many times buckets were dealt out, as far as pages know: pages tell by it how they are cut."""
    owners: tuple[int, ...] = field(default=(), repr=False)

    def of(self, hashes: Hashes) -> Indices:
        """The partition of each hash."""
        if not self.owners:
            return (hashes % np.uint64(self.partitions)).astype(np.int64)
        return np.array(self.owners, np.int64)[(hashes % np.uint64(BUCKETS)).astype(np.int64)]

    @property
    def code(self) -> int:
        """What pages are marked with that are cut like this."""
        return self.partitions | self.number << _NUMBER_BITS

    def unevenness(self, loads: Loads) -> float:
        """How many times the rows of the average partition the largest has."""
        parts = np.bincount(self._owners(), weights=loads, minlength=self.partitions)
        return float(parts.max() / max(parts.mean(), 1e-9))

    def adapted(self, loads: Loads, taken: int) -> Cut:
        """The cut for such loads of the buckets: this one, unless another is much better; numbers up to `taken` are.

        >>> loads = np.zeros(BUCKETS)
        >>> loads[:64:2] = 100
        >>> cut = Cut(2)
        >>> cut.unevenness(loads), cut.adapted(loads, taken=0).unevenness(loads)
        (2.0, 1.0)
        """
        before = self.unevenness(loads)
        if loads.sum() < _ENOUGH * self.partitions or before <= UNEVEN:
            return self
        heap = [(0.0, partition) for partition in range(self.partitions)]
        owners = np.zeros(BUCKETS, np.int64)
        for bucket in np.argsort(-loads, kind="stable").tolist():
            load, partition = heapq.heappop(heap)
            owners[bucket] = partition
            heapq.heappush(heap, (load + float(loads[bucket]), partition))
        other = Cut(self.partitions, taken + 1, tuple(owners.tolist()))
        return other if other.unevenness(loads) <= _GAIN * before else self

    def moved(self, other: Cut, rows: npt.NDArray[np.int64]) -> Loads:
        """Which part of each partition is in which one of another cut; of either port, by its rows in the buckets."""
        parts = np.zeros((len(rows), self.partitions, self.partitions))
        for port, counts in enumerate(rows):
            np.add.at(parts[port], (self._owners(), other._owners()), counts + 1e-9)
        return parts / parts.sum(axis=2, keepdims=True).clip(1e-30)  # type: ignore[no-any-return]

    def _owners(self) -> Indices:
        return np.array(self.owners, np.int64) if self.owners else np.arange(BUCKETS) % self.partitions

    def to_json(self) -> dict[str, Any]:
        """For the state of a shard."""
        return {"number": self.number, "owners": list(self.owners)}

    @classmethod
    def from_json(cls, partitions: int, record: Mapping[str, Any]) -> Self:
        """From the state; the default, if that is of other partitions."""
        owners = tuple(record.get("owners", ()))
        if not owners or max(owners) >= partitions:
            return cls(partitions)
        return cls(partitions, int(record["number"]), owners)


def number_of(code: int) -> int:
    """Which dealing out the mark of a page is of."""
    return code >> _NUMBER_BITS
