"""The partitioned join as Algorithms 8 and 9 say it, corrected, row by row: what is read, joined and kept, when."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Event = tuple[Any, ...]


@dataclass
class Reference:
    """Rows are partition numbers. The log has reads, joins of so many rows with a partition, and what is kept."""

    settings: Any
    sizes: list[int]
    """The bytes of each partition."""
    log: list[Event] = field(default_factory=list)
    kept: dict[int, int] = field(default_factory=dict)
    mode: str = "tuple"

    def __post_init__(self) -> None:
        self.block = self.settings.block
        self.blocks = max(1, self.settings.wait // self.block)
        self.inbox: deque[int] = deque()
        self.waits = [0] * len(self.sizes)
        self.frequency = [0.0] * len(self.sizes)
        self.seen = 0

    def arrive(self, rows: Iterable[int]) -> None:
        """Rows come, all at once."""
        self.inbox.extend(rows)
        while True:
            if not self.inbox:
                if not self._invoke():
                    return
                continue
            i = self.inbox.popleft()
            self._count(i)
            self._wait(i)
            if self._free() <= 0:
                while self._free() <= self.settings.refill * self.blocks:
                    self._disk_probe(self._fullest())
            self._switch()
            while self.settings.when == "always" and self._invoke():
                pass

    def _invoke(self) -> bool:
        due = max(self.waits) >= self.settings.invoke
        if due:
            self._disk_probe(self._fullest())
        return due

    def _wait(self, i: int) -> None:
        self.waits[i] += 1
        if i in self.kept and (self.mode == "tuple" or self.waits[i] == self.block):
            self._join(i)

    def _switch(self) -> None:
        if self.mode == "block" and len(self.inbox) < self.settings.low * self.block:
            for i in sorted(self.kept):
                if self.waits[i]:
                    self._join(i)
            self.mode = "tuple"
        elif self.mode == "tuple" and len(self.inbox) > self.settings.high * self.block:
            self.mode = "block"

    def _disk_probe(self, i: int) -> None:
        here = i in self.kept
        if not here:
            self.log.append(("read", i))
        self._join(i)
        if not here:
            self._keep(i)

    def _keep(self, i: int) -> None:
        size, free = self.sizes[i], self.settings.cache - sum(self.kept.values())
        if free < size:
            c, rho = self.frequency, self.settings.rho
            others = [
                m for m, other in self.kept.items() if c[i] * other >= size * (1 + rho) * c[m] and free + other >= size
            ]
            if not others:
                return
            least = min(others, key=lambda m: c[m] / self.sizes[m])
            del self.kept[least]
            self.log.append(("drop", least))
        self.kept[i] = size
        self.log.append(("keep", i))

    def _join(self, i: int) -> None:
        self.log.append(("join", i, self.waits[i]))
        self.waits[i] = 0

    def _count(self, i: int) -> None:
        self.frequency[i] += 1
        self.seen += 1
        if self.seen % self.settings.every == 0:
            self.frequency = [self.settings.alpha * c for c in self.frequency]

    def _free(self) -> int:
        return self.blocks - sum(-(-waits // self.block) for waits in self.waits)

    def _fullest(self) -> int:
        return self.waits.index(max(self.waits))
