"""The windows that a late row missed: against `extent`, against what comes out where the row is in time."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.core.errors import ConfigError
from penstock.core.time import TIME_MAX, TIME_MIN, as_times
from penstock.core.windows import Sliding
from penstock.kernels.missed import missed

NEVER = 10**6
"""A time that makes every row after it late."""

sizes = st.one_of(st.integers(1, 12), st.integers(1, 2**62))
origins = st.one_of(st.integers(-12, 12), st.integers(-(2**62), 2**62))
times = st.one_of(
    st.none(),
    st.integers(-40, 40),
    st.integers(TIME_MIN + 1, TIME_MIN + 40),
    st.integers(TIME_MAX - 40, TIME_MAX - 1),
    st.integers(TIME_MIN + 1, TIME_MAX - 1),
)


def by_definition(window: Sliding, time: int | None) -> tuple[int | None, int | None]:
    """The edges of the windows whose extent holds the row, looked for around its own."""
    if time is None:
        return None, None
    slides = window.on("ticks")
    middle = (time - slides.origin) // slides.slide
    last = middle + slides.range // slides.slide
    near = {*range(middle - 2, middle + 3), *range(last - 2, last + 3)}
    held = [extent for wid in near for extent in [slides.extent(wid)] if extent[0] <= time < extent[1]]
    start = min((start for start, _ in held), default=TIME_MIN)
    end = max((end for _, end in held), default=TIME_MAX)
    return (start if start > TIME_MIN else None), (end if end < TIME_MAX else None)


@given(sizes, sizes, origins, st.lists(times, max_size=6))
def test_missed_windows_are_those_whose_extent_holds_the_row_to_the_ends_of_the_axis(range_, slide, origin, given_):
    window = pk.sliding(range_, slide, origin=origin)
    first, last = missed(window.on("ticks"), pa.array(given_, pa.int64()), pa.int64())
    assert list(zip(first.to_pylist(), last.to_pylist(), strict=True)) == [by_definition(window, t) for t in given_]


KINDS = {
    "tumbling": pk.sliding(5),
    "sliding": pk.sliding(7, 3, origin=2),
    "sparse": pk.sliding(2, 5),
    "session": pk.session(3),
    "rows by time": pk.rows(7, 3, order="t"),
    "landmark": pk.landmark(4),
    "each row": pk.slide_by_tuple(4),
    "rows": pk.rows(3, 2),
    "partitions": pk.rows(3, 2, partition="k", order="t"),
}
SAID_BY_TIME = ("tumbling", "sliding", "sparse", "session", "rows by time")


def rows(*given_: int | None) -> pa.Table:
    return pa.table({"k": ["a"] * len(given_), "t": pa.array(given_, pa.int64())})


def counted(stream: pk.Stream, kind: str) -> pk.Stream:
    return stream.window(KINDS[kind]).by("k").agg(n=pk.count())


def windows_in_time(kind: str, time: int) -> tuple[int | None, int | None]:
    flow = pk.LocalFlow()
    out = counted(flow.source(rows(time), time="t"), kind).to_memory()
    flow.run()
    found = out.table()
    starts, ends = found.column("window_start").to_pylist(), found.column("window_end").to_pylist()
    return min(starts, default=None), max(ends, default=None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_late_row_missed_the_windows_that_it_makes_alone_where_it_is_in_time(kind):
    flow = pk.LocalFlow()
    stream = flow.source([rows(NEVER), rows(*range(-9, 9), None)], time="t", progress=pk.ordered())
    late = counted(stream, kind).late.to_memory()
    flow.run()
    found = late.table().select(["t", "missed_from", "missed_until"]).to_pylist()
    assert len(found) == 19
    for row in found:
        told = row["t"] is not None and kind in SAID_BY_TIME
        expected = windows_in_time(kind, row["t"]) if told else (None, None)
        assert (row["missed_from"], row["missed_until"]) == expected


def late_of(build, **tables: list[pa.Table]) -> list[dict]:
    flow = pk.LocalFlow()
    streams = [flow.source(t, time="t", progress=pk.ordered(), name=name) for name, t in tables.items()]
    late = build(*streams).late.to_memory()
    assert late.table().schema.names[-2:] == ["missed_from", "missed_until"]
    flow.run()
    return [row for row in late.table().to_pylist() if row["late_reason"] == "late"]


def edges(found: list[dict]) -> dict[str, tuple[int | None, int | None]]:
    return {row["late_source"]: (row["missed_from"], row["missed_until"]) for row in found}


LATE = [rows(NEVER), rows(7)]


def test_missed_windows_are_told_through_select_where_and_union():
    def build(a, b):
        return counted(
            a.where("k = 'a'").select("k", "t AS elsewhere").union(b.select("k", "t AS elsewhere")), "tumbling"
        )

    assert edges(late_of(build, a=LATE, b=LATE)) == {"a": (5, 10), "b": (5, 10)}


def test_what_is_done_with_results_does_not_hide_what_late_rows_missed():
    def build(a):
        return counted(a, "tumbling").where("n > 1").select("n")

    assert edges(late_of(build, a=LATE)) == {"a": (5, 10)}


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("left", {"a": (5, 10), "b": (None, None)}),
        ("right", {"a": (None, None), "b": (5, 10)}),
        ("latest", {"a": (None, None), "b": (None, None)}),
    ],
)
def test_behind_a_join_they_are_told_of_the_rows_whose_time_the_windows_go_by(time, expected):
    def build(a, b):
        return counted(a.join(b, on="k", within=pk.band(5, 5), time=time), "tumbling")

    assert edges(late_of(build, a=LATE, b=LATE)) == expected


def test_a_row_that_is_on_both_sides_of_a_join_does_not_say_which_windows_it_missed():
    def build(a):
        return counted(a.join(a.select("*"), on="k", within=pk.band(5, 5)), "tumbling")

    assert edges(late_of(build, a=LATE)) == {"a": (None, None)}


def test_behind_other_windows_they_are_not_told():
    def build(a):
        return counted(a, "tumbling").window(range=10).agg(most=pk.max("n"))

    assert edges(late_of(build, a=LATE)) == {"a": (None, None)}


@pytest.mark.parametrize(
    ("kind", "window", "late", "expected"),
    [
        (pa.timestamp("us", "UTC"), pk.sliding("1 min"), -90_000_000, (-120_000_000, -60_000_000)),
        (pa.timestamp("s"), pk.sliding("1 min"), 90, (60_000_000, 120_000_000)),
        (pa.date32(), pk.sliding("3 days"), 5, (3, 6)),
        (pa.date32(), pk.sliding("3 days"), 1 - 2**30, (-(2**30) + 1, -(2**30) + 4)),
        (pa.int8(), pk.sliding(10), 121, (120, 130)),
        (pa.int64(), pk.sliding(10), TIME_MIN + 1, (None, None)),
    ],
)
def test_edges_are_of_the_type_of_window_ends_and_null_where_the_time_is_out_of_range(kind, window, late, expected):
    storage = pa.int32() if pa.types.is_date(kind) else pa.int64()
    epochs = [pa.table({"t": pa.array([time], storage).cast(kind)}) for time in (125, late)]
    flow = pk.LocalFlow()
    stream = flow.source(epochs, time="t", progress=pk.ordered())
    out = stream.window(window).agg(n=pk.count()).late.to_memory()
    flow.run()
    edges = [out.table().column(name) for name in ("missed_from", "missed_until")]
    shown = pa.int64() if kind == pa.int8() else kind
    assert [edge.type for edge in edges] == [shown, shown]
    assert tuple(as_times(edge)[0].as_py() for edge in edges) == expected


def test_a_source_may_not_have_a_column_that_the_late_outlet_calls_its_own():
    flow = pk.LocalFlow()
    stream = flow.source(pa.table({"t": [1], "missed_from": [2]}), time="t")
    assert stream.late.to_memory().table().num_rows == 0
    with pytest.raises(
        ConfigError, match=r"Column 'missed_from' of a source has the name of a column that \.late adds"
    ):
        _ = stream.window(range=10).agg(n=pk.count()).late
