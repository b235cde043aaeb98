"""What a lookup join reports of itself: what waits and how old it is, what was read, what the cache answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from penstock.core.durations import TimeUnit
from penstock.core.time import TIME_MAX, TIME_MIN, Time, show_span


@dataclass(frozen=True, slots=True)
class LookupCounts:
    """What one shard holds now, and what it did in this epoch. Shards add up.

    >>> both = LookupCounts(waiting=3, earliest=70) + LookupCounts(shed=2, earliest=40)
    >>> both.deferred, both.earliest
    (5, 40)
    """

    waiting: int = 0
    """Rows that wait for a read of the table."""
    queued: int = 0
    """Rows that have arrived and wait to be let in."""
    shed: int = 0
    """Rows that are put aside now."""
    earliest: Time = TIME_MAX
    """No event time of all these is before this; the end of time if there is none."""
    put_aside: int = 0
    replayed: int = 0
    """Rows that were put aside before and came again."""
    hits: int = 0
    misses: int = 0
    finished: int = 0
    """Rows that were answered by the table, not by the cache."""
    reads: int = 0
    bytes_read: int = 0
    looked_up: int = 0
    shedding: int = 0
    """How many shards are shedding."""

    @property
    def deferred(self) -> int:
        """All rows that are not answered yet."""
        return self.waiting + self.queued + self.shed

    def __add__(self, other: LookupCounts) -> LookupCounts:
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return LookupCounts(**{**sums, "earliest": min(self.earliest, other.earliest)})

    def to_json(self) -> dict[str, int]:
        """For a record that a shard stages."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """From such a record."""
        return cls(**record)


@dataclass(frozen=True, slots=True)
class Waits:
    """How many rows have yet to be answered, and how old the oldest is. Shards add up.

    Rows wait to be let in, for a read of the table, or put aside: all of them count.

    >>> str(Waits(3, oldest=70, bound=90) + Waits(2, oldest=40, bound=80))
    '5 rows wait, the oldest 50 behind the bound'
    """

    rows: int = 0
    oldest: Time = TIME_MAX
    """No event time of theirs is before this; the end of time if there is none."""
    bound: Time = TIME_MIN
    """How far the stream has promised."""
    unit: TimeUnit = "ticks"

    @property
    def age(self) -> int | None:
        """By how many steps of the time column the oldest is behind the bound; None if nothing waits, or none is known.

        It is what `max_age` limits. A row that is ahead of the bound is of no age.
        """
        if not self.rows or self.bound in (TIME_MIN, TIME_MAX):
            return None
        return max(0, self.bound - self.oldest)

    def __add__(self, other: Waits) -> Waits:
        bound = max(self.bound, other.bound)
        return Waits(self.rows + other.rows, min(self.oldest, other.oldest), bound, self.unit)

    def __str__(self) -> str:
        if self.age is None:
            return f"{self.rows:,} rows wait"
        behind = f"{show_span(self.age, self.unit)} behind" if self.age else "not behind"
        return f"{self.rows:,} rows wait, the oldest {behind} the bound"

    def to_json(self) -> dict[str, Any]:
        """For a record that a shard stages."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """From such a record."""
        return cls(**record)
