"""What Spark calls for each micro-batch of a query, as by PySpark's `foreachBatch`, which makes a session for each.

Making one asks the JVM several questions while the epoch waits. Here it is made once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from penstock.spark.stopping import InterruptedEpochError


class EachBatch:
    """A function that Spark calls with each micro-batch of a query and its number.

    py4j keeps what the JVM calls until the JVM collects its garbage, which it may never do: once the query is over,
    `let_go` keeps that from being all of a flow.
    """

    def __init__(self, session: SparkSession, function: Callable[[DataFrame, int], None]) -> None:
        self._given: SparkSession | None = session
        self._function: Callable[[DataFrame, int], None] | None = function
        self._session: SparkSession | None = None
        """The query's own, in which all its micro-batches are."""

    def writer_of(self, stream: DataFrame) -> DataStreamWriter:
        """A writer that calls the function with the micro-batches of a stream."""
        writer = stream.writeStream
        gateway: Any = stream.sparkSession.sparkContext._gateway
        sources = gateway.jvm.org.apache.spark.sql.execution.streaming.sources
        sources.PythonForeachBatchHelper.callForeachBatch(writer._jwrite, self)
        ensure_callback_server_started(gateway)
        return writer

    def let_go(self) -> None:
        """Forget the function and the sessions: the query is over."""
        self._given = self._function = self._session = None

    def call(self, batch: Any, number: int) -> None:
        """What Spark calls."""
        given, function = self._given, self._function
        if given is None or function is None:
            raise InterruptedEpochError
        session = self._session
        if session is None:
            session = self._session = SparkSession(given.sparkContext, batch.sparkSession())
        function(DataFrame(batch, session), number)

    class Java:
        """What py4j is told of it."""

        implements: ClassVar = ["org.apache.spark.sql.execution.streaming.sources.PythonForeachBatchFunction"]
