"""Visits of people to places over hours: three streams whose rows arrive in no order that brings partners together.

A visit names a person and a place. Profiles of people and descriptions of places come at any moment of the day, so that
a visit may wait for hours for either, or the other way round, and some never come. People and places are visited by
Zipf's law.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.core.errors import ConfigError

ON = ("v.person = u.person", "v.place = p.place")
"""How the streams join: visits v, people u, places p."""
PLAN = "(v u) p"

_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)


@dataclass(frozen=True, slots=True)
class Visits:
    """So many hours of the three streams, with `rate` visits a minute and texts of `text` bytes.

    >>> epochs = list(Visits(hours=1, rate=10).epochs(minutes=15))
    >>> len(epochs), sorted(epochs[0]), sum(epoch["v"].num_rows for epoch in epochs)
    (4, ['p', 'u', 'v'], 600)
    """

    hours: float = 24
    rate: int = 100
    people: int = 2000
    places: int = 500
    text: int = 300
    missing: float = 0.1
    """The part of people and places that is never told about."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.hours <= 0 or self.rate < 1 or min(self.people, self.places) < 1 or not 0 <= self.missing < 1:
            raise ConfigError(
                f"{self} has no visits. Write hours above 0, a rate, people and places of 1 or more, and a part that "
                "is missing below 1."
            )

    def epochs(self, minutes: float) -> Iterator[dict[str, pa.Table]]:
        """What arrives of each stream, in epochs of so many minutes."""
        streams = self.streams()
        ends = np.arange(minutes, 60 * self.hours + minutes / 2, minutes) * 60_000
        cuts = {name: np.searchsorted(rows.column("t").to_numpy(), ends).tolist() for name, rows in streams.items()}
        for place in range(ends.size):
            starts = {name: cut[place - 1] if place else 0 for name, cut in cuts.items()}
            yield {name: rows.slice(starts[name], cuts[name][place] - starts[name]) for name, rows in streams.items()}

    def streams(self) -> dict[str, pa.Table]:
        """All rows of each stream, in the order of their arrival; t is in milliseconds."""
        random = np.random.default_rng(self.seed)
        span, count = round(self.hours * 3_600_000), round(60 * self.hours * self.rate)
        visits = {
            "person": _zipf(random, self.people, count),
            "place": _zipf(random, self.places, count),
            "visit": np.arange(count),
        }
        return {
            "v": self._stream(random, visits, "remark", span),
            "u": self._stream(random, {"person": self._told(random, self.people)}, "profile", span),
            "p": self._stream(random, {"place": self._told(random, self.places)}, "description", span),
        }

    def _told(self, random: np.random.Generator, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Those of so many that are told about, in any order."""
        kept: np.ndarray[tuple[int], np.dtype[np.int64]] = random.permutation(count)[
            : round(count * (1 - self.missing))
        ]
        return kept

    def _stream(
        self,
        random: np.random.Generator,
        keys: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]],
        text: str,
        span: int,
    ) -> pa.Table:
        count = next(iter(keys.values())).size
        letters = _ALPHABET[np.frombuffer(random.bytes(count * self.text), np.uint8) & 63].tobytes()
        offsets = pa.py_buffer((np.arange(count + 1) * self.text).astype(np.int32))
        texts = pa.Array.from_buffers(pa.string(), count, [None, offsets, pa.py_buffer(letters)])
        times = np.sort(random.integers(0, span, count))
        return pa.table({**keys, text: texts, "t": times})


def _zipf(random: np.random.Generator, values: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Numbers below `values`, the n-th most frequent of which is drawn in proportion to 1 / n."""
    weights = 1 / np.arange(1, values + 1)
    drawn: np.ndarray[tuple[int], np.dtype[np.int64]] = random.choice(values, count, p=weights / weights.sum())
    return drawn
