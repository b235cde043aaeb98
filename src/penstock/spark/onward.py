"""What a task does with the results of its shard without converting them back to Spark's rows.

It writes them to a Parquet file, counts those that a sink drops, or splits them by shard of the next operator and sends
them there as blobs.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as st

from penstock.expressions import evaluate
from penstock.flow.graph import Pairs
from penstock.runtime.steps import Fetch, ResultTime, Step, in_pieces
from penstock.spark.blobs import BLOBS, Way
from penstock.spark.task import ShardTask

WRITTEN = "file string, rows long"
"""What a task that writes tells the driver, as Spark declares it."""

_FETCHED = 16
"""The part of a task's share that payload of results may take while it is written."""

_SET_ASIDE = 6
"""The part of a task's share that is set aside where it is: what is read, decoded and put into rows at a time."""

_GROUP = 32
"""The part of a task's share that is gathered for a row group of a file."""


class Then(Protocol):
    """What to do with results."""

    @property
    def declared(self) -> str | st.StructType:
        """The columns of what is left for Spark to carry."""
        ...

    def take(self, results: Iterator[pa.Table], share: int) -> Iterator[pa.RecordBatch]:
        """Take all the results of a shard."""
        ...


@dataclass(frozen=True, slots=True)
class Write:
    """Write them to a file in an existing folder; its name is reported once it is complete.

    Each attempt at a task has its own file. Those of failed or duplicate attempts are never reported.
    """

    steps: tuple[Step, ...]
    columns: pa.Schema
    folder: str
    declared: str = WRITTEN

    def take(self, results: Iterator[pa.Table], share: int) -> Iterator[pa.RecordBatch]:
        """Write."""
        path, rows = f"{self.folder}/{uuid.uuid4().hex}.parquet", 0
        made = (part for result in results for part in in_pieces(self.steps, result, share // _FETCHED))
        groups = _grouped((pa.table(table.columns, schema=self.columns) for table in made), share // _GROUP)
        writer: pq.ParquetWriter | None = None
        for group in groups:
            if writer is None:
                writer = pq.ParquetWriter(path, self.columns)
            writer.write_table(group)
            rows += group.num_rows
        if writer is not None:
            writer.close()
            yield pa.RecordBatch.from_pydict({"file": [path], "rows": [rows]})


@dataclass(frozen=True, slots=True)
class Count:
    """Count them, complete with their payload, for a sink that drops them."""

    steps: tuple[Step, ...]
    declared: str = "rows long"

    def take(self, results: Iterator[pa.Table], share: int) -> Iterator[pa.RecordBatch]:
        """Count."""
        made = (part for result in results for part in in_pieces(self.steps, result, share // _FETCHED))
        yield pa.RecordBatch.from_pydict({"rows": [sum(part.num_rows for part in made)]})


@dataclass(frozen=True, slots=True)
class Send:
    """Send them, with their event time, to the shards of an operator."""

    way: Way
    time: ResultTime
    shards: int
    declared: str = BLOBS

    def take(self, results: Iterator[pa.Table], share: int) -> Iterator[pa.RecordBatch]:
        """Send."""
        for result in results:
            yield from self.way.blobs(self.time.beside(result), self.shards, share)


@dataclass(frozen=True, slots=True)
class Give:
    """Give them to Spark after some steps."""

    steps: tuple[Step, ...]
    declared: st.StructType

    def take(self, results: Iterator[pa.Table], share: int) -> Iterator[pa.RecordBatch]:
        """Give."""
        for result in results:
            for part in in_pieces(self.steps, result, share // _FETCHED):
                yield from part.combine_chunks().to_batches()


@dataclass(frozen=True, slots=True)
class Onward:
    """A running shard, and what to do with its results."""

    shard: ShardTask
    results: pa.Schema
    then: Then
    pairs: Pairs | None = None
    """What must hold of the results of a join."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the shard; where payload is fetched for its results, it leaves a part of its share to that."""
        share = self.shard.share
        fetches = any(isinstance(step, Fetch) for step in _steps(self.then))
        shard = replace(self.shard, set_aside=share // _SET_ASIDE) if fetches else self.shard
        return self.then.take(self._tables(shard, batches), share)

    def _tables(self, shard: ShardTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        for rows in shard(batches):
            table = pa.Table.from_batches([rows], schema=self.results)
            if self.pairs is not None:
                table = evaluate.where_pairs(table, self.pairs.condition, self.pairs.sides)
            if table.num_rows:
                yield table


def _steps(then: Then) -> tuple[Step, ...]:
    """The steps that results take."""
    return then.way.steps if isinstance(then, Send) else getattr(then, "steps", ())


def _grouped(tables: Iterator[pa.Table], size: int) -> Iterator[pa.Table]:
    """Tables put together until they have about so many bytes."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(each.nbytes for each in held) >= size:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)
