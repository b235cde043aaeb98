"""When blocks were in memory. A block is met by all rows born during one of its stays, which are ranges of ticks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.core.rows import Indices
from penstock.operators.window_join.pairing import Mask
from penstock.operators.window_join.slabs import NOBODY

FOREVER = 1 << 62
"""The end of a stay that is not over."""


class Stays:
    """The stays of a window's blocks, by number. Most have one: from their birth on.

    >>> stays = Stays()
    >>> stays.begin(1)
    >>> stays.end(1, tick=5)
    >>> stays.begin_again(1, tick=8)
    >>> stays.cover(np.array([1, 1, 1]), np.array([4, 5, 8])).tolist()
    [True, False, True]
    """

    def __init__(self) -> None:
        self.first: Indices = np.zeros(64, np.int64)
        """The tick until which each was in memory from its birth on."""
        self.first[NOBODY] = FOREVER
        self.later: dict[int, list[tuple[int, int]]] = {}

    def begin(self, number: int) -> None:
        """A block is born."""
        if number >= self.first.size:
            self.first = np.concatenate([self.first, np.zeros(max(self.first.size, number), np.int64)])
        self.first[number] = FOREVER

    def begin_again(self, number: int, tick: int) -> None:
        """A block comes back: those who are born from `tick` on will meet it."""
        self.later.setdefault(number, []).append((tick, FOREVER))

    def end(self, number: int, tick: int) -> None:
        """A block leaves memory."""
        if self.first[number] == FOREVER:
            self.first[number] = tick
        if stays := self.later.get(number):
            stays[-1] = (stays[-1][0], min(tick, stays[-1][1]))

    def join(self, number: int) -> None:
        """All that were born so far have met a block, which stays in memory from now on."""
        self.first[number] = FOREVER
        self.later.pop(number, None)

    def drop(self, number: int) -> None:
        """A block is over."""
        self.later.pop(number, None)

    def of(self, number: int) -> list[tuple[int, int]]:
        """The stays of a block."""
        return [(0, int(self.first[number])), *self.later.get(number, ())]

    def restore(self, number: int, stays: Sequence[tuple[int, int]]) -> None:
        """What `of` said of a block, as far as it matters still."""
        self.first[number] = next((until for since, until in stays if not since), 0)
        if later := [stay for stay in stays if stay[0]]:
            self.later[number] = later

    def cover(self, numbers: Indices, births: Indices) -> Mask:
        """Which births fell into a stay of the block beside them."""
        met: Mask = births < self.first[numbers]
        for number in self.later.keys() & set(np.unique(numbers[~met]).tolist()) if self.later else ():
            here = np.flatnonzero(numbers == number)
            for since, until in self.later[number]:
                met[here] |= (births[here] >= since) & (births[here] < until)
        return met

    def missed(self, number: int, births: Indices) -> int:
        """How many of some births, ascending, fell outside the stays of a block."""
        met = sum(int(births.searchsorted(until) - births.searchsorted(since)) for since, until in self.of(number))
        return len(births) - met

    def met_all(self, number: int, oldest: int, newest: int) -> bool:
        """Whether all births from `oldest` to `newest` fell into one stay of a block."""
        return any(since <= oldest and newest < until for since, until in self.of(number))

    def forget(self, before: int) -> None:
        """Stays that were over by tick `before` matter to nobody: all who were born earlier are settled."""
        self.first[self.first <= before] = 0
        left = {number: [stay for stay in stays if stay[1] > before] for number, stays in self.later.items()}
        self.later = {number: stays for number, stays in left.items() if stays}
