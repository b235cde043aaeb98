"""Caches that outlive a task, charged to the running task's budget; what does not fit is evicted."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from penstock.core.budget import Budget

KEPT_PART = 4
"""The fraction of a task's memory that caches for the next task may take."""

_EVERY: WeakSet[Kept[Any, Any]] = WeakSet()

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(threading.local, Generic[K, V]):
    """An LRU cache by name, with the size of each entry. Each thread has its own.

    All caches that are charged to one task share a part of its memory: if one grows, the largest shrinks.

    >>> kept, first, next = Kept(), Budget(400), Budget(200)
    >>> kept.charge_to(first, limit=100)
    >>> kept.put("a", "…", 40), kept.put("b", "…", 30), first.held
    (True, True, 70)
    >>> kept.charge_to(next, limit=40)
    >>> kept.get("a"), kept.get("b"), first.held, next.held
    (None, '…', 0, 30)
    """

    def __init__(self) -> None:
        self._things: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._limit = 0
        self.payer: Budget | None = None
        self.held = 0
        _EVERY.add(self)

    def charge_to(self, payer: Budget, limit: int) -> None:
        """Charge the cache to `payer` from now on, and keep no more than `limit` bytes, or than fit."""
        before, self._limit = self.payer, min(limit, payer.limit // KEPT_PART)
        if before is payer:
            self.shrink(self._limit)
            return
        others = sum(kept.held for kept in _paid_by(payer))
        self.shrink(max(0, min(self._limit, payer.limit // KEPT_PART - others, payer.room)))
        if before is not None:
            before.release(self.held)
        payer.charge(self.held, _WHAT)
        self.payer = payer

    def get(self, name: K) -> V | None:
        """The entry of a name."""
        if name not in self._things:
            return None
        self._things.move_to_end(name)
        return self._things[name][0]

    def clear_for(self, size: int) -> bool:
        """Evict entries to make room for this many bytes; False if they cannot fit."""
        if self.payer is None or size > self._limit:
            return False
        self.shrink(self._limit - size)
        give_way(self.payer, self.payer.limit // KEPT_PART - size)
        return True

    def put(self, name: K, thing: V, size: int) -> bool:
        """Add an entry, evicting the least recently used if needed; False if it does not fit."""
        if self.payer is None or not self.clear_for(size) or size > self.payer.room:
            return False
        self.payer.charge(size, _WHAT)
        self._things[name] = thing, size
        self.held += size
        return True

    def shrink(self, limit: int) -> None:
        """Evict the least recently used entries until no more than `limit` bytes are kept."""
        while self.held > limit:
            self.forget()

    def forget(self) -> None:
        """Evict the least recently used entry."""
        _, (_, size) = self._things.popitem(last=False)
        self.held -= size
        if self.payer is not None:
            self.payer.release(size)


def hand_over(payer: Budget, limit: int) -> None:
    """Start a task: charge all caches to it, up to `limit` bytes together, and evict the rest.

    >>> kept = Kept()
    >>> kept.charge_to(Budget(400), limit=100)
    >>> kept.put("a", "…", 40)
    True
    >>> hand_over(task := Budget(10**9), limit=10**9)
    >>> kept.payer is task, kept_by(task) >= 40
    (True, True)
    >>> hand_over(task, limit=0)
    >>> task.held
    0
    """
    for kept in list(_EVERY):
        kept.charge_to(payer, limit)
    give_way(payer, limit)


def give_way(payer: Budget, limit: int = 0) -> None:
    """Shrink the caches that are charged to one budget, the largest first, to `limit` bytes together.

    >>> one, other, task = Kept(), Kept(), Budget(400)
    >>> for kept, size in ((one, 30), (other, 10)):
    ...     kept.charge_to(task, limit=100)
    ...     for name in "abc":
    ...         _ = kept.put(name, "…", size)
    >>> one.held, other.held
    (60, 30)
    >>> give_way(task)
    >>> task.held
    0
    """
    paid = _paid_by(payer)
    while sum(kept.held for kept in paid) > max(0, limit):
        max(paid, key=lambda kept: kept.held).forget()


def kept_by(payer: Budget) -> int:
    """How many bytes of caches are charged to a budget."""
    return sum(kept.held for kept in _EVERY if kept.payer is not None and kept.payer.within(payer))


def _paid_by(payer: Budget) -> list[Kept[Any, Any]]:
    return [kept for kept in _EVERY if kept.payer is payer]


_WHAT = "what is kept of a table"
