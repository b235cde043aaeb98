"""Rows out of order, as flow records come: in a band, or sorted by the block; and the punctuation that fits them.

A router reports a flow when it has seen some packets of it, so that flows come out of order by how long that took: a
band. Or it dumps its cache every minute, in any order: blocks. Either changes the order of the rows only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.durations import Duration, DurationLike
from penstock.core.errors import ConfigError
from penstock.core.rows import Indices
from penstock.core.time import Times, as_times


class Punctuations(NamedTuple):
    """Punctuation n stands before the row at ``places[n]``: from there on, no row lies below ``bounds[n]``."""

    places: Indices
    bounds: Times


@dataclass(frozen=True, slots=True)
class BandDisorder:
    """Rows come up to `at_most` after they happened: against the place of arrival, times lie in a nearly linear band.

    The delays are copies, in random order, of so many `sequences` of `length` delays each. No row comes after one that
    is more than `at_most` later, so ``bounded_delay(at_most)`` finds none of them late.

    >>> rows = pa.table({"ts": pa.array(range(0, 60_000_000, 1000), pa.timestamp("us"))})
    >>> 3_000_000 < max_disorder(BandDisorder("3.2 s")(rows)) <= 3_200_000
    True
    """

    at_most: DurationLike
    sequences: int = 10
    length: int = 1000
    time: str = "ts"
    seed: int = 0

    def __post_init__(self) -> None:
        _length(self.at_most, "at_most", least=0)
        for name in ("sequences", "length"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} leaves no delay to draw. Write 1 or more.")

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The same rows in order of arrival."""
        random = np.random.default_rng(self.seed)
        reach = _length(self.at_most, "at_most", least=0)
        drawn = random.integers(0, reach, (self.sequences, self.length), endpoint=True)
        copies = random.integers(0, self.sequences, -(-rows.num_rows // self.length))
        late = drawn[copies].ravel()[: rows.num_rows]
        return rows.take(pa.array(np.argsort(_times(rows, self.time) + late, kind="stable")))


@dataclass(frozen=True, slots=True)
class BlockDisorder:
    """Rows come block by block, each `block` of time, counted from 0; within one, in any order.

    ``blocks(block)`` finds none of them late, and `punctuations` says after each block that it is over.

    >>> rows = pa.table({"ts": pa.array(range(0, 6_000_000, 1000), pa.timestamp("us"))})
    >>> shuffled = BlockDisorder("2 s")(rows)
    >>> punctuations(shuffled, every="2 s")
    Punctuations(places=array([2000, 4000]), bounds=array([2000000, 4000000]))
    """

    block: DurationLike
    time: str = "ts"
    seed: int = 0

    def __post_init__(self) -> None:
        _length(self.block, "block", least=1)

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The same rows in order of arrival."""
        blocks = _times(rows, self.time) // _length(self.block, "block", least=1)
        shuffled = np.random.default_rng(self.seed).random(rows.num_rows)
        return rows.take(pa.array(np.lexsort((shuffled, blocks))))


def punctuations(rows: pa.Table, every: DurationLike, time: str = "ts") -> Punctuations:
    """The best that a source could say of these rows: each multiple of `every`, as early as it is true.

    Nothing is said before the first row, nor of what no row lies beyond.

    >>> rows = pa.table({"ts": pa.array([1, 4, 2, 6, 7], pa.timestamp("us"))})
    >>> punctuations(rows, every="2 us")
    Punctuations(places=array([1, 3, 3]), bounds=array([2, 4, 6]))
    """
    step = _length(every, "every", least=1)
    times = _times(rows, time)
    if not times.size:
        return Punctuations(np.empty(0, np.int64), np.empty(0, np.int64))
    coming = np.minimum.accumulate(times[::-1])[::-1]
    bounds = np.arange(times.min() // step + 1, times.max() // step + 1) * step
    return Punctuations(np.searchsorted(coming, bounds), bounds)


def punctuate(rows: pa.Table, every: DurationLike, column: str = "complete", time: str = "ts") -> pa.Table:
    """Rows with one more column: where a punctuation follows a row, its bound; null elsewhere.

    It is what ``pk.punctuated(column)`` reads.

    >>> rows = pa.table({"ts": pa.array([1, 4, 2, 6, 7], pa.timestamp("us"))})
    >>> as_times(punctuate(rows, every="2 us").column("complete")).to_pylist()
    [2, None, 6, None, None]
    """
    places, bounds = punctuations(rows, every, time)
    said, silent = np.zeros(rows.num_rows, np.int64), np.ones(rows.num_rows, np.bool_)
    said[places - 1], silent[places - 1] = bounds, False
    kind = rows.schema.field(time).type
    return rows.append_column(column, pa.array(said.view("M8[us]"), kind, mask=silent))


def max_disorder(rows: pa.Table, time: str = "ts") -> int:
    """How far behind the latest row before it a row comes, at most, in steps of the time column.

    >>> max_disorder(pa.table({"ts": [5, 9, 2]}))
    7
    """
    times = _times(rows, time)
    return int((np.maximum.accumulate(times) - times).max(initial=0))


def _times(rows: pa.Table, column: str) -> Times:
    if column not in rows.column_names:
        raise ConfigError.unknown_column("time", column, rows.column_names)
    return as_times(rows.column(column)).to_numpy()  # type: ignore[no-any-return]


def _length(value: DurationLike, argument: str, least: int) -> int:
    length = Duration.of(value, argument).on("microseconds", argument)
    if length < least:
        raise ConfigError(f"{argument}={value!r} is no length of time. Write how long, as '30 s'.")
    return length
