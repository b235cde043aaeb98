"""Lengths of time as people write them: ``"10 min"``, ``"1 hour 30 minutes"``, ``timedelta``, or plain ticks.

A duration is either real time (held in microseconds) or a count of ticks of an integer time column.
It becomes a number on a time axis only when it meets the unit of the time column, see `Duration.on`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, Self

from penstock.core.errors import DurationError

TimeUnit = Literal["microseconds", "days", "ticks"]
"""What one step of a time column is: timestamps count microseconds, dates days, integers ticks."""

_MICROSECONDS = {
    "us": 1,
    "µs": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "h": 3_600_000_000,
    "hr": 3_600_000_000,
    "hour": 3_600_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
    "w": 604_800_000_000,
    "week": 604_800_000_000,
}
_DAY = _MICROSECONDS["day"]
_TERM = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zµ]*)\s*")


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time: `amount` microseconds, or `amount` ticks of an integer time column.

    >>> Duration.of("1 hour 30 minutes").on("microseconds")
    5400000000
    >>> Duration.of("2 days").on("days")
    2
    >>> Duration.of(250).on("ticks")
    250
    """

    amount: int
    kind: Literal["time", "ticks"] = "time"

    @classmethod
    def of(cls, value: DurationLike, argument: str = "duration") -> Self:
        """Read a duration; `argument` is what the error message calls it."""
        if isinstance(value, Duration):
            return cls(value.amount, value.kind)
        if isinstance(value, bool):
            raise DurationError(f"{argument}={value!r} is not a length of time. Write a string like '10 min'.")
        if isinstance(value, int):
            return cls(value, "ticks")
        if isinstance(value, timedelta):
            return cls(round(value / timedelta(microseconds=1)))
        if isinstance(value, str):
            return cls._parse(value, argument)
        raise DurationError(
            f"{argument}={value!r} is a {type(value).__name__}. Write a string like '10 min', a timedelta, "
            f"or an integer when the time column is an integer."
        )

    @classmethod
    def _parse(cls, text: str, argument: str) -> Self:
        body = text.strip().lower()
        sign = -1 if body.startswith("-") else 1
        body = body.removeprefix("-" if sign < 0 else "+").strip().removeprefix("interval ").strip()
        if body.isdecimal():
            return cls(sign * int(body), "ticks")
        total, position = 0.0, 0
        for term in _TERM.finditer(body):
            if term.start() != position or (unit := _singular(term[2])) not in _MICROSECONDS:
                break
            total += float(term[1]) * _MICROSECONDS[unit]
            position = term.end()
        if not body or position != len(body):
            raise DurationError(
                f"{argument}={text!r} is not a length of time. Write a number and a unit, as in '10 min', '30 s', "
                f"'1 hour 30 minutes'; months and years have no fixed length."
            )
        return cls(sign * round(total))

    def on(self, unit: TimeUnit, argument: str = "duration") -> int:
        """This duration in steps of a time column of `unit`."""
        if abs(self.amount) > 2**62:
            raise DurationError(f"{argument}={self} is longer than the time axis. Write a shorter one.")
        if unit == "ticks":
            if self.kind == "time":
                raise DurationError(
                    f"{argument}={self} is real time, but the time column is an integer and has no unit. "
                    f"Write a plain number of its steps, or make the column a timestamp."
                )
            return self.amount
        if self.kind == "ticks" and self.amount:
            raise DurationError(f"{argument}={self} has no unit. The time column counts {unit}: write '{self} s'.")
        if unit == "microseconds":
            return self.amount
        days, rest = divmod(self.amount, _DAY)
        if rest:
            raise DurationError(
                f"{argument}={self} is not a whole number of days, but the time column is a date. "
                f"Write whole days, or make the column a timestamp."
            )
        return days

    def __str__(self) -> str:
        if self.kind == "ticks":
            return str(self.amount)
        if self.amount == 0:
            return "0 s"
        for name in ("d", "h", "min", "s", "ms"):
            if self.amount % _MICROSECONDS[name] == 0:
                return f"{self.amount // _MICROSECONDS[name]} {name}"
        return f"{self.amount} us"


DurationLike = Duration | str | int | timedelta
"""What a duration can be written as."""


def _singular(unit: str) -> str:
    return unit if unit in _MICROSECONDS else unit.removesuffix("s")
