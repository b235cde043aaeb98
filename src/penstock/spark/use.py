"""How long a query uses its checkpoint: while it is started or run in this process, and while Spark runs it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Self

from pyspark.sql.streaming import StreamingQuery

from penstock.storage.versioned import Checkpoint

log = logging.getLogger("penstock")


class CheckpointUse:
    """Holds the lease on a checkpoint for a query, and releases it once the query is over, in whatever way.

    A ``with`` block is part of the use, so that a start, or the end of the streams, is covered by the lease.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.query: StreamingQuery | None = None
        self._here = True
        self._afterwards: list[Callable[[], None]] = []
        self._lease = checkpoint.take_lease(self._goes_on)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: Any) -> None:
        self._here = False
        self.end_if_over()

    def end_if_over(self) -> None:
        """Release the lease now instead of within a second, if nothing uses the checkpoint any more."""
        if not self._goes_on():
            self.end()

    def end(self) -> None:
        """Release the lease. One that cannot be, as on a full disk, lapses: the error of the query matters more."""
        self._let_go()
        try:
            self._lease.release()
        except OSError as failure:
            log.warning("The lease on the checkpoint could not be released, and lapses by itself: %s", failure)

    def then(self, action: Callable[[], None]) -> None:
        """Do this once the query is over; more than once does no harm."""
        self._afterwards.append(action)

    def _let_go(self) -> None:
        actions, self._afterwards = self._afterwards, []
        for action in actions:
            action()

    def _goes_on(self) -> bool:
        if self._here or self._is_active:
            return True
        self._let_go()
        return False

    @property
    def _is_active(self) -> bool:
        try:
            return self.query is not None and bool(self.query.isActive)
        except Exception:  # The session, or its JVM, is gone.
            return False
