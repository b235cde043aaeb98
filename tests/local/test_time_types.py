"""Every type that a time column may have, with every kind of window and join: exact, or refused while it is built."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.core.durations import Duration
from penstock.core.errors import ConfigError, DurationError
from penstock.core.time import as_times, from_times, time_unit
from tests.aggregates import expected, row
from tests.streams import examples

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()]
DATES = [pa.date32(), pa.date64()]
STAMPS = [pa.timestamp(unit, zone) for unit in ("s", "ms", "us") for zone in (None, "UTC", "Europe/Berlin")]
TYPES = [*INTEGERS, *DATES, *STAMPS]
STEP = {"s": 1_000_000, "ms": 1_000, "us": 1}
METHODS = ["auto", "oa", "ewj", "ah_ewj", "rpwj", pk.Ewj(memory=4, page=2, row=1), pk.AhEwj(), pk.Rpwj()]


def step_of(kind: pa.DataType) -> int:
    """What one step of a column is on the axis that operators see."""
    return STEP[kind.unit] if pa.types.is_timestamp(kind) else 1


def length(kind: pa.DataType, steps: int, finer: bool = False) -> Any:
    """So many steps of a column as a user writes them; `finer`, and half a step where the axis has it."""
    unit = time_unit(pa.schema({"t": kind}), "t")
    if unit == "ticks":
        return steps
    return f"{steps} d" if unit == "days" else f"{on_axis_of(kind, steps, finer)} us"


def on_axis_of(kind: pa.DataType, steps: int, finer: bool) -> int:
    """The same on the axis."""
    return steps * step_of(kind) + (step_of(kind) // 2 if finer else 0)


def table(kind: pa.DataType, rows: list[tuple[int, int]]) -> pa.Table:
    """Rows of a key and a time in steps of the column."""
    times = pa.array([time * step_of(kind) for _, time in rows], pa.int64())
    return pa.table({"k": pa.array([key for key, _ in rows], pa.int64()), "t": from_times(times, kind)})


def on_axis(column: Any) -> list[int | None]:
    return as_times(column).to_pylist()  # type: ignore[no-any-return]


WINDOWS = {
    "tumbling": lambda size: pk.sliding(size(4)),
    "sliding": lambda size: pk.sliding(size(5), size(2)),
    "gaps": lambda size: pk.sliding(size(1), size(3), size(1)),
    "session": lambda size: pk.session(size(2)),
    "landmark": lambda size: pk.landmark(size(3)),
    "rows": lambda size: pk.rows(3, 2),
    "partitioned": lambda size: pk.rows(3, partition="k"),
    "by tuple": lambda size: pk.slide_by_tuple(size(3)),
    "by rank": lambda size: pk.slide_by_tuple(size(3), every=2, by="rank"),
}


@st.composite
def streams(draw: st.DrawFn, kind: pa.DataType) -> list[tuple[int, int]]:
    low = 0 if "uint" in str(kind) else -5
    edge = draw(st.sampled_from([0, 0, 120 if kind == pa.int8() else 0]))
    times = st.integers(low, 7).map(lambda time: time + edge)
    return draw(st.lists(st.tuples(st.integers(1, 2), times), min_size=1, max_size=8))


@given(st.data(), st.sampled_from(TYPES), st.sampled_from(sorted(WINDOWS)), st.booleans())
@examples(0.5)
def test_windows_over_any_time_column_equal_their_definition(data, kind, name, finer):
    rows = data.draw(streams(kind))
    window = WINDOWS[name](lambda steps: length(kind, steps, finer))
    flow = pk.LocalFlow()
    source = flow.source(table(kind, rows), time="t", name="s").window(window).by("k")
    out = source.agg(n=pk.count(), last=pk.max("t")).to_memory()
    flow.run()
    found = out.table()
    ends = [column if name in ("rows", "partitioned") else pa.array(on_axis(column)) for column in found.columns[1:3]]
    got = zip(
        found.column("k").to_pylist(), *(end.to_pylist() for end in ends), found.column("n").to_pylist(), strict=True
    )
    assert Counter(zip(got, on_axis(found.column("last")), strict=True)) == Counter(
        ((key, start, end, n), last) for key, start, end, n, last in by_definition(kind, window, rows).elements()
    )


def by_definition(kind: pa.DataType, window: Any, rows: list[tuple[int, int]]) -> Counter[tuple]:
    """What the windows hold, on the axis."""
    unit = time_unit(pa.schema({"t": kind}), "t")
    steps = {
        field: Duration(value.on(unit), "ticks")
        for field in type(window).__dataclass_fields__
        if isinstance(value := getattr(window, field), Duration)
    }
    ticking = type(window)(**{f: steps.get(f, getattr(window, f)) for f in type(window).__dataclass_fields__})
    given = [row(time * step_of(kind), k=key) for key, time in rows]
    return expected(ticking, given, ("k",), ("rows.x", "max.t"))


@given(st.data(), st.sampled_from(TYPES), st.sampled_from(METHODS), st.sampled_from(["inner", "left", "full", "anti"]))
@examples(0.5)
def test_joins_over_any_time_column_equal_their_definition(data, kind, method, how):
    sides = [data.draw(streams(kind)) for _ in range(2)]
    before, after = data.draw(st.integers(-1, 3)), data.draw(st.integers(1, 3))
    finer = data.draw(st.booleans())
    flow = pk.LocalFlow(shards=data.draw(st.integers(1, 2)))
    streams_ = [
        flow.source([table(kind, rows[:3]), table(kind, rows[3:])], time="t", name=name)
        for name, rows in zip("lr", sides, strict=True)
    ]
    within = pk.band(before=length(kind, before, finer), after=length(kind, after, finer))
    out = streams_[0].join(streams_[1], on="k", within=within, how=how, method=method).to_memory()
    flow.run()
    scale = step_of(kind)
    reach = (-on_axis_of(kind, before, finer), on_axis_of(kind, after, finer))
    left, right = ([(key, time * scale) for key, time in rows] for rows in sides)
    pairs = [(a, b) for a in left for b in right if a[0] == b[0] and reach[0] <= b[1] - a[1] <= reach[1]]
    wanted: list[tuple] = [] if how == "anti" else [(*a, b[1]) for a, b in pairs]
    if how != "inner":
        alone = list((Counter(left) - Counter({a: left.count(a) for a, _ in pairs})).elements())
        wanted += alone if how == "anti" else [(*a, None) for a in alone]
    if how == "full":
        met = {b for _, b in pairs}
        wanted += [(b[0], None, b[1]) for b in right if b not in met]
    shown = [out.table().column("k").to_pylist(), on_axis(out.table().column("t"))]
    if how != "anti":
        shown.append(on_axis(out.table().column("t_right")))
    assert Counter(zip(*shown, strict=True)) == Counter(wanted)


@pytest.mark.parametrize("method", ["ewj", "ah_ewj", "rpwj"])
@pytest.mark.parametrize("kind", DATES, ids=str)
def test_dates_join_by_every_method_that_spills(method, kind):
    flow = pk.LocalFlow()
    left, right = (flow.source(table(kind, [(1, 3)]), time="t", name=name) for name in "lr")
    out = left.join(right, on="k", within=pk.band("1 d", "1 d"), method=method).to_memory()
    flow.run()
    assert out.table().num_rows == 1


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            pk.Ewj(idle_gap="15 s"),
            r"idle_gap=15 s is not a whole number of days, but the time column is a date\. Write whole",
        ),
        (pk.Rpwj(slide="1 h"), r"slide=1 h is not a whole number of days"),
        (pk.AhEwj(count_epoch=5), r"count_epoch=5 has no unit\. The time column counts days"),
        (pk.Ewj(idle_gap="-1 d"), r"idle_gap='-1 d' is negative\. Write 0 or more\."),
    ],
)
def test_a_methods_lengths_of_time_are_checked_while_the_flow_is_built(method, message):
    flow = pk.LocalFlow()
    left, right = (flow.source(table(pa.date32(), [(1, 3)]), time="t", name=name) for name in "lr")
    with pytest.raises(ConfigError, match=message):
        left.join(right, on="k", within=pk.band("1 d", "1 d"), method=method)


@pytest.mark.parametrize(
    ("kind", "window", "shown"),
    [
        (pa.timestamp("ms"), pk.sliding("1 s"), pa.timestamp("ms")),
        (pa.timestamp("ms", "UTC"), pk.sliding("1500 us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("s"), pk.sliding("2 s", "500 ms"), pa.timestamp("us")),
        (pa.timestamp("s"), pk.sliding("2 s", origin="1 ms"), pa.timestamp("us")),
        (pa.timestamp("s"), pk.session("1 ms"), pa.timestamp("us")),
        (pa.timestamp("s"), pk.slide_by_tuple("1 s"), pa.timestamp("us")),
        (pa.timestamp("us"), pk.slide_by_tuple("1 s"), pa.timestamp("us")),
        (pa.date32(), pk.slide_by_tuple("1 d"), pa.date32()),
        (pa.int8(), pk.sliding(10), pa.int64()),
    ],
)
def test_window_ends_are_of_a_type_that_can_hold_them(kind, window, shown):
    flow = pk.LocalFlow()
    out = flow.source(table(kind, [(1, 126 if kind == pa.int8() else 5)]), time="t").window(window).agg(n=pk.count())
    assert out.columns.field("window_end").type == shown
    rows = out.to_memory()
    flow.run()
    assert rows.table().schema == out.columns
    assert rows.table().num_rows > 0


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.uint64(), pa.float64(), pa.time64("us")]
)
def test_times_that_cannot_be_compared_exactly_are_refused(kind):
    flow = pk.LocalFlow()
    with pytest.raises(
        ConfigError, match=r"time='t' is of type .* event time must be a timestamp \(microseconds at the fin"
    ):
        flow.source(pa.table({"t": pa.array([], kind)}), time="t")


def test_a_window_finer_than_a_day_over_dates_is_refused():
    flow = pk.LocalFlow()
    with pytest.raises(DurationError, match=r"range=1 h is not a whole number of days, but the time column is a date"):
        flow.source(table(pa.date32(), [(1, 1)]), time="t").window(range="1 h").agg(n=pk.count())


def test_seconds_too_far_away_for_microseconds_are_out_of_range():
    flow = pk.LocalFlow()
    source = flow.source(pa.table({"t": pa.array([5, 10**14, -(10**14)], pa.timestamp("s"))}), time="t", name="s")
    rows, late = source.to_memory(), source.late.to_memory()
    flow.run()
    assert rows.table().num_rows == 1
    assert late.table().column("late_reason").to_pylist() == ["out-of-range", "out-of-range"]


FAR = {
    "least and largest long": (pa.int64(), [2**62 - 1, 1 - 2**62], [2**62, -(2**62), 2**63 - 2, 2**63 - 1, -(2**63)]),
    "dates": (pa.date32(), [2**30 - 1, 1 - 2**30], [2**30, 2**31 - 1, -(2**31)]),
    "milliseconds": (pa.timestamp("ms"), [2**62 // 1000], [2**62 // 1000 + 1, (2**63 - 1) // 1000, 2**63 - 1]),
}


@pytest.mark.parametrize("name", FAR)
@pytest.mark.parametrize("window", ["tumbling", "sliding", "session", "by tuple"])
def test_a_time_out_of_range_is_late_and_all_other_windows_hold_their_rows(name, window):
    kind, near, far = FAR[name]
    width = pa.int32() if pa.types.is_date(kind) else pa.int64()
    rows = pa.table({"k": [1] * len(near + far), "t": pa.array(near + far, width).cast(kind)})
    flow = pk.LocalFlow()
    source = flow.source(rows, time="t")
    counts = source.window(WINDOWS[window](lambda steps: length(kind, steps))).agg(last=pk.max("t"), first=pk.min("t"))
    out, late = counts.to_memory(), counts.late.to_memory()
    report = flow.run().progress()
    assert late.table().column("late_reason").to_pylist() == ["out-of-range"] * len(far)
    assert late.table().column("t").combine_chunks().equals(rows.column("t").combine_chunks()[len(near) :])
    assert late.table().column("missed_from").null_count == len(far)
    assert sum(report.epochs[0].no_time.values()) == len(far)
    starts, ends, last, first = (
        on_axis(out.table().column(n)) for n in ("window_start", "window_end", "last", "first")
    )
    assert {*last} | {*first} >= {*on_axis(rows.column("t").slice(0, len(near)))}
    assert all(a <= x and y < b for a, b, x, y in zip(starts, ends, first, last, strict=True))


def test_a_time_out_of_range_moves_no_bound():
    flow = pk.LocalFlow()
    source = flow.source(
        [table(pa.int64(), [(1, 2**62), (1, 3)]), table(pa.int64(), [(1, 3)])], time="t", progress=pk.ordered()
    )
    rows = source.to_memory()
    flow.run()
    assert rows.table().column("t").to_pylist() == [3, 3]


LONGEST = {
    "sliding": lambda n: {"range": n},
    "landmark": lambda n: {"window": pk.landmark(n)},
    "session": lambda n: {"window": pk.session(n)},
    "by tuple": lambda n: {"window": pk.slide_by_tuple(n)},
}


@pytest.mark.parametrize("first", LONGEST)
@pytest.mark.parametrize("second", LONGEST)
def test_windows_over_windows_have_ends_that_fit_or_are_refused(first, second):
    flow = pk.LocalFlow()
    ticks = flow.source(pa.table({"t": [1 - 2**62, 0, 2**62 - 1]}), time="t")
    once = ticks.window(**LONGEST[first](2**61)).agg(n=pk.count())
    for length in (2**61 + 1, 2**62):
        with pytest.raises(pk.ConfigError, match=rf"{length} steps long, over windows of {2**61}: together more than"):
            once.where("n > 0").window(**LONGEST[second](length)).agg(n=pk.count())
    out = once.window(**LONGEST[second](2**61)).agg(n=pk.sum("n")).to_memory()
    flow.run()
    rows = out.table().to_pylist()
    assert all((row["window_start"] or -(2**63)) < row["window_end"] <= 2**63 - 1 for row in rows)
    assert max(row["window_end"] for row in rows) >= 2**62


def test_windows_of_dates_over_one_another_are_refused_where_their_ends_would_not_fit():
    flow = pk.LocalFlow()
    stream = flow.source(pa.table({"t": pa.array([0], pa.date32())}), time="t")
    for _ in range(21):
        stream = stream.window(range="50000000 days").agg(n=pk.count())
    with pytest.raises(pk.ConfigError, match="together more than 1073741824, so that the ends of windows may not fit"):
        stream.window(range="50000000 days").agg(n=pk.count())
