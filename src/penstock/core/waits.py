"""The waiting rows of an operator, as reports show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from penstock.core.durations import TimeUnit
from penstock.core.time import TIME_MAX, TIME_MIN, Time, show_span


@dataclass(frozen=True, slots=True)
class Waits:
    """How many rows wait for an answer, and how old the oldest is. Those of several shards can be added.

    Rows wait to be let in, for a read of the table, or put aside: all of them count.

    >>> str(Waits(3, oldest=70, bound=90) + Waits(2, oldest=40, bound=80))
    '5 rows wait, the oldest 50 behind the bound'
    """

    rows: int = 0
    oldest: Time = TIME_MAX
    """A lower bound on their event times; the end of time if there are none."""
    bound: Time = TIME_MIN
    """The bound of the stream."""
    unit: TimeUnit = "ticks"

    @property
    def age(self) -> int | None:
        """How many steps of time the oldest is behind the bound; None if nothing waits, or there is no bound.

        `max_age` limits it. A row ahead of the bound has age 0.
        """
        if not self.rows or self.bound in (TIME_MIN, TIME_MAX):
            return None
        return max(0, self.bound - self.oldest)

    def __add__(self, other: Waits) -> Waits:
        bound = max(self.bound, other.bound)
        return Waits(self.rows + other.rows, min(self.oldest, other.oldest), bound, self.unit)

    def __str__(self) -> str:
        if self.age is None:
            return f"{self.rows:,} rows wait"
        behind = f"{show_span(self.age, self.unit)} behind" if self.age else "not behind"
        return f"{self.rows:,} rows wait, the oldest {behind} the bound"

    def to_json(self) -> dict[str, Any]:
        """For a record that a shard stages."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """From such a record."""
        return cls(**record)
