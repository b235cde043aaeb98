"""What Spark calls for each micro-batch of a query, as by PySpark's `foreachBatch`, which makes a session for each.

Making one asks the JVM several questions while the epoch waits. Here it is made once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter


def each_batch(stream: DataFrame, function: Callable[[DataFrame, int], None]) -> DataStreamWriter:
    """A writer that calls a function with each micro-batch of a stream and its number."""
    writer, session = stream.writeStream, stream.sparkSession
    gateway: Any = session.sparkContext._gateway
    sources = gateway.jvm.org.apache.spark.sql.execution.streaming.sources
    sources.PythonForeachBatchHelper.callForeachBatch(writer._jwrite, _EachBatch(session, function))
    ensure_callback_server_started(gateway)
    return writer


class _EachBatch:
    """The function as the JVM calls it."""

    def __init__(self, session: SparkSession, function: Callable[[DataFrame, int], None]) -> None:
        self._given = session
        self._function = function
        self._session: SparkSession | None = None
        """The query's own, in which all its micro-batches are."""

    def call(self, batch: Any, number: int) -> None:
        """What Spark calls."""
        if self._session is None:
            self._session = SparkSession(self._given.sparkContext, batch.sparkSession())
        self._function(DataFrame(batch, self._session), number)

    class Java:
        """What py4j is told of it."""

        implements: ClassVar = ["org.apache.spark.sql.execution.streaming.sources.PythonForeachBatchFunction"]
