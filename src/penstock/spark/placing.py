"""Spark's rows on their way to operators that are not placed by key: Python places them, and sends blobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.runtime.entering import Entry
from penstock.spark.arrivals import Arrivals
from penstock.spark.blobs import cut_by_shard
from penstock.spark.collector import pass_over_modules


@dataclass(frozen=True, slots=True)
class PlaceTask:
    """Sends rows of the tagged union to the shards of an operator."""

    arrivals: Arrivals
    entries: tuple[Entry, ...]
    """Of each port."""
    shards: int
    share: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Place."""
        pass_over_modules()
        for batch in batches:
            for port, rows in self.arrivals.entering(batch):
                for placed in self.entries[port].placed(rows):
                    yield from cut_by_shard(placed, port, self.shards, self.share)
