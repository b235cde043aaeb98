"""A buffer of frames for pages on a simulated disk: LRU, with a fixed price for each page that is read or written.

A page is known by its name alone; what is on it is kept by whoever asks for it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

from lab.simulated_disk import VirtualClock
from penstock.core.errors import ConfigError

IO_SECONDS = 8e-3
"""To read or write a page (progressive-joins §2.10)."""

Phase = Literal["build", "join"]
"""What a page is read or written for: to insert rows, or to find pairs."""


@dataclass(slots=True)
class PageCounts:
    """Pages read and written by all buffers of an algorithm, and the clock that they are charged to."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    reads: int = 0
    writes: int = 0
    phase: Phase = "build"
    by_phase: dict[Phase, int] = field(default_factory=lambda: {"build": 0, "join": 0})

    @property
    def total(self) -> int:
        """Pages read and written."""
        return self.reads + self.writes

    def read(self) -> None:
        """Charge a page that is read."""
        self.reads += 1
        self._charge()

    def write(self) -> None:
        """Charge a page that is written."""
        self.writes += 1
        self._charge()

    def _charge(self) -> None:
        self.by_phase[self.phase] += 1
        self.clock.transfer(IO_SECONDS)


class PageBuffer:
    """So many `frames`; the page that was asked for longest ago makes room, and is written first if it was changed.

    >>> buffer = PageBuffer(2, PageCounts())
    >>> buffer.write("a"), buffer.read("b"), buffer.read("a"), buffer.read("c"), buffer.read("d")
    (None, None, None, None, None)
    >>> buffer.counts.reads, buffer.counts.writes, round(buffer.counts.clock.disk, 3)
    (3, 1, 0.032)
    """

    def __init__(self, frames: int, counts: PageCounts) -> None:
        if frames < 1:
            raise ConfigError(f"frames={frames} leaves no frame to read a page into. Give the join a larger buffer.")
        self.frames = frames
        self.counts = counts
        self._changed: dict[Hashable, bool] = {}

    def read(self, page: Hashable) -> None:
        """Have a page in a frame."""
        if page in self._changed:
            self._changed[page] = self._changed.pop(page)
        else:
            self._make_room()
            self.counts.read()
            self._changed[page] = False

    def write(self, page: Hashable) -> None:
        """Change a page, or make it: it is written when it leaves its frame."""
        if self._changed.pop(page, None) is None:
            self._make_room()
        self._changed[page] = True

    def _make_room(self) -> None:
        if len(self._changed) >= self.frames:
            oldest = next(iter(self._changed))
            if self._changed.pop(oldest):
                self.counts.write()
