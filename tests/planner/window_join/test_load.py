"""Loads, declared and measured: rates that follow, sums that forget, records that survive a plan file."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.planner.window_join.load import SMOOTHING, Load, Measured, measure
from tests.streams import examples

LOAD = Load(rows_per_second=(200.0, 50.0), row_bytes=(128.0, 64.0), window_seconds=(1800.0, 600.0))


def epoch(before=None, seconds=1.0, rows=(0, 0), state_rows=(0, 0), state_bytes=(0, 0)):
    return measure(before or Measured(), seconds, rows, state_rows, state_bytes)


def test_state_follows_from_rate_width_and_stay():
    # 200/s · 1,800 s = 360,000 rows of 128 B; 50/s · 600 s = 30,000 of 64 B
    assert LOAD.state_rows == (360_000, 30_000)
    assert LOAD.state_bytes == (46_080_000, 1_920_000)
    assert LOAD.bytes_per_second == (25_600, 3_200)


def test_a_shard_bears_its_part():
    assert LOAD.shared(4) == Load((50.0, 12.5), (128.0, 64.0), (1800.0, 600.0))


@pytest.mark.parametrize("name", ["rows_per_second", "row_bytes", "window_seconds"])
@pytest.mark.parametrize("value", [(-1.0, 1.0), (1.0, math.inf), (math.nan, 1.0)])
def test_a_load_that_cannot_be_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=rf"{name}=.* must be two finite numbers, 0 or more"):
        Load(**{**LOAD.to_json(), name: value})


def test_nothing_is_known_until_stream_time_has_passed():
    assert Measured().load is None
    early = epoch(seconds=0, rows=(100, 0), state_rows=(100, 0), state_bytes=(800, 0))
    assert early.load is None
    # the rows of that epoch count: 0.7 · 0.3 · 100 + 0.3 · 130 rows over 0.3 · 3 s
    later = epoch(early, seconds=3, rows=(130, 0), state_rows=(230, 0), state_bytes=(1840, 0))
    assert later.load.rows_per_second == pytest.approx((60 / 0.9, 0))
    assert later.load.state_rows == pytest.approx((230, 0))
    assert later.load.row_bytes == (8, 0)


def test_steady_epochs_measure_their_rate_and_window():
    measured = Measured()
    for _ in range(5):
        measured = epoch(measured, 2.0, rows=(400, 100), state_rows=(4000, 500), state_bytes=(64_000, 4000))
    assert measured.load.rows_per_second == pytest.approx((200, 50))
    assert measured.load.row_bytes == (16, 8)
    assert measured.load.window_seconds == pytest.approx((20, 10))


def test_a_burst_fades():
    measured = epoch(rows=(100, 0))
    measured = epoch(measured, rows=(1000, 0))
    rates = []
    for _ in range(10):
        measured = epoch(measured, rows=(100, 0))
        rates.append(measured.load.rows_per_second[0])
    assert rates == sorted(rates, reverse=True)
    # after ten calm epochs 0.7¹⁰ of the burst's weight is left
    weight = SMOOTHING * (1 - SMOOTHING) ** 10
    total = 1 - (1 - SMOOTHING) ** 12
    assert rates[-1] == pytest.approx(100 + 900 * weight / total)


def test_an_emptied_state_remembers_how_wide_rows_were():
    measured = epoch(rows=(10, 10), state_rows=(10, 10), state_bytes=(80, 160))
    assert epoch(measured).load.row_bytes == (8, 16)


def test_state_that_came_before_the_measuring_counts_in_full():
    load = epoch(seconds=2, state_rows=(5000, 0), state_bytes=(40_000, 0)).load
    assert load.state_rows == pytest.approx((5000, 0))
    assert load.rows_per_second[0] <= 1 / (2 * SMOOTHING)


def test_time_does_not_run_backwards():
    with pytest.raises(ConfigError, match=r"seconds=-1 of stream time must be 0 or more"):
        epoch(seconds=-1)


counts = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))


@given(st.lists(st.tuples(st.floats(0, 100), counts, counts), max_size=6))
@examples(0.1)
def test_what_is_measured_survives_a_plan_file_and_never_misstates_the_state(epochs):
    measured = Measured()
    for seconds, rows, held in epochs:
        measured = measure(measured, seconds, rows, held, (8 * held[0], 16 * held[1]))
    assert Measured.from_json(json.loads(json.dumps(measured.to_json()))) == measured
    load = measured.load
    if load is not None:
        assert load.state_rows == pytest.approx(epochs[-1][2])
        assert Load.from_json(json.loads(json.dumps(load.to_json()))) == load
