"""Which rows of several streams are near enough in time: every two of a result are, the left one being named first."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.time import TIME_MAX, Time, Times
from penstock.core.within import LEFT, RIGHT, Reach, horizon


@dataclass(frozen=True, slots=True)
class Nearness:
    """The reach of every two of some ports.

    >>> import numpy as np
    >>> from penstock.core.within import band
    >>> near = Nearness(band(before=2, after=5).reach("ticks"), 3)
    >>> [end.tolist() for end in near.of(0, np.array([10]), 2)], [end.tolist() for end in near.of(2, np.array([10]), 0)]
    ([[8], [15]], [[5], [12]])
    """

    reach: Reach
    ports: int

    def of(self, port: int, times: Times, other: int) -> tuple[Times, Times]:
        """First and last time, both included, that rows of `port` can meet on the `other` port."""
        return self.reach.of(LEFT if port < other else RIGHT, times)

    def horizon(self, port: int, other: int, bound: Time) -> Time:
        """The smallest time at which a row of `port` can still meet one of `other` at or after `bound`."""
        return horizon(self.reach, LEFT if port < other else RIGHT, bound)

    def dead(self, port: int, bounds: list[Time]) -> Time:
        """The time below which rows of `port` are in no result to come.

        A result to come has a row that is still to come, of any one of the other ports, and it is near that one. So the
        bounds of *all* other ports must have passed a row. One is not enough: rows of that port that are already there
        may meet it together with a later row of a third.

        >>> from penstock.core.within import band
        >>> near = Nearness(band(before=5, after=5).reach("ticks"), 3)
        >>> near.dead(0, [0, 100, 20])
        15
        """
        return min(self.horizon(port, other, bounds[other]) for other in range(self.ports) if other != port)

    def over(self, port: int, bounds: list[Time]) -> bool:
        """Whether no other port brings any row any more: then the rows of `port` go, whatever their time."""
        return all(bound == TIME_MAX for other, bound in enumerate(bounds) if other != port)
