"""Sources that speak of one group at a time, through whole flows: what closes when, what is late, what is refused."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.core.errors import ConfigError
from tests.streams import examples

COLUMNS = pa.schema({"sensor": pa.string(), "t": pa.int64(), "x": pa.int64(), "done": pa.int64(), "all": pa.int64()})

BY_SENSOR = pk.punctuated("done", by="sensor")


def readings(*rows) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=False)) for row in rows], schema=COLUMNS)


FIRST = readings(("a", 1, 1), ("b", 2, 1), ("a", 12, 1, 10))
SECOND = readings(("a", 5, 2), ("b", 6, 2), ("a", 13, 2))


def per_epoch(epochs, progress=BY_SENSOR, build=None, shards=1, **options):
    """What comes out of tumbling windows of 10 by sensor, epoch by epoch, and the query."""
    flow = pk.LocalFlow(shards=shards)
    source = flow.source(epochs, time="t", progress=progress, name="s")
    stream = source if build is None else build(source)
    rows = stream.window(range=10).by("sensor").agg(n=pk.count(), **options).to_memory()
    query = flow.run()
    tables = [rows.sink.epochs[epoch] for epoch in sorted(rows.sink.epochs)]
    return [{(r["sensor"], r["window_end"]): r["n"] for r in table.to_pylist()} for table in tables], query


def test_a_group_closes_earlier_than_by_the_bound_of_all():
    ours, _ = per_epoch([FIRST, SECOND])
    linear, _ = per_epoch([FIRST, SECOND], pk.punctuated("all"))
    assert ours[0] == {("a", 10): 1}
    assert linear[0] == {}, "nothing is known of b"


def test_the_row_that_speaks_may_be_filtered_out_be_late_or_have_no_time():
    silent = per_epoch([FIRST], build=lambda s: s.where("done IS NULL"))[0]
    assert silent[0] == {("a", 10): 1}
    late = readings(("a", 3, 1, 20))
    assert per_epoch([FIRST, late])[0][1] == {("a", 20): 1}
    timeless = readings(("a", None, 1, 20))
    assert per_epoch([FIRST, timeless])[0][1] == {("a", 20): 1}


def test_late_rows_leave_by_the_outlet_and_are_counted_with_their_source():
    flow = pk.LocalFlow()
    windows = flow.source([FIRST, SECOND], time="t", progress=BY_SENSOR, name="s").window(range=10).by("sensor")
    late = windows.agg(n=pk.count()).late.to_memory()
    query = flow.run()
    assert late.table().to_pylist() == [
        {
            "sensor": "a",
            "t": 5,
            "x": 2,
            "done": None,
            "all": None,
            "late_source": "s",
            "late_reason": "late",
            "missed_from": 0,
            "missed_until": 10,
        }
    ]
    assert [(e.rows_in["s"], e.late["s"]) for e in query.progress().epochs] == [(3, 0), (3, 1), (0, 0)]


def test_a_select_that_keeps_the_group_and_a_lookup_without_waiting_let_bounds_pass():
    for build in (
        lambda s: s.select("sensor", "x + 1 AS y", "t"),
        lambda s: s.select("*", "x + 1 AS y"),
        lambda s: s.lookup(pa.table({"x": [1, 2], "name": ["one", "two"]}), on="x"),
    ):
        assert per_epoch([FIRST, SECOND], build=build)[0][0] == {("a", 10): 1}


def test_windows_by_more_columns_close_when_the_sensor_does():
    flow = pk.LocalFlow(shards=3)
    source = flow.source([FIRST, SECOND], time="t", progress=BY_SENSOR, name="s")
    rows = source.window(range=10).by("x", "sensor").agg(n=pk.count()).to_memory()
    flow.run()
    assert rows.sink.epochs[0].to_pylist() == [{"x": 1, "sensor": "a", "window_start": 0, "window_end": 10, "n": 1}]


def test_sql_closes_groups_too():
    flow = pk.LocalFlow()
    flow.source([FIRST, SECOND], time="t", progress=BY_SENSOR, name="s")
    rows = flow.sql("SELECT sensor, count(*) AS n FROM s [RANGE 10 SLIDE 10 WATTR t] GROUP BY sensor").to_memory()
    flow.run()
    assert rows.sink.epochs[0].to_pylist() == [{"sensor": "a", "n": 1}]


def test_a_second_column_speaks_of_all_groups():
    overall = pk.punctuated("done", by="sensor", overall="all")
    epochs = [FIRST, readings(("c", 30, 1, None, 10)), readings(("b", 9, 1), ("b", 10, 1))]
    results, query = per_epoch(epochs, overall)
    assert results[1] == {("b", 10): 1}
    assert query.progress().epochs[2].late == {"s": 1}
    assert query.progress().epochs[1].bounds == {"s": "10"}


def test_with_a_bound_of_all_other_windows_and_joins_go_by_that():
    overall = pk.punctuated("done", by="sensor", overall="all")
    said = [FIRST, readings(("c", 30, 1, None, 10))]
    flow = pk.LocalFlow()
    source = flow.source(said, time="t", progress=overall, name="s")
    whole = source.window(range=10).agg(n=pk.count()).to_memory()
    panes = source.window(range=10).by("sensor").agg(n=pk.count(), method="paned").to_memory()
    pairs = source.join(source, on="sensor", within=pk.band(before=0, after=0), how="left").to_memory()
    flow.run()
    assert [whole.sink.epochs[n].num_rows for n in (0, 1)] == [0, 1]
    assert [panes.sink.epochs[n].num_rows for n in (0, 1)] == [0, 2]
    assert pairs.table().num_rows == 4


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.window(range=10).agg(n=pk.count()), r"window1 would give no result until source 's' ends: prog"),
        (
            lambda s: s.window(range=10).by("x").agg(n=pk.count()),
            r"write \.by\('sensor'\), and leave emit= and method=",
        ),
        (lambda s: s.window(range=10).by("sensor").agg(n=pk.count(), method="paned"), r"these windows cannot close so"),
        (lambda s: s.window(range=10).by("sensor").agg(n=pk.count(), emit="update"), r"these windows cannot close so"),
        (lambda s: s.window(pk.landmark(10)).by("sensor").agg(n=pk.count()), r"these windows cannot close so"),
        (
            lambda s: s.select("upper(sensor) AS sensor", "t").window(range=10).by("sensor").agg(n=pk.count()),
            r"with sensor unchanged",
        ),
        (
            lambda s: s.join(s, on="sensor", within=pk.band(before=0, after=5)),
            r"join1 needs a bound on all rows of source 's', but .* speaks of one sensor at a time.* Add overall='…'",
        ),
        (lambda s: s.sort(), r"needs a bound on all rows of source 's'"),
        (lambda s: s.distinct(on="x", within=10), r"needs a bound on all rows of source 's'"),
        (
            lambda s: s.window(range=10).by("sensor").agg(n=pk.count()).window(range=20).agg(n=pk.sum("n")),
            r"window2 would give no result",
        ),
    ],
)
def test_what_would_wait_for_the_end_of_the_source_is_refused_while_the_flow_is_built(build, message):
    flow = pk.LocalFlow()
    source = flow.source(FIRST, time="t", progress=BY_SENSOR, name="s")
    with pytest.raises(ConfigError, match=message):
        build(source)
    build(flow.source(FIRST, time="t", progress=pk.punctuated("done", by="sensor", idle="1 s"), name="other"))


@pytest.mark.parametrize(
    ("progress", "message"),
    [
        (lambda: pk.punctuated("done", by="senser"), r"by='senser' is not a column .* Did you mean 'sensor'\?"),
        (lambda: pk.punctuated("done", by="t"), r"punctuated\(by='t'\) groups rows by the time column"),
        (lambda: pk.punctuated("done", by=[]), r"punctuated\(by=\[\]\) names no column"),
        (lambda: pk.punctuated("done", by=["x", "x"]), r"names 'x' twice"),
        (
            lambda: pk.punctuated("done", overall="all"),
            r"two columns with the bound of all rows\. Leave overall= out, or add",
        ),
        (
            lambda: pk.punctuated("done", by="x", overall="sensor"),
            r"punctuated\('sensor'\) is string, but the time col",
        ),
    ],
)
def test_statements_that_make_no_sense_are_refused(progress, message):
    with pytest.raises(ConfigError, match=message):
        pk.LocalFlow().source(FIRST, time="t", progress=progress())


@pytest.mark.parametrize("window", [pk.sliding(10), pk.session(5)])
def test_explain_says_who_speaks_of_groups_and_who_closes_by_it(window, capsys):
    flow = pk.LocalFlow()
    source = flow.source(FIRST, time="t", progress=BY_SENSOR, name="s")
    source.window(window).by("sensor").agg(n=pk.count()).to_memory()
    text = flow.run().explain()
    assert "the windows of each sensor close once its own bound has passed them, independently of the others" in text
    assert "guard0: rows below the bound of their own sensor are late" in text
    assert "source s by t, punctuated for each sensor" in text
    assert "source s promises the bounds in its column done, for each sensor; bounds used:" in text
    assert "by window1" in text.splitlines()[-1]


moments = st.integers(-5, 30)
statements = st.one_of(st.none(), st.none(), moments)
rows = st.tuples(
    st.sampled_from(["a", "b", None]), st.one_of(moments, st.none()), st.integers(0, 3), statements, statements
)


@pytest.mark.slow
@given(st.lists(st.lists(rows, max_size=8), min_size=1, max_size=5), st.booleans(), st.integers(1, 3))
@examples(0.2)
def test_a_flow_gives_every_row_to_its_windows_or_to_the_late_outlet(epochs, overall, shards):
    progress = pk.punctuated("done", by="sensor", overall="all" if overall else None)
    flow = pk.LocalFlow(shards=shards)
    source = flow.source([readings(*epoch) for epoch in epochs], time="t", progress=progress, name="s")
    windows = source.where("x <> 0").window(range=7, slide=3).by("sensor").agg(n=pk.count())
    results, late = windows.to_memory(), windows.late.to_memory()
    flow.run()
    bound, groups = -100, {}
    counted, missed = Counter(), Counter()
    for epoch in epochs:
        for sensor, t, x, *_ in epoch:
            if t is None or t < max(bound, groups.get(sensor, -100)):
                missed[sensor, t] += 1
            elif x:
                counted.update((sensor, end) for end in range(-9, 60, 3) if end - 7 <= t < end)
        for sensor, _, _, done, everything in epoch:
            groups[sensor] = max(groups.get(sensor, -100), -100 if done is None else done)
            bound = max(bound, everything) if overall and everything is not None else bound
    given = results.table().to_pylist()
    assert len({(r["sensor"], r["window_end"]) for r in given}) == len(given), "each window once"
    assert {(r["sensor"], r["window_end"]): r["n"] for r in given} == counted
    assert Counter((r["sensor"], r["t"]) for r in late.table().to_pylist()) == missed
