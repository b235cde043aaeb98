"""Follows a running lookup join and chooses its method before each epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.durations import TimeUnit
from penstock.core.master import MasterTable, edition_of
from penstock.core.rows import RowType
from penstock.core.time import TIME_MAX, TIME_MIN, Time
from penstock.operators.lookup import LookupJoin
from penstock.planner.flown import SECONDS, Flown
from penstock.planner.lookup.choice import LookupChoice, LookupPreference, choose_lookup
from penstock.planner.lookup.costs import Labour, LookupLoad
from penstock.planner.lookup.explain import KeysAsked, keys_asked
from penstock.planner.lookup.reads import STORES, ReadCosts
from penstock.planner.lookup.skew import STEEPEST, Counts, Skew, fit_exponent
from penstock.planner.smoothing import SMOOTHING

_RATE = 50_000.0
"""Rows a second of one task, until they are counted."""

_TEXT = 32
"""Bytes that a value of no fixed width is taken to have."""

_SLOWEST, _FASTEST = 1000.0, 0.1
"""Reads may take so many times what was assumed, or so little of it."""
_SHARPEST = 1e-4

_ABOUT = 0.03
"""What is known is about the same within this part of it: choosing anew takes as long as ten thousand rows."""

_LOOKS = 8
"""The skew is found in so many epochs, then in one of so many."""


class LookupPilot:
    """Steers one lookup join that was asked for with ``method="auto"``.

    `load` has what is known about the table and the memory of one task; its rates and skew are replaced by
    measurements. `reads` are the assumed costs of reads from the table's store, until they are measured. The method
    changes only between epochs, with waiting rows and the cache carried over, and only if it pays.

    >>> from penstock.core.master import TableSize
    >>> from penstock.planner.lookup.reads import STORES
    >>> load = LookupLoad(1e4, 100.0, TableSize(10**6, 120 * 10**6), memory=64_000_000, partitions=128)
    >>> pilot = LookupPilot(load, STORES["pages"])
    >>> pilot.decide().method
    'inlj'
    """

    def __init__(
        self,
        load: LookupLoad,
        reads: ReadCosts,
        current: str | None = None,
        preference: LookupPreference | None = None,
        labour: Labour | None = None,
        unit: TimeUnit = "ticks",
    ) -> None:
        self._unit = unit
        self.load = load
        self._assumed = reads
        self._current = current
        self._preference = preference
        self._labour = labour or Labour()
        self._epochs = 0
        self.slower = 1.0
        """How many times as long as assumed reads take."""
        self._skew_seen = False
        self.hit_share: float | None = None
        """The part of the rows that was answered from memory lately, if a cache was asked."""
        self.choice: LookupChoice | None = None
        """The latest decision."""
        self._known: tuple[float, ...] | None = None
        """What it was made from."""

    @classmethod
    def of(
        cls,
        config: LookupJoin,
        stream: RowType,
        table: MasterTable,
        store: str,
        share: int,
        slots: int,
        current: str | None = None,
    ) -> LookupPilot:
        """Steers a lookup in `table`, which is in such a `store`, with `share` of memory for each task."""
        age = config.max_age
        load = LookupLoad(
            rows_per_second=_RATE,
            stream_row=float(sum(_width(kind) for kind in stream.inside.types)),
            memory=share,
            max_age=None if age is None else age.on(config.unit, "max_age") * SECONDS[config.unit],
            shards=slots,
            **table_as_seen(table),
        )
        return cls(load, STORES[store], current, unit=config.unit)

    @property
    def reads(self) -> ReadCosts:
        """What reads take, as far as it is known."""
        return self._assumed.scaled(self.slower)

    def sees(self, table: MasterTable) -> None:
        """The table has another version: it may have grown, or have rows of one key in several places now.

        One that cannot tell its versions apart is asked for its size now and then only, unless all of it is read.
        """
        seldom = self.choice is not None and self.choice.method != "broadcast" and edition_of(table) is None
        if seldom and self._epochs % _LOOKS:
            return
        self.load = replace(self.load, **table_as_seen(table))

    def decide(self) -> LookupChoice:
        """How to run the next epoch; as the one before, as long as about the same is known."""
        load = self.load
        measured = (load.rows_per_second, load.epoch_seconds, load.exponent, self.slower)
        known = (*measured, load.table.rows, load.table.nbytes, load.partitions, load.unique, load.clustered)
        if self.choice is None or self._known is None or not np.allclose(known, self._known, rtol=_ABOUT, atol=_ABOUT):
            self.choice = self._choose()
            self._known = known
        self._current = self.choice.method
        return self.choice

    def outlook(self) -> LookupChoice:
        """What was decided last, or what would be if the first epoch began now."""
        return self.choice or self._choose()

    @property
    def keys(self) -> KeysAsked:
        """How unevenly keys are asked for as far as it is known, and what a cache would answer of them."""
        return keys_asked(self.load, self.reads, self.outlook().method, self.hit_share, seen=self._skew_seen)

    def follow(self, method: str) -> None:
        """The next epoch was planned before, by this method: it is run again as it was."""
        self._current, self._known = method, None

    def learn(self, epoch: Flown) -> None:
        """An epoch is done."""
        passed = stream_seconds(epoch.before[0], epoch.after[0], self._unit)
        self.saw(epoch.rows[0], passed, epoch.seconds, epoch.counts)

    def saw(
        self,
        rows: int,
        stream_seconds: float,
        task_seconds: float,
        counts: Mapping[str, int],
        keys: Counts | None = None,
    ) -> None:
        """An epoch is done: the rows and the stream time it had, and, of all tasks together, their seconds and counts.

        `counts` are those of `LookupLogic.counts`; `keys` says how often each key of a sample came, if there is one.
        """
        if not rows:
            return
        self._epochs += 1
        self._pace(rows / self.load.shards, stream_seconds)
        if self._epochs <= _LOOKS or self._epochs % _LOOKS == 0:
            self._skew(rows, counts, keys)
        if self._epochs > 1:  # The first finds the table cold.
            self._speed(rows, task_seconds, counts)

    def _choose(self) -> LookupChoice:
        return choose_lookup(self.load, self.reads, self._current, self._preference, self._labour)

    def _pace(self, rows: float, seconds: float) -> None:
        if seconds > 0:
            rate = self._smooth(self.load.rows_per_second, rows / seconds)
            self.load = replace(self.load, rows_per_second=rate, epoch_seconds=seconds)

    def _skew(self, rows: int, counts: Mapping[str, int], keys: Counts | None) -> None:
        """How unevenly keys are asked for: by a sample, or by what a cache or requests by key make of it."""
        asked = counts.get("hits", 0) + counts.get("misses", 0)
        if asked:
            self.hit_share = counts["hits"] / asked
        if keys is not None and keys.size:
            seen = fit_exponent(keys, self.load.keys * self.load.shards)
        elif asked and counts.get("cached"):
            cached = counts["cached"] // self.load.shards
            seen = exponent_of_share(self.load.keys, cached, counts["hits"] / asked)
        elif counts.get("looked_up") and counts.get("reads"):
            batches = counts["reads"]
            seen = exponent_of_distinct(self.load.keys, rows / batches, counts["looked_up"] / batches)
        else:
            return
        self._skew_seen = True
        self.load = replace(self.load, exponent=self._smooth(self.load.exponent, seen))

    def _speed(self, rows: int, seconds: float, counts: Mapping[str, int]) -> None:
        """What reads took beside the labour: only where it is by far not what was assumed does it count."""
        hits, misses = counts.get("hits", 0), counts.get("misses", 0)
        work = self._labour
        waits = 0.0 if counts.get("looked_up") or self._current == "broadcast" else work.wait
        labour = hits * work.hit + misses * work.offer + (rows - hits) * (work.answer + waits)
        given = self._assumed
        assumed = counts.get("reads", 0) * given.request + counts.get("looked_up", 0) * given.key
        assumed += counts.get("bytes_read", 0) / given.bandwidth
        took = seconds - labour
        if assumed <= 0 or abs(took - assumed) < labour:
            return
        seen = min(_SLOWEST, max(_FASTEST, took / assumed))
        self.slower = self._smooth(self.slower, seen)

    def _smooth(self, before: float, seen: float) -> float:
        return seen if self._epochs == 1 else (1 - SMOOTHING) * before + SMOOTHING * seen


def table_as_seen(table: MasterTable) -> dict[str, Any]:
    """What a load says of a table.

    >>> from penstock.storage.tables.arrow import ArrowTable
    >>> import pyarrow as pa
    >>> table_as_seen(ArrowTable(pa.table({"id": [1, 2]}), ("id",)).open())["unique"]
    True
    """
    return {
        "table": table.size,
        "partitions": max(1, table.partitions) if table.clustered else 1,
        "unique": table.unique,
        "clustered": table.clustered,
    }


def stream_seconds(before: Time, after: Time, unit: TimeUnit) -> float:
    """How much of the stream's time passed between two bounds, as seconds; one if that is not known.

    >>> stream_seconds(0, 2_000_000, "microseconds")
    2.0
    """
    if before in (TIME_MIN, TIME_MAX) or after in (TIME_MIN, TIME_MAX) or after <= before:
        return 1.0
    return (after - before) * SECONDS[unit]


def _width(kind: pa.DataType) -> int:
    try:
        return int(kind.bit_width + 7) // 8
    except ValueError:
        return _TEXT


def exponent_of_share(keys: int, cached: int, share: float) -> float:
    """The exponent by which an ideal cache of so many rows would answer this share.

    >>> round(exponent_of_share(100_000, 1000, Skew(100_000, 0.8).share(1000)), 3)
    0.8
    """
    return _solved(lambda exponent: Skew(keys, exponent).share(min(cached, keys)) < share)


def exponent_of_distinct(keys: int, rows: float, distinct: float) -> float:
    """The exponent by which so many rows would ask for so many different keys.

    >>> round(exponent_of_distinct(100_000, 10_000, Skew(100_000, 0.8).distinct(10_000)), 3)
    0.8
    """
    return _solved(lambda exponent: Skew(keys, exponent).distinct(rows) > distinct)


def _solved(too_even: Callable[[float], bool]) -> float:
    low, high = 0.0, STEEPEST
    while high - low > _SHARPEST:
        middle = (low + high) / 2
        low, high = (middle, high) if too_even(middle) else (low, middle)
    return (low + high) / 2
