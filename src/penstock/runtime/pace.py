"""How fast lookups are, and so how often one that sheds load may read its table between two epochs."""

from __future__ import annotations

AT_WORK = 0.7
"""The fraction of an epoch's time for operators; the rest is the host's."""


class Paces:
    """Seconds per read of its table for a shard of each lookup, including all its work.

    They are measured in the flow itself, so nothing is shed before the first measurement, or without a trigger.

    >>> paces = Paces()
    >>> paces.saw("who", seconds=1.0, reads=8)
    >>> paces.quota("who", trigger=2.0), paces.quota("who", trigger=None), paces.quota("where", trigger=2.0)
    (11, None, None)
    """

    def __init__(self) -> None:
        self._read_seconds: dict[str, float] = {}

    def saw(self, lookup: str, seconds: float, reads: int) -> None:
        """Learn from an epoch; it weighs as much as all before it."""
        if reads:
            spent = seconds / reads
            self._read_seconds[lookup] = (spent + self._read_seconds.get(lookup, spent)) / 2

    def quota(self, lookup: str, trigger: float | None, in_turn: int = 1) -> int | None:
        """How often a shard may read in `trigger` seconds, which `in_turn` shards share; None if unknown."""
        pace = self._read_seconds.get(lookup)
        return None if trigger is None or pace is None else max(1, int(AT_WORK * trigger / pace / in_turn))
