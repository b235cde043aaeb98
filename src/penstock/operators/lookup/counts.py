"""Counts that a lookup join reports: rows that wait, reads of the table, answers from the cache."""

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
    """Lower bound of the event times of all waiting, queued and shed rows; the end of time if there are none."""
    put_aside: int = 0
    replayed: int = 0
    """Rows that were put aside and have returned."""
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
        """The counts, for a record that a shard stages."""
        return asdict(self)
