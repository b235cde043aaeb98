"""A master table on a simulated disk: what is read of it is charged to a clock, the rows come from another table.

Partitions lie one behind the other, each from the start of a block. To read the one behind which the arm stands takes
the transfer alone, but for the positioning that each basic window takes: so a cyclic scan is sequential. To read any
other takes a positioning first: so reads that the waiting rows choose are random. A key that is looked up takes a
positioning and the blocks of its rows; nothing is shared between keys. The index itself is in memory and free.
What a database takes for each request, whatever is read, may come on top.

An arm that leaves after each scan positions anew for the next, so that n blocks take ``RT(n)`` each time (§2.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from lab.simulated_disk import DiskModel, VirtualClock
from penstock.core.master import Changes, MasterTable, TableSize, TableSource, layout_of
from penstock.core.rows import Hashes, Indices, hashes_of

Arm = Literal["stays", "leaves"]
"""Whether the disk's arm is still where the last scan ended when the next begins."""


@dataclass(frozen=True)
class SimulatedTable:
    """`source`, as a disk would serve it. A row counts `row_bytes` there, or what it takes in Arrow if none is given.

    `request` is what each read takes besides, in seconds.

    >>> from penstock.storage.tables.arrow import ArrowTable
    >>> rows = ArrowTable(pa.table({"id": range(300)}), ("id",), partition_rows=100)
    >>> clock, disk = VirtualClock(), DiskModel(latency=0, seek=0.01, bandwidth=4096e3)
    >>> table = SimulatedTable(rows, disk, clock, row_bytes=120).open()
    >>> for partition in (0, 1, 0):
    ...     rows = table.scan(partition)
    ...     print(round(clock.disk, 3))
    0.013
    0.016
    0.029
    """

    source: TableSource
    disk: DiskModel
    clock: VirtualClock
    row_bytes: int | None = None
    request: float = 0.0
    arm: Arm = "stays"

    @property
    def store(self) -> str:
        """That of its source."""
        return self.source.store

    @property
    def versioned(self) -> bool:
        """As its source."""
        return self.source.versioned

    @property
    def columns(self) -> pa.Schema:
        """The table's columns."""
        return self.source.columns

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that rows are looked up by."""
        return self.source.keys

    def open(self, version: str | None = None) -> OpenSimulatedTable:
        """The table as of `version`, or as it is now, on a disk whose arm stands before it."""
        table = self.source.open(version)
        return OpenSimulatedTable(table, self.disk, self.clock, self.row_bytes, self.request, self.arm)


@dataclass(slots=True)
class TableReads:
    """What the disk did so far."""

    scans: int = 0
    rows: int = 0
    """Rows of the partitions that were scanned."""
    positionings: int = 0
    blocks: int = 0
    looked_up: int = 0
    seconds: float = 0.0


class OpenSimulatedTable:
    """One version of a table, and the arm of the disk that it is on."""

    def __init__(
        self,
        table: MasterTable,
        disk: DiskModel,
        clock: VirtualClock,
        row_bytes: int | None,
        request: float = 0.0,
        arm: Arm = "stays",
    ) -> None:
        self._table = table
        self._disk = disk
        self._clock = clock
        self._request = request
        self._leaves = arm == "leaves"
        self._row = table.size.row if row_bytes is None else float(row_bytes)
        self.columns: pa.Schema = table.columns
        self.keys = table.keys
        self.unique = table.unique
        self.clustered = table.clustered
        self.version = table.version
        self.layout = layout_of(table)
        self.size = TableSize(table.size.rows, round(table.size.rows * self._row))
        self.reads = TableReads()
        counts = [table.scan(partition).num_rows for partition in range(table.partitions)]
        self._ends = np.cumsum([self._blocks(count) for count in counts], dtype=np.int64)
        self._arm = -1

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return self._table.partitions

    def partition_of(self, hashes: Hashes, keys: Sequence[pa.Array]) -> Indices:
        """By the index, which is free."""
        return self._table.partition_of(hashes, keys)

    def scan(self, partition: int) -> pa.RecordBatch:
        """The rows of a partition, sequentially if the arm stands before it."""
        end = int(self._ends[partition])
        first = int(self._ends[partition - 1]) if partition else 0
        self._charge(self._positionings(first, end), end - first)
        self._arm = end
        rows = self._table.scan(partition)
        self.reads.scans += 1
        self.reads.rows += rows.num_rows
        return rows

    def get(self, hashes: Hashes, keys: Sequence[pa.Array]) -> pa.RecordBatch:
        """The rows of some keys, one random access after the other; a key that is not there takes one as well."""
        rows = self._table.get(hashes, keys)
        _, counts = np.unique(hashes_of(rows), return_counts=True)
        blocks = np.maximum(1, np.ceil(counts * self._row / self._disk.block_bytes))
        absent = max(0, hashes.size - counts.size)
        self._charge(hashes.size, int(blocks.sum()) + absent)
        self._arm = -1
        self.reads.looked_up += hashes.size
        return rows

    def changes(self, since: str) -> Changes:
        """Those of the table."""
        return self._table.changes(since)

    def _positionings(self, first: int, end: int) -> int:
        window = self._disk.window_blocks
        if self._leaves:
            return -((first - end) // window)
        entered = (end - 1) // window - first // window
        stands = self._arm == first and first % window != 0
        return entered if stands else entered + 1

    def _blocks(self, rows: int) -> int:
        return self._disk.blocks(round(rows * self._row))

    def _charge(self, positionings: int, blocks: int) -> None:
        seconds = self._request + self._disk.seconds(positionings, blocks)
        self.reads.positionings += positionings
        self.reads.blocks += blocks
        self.reads.seconds += seconds
        self._clock.transfer(seconds)
