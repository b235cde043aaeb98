"""XJoin and RPJ in small: symmetric hash joins that move buckets to disk when memory is full (spec §2.12, F30).

A row is stored in its bucket and probes the same bucket of the other stream. When memory is full a bucket of one stream
goes to disk. What is on disk is joined at the end: a pair has met already iff both its rows were in memory at one time.
Results are in no order. XJoin moves the fullest bucket, RPJ the one that the next rows are least likely to join with.
These are references to compare with, row by row; penstock's own joins are elsewhere.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from penstock.core.errors import ConfigError

Policy = Literal["xjoin", "rpj"]
Pair = tuple[int, int]
"""The numbers of two rows, left and right."""


class Arrival(NamedTuple):
    """A row of one of two streams: 0 is the left one."""

    side: int
    key: Hashable
    number: int


@dataclass(slots=True)
class _Stored:
    row: Arrival
    since: int
    until: float = math.inf
    """When it left memory."""


@dataclass(slots=True)
class SpillingJoin:
    """A join with room for so many rows in memory.

    >>> rows = [Arrival(0, "a", 1), Arrival(0, "b", 2), Arrival(1, "a", 3), Arrival(1, "b", 4)]
    >>> join = SpillingJoin(room=2, buckets=2)
    >>> sorted(join.over(rows))
    [(1, 3), (2, 4)]
    >>> join.spilled > 0
    True
    """

    room: int
    buckets: int = 8
    policy: Policy = "xjoin"
    spilled: int = 0
    """Rows that went to disk."""
    at_once: int = 0
    """Results that came out with the later of their rows."""
    _held: dict[tuple[int, int], list[_Stored]] = field(default_factory=lambda: defaultdict(list))
    _disk: dict[tuple[int, int], list[_Stored]] = field(default_factory=lambda: defaultdict(list))
    _arrived: Counter[tuple[int, int]] = field(default_factory=Counter)
    _clock: int = 0

    def __post_init__(self) -> None:
        if self.room < 1 or self.buckets < 1:
            raise ConfigError(f"room={self.room} and buckets={self.buckets} hold nothing. Write 1 or more.")

    def over(self, rows: Iterable[Arrival]) -> Iterator[Pair]:
        """All pairs with equal keys, each once."""
        for row in rows:
            yield from self._take(row)
        yield from self._rest()

    def _take(self, row: Arrival) -> Iterator[Pair]:
        self._clock += 1
        bucket = hash(row.key) % self.buckets
        for other in self._held[1 - row.side, bucket]:
            if other.row.key == row.key:
                self.at_once += 1
                yield _pair(row, other.row)
        self._held[row.side, bucket].append(_Stored(row, self._clock))
        self._arrived[row.side, bucket] += 1
        while sum(map(len, self._held.values())) > self.room:
            self._spill()

    def _spill(self) -> None:
        full = [place for place, rows in self._held.items() if rows]
        victim = max(full, key=lambda place: len(self._held[place])) if self.policy == "xjoin" else self._unlikely(full)
        gone = self._held.pop(victim)
        for stored in gone:
            # What arrives from the next moment on does not meet it.
            stored.until = self._clock + 0.5
        self._disk[victim] += gone
        self.spilled += len(gone)

    def _unlikely(self, full: list[tuple[int, int]]) -> tuple[int, int]:
        """The bucket whose rows the next arrivals of the other stream are least likely to come to."""
        return min(full, key=lambda place: (self._arrived[1 - place[0], place[1]], place))

    def _rest(self) -> Iterator[Pair]:
        """The pairs of rows that were never in memory together."""
        for bucket in range(self.buckets):
            left, right = ([*self._disk[side, bucket], *self._held[side, bucket]] for side in (0, 1))
            for one in left:
                for other in right:
                    met = one.since < other.until and other.since < one.until
                    if one.row.key == other.row.key and not met:
                        yield _pair(one.row, other.row)


def _pair(one: Arrival, other: Arrival) -> Pair:
    return (one.number, other.number) if one.side == 0 else (other.number, one.number)
