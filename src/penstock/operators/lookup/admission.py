"""Admission to the cache of master rows, and eviction from it: policies based on frequencies, and the threshold.

A candidate that `f` waiting rows matched is offered if ``f >= threshold``; the policy decides whether it is admitted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from penstock.core.rows import Indices

Policy = Literal["strict", "paper", "decay"]
"""`paper`: a candidate replaces the least frequent entry. `strict`: it does so only if it is more frequent. `decay`:
like `strict`, but hits count as well, and all frequencies are halved after every `Front.halve` offers, so that entries
that are no longer hot can leave."""

Frequencies = np.ndarray[tuple[int], np.dtype[np.float64]]


class Verdict(NamedTuple):
    """Which candidates are admitted, in the order they were offered, and which entries are evicted."""

    admitted: Indices
    evicted: Indices
    passing: int = 0
    """How many candidates would be admitted and then evicted by a later one if they came one by one."""


def strict(held: Frequencies, sizes: Indices, free: int, offered: Frequencies, needs: Indices) -> Verdict:
    """Candidates, the most frequent first, take free room, then replace entries that are less frequent.

    The result is the same as if they came one by one: the most frequent of all stay, on ties those that came first.
    `sizes` and `needs` are numbers of rows: a key may have several.

    >>> verdict = strict(np.array([5.0, 2.0]), np.array([1, 1]), 0, np.array([2.0, 3.0]), np.array([1, 1]))
    >>> verdict.admitted.tolist(), verdict.evicted.tolist()
    ([1], [1])
    """
    order = np.argsort(-offered, kind="stable")
    wanted = np.cumsum(needs[order]) - free
    least = np.argsort(held, kind="stable")
    freed = np.cumsum(sizes[least])
    leaving = np.where(wanted > 0, np.searchsorted(freed, wanted) + 1, 0)
    beaten = np.append(held[least], np.inf)[np.clip(leaving - 1, 0, held.size)]
    enters = (leaving == 0) | ((leaving <= held.size) & (offered[order] > beaten))
    count = int(np.argmin(enters)) if not enters.all() else enters.size
    evicted = least[: leaving[count - 1]] if count else least[:0]
    return Verdict(np.sort(order[:count]), evicted)


def paper(held: Frequencies, sizes: Indices, free: int, offered: Frequencies, needs: Indices) -> Verdict:
    """Each candidate, one after the other, replaces the least frequent entry once there is no free room.

    So the last candidate stays, and of all others the most frequent do.

    >>> verdict = paper(np.array([5.0, 4.0]), np.array([1, 1]), 0, np.array([2.0, 3.0]), np.array([1, 1]))
    >>> verdict.admitted.tolist(), verdict.evicted.tolist()
    ([1], [1])
    """
    room = int(sizes.sum()) + free - int(needs[-1])
    if room < 0:
        return Verdict(np.empty(0, np.int64), np.empty(0, np.int64))
    everyone = np.concatenate([held, offered[:-1]])
    rows = np.concatenate([sizes, needs[:-1]])
    order = np.argsort(-everyone, kind="stable")
    stays = np.zeros(everyone.size, np.bool_)
    stays[order[: np.searchsorted(np.cumsum(rows[order]), room, side="right")]] = True
    admitted = np.flatnonzero(np.append(stays[held.size :], True))
    return Verdict(admitted, np.flatnonzero(~stays[: held.size]), offered.size - admitted.size)


RULES: dict[Policy, Callable[[Frequencies, Indices, int, Frequencies, Indices], Verdict]] = {
    "strict": strict,
    "decay": strict,
    "paper": paper,
}


@dataclass(slots=True)
class Threshold:
    """How often a row must have matched to be offered: falls while the cache has room, rises when it churns.

    Every `every` iterations, it falls by one if the cache is less than 95 % full, or rises by one if more than 5 % of
    the cache was evicted per iteration, except while rows are shed, which makes all rows rarer (§6-10).

    >>> threshold = Threshold(10, every=1)
    >>> threshold.look(fill=0.5, evictions=0, slots=100, shedding=False)
    >>> threshold.value
    9
    """

    value: int = 10
    every: int = 10
    adaptive: bool = True
    evictions: int = 0
    iterations: int = 0

    def look(self, fill: float, evictions: int, slots: int, shedding: bool) -> None:
        """Record the end of an iteration, and adjust the threshold if it is time."""
        self.iterations += 1
        self.evictions += evictions
        if not self.adaptive or self.iterations % self.every:
            return
        if fill < _FULL:
            self.value = max(1, self.value - 1)
        elif self.evictions / self.every > _CHURN * slots and not shedding:
            self.value += 1
        self.evictions = 0


_FULL = 0.95
_CHURN = 0.05
