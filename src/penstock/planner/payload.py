"""Whether rows of a source carry their payload or leave it behind: the cost of both, and when to switch.

Payload that travels is decoded, moved and kept once for each store that it comes to, and again with every partial
result. Payload that stays is decoded for the rows that become results, kept on a local disk, and found by a number.
Results have it in both cases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

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

_DWELL = 3
"""Epochs with rows before another change."""


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
    _seen: Seen | None = None
    _beside: float = 0.0
    _epochs: int = 0

    def __post_init__(self) -> None:
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

    def learn(self, rows: int, partials: int, results: int, beside: float = 0.0) -> None:
        """An epoch is done, in which rows of other sources brought so many bytes of payload `beside` these.

        While windows fill, rows come into more results from epoch to epoch: then the latest tells most, and in the
        first epochs each row is taken to become one result at least.
        """
        if not rows:
            return
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
        known = self._seen
        if self._epochs <= _DWELL:
            known = known._replace(results=max(known.results, known.rows))
        self._beside = beside
        running = self._running.after(self._epochs, self.costs(*known, beside))
        self.changes += running.current != self._running.current
        self._running = running

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
