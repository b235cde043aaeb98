"""Gigascope's low level: a table of fixed size that evicts partial counts, to be summed by the level above.

A simulation for experiments: what leaves the table, at which row, and in what order, depends on every row before, so it
goes row by row and no flow runs on it. Whatever the size of the table, the counts that leave it sum up to the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from penstock.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class LowLevel:
    """Gigascope's two levels: a table of `slots` at the bottom that evicts what collides, a roll-up on top.

    'iop-slow' empties the old window's slots one per row and must keep windows in order; 'lazy' evicts only what
    collides and flushes windows `behind` the current one; 'oop-slow' does both, one slot every `every` rows.

    >>> LowLevel(slots=1024).flush
    'lazy'
    """

    slots: int
    flush: Literal["iop-slow", "lazy", "oop-slow"] = "lazy"
    behind: int = 2
    every: int = 160

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ConfigError(f"slots={self.slots} leaves no room for a group. Write 1 or more.")


class Evicted(NamedTuple):
    """A partial count of `rows` that left the table at a row; `bound`: all windows below it have left."""

    group: int
    wid: int
    rows: int
    at: int
    bound: int | None


@dataclass(slots=True)
class _Slot:
    group: int
    wid: int
    count: int


def evictions(settings: LowLevel, groups: Sequence[int], wids: Sequence[int]) -> Iterator[Evicted]:
    """What leaves the table as rows of a group and a tumbling window arrive; at the end, everything.

    >>> [(e.group, e.wid, e.rows) for e in evictions(LowLevel(slots=1), [1, 1, 2], [0, 0, 0])]
    [(1, 0, 2), (2, 0, 1)]
    """
    table = _Table(settings)
    for row, (group, wid) in enumerate(zip(groups, wids, strict=True)):
        yield from table.arrive(row, group, wid)
    yield from table.finish(len(groups))


class _Table:
    """The slots, and where the slow flush has got to."""

    def __init__(self, settings: LowLevel) -> None:
        self._settings = settings
        self._slots: list[_Slot | None] = [None] * settings.slots
        self._current: int | None = None
        self._place = 0
        self._row = 0

    def arrive(self, row: int, group: int, wid: int) -> Iterator[Evicted]:
        """One row."""
        self._row = row
        if self._current is None or wid > self._current:
            yield from self._begin(wid)
        if self._settings.flush != "lazy" and (row + 1) % self._pace == 0:
            yield from self._flush_one()
        place = group % self._settings.slots
        slot = self._slots[place]
        if slot is not None and slot.group == group and slot.wid == wid:
            slot.count += 1
            return
        if slot is not None:
            if self._settings.flush == "iop-slow" and not self._is_old(slot):
                # The surge: a new resident may leave only after everything old has.
                yield from self._flush_old()
            yield from self._leave(place)
        self._slots[place] = _Slot(group, wid, 1)

    def finish(self, row: int) -> Iterator[Evicted]:
        """Everything leaves, old windows first."""
        self._row = row
        for place in sorted(self._taken(), key=lambda place: self._wid(place)):
            yield from self._leave(place)

    @property
    def _pace(self) -> int:
        return 1 if self._settings.flush == "iop-slow" else self._settings.every

    def _begin(self, wid: int) -> Iterator[Evicted]:
        """A window starts: what must not stay any longer leaves."""
        if self._settings.flush == "iop-slow":
            yield from self._flush_old()
            self._current = wid
        else:
            self._current = wid
            bound = wid - self._settings.behind
            late = [place for place in self._taken() if self._wid(place) < bound]
            for number, place in enumerate(late):
                yield from self._leave(place, bound if number == len(late) - 1 else None)
        self._place = 0

    def _flush_one(self) -> Iterator[Evicted]:
        """The next old slot leaves. Fig 8-6 would stick at a slot that is not old, and look past the last."""
        while self._place < self._settings.slots:
            slot = self._slots[self._place]
            if slot is not None and self._is_old(slot):
                yield from self._leave(self._place)
                return
            self._place += 1

    def _flush_old(self) -> Iterator[Evicted]:
        for place in self._taken():
            slot = self._slots[place]
            if slot is not None and self._is_old(slot):
                yield from self._leave(place)

    def _is_old(self, slot: _Slot) -> bool:
        return self._current is not None and slot.wid < self._current

    def _taken(self) -> list[int]:
        return [place for place, slot in enumerate(self._slots) if slot is not None]

    def _wid(self, place: int) -> int:
        slot = self._slots[place]
        assert slot is not None
        return slot.wid

    def _leave(self, place: int, bound: int | None = None) -> Iterator[Evicted]:
        slot, self._slots[place] = self._slots[place], None
        if slot is not None:
            yield Evicted(slot.group, slot.wid, slot.count, self._row, bound)
