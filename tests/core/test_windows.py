"""Windows: spellings, refusals, and `wids` against `extent` up to the ends of int64 (F03–F07, F09)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.durations import Duration
from penstock.core.errors import DurationError, WindowError
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.core.windows import (
    Landmarks,
    PartitionedWindow,
    Sessions,
    SlideByTuple,
    Slides,
    TupleSlides,
    TupleWindow,
    landmark,
    session,
    slide_by_tuple,
    sliding,
)
from tests.streams import examples

FIRST, LAST = TIME_MIN + 1, TIME_MAX - 1
moments = st.one_of(st.integers(-40, 40), st.integers(FIRST, FIRST + 40), st.integers(LAST - 40, LAST))
anywhere = st.one_of(moments, st.integers(FIRST, LAST))
sizes = st.one_of(st.integers(1, 12), st.integers(1, 2**62))
origins = st.one_of(st.integers(-12, 12), st.integers(-(2**62), 2**62))


def at(times: int | list[int]) -> np.ndarray:
    return np.array([times] if isinstance(times, int) else times, np.int64)


def holds(windows, wid: int, time: int) -> bool:
    """By definition."""
    start, end = windows.extent(wid)
    return start <= time < end


def in_wids(windows, wid: int, time: int) -> bool:
    first, after = windows.wids(at(time))
    return int(first[0]) <= wid < int(after[0])


@given(sizes, sizes, origins, anywhere, st.integers(-3, 3))
@examples(0.4)
def test_f03_a_row_is_in_the_extent_of_exactly_its_wids_to_the_ends_of_the_axis(range_, slide, origin, time, off):
    windows = Slides(range_, slide, origin)
    middle = (time - origin) // slide
    for wid in (middle + off, middle + range_ // slide + off):
        if TIME_MIN < wid < TIME_MAX:
            assert in_wids(windows, wid, time) == holds(windows, wid, time)


def ceil_wids(windows: Slides, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eq 5.3 as printed."""
    into = times - windows.origin
    return -(-into // windows.slide), -(-(into + windows.range) // windows.slide)


def test_f03_floors_agree_with_the_extent_and_the_printed_ceilings_do_not():
    rng = np.random.default_rng(1)
    wrong = {"floor": 0, "ceil": 0}
    for _ in range(10_000):
        windows = Slides(*(int(n) for n in rng.integers(1, 20, 2)), origin=int(rng.integers(-9, 9)))
        time = int(rng.integers(-50, 50))
        truth = {w for w in range(-80, 80) if holds(windows, w, time)}
        for name, (first, after) in {"floor": windows.wids(at(time)), "ceil": ceil_wids(windows, at(time))}.items():
            wrong[name] += set(range(int(first[0]), int(after[0]))) != truth
    assert wrong["floor"] == 0
    assert wrong["ceil"] > 5_000


def test_the_worked_example_of_the_text():
    ten = sliding("10 min", "1 min", origin="12 h").on("microseconds")
    minute, noon = 60_000_000, 12 * 3_600_000_000
    assert [e.tolist() for e in ten.wids(at(noon + 5_000_000))] == [[0], [10]]
    assert [e.tolist() for e in ten.wids(at(noon + 10 * minute))] == [[10], [20]]
    assert ten.complete(noon + 11 * minute) == 11, "12:11 closes window 10 and nothing after it"


@given(sizes, sizes, origins, anywhere)
@examples(0.2)
def test_a_window_is_complete_once_no_later_row_can_enter_it(range_, slide, origin, bound):
    windows = Slides(range_, slide, origin)
    open_ = windows.complete(bound)
    assert windows.extent(open_ - 1)[1] <= bound < windows.extent(open_)[1]


def test_every_window_is_complete_at_the_end_and_none_before_the_beginning():
    for windows in (Slides(10, 3), Landmarks(3)):
        assert windows.complete(TIME_MAX) == TIME_MAX
        assert windows.complete(TIME_MIN) == TIME_MIN


@given(sizes, sizes, origins, anywhere)
@examples(0.2)
def test_starts_and_ends_are_those_of_the_extent_kept_on_the_axis(range_, slide, origin, time):
    windows = Slides(range_, slide, origin)
    wid = max(TIME_MIN, min(TIME_MAX, (time - origin) // slide))
    start, end = (max(TIME_MIN, min(TIME_MAX, edge)) for edge in windows.extent(wid))
    assert (windows.starts(at(wid))[0], windows.ends(at(wid))[0]) == (start, end)


@given(st.lists(st.integers(-30, 30), max_size=6), st.integers(1, 9), st.integers(1, 9), st.integers(-3, 3))
@examples(0.1)
def test_windows_are_those_that_hold_a_row(times, range_, slide, origin):
    windows = Slides(range_, slide, origin)
    assert windows.windows(at(times)).tolist() == [
        w for w in range(-60, 60) if any(holds(windows, w, time) for time in times)
    ]


@given(st.integers(1, 12), st.integers(-12, 12), anywhere)
@examples(0.1)
def test_f06_a_landmark_window_holds_everything_before_its_end(slide, origin, time):
    windows = Landmarks(slide, origin)
    first = int(windows.wids(at(time))[0][0])
    if TIME_MIN < first < TIME_MAX:
        assert holds(windows, first, time)
        assert not holds(windows, first - 1, time)
    assert windows.wids(at(time))[1][0] == TIME_MAX


@given(st.integers(1, 9), st.integers(-20, 20), st.integers(-20, 20))
@examples(0.1)
def test_f07_a_slide_by_tuple_window_is_open_closed(range_, wid, time):
    windows = TupleSlides(range_)
    assert holds(windows, wid, time) == (wid - range_ < time <= wid)
    assert in_wids(windows, wid, time) == holds(windows, wid, time)


def test_f07_which_rows_slide_the_window():
    times = at([5, 1, 5, 3])
    assert TupleSlides(9).windows(times).tolist() == [1, 3, 5]
    assert TupleSlides(9, 2, "row-num").windows(times).tolist() == [1, 3]
    assert TupleSlides(9, 2, "rank").windows(times).tolist() == [3, 5]


def test_sessions_merge_rows_that_are_at_most_a_gap_apart():
    assert Sessions(5).windows(at([11, 0, 5, 17, 11])).tolist() == [0, 11, 17]
    assert Sessions(6).windows(at([11, 0, 5, 17])).tolist() == [0]


def test_f04_f05_rows_count_from_zero_on_their_own_axis():
    assert TupleWindow(10, 2).on("microseconds") == Slides(10, 2, 0)
    assert PartitionedWindow(10, 2, ("k",)).on("days") == Slides(10, 2, 0)


def test_units_are_those_of_the_time_column():
    assert sliding("2 days", "1 day").on("days") == Slides(2, 1, 0)
    assert landmark("1 s").on("microseconds") == Landmarks(1_000_000, 0)
    with pytest.raises(DurationError, match="range=10 min is real time"):
        sliding("10 min").on("ticks")
    with pytest.raises(DurationError, match="slide=1 h is not a whole number of days"):
        sliding("1 day", "1 h").on("days")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: sliding(0), r"range=0 is not positive.*Write a positive length"),
        (lambda: sliding("1 h", "-1 s"), r"slide=-1 s is not positive"),
        (lambda: sliding("1 h", 5), r"range=1 h and slide=5 differ in kind.*Write both"),
        (lambda: TupleWindow(0, 1), r"range=0 is not a number of rows. Write a whole number"),
        (lambda: TupleWindow(5, True), r"slide=True is not a number of rows"),
        (lambda: TupleWindow(2**62 + 1, 1), r"range=4611686018427387905 is more rows than can be numbered\. Write 2"),
        (
            lambda: PartitionedWindow(5, 1, ()),
            r"partition=\(\) must be a tuple of column names.*partition=\('device',\)",
        ),
        (lambda: landmark(0), r"slide=0 is not positive"),
        (lambda: session("0 s"), r"gap=0 s is not positive"),
        (lambda: slide_by_tuple("1 s", every=0), r"every=0 is not a number of rows"),
        (lambda: SlideByTuple(Duration.of(5), every=5), r"every=5 needs an order.*by='rank'"),
        (lambda: slide_by_tuple(5, by="time"), r"by='time' is not a way to slide by tuple"),
        (lambda: slide_by_tuple(5, 2, "rank", "n"), r"row_num='n' needs by='row-num', but by='rank'"),
    ],
)
def test_what_cannot_be_a_window_says_so(build, message):
    with pytest.raises(WindowError, match=message):
        build()


def test_windows_are_written_as_they_are_read():
    assert str(sliding(10, 2, origin=3)) == "sliding(range=10, slide=2, origin=3)"
    assert str(TupleWindow(10, 2, "n")) == "rows(range=10, slide=2, order='n')"
    assert str(PartitionedWindow(10, 2, ("k",), "t")) == "rows(range=10, slide=2, partition=['k'], order='t')"
    assert str(landmark(5, origin=1)) == "landmark(slide=5, origin=1)"
    assert str(slide_by_tuple(5)) == "slide_by_tuple(range=5)"
