"""The partitioned (hybrid) join: rows wait for their partition of the table, and whole partitions are kept by demand.

Rows whose partition is in memory are answered at once. The others wait in blocks by partition; when no block is free
the partitions for which most rows wait are read, one after the other, until enough blocks are free again. So each row
costs at most one read. A partition that was read stays if rows come for it often enough for its size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.core.errors import ConfigError
from penstock.core.operator import Out
from penstock.core.rows import Hashes, Indices
from penstock.kernels.sort import stable_order
from penstock.operators.lookup.areas import Areas
from penstock.operators.lookup.back import Desk
from penstock.operators.lookup.methods import BackMethod
from penstock.operators.lookup.segments import Segments, Worth
from penstock.operators.lookup.slots import room_for
from penstock.operators.lookup.waiting import Mask, Waiting

_BLOCK = 200
"""Rows of a block, or fewer if there are many partitions: 4 KB for rows of 20 bytes."""

_REMEMBERED = 1000
"""How many arrival frequencies are saved, besides those of partitions that are kept."""


@dataclass(frozen=True, slots=True)
class Partitioned(BackMethod):
    """Keep frequent partitions, let rows wait for the others.

    >>> Partitioned(wait=4000, block=100).blocks(partitions=7, slots=4000)
    (100, 40)
    """

    wait: int | None = None
    """How many rows may wait, by default as many as fit."""
    block: int | None = None
    """How many rows a block of a wait buffer has; by default up to 200, so that 4 blocks per partition fit."""
    refill: float = 0.4
    """r_wb: once no block is free, the fraction of blocks that must be free before rows are let in again."""
    invoke: int = 3000
    """N_invoke: while nothing arrives, a partition is read if this many rows wait for it."""
    when: Literal["idle", "always"] = "idle"
    """Whether `invoke` counts only while nothing arrives."""
    high: int = 100
    """H_mark: if more blocks of rows than this are still to be let in, blocks rather than rows are joined."""
    low: int = 2
    """L_mark: if fewer blocks of rows than this are still to be let in, rows are joined again."""
    cache: int | None = None
    """M_P: bytes of partitions that are kept, by default half of the memory."""
    rho: float = 0.25
    """How much more frequent a partition must be, per byte, than the one that it replaces."""
    alpha: float = 0.3
    """Decay factor of the arrival frequencies after an epoch, C ← αC."""
    every: int = 10_000
    """How many rows an epoch of the arrival frequencies has."""
    batch: int | None = None
    """How many rows are let in at a time; with 1, each row is fully processed before the next, as in Algorithm 8."""

    def __post_init__(self) -> None:
        if not 0 <= self.refill < 1:
            raise ConfigError(f"refill={self.refill} must be in [0, 1).")
        if self.low < 1 or self.high < self.low:
            raise ConfigError(f"low={self.low}, high={self.high} must be blocks with 1 <= low <= high.")
        if not 0 <= self.alpha <= 1:
            raise ConfigError(f"alpha={self.alpha} must be in [0, 1].")

    def blocks(self, partitions: int, slots: int) -> tuple[int, int]:
        """The rows of a block, and how many blocks there are."""
        block = self.block or max(1, min(_BLOCK, slots // (4 * max(1, partitions))))
        return block, max(1, slots // block)


class PartitionedJoin:
    """Wait buffers, kept partitions, and how often rows came for each."""

    def __init__(self, settings: Partitioned, desk: Desk, waiting: Waiting, meta: Mapping[str, Any]) -> None:
        self._settings = settings
        self._desk = desk
        self.waiting = waiting
        self.segments = Segments(desk, settings.cache, recall=meta.get("kept", ()))
        self.arrivals = Arrivals(desk.table.partitions, settings.alpha, settings.every)
        self.arrivals.restore(meta.get("arrivals", ()), int(meta.get("seen", 0)))
        self.mode: Literal["tuple", "block"] = "tuple"
        self._areas = Areas(desk, waiting, self.segments)
        self._todo: Literal["nothing", "answer", "refill", "switch"] = "nothing"
        self._block, self._blocks = settings.blocks(desk.table.partitions, settings.wait or 1)

    @property
    def at_once(self) -> bool:
        """Whether new rows have yet to be processed, or so many rows wait for a partition that it is due to be read."""
        return self._todo != "nothing" or self._due() is not None

    def put(self, rows: pa.RecordBatch, hashes: Hashes, attempts: Indices | int = 0) -> None:
        """Let rows wait for their partition; the next step answers those whose partition is in memory."""
        partition = self._areas.put(rows, hashes, attempts)
        self.arrivals.count(partition[partition >= 0])
        self._todo = "answer"

    def free(self, rows: pa.RecordBatch) -> int:
        """How many rows may enter now: none before the last ones are processed."""
        if self.at_once:
            return 0
        slots = self._settings.wait or room_for(rows, self._desk.budget, self.waiting)
        self._block, self._blocks = self._settings.blocks(self._desk.table.partitions, slots)
        return max(0, min(self._settings.batch or max(1, slots // 4), slots - len(self.waiting)))

    def step(self, position: float = 1.0) -> Iterator[Out]:
        """Answer rows from memory, or read a partition that is due; if nothing is, that of the row at `position`."""
        self.segments.tidy(self.arrivals.frequency)
        if self._todo == "answer":
            yield from self._areas.leave()
            yield from self._areas.answer(self._areas.here if self.mode == "tuple" else self._full_blocks())
            self._todo = "refill" if self._free_blocks <= 0 else "switch"
        elif self._todo == "refill":
            yield from self._probe(self._fullest())
            self._todo = "refill" if self._short else "switch"
        elif self._todo == "switch":
            yield from self._switch()
            self._todo = "nothing"
        else:
            due = self._due()
            yield from self._probe(self._areas.chosen(position) if due is None else due)

    def renew(self) -> None:
        """Find the partitions of waiting rows again, because the table has changed."""
        self._areas.renew()
        self._todo = "answer"
        if self.arrivals.frequency.size != self._desk.table.partitions:
            self.arrivals = Arrivals(self._desk.table.partitions, self._settings.alpha, self._settings.every)
            self.segments.recall = set()

    def meta(self) -> dict[str, object]:
        """State: which partitions were kept, without their rows, and the arrival frequencies."""
        kept = sorted({*self.segments.ids.tolist(), *self.segments.recall})
        return {"kept": kept, "arrivals": self.arrivals.save(kept), "seen": self.arrivals.seen}

    @property
    def _free_blocks(self) -> int:
        return self._blocks - int((-(-self._areas.sizes // self._block)).sum())

    @property
    def _short(self) -> bool:
        """Whether there are still too few free blocks to let rows in."""
        return self._free_blocks <= self._settings.refill * self._blocks

    def _fullest(self) -> int:
        return int(self._areas.sizes.argmax())

    def _due(self) -> int | None:
        """A partition that should be read though there are free blocks."""
        if (again := self._areas.recalled) is not None:
            return again
        if self._desk.backlog and self._settings.when == "idle":
            return None
        sizes = self._areas.sizes
        return int(sizes.argmax()) if sizes.size and sizes.max() >= self._settings.invoke else None

    def _full_blocks(self) -> Mask:
        """The oldest rows of partitions in memory, as many as fill whole blocks."""
        partition = np.where(self._areas.here, self.waiting.partition, -1)
        order = stable_order(partition)
        rank = np.arange(order.size) - np.searchsorted(partition[order], partition[order])
        full = np.append(self._areas.sizes // self._block * self._block, 0)
        which = np.zeros(order.size, np.bool_)
        which[order] = rank < full[partition[order]]
        return which

    def _switch(self) -> Iterator[Out]:
        """Join blocks while many rows are still to be let in, and rows otherwise."""
        backlog, settings = self._desk.backlog, self._settings
        if self.mode == "block" and backlog < settings.low * self._block:
            yield from self._areas.answer(self._areas.here)
            self.mode = "tuple"
        elif self.mode == "tuple" and backlog > settings.high * self._block:
            self.mode = "block"

    def _probe(self, partition: int) -> Iterator[Out]:
        """Read a partition unless it is in memory, answer all rows that wait for it, and perhaps keep it."""
        if partition < 0:
            yield from self._areas.leave()
            return
        rows = yield from self._areas.fetch(partition)
        if self.segments.get(partition) is None:
            self._keep(partition, rows)

    def _keep(self, partition: int, rows: pa.RecordBatch) -> None:
        segments = self.segments
        if rows.nbytes > segments.free:
            ids = segments.ids
            least = replaced(
                self.arrivals.frequency[ids],
                segments.sizes,
                segments.free,
                float(self.arrivals.frequency[partition]),
                rows.nbytes,
                self._settings.rho,
            )
            if least is None:
                return
            segments.drop(int(ids[least]))
        segments.keep(partition, rows)


def replaced(kept: Worth, sizes: Indices, free: int, offered: float, size: int, rho: float) -> int | None:
    """Which kept partition to replace: the least frequent per byte of those that 6.1 and 6.2 allow, if there is any.

    6.1: the new partition is more frequent per byte by `rho`. 6.2: it fits once the old one is dropped.

    >>> replaced(np.array([9.0, 2.0]), np.array([100, 100]), 0, 4.0, 100, rho=0.25)
    1
    """
    allowed = (offered * sizes >= size * (1 + rho) * kept) & (free + sizes >= size)
    if not allowed.any():
        return None
    return int(np.argmin(np.where(allowed, kept / np.maximum(1, sizes), np.inf)))


class Arrivals:
    """How often rows arrived for each partition, with recent rows weighted more: every epoch C ← αC.

    >>> arrivals = Arrivals(partitions=2, alpha=0.5, every=4)
    >>> arrivals.count(np.array([0, 0, 0, 1, 1]))
    >>> arrivals.frequency.tolist()
    [1.5, 1.5]
    """

    def __init__(self, partitions: int, alpha: float, every: int) -> None:
        self.frequency: Worth = np.zeros(partitions)
        self.seen = 0
        """Rows of the epoch so far."""
        self._alpha = alpha
        self._every = every

    def count(self, partition: Indices) -> None:
        """Count rows that arrived for these partitions."""
        while partition.size:
            some, partition = np.split(partition, [self._every - self.seen])
            self.frequency += np.bincount(some, minlength=self.frequency.size)
            self.seen += some.size
            if self.seen == self._every:
                self.frequency *= self._alpha
                self.seen = 0

    def save(self, kept: list[int]) -> list[tuple[int, float]]:
        """The frequencies of these partitions, and of the most frequent ones."""
        most = np.argsort(-self.frequency, kind="stable")[:_REMEMBERED]
        which = np.union1d(most[self.frequency[most] > 0], np.array(kept, np.int64))
        return [(int(place), float(self.frequency[place])) for place in which]

    def restore(self, saved: Any, seen: int) -> None:
        """Restore saved frequencies of partitions that still exist."""
        self.seen = seen
        for place, frequency in saved:
            if place < self.frequency.size:
                self.frequency[place] = frequency
