"""How fast lookups are, and so how often one that sheds load may read its table in the time between two epochs."""

from __future__ import annotations

AT_WORK = 0.7
"""The part of an epoch's time in which operators work; the rest is the host's."""


class Paces:
    """What a read of its table takes a shard of each lookup, all its work counted.

    It is told from the flow's own pace, so nothing is shed before there is one, nor where epochs have no time.

    >>> paces = Paces()
    >>> paces.saw("who", seconds=1.0, reads=8)
    >>> paces.quota("who", trigger=2.0), paces.quota("who", trigger=None), paces.quota("where", trigger=2.0)
    (11, None, None)
    """

    def __init__(self) -> None:
        self._read_seconds: dict[str, float] = {}

    def saw(self, lookup: str, seconds: float, reads: int) -> None:
        """An epoch is done; it counts as much as all before."""
        if reads:
            spent = seconds / reads
            self._read_seconds[lookup] = (spent + self._read_seconds.get(lookup, spent)) / 2

    def quota(self, lookup: str, trigger: float | None, in_turn: int = 1) -> int | None:
        """How often a shard may read in `trigger` seconds, which so many share in turn; None if there is no saying."""
        pace = self._read_seconds.get(lookup)
        return None if trigger is None or pace is None else max(1, int(AT_WORK * trigger / pace / in_turn))
