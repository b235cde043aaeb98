"""The load of a window join: the rates of its two ports, the width of rows, and how long they stay.

A load is declared before a query runs, or measured while it does; both are records that a plan file can carry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from penstock.core.errors import ConfigError
from penstock.planner.smoothing import SMOOTHING

Pair = tuple[float, float]
"""A number for the left port and one for the right."""

_SHORTEST = 1e-6
"""Stream time that no rate can be told from."""


@dataclass(frozen=True, slots=True)
class Load:
    """Rates, widths and stays of the rows of both ports. A second is one of stream time, however fast it passes.

    `window_seconds` is how long a row stays in state, so that rate × window rows are held.

    >>> load = Load(rows_per_second=(200.0, 50.0), row_bytes=(128.0, 64.0), window_seconds=(1800.0, 600.0))
    >>> load.state_rows, load.state_bytes
    ((360000.0, 30000.0), (46080000.0, 1920000.0))
    """

    rows_per_second: Pair
    row_bytes: Pair
    window_seconds: Pair

    def __post_init__(self) -> None:
        for name in ("rows_per_second", "row_bytes", "window_seconds"):
            value = getattr(self, name)
            if not 0 <= min(value) <= max(value) < float("inf"):
                raise ConfigError(f"{name}={value} must be two finite numbers, 0 or more.")

    @property
    def bytes_per_second(self) -> Pair:
        """What arrives on each port."""
        return _product(self.rows_per_second, self.row_bytes)

    @property
    def state_rows(self) -> Pair:
        """What each port holds, in rows."""
        return _product(self.rows_per_second, self.window_seconds)

    @property
    def state_bytes(self) -> Pair:
        """What each port holds, in bytes."""
        return _product(self.state_rows, self.row_bytes)

    def shared(self, tasks: int) -> Load:
        """What one of so many tasks bears, each with its shard of the keys.

        >>> Load((200.0, 50.0), (128.0, 64.0), (1800.0, 600.0)).shared(4).rows_per_second
        (50.0, 12.5)
        """
        left, right = self.rows_per_second
        return Load((left / tasks, right / tasks), self.row_bytes, self.window_seconds)

    def to_json(self) -> dict[str, Any]:
        """For a plan file."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """From a plan file.

        >>> load = Load((200.0, 50.0), (128.0, 64.0), (1800.0, 600.0))
        >>> Load.from_json(load.to_json()) == load
        True
        """
        return cls(**{name: _pair(value) for name, value in record.items()})


@dataclass(frozen=True, slots=True)
class Measured:
    """What has been measured of a running join: smoothed sums of stream time and arrivals, and the current state.

    Time and rows are smoothed apart, so that an epoch in which no stream time passes still counts its rows.

    >>> print(Measured().load)
    None
    >>> Measured(seconds=0.5, rows=(100.0, 0.0), state_rows=(400.0, 0.0), row_bytes=(16.0, 0.0)).load
    Load(rows_per_second=(200.0, 0.0), row_bytes=(16.0, 0.0), window_seconds=(2.0, 0.0))
    """

    seconds: float = 0.0
    rows: Pair = (0.0, 0.0)
    state_rows: Pair = (0.0, 0.0)
    row_bytes: Pair = (0.0, 0.0)

    @property
    def load(self) -> Load | None:
        """The load as it is measured; None until stream time has passed."""
        if self.seconds < _SHORTEST:
            return None
        # state without arrivals came before the measuring: less than a row per epoch, and it stays for very long
        rows = [max(seen, 1.0 if held else 0.0) for seen, held in zip(self.rows, self.state_rows, strict=True)]
        windows = [
            held * self.seconds / seen if seen else 0.0 for held, seen in zip(self.state_rows, rows, strict=True)
        ]
        return Load((rows[0] / self.seconds, rows[1] / self.seconds), self.row_bytes, (windows[0], windows[1]))

    def to_json(self) -> dict[str, Any]:
        """For a plan file."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """From a plan file.

        >>> measured = measure(Measured(), 2.0, rows=(400, 100), state_rows=(400, 90), state_bytes=(6400, 720))
        >>> Measured.from_json(measured.to_json()) == measured
        True
        """
        pairs = {name: _pair(record[name]) for name in ("rows", "state_rows", "row_bytes")}
        return cls(seconds=float(record["seconds"]), **pairs)


def measure(before: Measured, seconds: float, rows: Pair, state_rows: Pair, state_bytes: Pair) -> Measured:
    """What is known after an epoch: `seconds` of stream time passed, `rows` arrived on each port, this is the state.

    >>> measured = measure(Measured(), 2.0, rows=(400, 100), state_rows=(4000, 1000), state_bytes=(64000, 8000))
    >>> measured.load
    Load(rows_per_second=(200.0, 50.0), row_bytes=(16.0, 8.0), window_seconds=(20.0, 20.0))
    """
    if not seconds >= 0:
        raise ConfigError(f"seconds={seconds} of stream time must be 0 or more.")
    old, new = 1 - SMOOTHING, SMOOTHING
    widths = [
        size / held if held else known
        for size, held, known in zip(state_bytes, state_rows, before.row_bytes, strict=True)
    ]
    return Measured(
        seconds=old * before.seconds + new * seconds,
        rows=(old * before.rows[0] + new * rows[0], old * before.rows[1] + new * rows[1]),
        state_rows=_pair(state_rows),
        row_bytes=(widths[0], widths[1]),
    )


def _pair(values: Any) -> Pair:
    left, right = values
    return float(left), float(right)


def _product(some: Pair, others: Pair) -> Pair:
    return some[0] * others[0], some[1] * others[1]
