"""Whole partitions of the master table that a back end keeps in memory, and which of them makes room for another."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.rows import Indices
from penstock.operators.lookup.back import Desk

Worth = npt.NDArray[np.float64]

_SHARE = 0.5
"""The default fraction of the memory left by the front stage in which partitions are kept."""

_RESERVE = 4
"""Kept partitions leave 1/_RESERVE of the memory to reads and their answers."""


class Segments:
    """Partitions in memory, charged to the budget; those of another version of the table are not used.

    `recall` are partitions that were kept before a restart: they are read again once rows come for them.
    """

    def __init__(self, desk: Desk, limit: int | None = None, most: int | None = None, recall: Iterable[int] = ()):
        front = 0 if desk.front is None else desk.front.limit
        self.limit = int(_SHARE * max(0, desk.budget.limit - front)) if limit is None else limit
        self._desk = desk
        self._most = most
        self._kept: dict[int, pa.RecordBatch] = {}
        self._sizes: dict[int, int] = {}
        self._version = desk.table.version
        self.held = 0
        self.recall = {partition for partition in recall if partition < desk.table.partitions}

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def ids(self) -> Indices:
        """The numbers of the partitions in memory."""
        return np.fromiter(self._kept, np.int64, len(self._kept))

    @property
    def sizes(self) -> Indices:
        """The bytes of each partition in memory."""
        return np.fromiter(self._sizes.values(), np.int64, len(self._sizes))

    @property
    def free(self) -> int:
        """How many bytes more may be kept."""
        budget = self._desk.budget
        return min(self.limit - self.held, budget.room - budget.limit // _RESERVE)

    @property
    def full(self) -> bool:
        """Whether as many partitions are kept as allowed."""
        return self._most is not None and len(self._kept) >= self._most

    def get(self, partition: int) -> pa.RecordBatch | None:
        """The rows of a partition, if it is in memory."""
        return self._kept.get(partition)

    def keep(self, partition: int, rows: pa.RecordBatch) -> None:
        """Keep a partition."""
        size = rows.nbytes
        self._desk.budget.charge(size, "partitions of the table that are kept")
        self._kept[partition], self._sizes[partition] = rows, size
        self.held += size

    def drop(self, partition: int) -> None:
        """Drop a partition from memory."""
        del self._kept[partition]
        size = self._sizes.pop(partition)
        self.held -= size
        self._desk.budget.release(size)

    def tidy(self, worth: Worth) -> None:
        """Drop partitions of another version of the table, and those worth least per byte while memory is short."""
        if self._version != self._desk.table.version:
            self._version = self._desk.table.version
            self.recall |= {partition for partition in self._kept if partition < worth.size}
            for partition in self.ids.tolist():
                self.drop(partition)
        budget = self._desk.budget
        while self._kept and budget.room < budget.limit // _RESERVE:
            ids = self.ids
            self.drop(int(ids[np.argmin(worth[ids] / np.maximum(1, self.sizes))]))


def keep_by_utility(segments: Segments, utility: Worth, partition: int, rows: pa.RecordBatch) -> None:
    """Keep a partition if there is room, or if dropping less useful ones, the least useful first, makes room."""
    if segments.get(partition) is not None:
        return
    ids, sizes = segments.ids, segments.sizes
    least = np.argsort(utility[ids], kind="stable")
    least = least[utility[ids[least]] < utility[partition]]
    short = rows.nbytes - segments.free
    leaving = int(np.searchsorted(np.cumsum(sizes[least]), short)) + 1 if short > 0 else 0
    leaving = max(leaving, int(segments.full))
    if leaving <= least.size:
        for place in least[:leaving].tolist():
            segments.drop(int(ids[place]))
        segments.keep(partition, rows)
