"""HYBRIDJOIN under load as a queue of partition numbers: what the operator does, but fast enough for statistics.

`test_the_model_does_what_the_operator_does` holds it to the operator, read by read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.operators.lookup.shedding import Shedding, Tuner, lottery


def zipf(keys: int, exponent: float = 1.0):
    """The cumulated probabilities of ranks."""
    weights = 1 / np.arange(1, keys + 1) ** exponent
    return np.cumsum(weights) / weights.sum()


@dataclass
class QueueModel:
    """One read per arrival of a slice; queues hold the oldest first."""

    slots: int
    shed: Shedding
    waiting: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    inbox: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    aside: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    served: int = 0
    usual: float = 0.0
    shedding: bool = False
    arrived: int = 0

    def __post_init__(self) -> None:
        self.served = self.slots
        self.tuner = Tuner(trial=self.shed.trial) if self.shed.position == "tune" else None

    def arrive(self, rows: np.ndarray) -> int:
        """How many rows the read finishes that follows this arrival."""
        self.inbox = np.concatenate([self.inbox, self._kept(rows)])
        while self.inbox.size or self.aside.size:
            self._balance()
            free = self.slots - self.waiting.size
            self.waiting, self.inbox = np.concatenate([self.waiting, self.inbox[:free]]), self.inbox[free:]
            if self.inbox.size or self.aside.size:
                return self._read()
        return 0

    def _kept(self, rows: np.ndarray) -> np.ndarray:
        excess = min(rows.size, self._excess(self.inbox.size + rows.size))
        first, self.arrived = self.arrived, self.arrived + rows.size
        if self.shed.policy != "keep" or not excess:
            return rows
        aside = np.isin(np.arange(rows.size), lottery(first, rows.size, excess))
        self.aside = np.concatenate([self.aside, rows[aside]])
        return rows[~aside]

    def _excess(self, queued: int) -> int:
        return max(0, queued - 2 * max(self.served, self.slots - self.waiting.size))

    def _balance(self) -> None:
        queued, free = self.inbox.size, self.slots - self.waiting.size
        excess = self._excess(queued)
        served = max(self.served, free)
        room = max(1, 2 * (min(served, round(self.usual)) if queued else served)) - queued if self.aside.size else 1
        if excess and self.shed.policy == "considering":
            self.aside = np.concatenate([self.aside, self.waiting[:excess]])
            self.waiting = self.waiting[excess:]
        elif not excess:
            self.inbox = np.concatenate([self.inbox, self.aside[: max(0, room)]])
            self.aside = self.aside[max(0, room) :]
        self.shedding = self.shed.on and (excess > 0 or (self.shedding and room <= 0))

    def _read(self) -> int:
        chosen = round((1 - self._position()) * (self.waiting.size - 1))
        met = self.waiting == self.waiting[chosen]
        self.waiting = self.waiting[~met]
        self.served = int(met.sum())
        self.usual += (self.served - self.usual) / (16 if self.usual else 1)
        if self.tuner is not None and self.shedding:
            self.tuner.saw(self.served)
        return self.served

    def _position(self) -> float:
        if not self.shedding or self.shed.policy != "considering":
            return 1.0
        return self.tuner.position if self.tuner is not None else float(self.shed.position)


@dataclass(frozen=True)
class Setting:
    """A stream with Zipf keys that lie at random over the partitions of a table."""

    keys: int = 20_000
    partition: int = 20
    slots: int = 3_300
    exponent: float = 1.0

    @property
    def stream(self) -> np.ndarray:
        """How likely a row of the stream is to need each partition."""
        weights = np.diff(zipf(self.keys, self.exponent), prepend=0.0)
        return np.random.default_rng(99).permutation(weights).reshape(-1, self.partition).sum(1)

    def rows_per_read(
        self, shed: Shedding, arrivals: int, reads: int, *, seed: int = 1, warm: int | None = None, look=None
    ) -> float:
        """How many rows a read finishes on average; `look` sees the model after each read.

        Before that the queue has been filled four times, and as many reads made as go three times over the table:
        with less, what was there at first, which is cheaper, still counts.
        """
        rng = np.random.default_rng(seed)
        probabilities = np.cumsum(self.stream)
        draw = lambda count: np.searchsorted(probabilities[:-1], rng.random(count))  # noqa: E731
        model = QueueModel(self.slots, shed)
        model.arrive(draw(self.slots))
        if warm is None:
            warm = max(4 * self.slots // arrivals, 3 * self.keys // self.partition)
        finished = 0
        for number in range(warm + reads):
            count = model.arrive(draw(arrivals))
            if number >= warm:
                finished += count
                if look is not None:
                    look(model)
        return finished / reads
