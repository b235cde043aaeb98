"""What a process keeps from one task to the next: whoever uses it pays for it then, and what it cannot pay for goes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from penstock.core.budget import Budget

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(threading.local, Generic[K, V]):
    """Things by name, with their bytes; of too many, those that were used longest ago go. Each thread has its own.

    >>> kept, first, next = Kept(), Budget(100), Budget(50)
    >>> kept.settle(first, limit=100)
    >>> kept.put("a", "…", 40), kept.put("b", "…", 30), first.held
    (True, True, 70)
    >>> kept.settle(next, limit=40)
    >>> kept.get("a"), kept.get("b"), first.held, next.held
    (None, '…', 0, 30)
    """

    def __init__(self) -> None:
        self._things: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._payer: Budget | None = None
        self._limit = 0
        self.held = 0

    def settle(self, payer: Budget, limit: int) -> None:
        """From now on `payer` is charged for what is kept, and no more than `limit` bytes are, or than fit."""
        before, self._limit = self._payer, limit
        if before is payer:
            self._shrink(limit)
            return
        self._shrink(min(limit, payer.room))
        if before is not None:
            before.release(self.held)
        payer.charge(self.held, _WHAT)
        self._payer = payer

    def get(self, name: K) -> V | None:
        """What is kept under a name."""
        if name not in self._things:
            return None
        self._things.move_to_end(name)
        return self._things[name][0]

    def clear_for(self, size: int) -> bool:
        """Forget as much as must go before so many bytes more are kept; whether they may be at all."""
        if size <= self._limit:
            self._shrink(self._limit - size)
        return size <= self._limit

    def put(self, name: K, thing: V, size: int) -> bool:
        """Keep something more, in the place of what was used longest ago if need be; whether it fits."""
        assert self._payer is not None
        if not self.clear_for(size) or size > self._payer.room:
            return False
        self._payer.charge(size, _WHAT)
        self._things[name] = thing, size
        self.held += size
        return True

    def _shrink(self, limit: int) -> None:
        while self.held > limit:
            _, (_, size) = self._things.popitem(last=False)
            self.held -= size
            if self._payer is not None:
                self._payer.release(size)


_WHAT = "what is kept of a table"
