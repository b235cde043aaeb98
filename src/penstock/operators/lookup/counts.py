"""What a lookup join reports of itself: what waits, what was read, what the cache answered."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from penstock.core.time import TIME_MAX, Time


@dataclass(frozen=True, slots=True)
class LookupCounts:
    """What one shard holds now, and what it did in this epoch."""

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

    def to_json(self) -> dict[str, int]:
        """For a record that a shard stages."""
        return asdict(self)
