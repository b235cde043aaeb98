"""Orders and payments: two bursty streams out of order, for the demo, tests and benchmarks.

Most orders are paid within minutes, some after more than ten, some never, some twice, and a few payments bear a time
shortly before their order's. Rows arrive up to `disorder` after they happened, and a few so much later that no
bound waits for them.
"""

from __future__ import annotations

import os
import time as clock
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.durations import Duration, DurationLike
from penstock.core.errors import ConfigError
from penstock.core.time import Times

ORDERS = pa.schema(
    [
        ("order_id", pa.int64()),
        ("shop", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)
"""The columns of orders."""

PAYMENTS = pa.schema(
    [("order_id", pa.int64()), ("method", pa.string()), ("paid", pa.float64()), ("ts", pa.timestamp("us", "UTC"))]
)
"""The columns of payments."""

START = 1_767_603_600_000_000
"""When the streams begin: 2026-01-05 09:00 UTC, in microseconds."""

_SECOND = 1_000_000
_SHOPS = np.array([f"shop-{number:02d}" for number in range(24)])
_METHODS = np.array(["card", "transfer", "wallet", "invoice"])
_SHARES = {"soon": 0.80, "late": 0.08, "never": 0.08, "twice": 0.04}
"""What becomes of an order."""
_EARLY = 0.02
"""The share of payments that bear a time before their order's."""
_TOO_LATE = 0.001
"""The share of rows that arrive minutes after they happened."""
_BURST, _BURST_EVERY = 5, 6
"""How many times the usual rate a burst has, and how rare bursts are: one stretch in so many."""
_STRETCH = 20 * _SECOND
"""How long one rate lasts."""


class Arrivals(NamedTuple):
    """Rows in the order in which they arrive, and when each does, in microseconds."""

    rows: pa.Table
    arrival: Times

    def between(self, first: int, last: int) -> pa.Table:
        """The rows that arrive in [first, last)."""
        start, stop = np.searchsorted(self.arrival, [first, last])
        return self.rows.slice(start, stop - start)


@dataclass(frozen=True, slots=True)
class OrdersAndPayments:
    """What to generate: `orders` of them over `span` of event time; the same seed gives the same rows.

    >>> streams = OrdersAndPayments(orders=1000, span="10 min", seed=7)
    >>> orders, payments = streams.generate()
    >>> orders.rows.num_rows, orders.rows.column_names
    (1000, ['order_id', 'shop', 'amount', 'ts'])
    >>> payments.rows.column_names
    ['order_id', 'method', 'paid', 'ts']
    """

    orders: int
    span: DurationLike = "1 h"
    disorder: DurationLike = "20 s"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.orders < 1:
            raise ConfigError(f"orders={self.orders} must be 1 or more.")
        if self._length < _STRETCH:
            raise ConfigError(f"span={self.span!r} is too short for bursts. Write at least '20 s'.")
        if self._disorder < 0:
            raise ConfigError(f"disorder={self.disorder!r} is negative. Write how long a row may be delayed.")

    @property
    def end(self) -> int:
        """When the last row has arrived, in microseconds."""
        return START + self._length + self._disorder + 1

    def generate(self) -> tuple[Arrivals, Arrivals]:
        """Both streams, whole."""
        random = np.random.default_rng(self.seed)
        ids = np.arange(1, self.orders + 1)
        times = START + _bursty(random, self.orders, self._length)
        cents = np.round(np.exp(random.normal(3.6, 0.9, self.orders)) * 100).astype(np.int64) + 99
        shops = _SHOPS[np.minimum(random.zipf(1.4, self.orders) - 1, len(_SHOPS) - 1)]
        orders = pa.table([ids, shops, _decimals(cents), times.view("M8[us]")], schema=ORDERS)
        payer, paid_at = _payments(random, times)
        seen = paid_at < START + self._length
        payer, paid_at = payer[seen], paid_at[seen]
        methods = _METHODS[random.choice(len(_METHODS), payer.size, p=[0.6, 0.2, 0.15, 0.05])]
        payments = pa.table([ids[payer], methods, cents[payer] / 100, paid_at.view("M8[us]")], schema=PAYMENTS)
        return self._arrive(random, orders, times), self._arrive(random, payments, paid_at)

    def write(self, folder: str | Path, every: DurationLike = "30 s") -> Iterator[int]:
        """Write both streams under `folder`, in ``orders`` and ``payments``: a Parquet file per `every` of arrival.

        A file appears whole, by rename, and later than the one before. Each step writes one slice of both streams and
        gives the number of its rows, so that whoever asks for the steps sets the pace.

        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> sum(OrdersAndPayments(orders=100, span="1 min", seed=7).write(folder)) > 100
        True
        >>> sorted(os.listdir(folder))
        ['orders', 'payments']
        """
        step = Duration.of(every, "every").on("microseconds", "every")
        if step <= 0:
            raise ConfigError(f"every={every!r} must be positive: how much time one file holds, like '30 s'.")
        return self._write(Path(folder), step)

    def _write(self, folder: Path, step: int) -> Iterator[int]:
        streams = dict(zip(("orders", "payments"), self.generate(), strict=True))
        writers = {name: _Slices(folder / name) for name in streams}
        for first in range(START, self.end, step):
            parts = {name: arrivals.between(first, first + step) for name, arrivals in streams.items()}
            for name, rows in parts.items():
                writers[name].write(rows)
            yield sum(rows.num_rows for rows in parts.values())

    def _arrive(self, random: np.random.Generator, rows: pa.Table, times: Times) -> Arrivals:
        """Rows by when they arrive: soon after they happened, in any order, or minutes later."""
        arrival = times + random.integers(0, self._disorder, times.size, endpoint=True)
        minutes = random.integers(3 * 60 * _SECOND, 9 * 60 * _SECOND, times.size)
        room = times + minutes < START + self._length
        held_up = room & (random.random(times.size) < _TOO_LATE)
        arrival = np.maximum(np.where(held_up, times + minutes, arrival), START)
        order = np.argsort(arrival, kind="stable")
        return Arrivals(rows.take(pa.array(order)), arrival[order])

    @property
    def _length(self) -> int:
        return Duration.of(self.span, "span").on("microseconds", "span")

    @property
    def _disorder(self) -> int:
        return Duration.of(self.disorder, "disorder").on("microseconds", "disorder")


class _Slices:
    """Writes files into a folder that somebody watches: whole ones only, each younger than the one before."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._count = 0
        self._latest = 0

    def write(self, rows: pa.Table) -> None:
        """One file, unless there are no rows."""
        if not rows.num_rows:
            return
        name = f"{self._count:06d}.parquet"
        draft = self._folder.parent / f".{self._folder.name}-{name}"
        pq.write_table(rows, draft)
        # Spark takes files by their time of change, in milliseconds.
        self._latest = max(clock.time_ns() // 1_000_000, self._latest + 1)
        os.utime(draft, ns=(self._latest * 1_000_000,) * 2)
        draft.rename(self._folder / name)
        self._count += 1


def _bursty(random: np.random.Generator, count: int, length: int) -> Times:
    """Moments in [0, length): uniform in each stretch, and some stretches with five times the rows of others."""
    edges = np.append(np.arange(0, length, _STRETCH), length)
    rates = np.where(random.random(edges.size - 1) < 1 / _BURST_EVERY, _BURST, 1)
    passed = np.append(0, np.cumsum(rates * np.diff(edges)))
    moments: Times = np.interp(np.sort(random.random(count)) * passed[-1], passed, edges).astype(np.int64)
    return np.minimum(moments, length - 1)


def _payments(random: np.random.Generator, times: Times) -> tuple[npt.NDArray[np.intp], Times]:
    """Which order each payment is for, and when it is made."""
    fate = random.choice(list(_SHARES), times.size, p=list(_SHARES.values()))
    soon = np.minimum(random.exponential(120 * _SECOND, times.size), 590 * _SECOND).astype(np.int64)
    early = random.random(times.size) < _EARLY
    delay = np.where(early, -(soon % (5 * _SECOND)), soon)
    delay = np.where(fate == "late", random.integers(601 * _SECOND, 1500 * _SECOND, times.size), delay)
    first = np.flatnonzero(fate != "never")
    again = np.flatnonzero(fate == "twice")
    second = delay[again] + random.integers(_SECOND, 60 * _SECOND, again.size)
    return np.append(first, again), np.append(times[first] + delay[first], times[again] + second)


def _decimals(cents: npt.NDArray[np.int64]) -> pa.Array:
    """Hundredths as decimal(10, 2): Arrow keeps 128 bits each, the lower half first."""
    halves = np.column_stack([cents, cents >> 63])
    return pa.Array.from_buffers(pa.decimal128(10, 2), cents.size, [None, pa.py_buffer(halves)])
