"""Stopping a streaming query between two epochs: on request, and on SIGTERM and Ctrl-C.

Spark's own `StreamingQuery.stop` cancels the running micro-batch. Here a stop is a request: the running epoch commits,
the next one does not start, and only then is Spark told to stop.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from pyspark.sql.streaming import StreamingQuery

log = logging.getLogger("penstock")

_POLL = 0.01
"""Seconds between two looks at the query while a stop waits for its epoch."""


class InterruptedEpochError(Exception):
    """Ends an epoch's callback in a way that Spark takes for an interruption by `stop`, not for a failure.

    Spark searches the text of the traceback by a regular expression that needs a stack frame per character: a long
    traceback, as a cancelled job leaves it, overflows the stack of Spark's thread.
    """

    def __init__(self) -> None:
        super().__init__(
            "py4j.protocol.Py4JJavaError: An error occurred while calling an epoch: java.lang.InterruptedException"
        )


class GracefulStop:
    """A request to stop one streaming query once its running epoch, if there is one, has committed."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._held = threading.Event()
        # Reentrant: a signal handler may ask while it interrupts another request of the same thread.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    @property
    def asked(self) -> bool:
        """Whether a stop was requested."""
        return self._asked.is_set()

    def ask(self, query: StreamingQuery) -> None:
        """Request the stop; a thread carries it out."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._carry_out, args=[query], name="penstock-stop", daemon=True)
                self._asked.set()
                self._thread.start()

    def wait(self, timeout: float | None) -> bool:
        """Wait at most `timeout` seconds until the query has stopped; False if it still runs."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    def gate(self, query: StreamingQuery | None) -> None:
        """Let an epoch start, unless a stop was requested: then hold it back until the query has stopped.

        Returning instead would let Spark record the epoch as done.
        """
        if self.asked and query is not None:
            self._held.set()
            while query.isActive:
                time.sleep(_POLL)
            raise InterruptedEpochError

    def _carry_out(self, query: StreamingQuery) -> None:
        """Stop the query while its thread is held at the gate or waits for the next trigger.

        A trigger ends after Spark has recorded the epoch in its commit log.
        """
        try:
            while query.isActive and not self._held.is_set() and query.status["isTriggerActive"]:
                self._held.wait(_POLL)
            query.stop()
        except Exception as gone:
            log.debug("the query could not be stopped: %s", gone)


@contextmanager
def signals_stop(stop: Callable[[], None], cancel: Callable[[], None]) -> Iterator[list[int]]:
    """Call `stop` on the first SIGTERM or Ctrl-C, and `cancel` on the second, which also leaves the block.

    Yields the signals received so far. Only the main thread can handle signals; elsewhere, and for signals that the
    program handles itself or ignores, nothing changes.
    """
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            stop()
        else:
            cancel()
            raise ends_with(number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if _is_default(handler := signal.getsignal(number)):
                before[number] = handler
                signal.signal(number, handle)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ends_with(number: int) -> BaseException:
    """What a signal raises in the program that waits: KeyboardInterrupt, or an exit with the usual code.

    >>> ends_with(signal.SIGTERM).code
    143
    """
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def _is_default(handler: object) -> bool:
    """Whether a handler is Python's or PySpark's own (which cancels all jobs), not the program's."""
    ours = (signal.SIG_DFL, signal.default_int_handler)
    return handler in ours or getattr(handler, "__module__", "").startswith("pyspark.")
