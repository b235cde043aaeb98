"""Whether rows of a source carry their payload or leave it behind: the cost of both, and when to switch.

Payload that travels is decoded, moved and kept once for each store that it comes to, and again with every partial
result. Payload that stays is decoded for the rows that become results, kept on a local disk, and found by a number.
Results have it in both cases.

What a flow's sources take adds up. Unlike between the stores of the multi-way spec (§2.10), a result does not visit one
source after the other, with the payload of those before: each payload is read from its own files and goes straight
into the result. So what is cheapest for each source alone is the cheapest of all 2ⁿ ways to leave payload behind or
not, with one exception: rows of all sources share the room in the driver. Where they do not all fit,
`cheapest_to_carry` tries every set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

from penstock.core.files import Payload
from penstock.planner.multi_way.switching import Switching

_BROUGHT = {"driver": 6e-9, "tasks": 9e-9}
"""Seconds to decode, send and keep a byte of payload that travels, in the driver and in tasks;"""

_SENT = 4e-9
"""to send and keep it once more with a partial result;"""

_FETCHED = 3e-9
"""to decode a byte that stayed, and to keep it where rows are found by their number;"""

_FOUND, _COLUMN = 5e-8, 1e-8
"""to put a row of a result in order and find it so, and for each of its columns,"""

_TAKEN = 1e-10
"""and to take a byte of it, beyond what a join takes that copies it from rows in state: `benchmarks/multi_way.py`."""

_CRAMPED = 1_500_000
"""Room up to which `auto` lets payload travel: to fetch it in so small pieces takes longer than pages that hold it."""

_FIRST = 100_000
"""Rows that an epoch is taken to have before one was seen."""

_GUESSED = 0.25
"""How much less it must be predicted to cost to stay before anything is known: rows in state keep what was guessed."""

_LATEST = 0.3
"""The weight of the latest epoch in what is expected of the next."""

_DWELL = 5
"""Epochs with rows before another change (§6-13)."""

_FILLING = 3
"""First epochs in which each row is taken to become one result at least."""

_TRIED = 8
"""Up to this many sources every set of those whose payload travels is tried."""


_STAYS: dict[Payload, str] = {"source": "stays in the files", "segments": "is put into segments once"}
"""Where payload is that does not travel, in words."""


class Seen(NamedTuple):
    """Rows of a source in an epoch, and the partial results and results that rows of it were in, in the mean."""

    rows: float
    partials: float
    results: float


@dataclass
class HomePilot:
    """Chooses for one source, epoch by epoch; `asked` is what its user wrote, `width` the bytes that may stay.

    Before anything is known, each row is taken to come into one partial result of each of the `joins` that are not its
    last, and to become one result. The first epoch tells more, and is always gone by. Payload that travels costs less
    in the driver, which has room for `room` bytes of it in an epoch.

    >>> pilot = HomePilot("auto", width=3000, joins=1)
    >>> pilot.late, pilot.costs(rows=1000, partials=1000, results=10)["source"] < 0.01
    (True, True)
    >>> HomePilot("auto", width=10, joins=1).late, HomePilot("auto", width=30).late
    (False, False)
    >>> HomePilot("auto", width=3000, joins=1, room=1e6).late
    False
    """

    asked: Payload
    width: float
    joins: int = 0
    """Joins that its rows pass before their last one."""
    why: str = ""
    """Why it is as asked, if `asked` is not what the user wrote."""
    columns: int = 1
    """Columns, or fields of structs, that the payload has."""
    room: float = math.inf
    changes: int = 0
    """How often it has changed its mind."""
    _running: Switching = field(init=False)
    _cramped: bool = field(init=False)
    """Whether tasks have too little memory to fetch payload in large pieces, whatever `room` turns out to be."""
    latest: float = field(init=False)
    """The bytes that may stay of a row of the latest epoch, in the mean; `width` follows it."""
    _seen: Seen | None = None
    _beside: float = 0.0
    _epochs: int = 0
    _given: float = field(init=False)
    """The room that there was at the start."""

    def __post_init__(self) -> None:
        self.latest, self._given = self.width, self.room
        first = self.costs(_FIRST, _FIRST * self.joins, _FIRST)
        stays = first["source"] < (1 - _GUESSED) * first["row"]
        self._running = Switching("source" if stays else "row", since=-_DWELL, dwell=_DWELL)
        self._cramped = 0 < self.room < _CRAMPED

    @property
    def late(self) -> bool:
        """Whether rows of the next epoch leave their payload behind."""
        stays = self._running.current == "source" and not self._cramped
        return self.asked in _STAYS or (self.asked == "auto" and stays)

    def costs(self, rows: float, partials: float, results: float, beside: float = 0.0) -> dict[str, float]:
        """Seconds for an epoch of so many rows of the source that come into partial results and results.

        Rows of other sources bring so many bytes `beside` them.
        """
        touched = min(rows, results)
        place = "driver" if self.width * (rows + partials) + beside <= self.room else "tasks"
        return {
            "row": self.width * (rows * _BROUGHT[place] + partials * _SENT),
            "source": self.width * touched * _FETCHED
            + results * (_FOUND + self.columns * _COLUMN + self.width * _TAKEN),
        }

    @property
    def brings(self) -> float:
        """The bytes of payload that rows bring in an epoch, and partial results with them; none if it stays."""
        return 0.0 if self.late or self._seen is None else self.width * (self._seen.rows + self._seen.partials)

    @property
    def guess(self) -> str:
        """What is predicted before anything is known, in words."""
        costs = self.costs(1e6, 1e6 * self.joins, 1e6)
        return (
            f"for a million rows that all become results, predicted to take {costs['row']:.1f} s if it travels, "
            f"{costs['source']:.1f} s if not"
        )

    def learn(self, rows: int, partials: int, results: int, beside: float = 0.0, width: float | None = None) -> None:
        """An epoch is done, in which rows of other sources brought so many bytes of payload `beside` these."""
        if self.saw(rows, partials, results, width):
            self.decide(beside)

    def saw(self, rows: int, partials: int, results: int, width: float | None = None) -> bool:
        """Take note of an epoch, in which the payload of a row had `width` bytes; whether there is something to note.

        While windows fill, rows come into more results from epoch to epoch: then the latest tells most.
        """
        if not rows:
            return False
        if width is not None:
            self.latest = width
            self.width = width if self._seen is None else (1 - _LATEST) * self.width + _LATEST * width
        latest = Seen(rows, partials, results)
        before = self._seen or latest
        smoothed = (1 - _LATEST) * before.rows + _LATEST * rows
        self._seen = Seen(
            smoothed,
            *(
                smoothed * max(new / rows, (1 - _LATEST) * old / before.rows + _LATEST * new / rows)
                for old, new in zip(before[1:], latest[1:], strict=True)
            ),
        )
        self._epochs += 1
        return True

    def decide(self, beside: float) -> None:
        """Choose for the next epoch, in which rows of other sources are to bring so many bytes beside these."""
        known = self._expected
        if known is None:
            return
        self._beside = beside
        running = self._running.after(self._epochs, self.costs(*known, beside))
        self.changes += running.current != self._running.current
        self._running = running

    @property
    def _expected(self) -> Seen | None:
        """What the next epoch is expected to have; in the first ones, each row becomes one result at least."""
        known = self._seen
        if known is None or self._epochs > _FILLING:
            return known
        return known._replace(results=max(known.results, known.rows))

    @property
    def is_free(self) -> bool:
        """Whether it may choose, and knows by what."""
        return self.asked == "auto" and not self._cramped and self._seen is not None

    def load(self) -> tuple[float, float]:
        """The bytes of payload that rows would bring in the next epoch, and the seconds that it takes if it stays."""
        known = self._expected
        if known is None:
            return 0.0, 0.0
        return self.width * (known.rows + known.partials), self.costs(*known)["source"]

    def bringing(self, beside: float) -> float:
        """Seconds for payload that travels, with so many bytes of other sources beside it."""
        known = self._expected
        return 0.0 if known is None else self.costs(*known, beside)["row"]

    def as_dict(self) -> dict[str, Any]:
        """What JSON can write: what was learned, so that a restart goes on with it."""
        return {
            "running": self._running.as_dict(),
            "seen": self._seen,
            "beside": self._beside,
            "epochs": self._epochs,
            "changes": self.changes,
            "width": self.width,
            "latest": self.latest,
            "room": None if self.room == self._given else [self._given, self.room],
        }

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Go on with what `as_dict` gave. How much room there is holds for the same memory only.

        >>> before, after = HomePilot("auto", width=3000), HomePilot("auto", width=3000)
        >>> before.learn(rows=1000, partials=0, results=90_000)
        >>> after.resume(before.as_dict())
        >>> after == before
        True
        """
        self._running = Switching.from_dict({**saved["running"], "dwell": _DWELL})
        self._seen = None if saved["seen"] is None else Seen(*saved["seen"])
        self._beside, self._epochs, self.changes = saved["beside"], saved["epochs"], saved["changes"]
        self.width, self.latest = saved["width"], saved["latest"]
        if saved["room"] is not None and saved["room"][0] == self._given:
            self.room = saved["room"][1]

    def says(self) -> str:
        """Where payload is, and why, in words."""
        where = _STAYS.get(self.asked, _STAYS["source"]) if self.late else "travels with the rows"
        if self.asked != "auto":
            return f"{where}{self.why or f', as payload={self.asked!r} says'}"
        if self._cramped:
            return f"{where}: a task has too little memory to fetch it in large pieces"
        if self._seen is None:
            return f"{where}: nothing was measured yet"
        costs = self.costs(*self._seen, self._beside)
        changed = f"; changed {self.changes} times" if self.changes else ""
        return (
            f"{where}: predicted to take {costs['row']:.3f} s per epoch if it travels, {costs['source']:.3f} s if not"
            f"{changed}"
        )


def cheapest_to_carry(pilots: Mapping[str, HomePilot]) -> frozenset[str]:
    """The sources whose payload is to travel so that all together take least, by what their pilots have seen.

    Sources that may not choose stay as they are. At a tie what runs goes on.

    >>> pilots = {name: HomePilot("auto", width, room=60e6) for name, width in (("a", 1000), ("b", 300))}
    >>> for pilot in pilots.values():
    ...     pilot.learn(30_000, 0, 1_300_000)
    >>> sorted(cheapest_to_carry(pilots))
    ['a', 'b']
    >>> for pilot in pilots.values():
    ...     pilot.room = 35e6
    >>> sorted(cheapest_to_carry(pilots))
    ['a']
    """
    free = [name for name, pilot in pilots.items() if pilot.is_free]
    running = frozenset(name for name, pilot in pilots.items() if not pilot.late)
    loads = {name: pilot.load() for name, pilot in pilots.items()}
    bound = running - {*free}
    if len(free) > _TRIED:
        return running

    def cost(carried: frozenset[str]) -> float:
        together = math.fsum(loads[name][0] for name in carried)
        brought = (pilots[name].bringing(together - loads[name][0]) for name in carried)
        return math.fsum(brought) + math.fsum(loads[name][1] for name in pilots.keys() - carried)

    best, least = running, cost(running)
    for carried in _subsets(free):
        amount = cost(bound | carried)
        if amount < least * (1 - 1e-9):
            best, least = bound | carried, amount
    return best


def _subsets(names: Sequence[str]) -> list[frozenset[str]]:
    """All of them, the largest first, and of those of a size the ones with the last names."""
    return [
        frozenset(some) for size in range(len(names), -1, -1) for some in combinations(tuple(reversed(names)), size)
    ]
