"""Delays and buffer sizes: the measures by which stream joins are compared, over arrays of times.

They are words that every room shares (a host reports them, the lab plots them, tests check them), need no state and
know no operator, so they are vocabulary and live in the core. All take NumPy arrays, one entry per result, row or
event, in any order; moments and durations may be in any one unit, which is that of the answer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Moments = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Seconds = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def production_delays(emitted: Moments, *times: Moments) -> Moments:
    """How long after it could first be known each result came out: when emitted, less the latest of its rows' times.

    A result of a stream and a table has one time only.

    >>> production_delays(np.array([5, 9]), np.array([1, 4]), np.array([3, 2])).tolist()
    [2, 5]
    """
    delays: Moments = emitted - np.maximum.reduce(times)
    return delays


def average_production_delay(emitted: Moments, *times: Moments) -> float:
    """The mean of `production_delays`; not a number if nothing came out.

    >>> average_production_delay(np.array([5, 9]), np.array([1, 4]), np.array([3, 2]))
    3.5
    """
    return float(production_delays(emitted, *times).mean()) if emitted.size else float("nan")


def last_finished(rows: Counts, finished: Moments, count: int) -> Seconds:
    """For each of `count` rows, when the last of its joins finished: join n was one of row ``rows[n]``.

    A row that needed no join was finished before everything.

    >>> last_finished(np.array([0, 2, 0]), np.array([4, 1, 3]), 3).tolist()
    [4.0, -inf, 1.0]
    """
    last = np.full(count, -np.inf)
    np.maximum.at(last, rows, finished)
    return last


def percent_delayed(times: Moments, finished: Moments, window: float | Moments) -> float:
    """How many rows in a hundred had their last required join only after their window was over: after time + window.

    Finished at that very moment is in time. Not a number if there are no rows.

    >>> percent_delayed(np.array([0, 0, 5, 5]), np.array([9, 11, 15, 16]), window=10)
    50.0
    """
    return float(100 * np.mean(finished > times + window)) if times.size else float("nan")


class Steps(NamedTuple):
    """A quantity that changes at `times` (ascending, each once) to `values`, and is 0 before the first.

    >>> steps = Steps(np.array([1, 4]), np.array([2, 1]))
    >>> steps.at(np.array([0, 1, 3, 9])).tolist(), steps.peak
    ([0, 2, 2, 1], 2)
    """

    times: Moments
    values: Counts

    def at(self, moments: Moments) -> Counts:
        """The quantity at each of `moments`, what happens at that moment included."""
        values: Counts = np.concatenate([np.zeros(1, self.values.dtype), self.values])
        return values[np.searchsorted(self.times, moments, side="right")]

    @property
    def peak(self) -> int:
        """The most it ever was."""
        return int(self.values.max(initial=0))


def buffered(arrived: Moments, consumed: Moments) -> Steps:
    """How many rows wait over time: those that have arrived, less those that were taken to be processed.

    >>> buffered(arrived=np.array([1, 2, 2]), consumed=np.array([2, 5]))
    Steps(times=array([1, 2, 5]), values=array([1, 2, 1]))
    """
    return _running_total(arrived, consumed, np.ones(arrived.size, np.int64), np.ones(consumed.size, np.int64))


def cumulative_outputs(emitted: Moments) -> Steps:
    """How many results have come out over time.

    >>> cumulative_outputs(np.array([3, 7, 3]))
    Steps(times=array([3, 7]), values=array([2, 3]))
    """
    return buffered(emitted, emitted[:0])


def total_window_size(entered: Moments, left: Moments, sizes: Counts) -> Steps:
    """How many bytes all windows hold over time: row n, of ``sizes[n]``, from ``entered[n]`` until ``left[n]``.

    A row that leaves at the moment when another enters makes room for it; one that never leaves does so at infinity.
    The `peak` is the maximum total window size.

    >>> total_window_size(np.array([0, 1, 4]), np.array([4, 9, 9]), np.array([100, 20, 50])).peak
    120
    """
    return _running_total(entered, left, sizes, sizes)


def _running_total(up: Moments, down: Moments, gains: Counts, losses: Counts) -> Steps:
    times, where = np.unique(np.concatenate([up, down]), return_inverse=True)
    changes = np.zeros(times.size, np.int64)
    np.add.at(changes, where, np.concatenate([gains, -losses]))
    return Steps(times, np.cumsum(changes))
