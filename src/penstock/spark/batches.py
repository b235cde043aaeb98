"""What Spark calls for each micro-batch of a query, as by PySpark's `foreachBatch`, which makes a session for each.

Making one asks the JVM several questions while the epoch waits. Here it is made once.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from penstock.spark.stopping import InterruptedEpochError

_ENDING = 200
"""Milliseconds to wait at most for the thread of a query that is over."""


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
        self._thread: Any = None
        """The query's, in the JVM,"""
        self._connection: Any = None
        """and py4j's connection by which it calls."""

    def writer_of(self, stream: DataFrame) -> DataStreamWriter:
        """A writer that calls the function with the micro-batches of a stream."""
        writer = stream.writeStream
        gateway: Any = stream.sparkSession.sparkContext._gateway
        sources = gateway.jvm.org.apache.spark.sql.execution.streaming.sources
        sources.PythonForeachBatchHelper.callForeachBatch(writer._jwrite, self)
        ensure_callback_server_started(gateway)
        return writer

    def let_go(self) -> None:
        """Forget the function and the sessions: the query is over.

        py4j has a connection, and a thread here, for each thread that calls from the JVM, and keeps them, too: so they
        are ended with the query's thread.
        """
        thread, connection = self._thread, self._connection
        self._given = self._function = self._session = self._thread = self._connection = None
        if connection is not None:
            with suppress(Exception):  # the JVM, or the connection, is gone
                thread.join(_ENDING)
                if not thread.isAlive():
                    connection.socket.shutdown(socket.SHUT_RDWR)

    def call(self, batch: Any, number: int) -> None:
        """What Spark calls."""
        given, function = self._given, self._function
        if given is None or function is None:
            raise InterruptedEpochError
        session = self._session
        if session is None:
            session = self._session = SparkSession(given.sparkContext, batch.sparkSession())
            self._note_connection(given.sparkContext._gateway)
        function(DataFrame(batch, session), number)

    def _note_connection(self, gateway: Any) -> None:
        """Note who calls, if py4j has a thread here for each thread there."""
        connection_of = getattr(gateway._gateway_client, "get_thread_connection", None)
        if connection_of is not None:
            self._connection = connection_of()
            self._thread = gateway.jvm.java.lang.Thread.currentThread()

    class Java:
        """What py4j is told of it."""

        implements: ClassVar = ["org.apache.spark.sql.execution.streaming.sources.PythonForeachBatchFunction"]
