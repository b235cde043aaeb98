"""The measures of a join, on a trace small enough to follow with a finger and on random ones against a loop.

The trace: window 10 s on both sides. Left rows at 0, 4, 12; right rows at 3, 13. A row is taken from its buffer when
the operator is ready for it, and leaves its window 10 s after its time.

    row     time    taken   joins finished at
    l0      0       0       3
    r0      3       3       3, 9         (meets l0 at 3, l1 from disk at 9)
    l1      4       5       9, 15
    l2      12      14      15
    r1      13      15      15, 30       (meets l2 and l1 at 15, its disk part at 30)
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.delays import (
    Steps,
    average_production_delay,
    buffered,
    cumulative_outputs,
    last_finished,
    percent_delayed,
    production_delays,
    total_window_size,
)
from tests.streams import examples

TIMES = np.array([0, 3, 4, 12, 13])
TAKEN = np.array([0, 3, 5, 14, 15])
EMITTED, LEFT, RIGHT = np.array([3, 9, 15, 15]), np.array([0, 4, 12, 4]), np.array([3, 3, 13, 13])
NONE = np.array([], np.int64)

moments = st.lists(st.integers(0, 12), max_size=12)


def test_a_result_is_as_late_as_it_came_out_after_the_later_of_its_rows():
    assert production_delays(EMITTED, LEFT, RIGHT).tolist() == [0, 5, 2, 2]
    assert average_production_delay(EMITTED, LEFT, RIGHT) == 2.25


def test_a_result_of_a_stream_and_a_table_has_the_time_of_its_row():
    assert average_production_delay(np.array([2.5, 4.0]), np.array([2.0, 2.0])) == 1.25


def test_a_row_is_delayed_if_its_last_join_ended_after_its_window():
    joins = np.array([(0, 3), (1, 3), (1, 9), (2, 9), (2, 15), (3, 15), (4, 15), (4, 30)])
    finished = last_finished(joins[:, 0], joins[:, 1], count=5)
    assert finished.tolist() == [3, 9, 15, 15, 30]
    assert percent_delayed(TIMES, finished, window=10) == 40.0
    assert percent_delayed(TIMES, finished, window=np.array([10, 10, 11, 10, 17])) == 0.0, "at the very end is in time"
    assert percent_delayed(TIMES, finished, window=np.array([10, 10, 11, 10, 16])) == 20.0


def test_a_row_that_needs_no_join_is_never_delayed():
    finished = last_finished(NONE, NONE, count=2)
    assert percent_delayed(np.array([0, 5]), finished, window=0) == 0.0


def test_rows_wait_from_their_time_until_they_are_taken():
    waiting = buffered(TIMES, TAKEN)
    assert list(zip(waiting.times.tolist(), waiting.values.tolist(), strict=True)) == [
        (0, 0), (3, 0), (4, 1), (5, 0), (12, 1), (13, 2), (14, 1), (15, 0),
    ]  # fmt: skip
    assert waiting.peak == 2
    assert waiting.at(np.array([-1.0, 4.5, 13.0, 13.9, 99.0])).tolist() == [0, 1, 2, 2, 0]


def test_outputs_add_up():
    assert cumulative_outputs(EMITTED).at(np.array([2, 3, 10, 15])).tolist() == [0, 1, 2, 4]


def test_the_largest_that_all_windows_were_together():
    sizes = np.array([64, 128, 64, 64, 128])
    windows = total_window_size(TIMES, TIMES + 10, sizes)
    assert windows.at(np.array([0, 4, 10, 12, 13, 14, 22])).tolist() == [64, 256, 192, 256, 256, 192, 128]
    assert windows.peak == 256


def test_what_never_leaves_stays_until_the_end_of_time():
    windows = total_window_size(np.array([1.0, 2.0]), np.array([np.inf, 3.0]), np.array([5, 7]))
    assert windows.at(np.array([1e12])).tolist() == [5]


def test_of_nothing_there_is_no_mean_and_a_peak_of_nothing():
    assert math.isnan(average_production_delay(NONE, NONE, NONE))
    assert math.isnan(percent_delayed(NONE, NONE, window=1))
    nothing = buffered(NONE, NONE)
    assert (nothing.peak, nothing.at(np.array([5])).tolist()) == (0, [0])
    assert Steps(NONE, NONE).peak == 0


@given(moments, moments)
@examples(0.05)
def test_waiting_rows_are_counted_as_a_loop_would(arrived, consumed):
    waiting = buffered(np.array(arrived, np.int64), np.array(consumed, np.int64))
    for moment in range(-1, 14):
        expected = sum(t <= moment for t in arrived) - sum(t <= moment for t in consumed)
        assert waiting.at(np.array([moment])).tolist() == [expected]
    assert waiting.times.tolist() == sorted({*arrived, *consumed})


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=12), st.integers(0, 10))
@examples(0.05)
def test_delayed_rows_are_counted_as_a_loop_would(joins, window):
    rows, finished = np.array([row for row, _ in joins], np.int64), np.array([end for _, end in joins], np.int64)
    times = np.arange(6) * 3
    late = [row for row in range(6) if any(end > times[row] + window for of, end in joins if of == row)]
    assert percent_delayed(times, last_finished(rows, finished, 6), window) == pytest.approx(100 * len(late) / 6)
