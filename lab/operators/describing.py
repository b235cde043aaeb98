"""Describing: hands on only the punctuations that a consumer can use.

Bounds are rolled up to the consumer's boundary below, and one that says no more than the last is left out. A bound so
delayed is still sound.
"""

from __future__ import annotations

from penstock.core.time import TIME_MIN, Time
from penstock.operators.progress.describe import Describe


class Describing:
    """A describe at work on the bounds of one stream.

    >>> describing = Describing(Describe(slides=(5,)))
    >>> [describing.advance(bound) for bound in (3, 7, 9, 10, 23)]
    [0, 5, None, 10, 20]
    """

    def __init__(self, config: Describe, said: Time = TIME_MIN) -> None:
        self._config = config
        self.said = said
        """The latest bound that was handed on: all there is to remember."""

    def advance(self, bound: Time) -> Time | None:
        """The bound to hand on, or None if it is no news."""
        boundary = self._config.boundary(bound)
        if boundary <= self.said:
            return None
        self.said = boundary
        return boundary
