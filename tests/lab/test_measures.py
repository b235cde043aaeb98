"""Measures of recordings that were written by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lab.measures import PATHS, TOTALS, measure
from lab.setups import Setup, Workload
from lab.simulation import Progress, Recording, Results
from penstock.operators.window_join.methods import Ewj

SETUP = Setup(
    Workload(rate=1, span=100, warm_up=10), window=20, method=Ewj(memory=1 << 20, page=4096, row=2**20, chunk=4096)
)


def recording() -> Recording:
    """Two rows a port; (0, 0) comes out a second late, (1, 1) 5 s, which is 3 s after the window of its left row."""
    return Recording(
        arrived=(np.array([5.0, 20.0]), np.array([5.0, 38.0])),
        taken=(np.array([5.0, 20.0]), np.array([6.0, 40.0])),
        progress=Progress(
            np.array([6.0, 20.0, 43.0, 120.0]),
            np.array([5.0, 20.0, 40.0, np.inf]),
            np.array([1.0, 2.0, 4.0, 4.0]),
            np.array([0.0, 0.0, 1.0, 11.0]),
        ),
        results=Results(
            np.array([6.0, 43.0]),
            (np.array([5.0, 20.0]), np.array([5.0, 38.0])),
            (np.array([0, 1]), np.array([0, 1])),
        ),
    )


def test_delays_are_counted_from_the_warm_up_on():
    totals = measure(recording(), SETUP, scale=1).totals
    assert totals["delay"] == pytest.approx(5)
    assert totals["delayed"] == pytest.approx(50)


def test_a_row_without_results_is_in_time():
    some = recording()
    late = Results(np.array([43.0]), (np.array([20.0]), np.array([38.0])), (np.array([1]), np.array([1])))
    more = some._replace(arrived=(np.array([5.0, 20.0, 30.0, 31.0]), some.arrived[1]), results=late)
    more = more._replace(taken=(np.array([5.0, 20.0, 30.0, 31.0]), some.taken[1]))
    assert measure(more, SETUP, scale=1).totals["delayed"] == 25


def test_nothing_came_out():
    empty = Results(np.zeros(0), (np.zeros(0), np.zeros(0)), (np.zeros(0, int), np.zeros(0, int)))
    totals = measure(recording()._replace(results=empty), SETUP, scale=1).totals
    assert math.isnan(totals["delay"])
    assert totals["delayed"] == 0


def test_work_is_that_between_warm_up_and_the_end_of_the_traces():
    """CPU 1 at 6 s, 2 at 20 s, so 1 + 4/14 at 10 s, 4 in the end; disk 1 at 43 s and 11 at 120 s."""
    totals = measure(recording(), SETUP, scale=1).totals
    assert totals["cpu"] == pytest.approx(4 - 1 - 4 / 14)
    assert totals["disk"] == pytest.approx(1 + 10 * (100 - 43) / 77)
    assert totals["total"] == pytest.approx(totals["cpu"] + totals["disk"])


def test_a_row_is_in_its_window_from_when_it_is_taken_until_a_window_later_is_processed():
    """The rows of 5 s leave at 43 s, when 40 s was processed; by then all four are there. A row is a megabyte."""
    assert measure(recording(), SETUP, scale=1).totals["window"] == 4


def test_counts_and_bytes_are_scaled_back():
    full, half = measure(recording(), SETUP, scale=1), measure(recording(), SETUP, scale=0.5)
    for name in ("window", "peak"):
        assert half.totals[name] == 2 * full.totals[name]
    for name in ("delay", "delayed", "cpu", "disk"):
        assert half.totals[name] == full.totals[name]
    for path in PATHS:
        assert half.paths[path.name].tolist() == (2 * full.paths[path.name]).tolist()


def test_paths_go_to_the_end_of_the_traces():
    point = measure(recording(), SETUP, scale=1)
    assert (point.times[0], point.times[-1]) == (0, 100)
    assert point.paths["processed"][-1] == 4
    assert point.paths["outputs"][-1] == 2
    assert point.paths["buffered"][-1] == 0
    assert point.paths["buffered"].max() == 1
    assert set(point.totals) == {total.name for total in TOTALS}
