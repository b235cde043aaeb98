"""Payload of results in Spark's rows: a task reads it from the sources that it stayed in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.runtime.steps import Step, in_pieces

_PIECE = 1_000_000
"""Bytes that are fetched at a time."""


@dataclass(frozen=True, slots=True)
class FetchTask:
    """Takes rows through a step that fetches."""

    step: Step
    names: tuple[str, ...]
    """What their columns are called; Spark would take a name with a dot for a field of a struct."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fetch."""
        for batch in batches:
            for piece in in_pieces((self.step,), pa.Table.from_arrays(batch.columns, self.names), _PIECE):
                yield from piece.combine_chunks().to_batches()
