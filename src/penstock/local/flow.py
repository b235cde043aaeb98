"""Flows in this process: the same graph and operators as on Spark, over Arrow tables, without a JVM."""

from __future__ import annotations

import os
import time as clock
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from penstock.core.budget import parse_bytes
from penstock.core.errors import ConfigError, FlowError
from penstock.core.files import Changes, Format, Payload, Sizes
from penstock.core.master import Freshness, TableSource
from penstock.core.progress import Policy
from penstock.expressions import evaluate
from penstock.flow.flow import Flow, read_trigger
from penstock.flow.graph import Node, Pairs, SourceNode
from penstock.flow.sinks import ParquetSink
from penstock.flow.stream import Stream
from penstock.kernels.plain import plain_columns
from penstock.local.files import FileFeed
from penstock.local.query import LocalQuery
from penstock.storage.delta import delta_files
from penstock.storage.payload import sizes_of
from penstock.storage.scans import files_of
from penstock.storage.tables.reading import read_table

_SMALLEST_SHARE = 1_000
"""Least memory of a shard, in bytes: a few rows of arrivals and one of output."""


@dataclass(frozen=True, slots=True)
class _Feed:
    """A source's tables, one per epoch, and the columns of the first, as plain types."""

    schema: pa.Schema
    tables: Iterable[pa.Table]

    @classmethod
    def of(cls, data: Any) -> Any:
        """A feed of `data` if it is tables; anything else as it is, to be refused."""
        if isinstance(data, pa.Table):
            return cls(plain_columns(data.schema), [data])
        if isinstance(data, Iterator):
            first = next(data, None)
            return cls(plain_columns(first.schema), chain([first], data)) if isinstance(first, pa.Table) else data
        if isinstance(data, Sequence) and data and isinstance(data[0], pa.Table):
            return cls(plain_columns(data[0].schema), data)
        return data


class LocalFlow(Flow):
    """A flow in this process: sources are Arrow tables, or iterables of them, one per epoch.

    `shards` cuts the key space as Spark's tasks would, and the budget is divided among them. State that does not fit
    goes to files in a temporary folder. Expressions have the same values, types and errors as in Spark 4; one that
    would differ is refused. Only the last digit of exp, ln, log2, log10, pow, sin, cos, tan, atan, atan2, degrees and
    radians may differ.

    >>> flow = LocalFlow(memory="64 MB")
    >>> rows = flow.source([pa.table({"t": [1]}), pa.table({"t": [2]})], time="t").to_memory()
    >>> flow.run().progress().rows_in
    2
    """

    def __init__(self, memory: str | int = "256 MB", shards: int = 1, now: Callable[[], int] | None = None) -> None:
        super().__init__(memory)
        if not isinstance(shards, int) or shards < 1:
            raise ConfigError(f"shards={shards!r} must be a whole number of at least 1.")
        self.shards = shards
        self._check_memory(memory)
        self._has_run = False
        self._now = now or (lambda: clock.time_ns() // 1000)

    def source(
        self,
        data: Any,
        time: str,
        progress: Policy | None = None,
        name: str | None = None,
        payload: Payload = "auto",
    ) -> Stream:
        """Add a source of Arrow tables: one, or a list or generator of them, one per epoch; see `Flow.source`.

        >>> flow = LocalFlow()
        >>> rows = flow.source((pa.table({"t": [n]}) for n in range(3)), time="t").to_memory()
        >>> flow.run().progress().rows_in
        3
        """
        return super().source(_Feed.of(data), time, progress, name, payload)

    def start(self, trigger: str | None = None) -> LocalQuery:
        """Process all rows of the sources and leave the streams open; in process there is nothing to wait for.

        With a `trigger`, a lookup that may shed load has that much time for an epoch, as on Spark: rows that it cannot
        answer in time are put aside, and answered in silent epochs after the last.
        """
        query = self._run(None if trigger is None else read_trigger(trigger) / 1e6)
        while query._put_aside and not query._has_ended:
            query.epoch({})
        return query

    def run(self, *, end: bool = True) -> LocalQuery:
        """Run epoch after epoch until every source is exhausted; with `end`, one more ends the streams.

        It ends earlier if every sink takes the `head` of a stream and has all of it.

        Each epoch takes as long as it needs: a lookup sheds no load here.
        """
        query = self._run(None)
        if end and not query._has_ended:
            query.epoch({}, end=True)
        return query

    def _run(self, trigger: float | None) -> LocalQuery:
        self._check_ready()
        if self._has_run:
            raise FlowError(
                "This flow has already run. A local flow keeps no checkpoint to resume from, and its sources may be "
                "exhausted. Build it again to run it again."
            )
        for sink in self._sinks:
            if isinstance(sink, ParquetSink) and os.path.isdir(sink.path):
                sink.refuse_results(os.listdir(sink.path))
        self._has_run = True
        query = self._query(trigger)
        feeds = {node: iter(node.data.tables) for node in query.sources}
        while feeds and not query._has_ended:
            tables = {node: query._next(node, feed) for node, feed in feeds.items()}
            feeds = {node: feed for node, feed in feeds.items() if tables[node] is not None}
            if feeds:
                query.epoch({node: rows for node, rows in tables.items() if rows is not None})
        return query

    def _query(self, trigger: float | None = None) -> LocalQuery:
        return LocalQuery(self._sinks, self.memory, self.shards, self._now, trigger, self._homes)

    def _sizes_of(self, source: SourceNode) -> Sizes | None:
        data = source.data
        if isinstance(data, FileFeed):
            return sizes_of(data.files)
        if not isinstance(data.tables, Sequence) or not all(isinstance(table, pa.Table) for table in data.tables):
            return None
        rows = sum(table.num_rows for table in data.tables)
        return Sizes(
            rows,
            {
                name: sum(table.column(name).nbytes for table in data.tables if name in table.column_names)
                / max(1, rows)
                for name in data.schema.names
            },
        )

    def _why_not_read_again(self, data: Any) -> str | None:
        return "it does not read files"

    @property
    def _leaves_payload(self) -> bool:
        return False

    @property
    def _place(self) -> str:
        return "flow in process"

    def _columns_of(self, data: Any) -> pa.Schema:
        if isinstance(data, pa.Table):
            return data.schema
        if isinstance(data, _Feed | FileFeed):
            return data.schema
        if isinstance(data, Sequence) and not isinstance(data, str) and not data:
            raise ConfigError(
                "This source is empty, so it has no columns. Pass at least one pyarrow.Table; it may have no rows."
            )
        raise ConfigError(
            f"A local flow reads Arrow tables, but this source is a {type(data).__name__}. "
            f"Pass a pyarrow.Table, or a list or generator of them, one per epoch."
        )

    def _files(
        self, kind: Format, path: Any, schema: pa.Schema | None, max_files: int | None, max_bytes: int | None
    ) -> FileFeed:
        return FileFeed(files_of(kind, path, schema, max_files, max_bytes))

    def _delta(self, path: Any, schema: pa.Schema | None, max_commits: int | None, changes: Changes) -> FileFeed:
        return FileFeed(delta_files(path, schema, max_commits, changes))

    def _selected(self, node: Node, expressions: Sequence[Any]) -> tuple[pa.Schema, bool]:
        return evaluate.select(node.columns.empty_table(), expressions).schema, False

    def _check_where(self, node: Node, condition: Any) -> None:
        evaluate.where(node.columns.empty_table(), condition)

    def _check_pairs(self, node: Node, pairs: Pairs) -> None:
        evaluate.where_pairs(node.columns.empty_table(), pairs.condition, pairs.sides)

    def _check_memory(self, memory: str | int) -> int:
        size = parse_bytes(memory)
        if size // self.shards < _SMALLEST_SHARE:
            raise ConfigError(
                f"memory={memory!r} over {self.shards} shards is too small for one page. "
                f"Write at least memory={_SMALLEST_SHARE * self.shards}."
            )
        return size

    def _master_table(self, table: Any, keys: tuple[str, ...], freshness: Freshness) -> TableSource:
        return read_table(table, keys)
