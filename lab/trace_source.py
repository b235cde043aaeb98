"""Replay a trace as a Spark stream: the source ``penstock-trace``, with places in the trace as its offsets.

The rows between two places are always the same, so a query that is restarted or repeats a batch sees what it saw.
Nothing is stored: each task makes its rows when it needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from lab.workloads.traces import Replay, replay_of
from penstock.core.errors import ConfigError
from penstock.spark.types import spark_type

NAME = "penstock-trace"
"""What the source is called in ``readStream.format(…)``."""

_MEANING = ("trace", "changes", "disorder")
"""The options that say which rows there are, and in what order."""
_ROWS_PER_BATCH, _PARTITIONS = "rowsPerBatch", "partitions"
_COUNTED = {_ROWS_PER_BATCH: "rows", _PARTITIONS: "tasks"}
_BATCH_ROWS = 16_384
"""How many rows go to the JVM at a time."""


class TraceSource(DataSource):  # type: ignore[misc]
    """The source, for `spark.dataSource.register`.

    A stream of it has all the rows of the replay, in its order from batch to batch, and then no more. Options:

    - ``trace``, ``changes``, ``disorder``: what `workloads.traces.replay_of` reads: the trace as JSON, pauses and
      bursts as a JSON list, a length of time;
    - ``rowsPerBatch``: how many rows a micro-batch has at most; 10,000 if left out;
    - ``partitions``: how many tasks make a micro-batch's rows; 1 if left out. Each has a part without gaps.

    ::

        spark.dataSource.register(TraceSource)
        trace = '{"kind": "composite", "rate": 200, "span": "4 h", "seed": 7}'
        calls = spark.readStream.format("penstock-trace").option("trace", trace).option("disorder", "20 s").load()
    """

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return NAME

    def schema(self) -> st.StructType:
        """The trace's columns."""
        columns = _replay(self.options).schema
        return st.StructType([st.StructField(field.name, spark_type(field.type)) for field in columns])

    def streamReader(self, schema: st.StructType) -> TraceReader:  # noqa: N802 - Spark's name
        """What reads it as a stream."""
        return TraceReader(
            _replay(self.options),
            _positive(self.options, _ROWS_PER_BATCH, 10_000),
            _positive(self.options, _PARTITIONS, 1),
        )


@dataclass(frozen=True)
class Places(InputPartition):  # type: ignore[misc]
    """The rows of one task: from place `start` up to, not including, `stop`."""

    start: int
    stop: int


@dataclass
class TraceReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads a replay from place to place; an offset is ``{"row": place}``."""

    replay: Replay
    rows_per_batch: int
    tasks: int

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's names, from here on
        """Before the first row."""
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """So many rows at a time."""
        return ReadMaxRows(self.rows_per_batch)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """As far as the limit allows: to the end of the trace if it sets none."""
        end = self.replay.rows
        if start["row"] > end:
            raise ConfigError(
                f"The checkpoint is at row {start['row']}, but the trace has {end}: it is not the trace that was read "
                f"so far. Write the same options as before, or start with a new checkpoint."
            )
        return {"row": min(end, start["row"] + limit.max_rows) if isinstance(limit, ReadMaxRows) else end}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        """The end of the trace: all of it is there from the start."""
        return {"row": self.replay.rows}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Nothing: no rows come later."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Places]:
        """The rows of a micro-batch, cut into parts of equal size."""
        first, count = start["row"], end["row"] - start["row"]
        cuts = [first + count * task // self.tasks for task in range(self.tasks + 1)]
        return [Places(one, other) for one, other in pairwise(cuts) if one < other]

    def read(self, partition: Places) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        for rows in self.replay.slices(partition.start, partition.stop):
            yield from rows.to_batches(max_chunksize=_BATCH_ROWS)


def _replay(options: Mapping[str, str]) -> Replay:
    known = {name.lower(): name for name in (*_MEANING, _ROWS_PER_BATCH, _PARTITIONS)}
    for option in options:
        if option.lower() not in known:
            close = get_close_matches(option.lower(), known, n=1)
            hint = f"Did you mean {known[close[0]]!r}?" if close else f"It has: {', '.join(known.values())}."
            raise ConfigError(f"{option!r} is no option of {NAME}. {hint}")
    return replay_of({name: options[name] for name in _MEANING if name in options})


def _positive(options: Mapping[str, str], option: str, usual: int) -> int:
    text = options.get(option, str(usual))
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{option}={text!r} is no number of {_COUNTED[option]}. Write 1 or more.")
    return int(text)
