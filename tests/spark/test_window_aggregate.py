"""Window aggregation on Spark: as in process, as Spark's own, across restarts, in the epoch that completes a window."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as sf

import penstock as pk
from penstock.operators.aggregate.roles import takes_up
from penstock.planner import AggregateChoice
from penstock.planner.window_aggregate import pilot
from penstock.spark import experience
from tests.spark.conftest import Feed, multiset

pytestmark = pytest.mark.spark

COLUMNS = pa.schema({"k": pa.string(), "v": pa.int32(), "x": pa.float64(), "t": pa.int64()})
WINDOWS = {
    "tumbling": pk.sliding(5),
    "sliding": pk.sliding(7, 3, origin=2),
    "sparse": pk.sliding(2, 5),
    "landmark": pk.landmark(4),
    "session": pk.session(2),
    "each row": pk.slide_by_tuple(4),
    "ranks": pk.slide_by_tuple(6, every=2, by="rank"),
    "partitions": pk.rows(3, 2, partition="k", order="t"),
}
BOUNDED = {
    "n": pk.count(),
    "nv": pk.count("v"),
    "total": pk.sum("v"),
    "mean": pk.mean("v"),
    "low": pk.min("x"),
    "high": pk.max("k"),
    "first": pk.first("v"),
    "last": pk.last("x"),
}
HOLISTIC = {"different": pk.count_distinct("v"), "middle": pk.median("v"), "all": pk.collect_list("v")}

rows = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "ccc", None]),
        "v": st.one_of(st.none(), st.integers(-5, 5)),
        "x": st.one_of(st.none(), st.sampled_from([0.0, -0.0, 0.5, 2.0, float("nan")])),
        "t": st.integers(0, 20),
    }
)


@dataclass(frozen=True)
class Case:
    """A stream in epochs, some rows late, a window, what to aggregate, a restart on other shards."""

    window: str
    holistic: bool
    by: tuple[str, ...]
    epochs: list[list[dict[str, Any]]]
    delay: int
    cut: int
    shards: tuple[int, int]
    few: tuple[int, int]
    saving: tuple[int, int]
    methods: list[str]

    def choose(self, slides, load, sizes, memory, subtracts, current, holds_state) -> AggregateChoice:
        """Another method before each epoch, if it can take over."""
        wanted = self.methods[(self.methods.index(current) + 1) % len(self.methods)] if current else self.methods[0]
        able = current is None or not holds_state or takes_up(wanted, current)
        return AggregateChoice(wanted if able else current, "the test wants it")


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count, drift = draw(st.integers(2, 4)), draw(st.integers(0, 9))
    window = draw(st.sampled_from(sorted(WINDOWS)))
    epochs = [
        [{**row, "t": row["t"] + number * drift} for row in draw(st.lists(rows, max_size=14))]
        for number in range(count)
    ]
    return Case(
        window=window,
        holistic=draw(st.booleans()),
        by=draw(st.sampled_from([("k",), ("k", "v"), ()])) if window != "partitions" else ("k",),
        epochs=epochs,
        delay=draw(st.integers(0, 30)),
        cut=draw(st.integers(1, count - 1)),
        shards=(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        few=(draw(st.sampled_from([0, 10**9])), draw(st.sampled_from([0, 10**9]))),
        methods=draw(st.permutations(["paned", "wid", "adapt"])),
        saving=(draw(st.sampled_from([0, 10**9])), draw(st.sampled_from([0, 10**9]))),
    )


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, COLUMNS)


def asked(flow: pk.LocalFlow, source: pk.LocalFlow, case: Case) -> tuple[Any, Any]:
    stream = flow.source(source, time="t", progress=pk.bounded_delay(case.delay))
    results = stream.window(WINDOWS[case.window]).by(*case.by).agg(**BOUNDED, **(HOLISTIC if case.holistic else {}))
    return results.to_memory(), results.late.to_memory()


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(case=cases())
def test_f29_spark_gives_what_a_local_flow_gives_in_the_same_epochs_across_a_restart(spark, case: Case):
    """Locally by panes; on Spark by another method in each epoch where windows slide."""
    local = pk.LocalFlow()
    expected, expected_late = asked(local, [table(epoch) for epoch in case.epochs], case)
    local.run()
    epochs: dict[int, pa.Table] = {}
    late: Counter[Any] = Counter()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pilot, "plan_window_aggregate", case.choose)
        feed = Feed(Path(folder) / "rows", COLUMNS)
        parts = case.epochs[: case.cut], case.epochs[case.cut :]
        for part, shards, few, saving in zip(parts, case.shards, case.few, case.saving, strict=True):
            patch.setattr(experience, "_FEW", few)
            patch.setattr(experience, "_SAVING", saving)
            for epoch in part:
                feed.add(table(epoch))
            flow = pk.Flow(spark, checkpoint=f"{folder}/checkpoint", memory="64 MB", shards=shards)
            out, out_late = asked(flow, feed.stream(spark), case)
            flow.run(end=feed.count == len(case.epochs))
            epochs |= out.sink.epochs
            late += multiset(out_late.table())
    assert late == multiset(expected_late.table())
    for number, rows in expected.sink.epochs.items():
        assert multiset(epochs[number]) == multiset(rows), f"epoch {number}"


FAR = 2**63 - 2
ENDS = [2**63 - 1, -(2**63), FAR, -FAR, 2**62, -(2**62)]
LATE = {
    "ticks": (pa.int64(), [2**62 - 1, 7, -1, None, *ENDS, 2**62 - 2], ["tumbling", "sliding", "sparse", "session"]),
    "counts": (pa.int64(), [500, 7, -1, None], ["numbers", "landmark", "each row"]),
    "small": (pa.int16(), [32767, 7, 32760, -32768], ["tumbling", "session"]),
    "zoned": (pa.timestamp("us", "UTC"), [10**15, 7, -1, None], ["minutes", "visits"]),
    "local": (pa.timestamp("us"), [10**15, 90_000_000, -1], ["minutes", "visits"]),
    "days": (pa.date32(), [20_000, 0, None, 2**31 - 1, -(2**31), 2**30, 19_999], ["weeks"]),
}
MORE_WINDOWS = {
    **WINDOWS,
    "numbers": pk.rows(7, 3, order="t"),
    "minutes": pk.sliding("5 min", "2 min", origin="30 s"),
    "visits": pk.session("90 s"),
    "weeks": pk.sliding("7 days", "2 days"),
}


def test_late_rows_say_which_windows_they_missed_as_in_process(spark, tmp_path):
    """Also where the time is out of range: there an edge is null and never an overflow."""

    def asked(flow: Any, sources: dict[str, Any]) -> list[Any]:
        outlets = []
        for name, (_, _, windows) in LATE.items():
            stream = flow.source(sources[name], time="t", progress=pk.ordered(), name=name)
            outlets += [stream.window(MORE_WINDOWS[window]).agg(n=pk.count()).late.to_memory() for window in windows]
        return outlets

    def column(times: list[int | None], kind: pa.DataType) -> pa.Table:
        width = pa.int32() if pa.types.is_date(kind) else pa.int64()
        return pa.table({"t": pa.array(times, width).cast(kind)})

    tables = {
        name: [column(times[:1], kind), column([*times[1:-1], *range(10), times[-1]], kind)]
        for name, (kind, times, _) in LATE.items()
    }
    local = pk.LocalFlow()
    expected = asked(local, tables)
    local.run()
    feeds = {name: Feed(tmp_path / name, epochs[0].schema) for name, epochs in tables.items()}
    for name, epochs in tables.items():
        for rows in epochs:
            feeds[name].add(rows)
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB")
    found = asked(flow, {name: feed.stream(spark) for name, feed in feeds.items()})
    flow.run()
    for ours, theirs in zip(found, expected, strict=True):
        assert theirs.table().num_rows > 3
        assert ours.table().schema.types == theirs.table().schema.types
        assert multiset(numbered(ours.table())) == multiset(numbered(theirs.table()))


def numbered(rows: pa.Table) -> pa.Table:
    """Rows with days for dates, which Python has only up to the year 9999."""
    days = [column.cast(pa.int32()) if pa.types.is_date(column.type) else column for column in rows.columns]
    return pa.table(days, names=rows.column_names)


def test_times_out_of_range_are_late_and_counted_as_in_process(spark, tmp_path):
    """In a flow that does nothing but one aggregation, rows are counted with its partials once these are few."""
    epochs = [pa.table({"t": pa.array([*times, None], pa.int64())}) for times in ([1, 2**62, 5], [9, *ENDS, 3], [12])]

    def asked(flow: Any, source: Any) -> tuple[Any, Any]:
        counts = flow.source(source, time="t", progress=pk.ordered(), name="s").window(range=4).agg(n=pk.count())
        return counts.to_memory(), counts.late.to_memory()

    local = pk.LocalFlow()
    expected = asked(local, epochs)
    wanted = local.run().progress()
    feed = Feed(tmp_path / "in", epochs[0].schema)
    for epoch in epochs:
        feed.add(epoch)
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB")
    found = asked(flow, feed.stream(spark))
    report = flow.run().progress()
    for ours, theirs in zip(found, expected, strict=True):
        assert multiset(ours.table()) == multiset(theirs.table())
    for ours, theirs in zip(report.epochs, wanted.epochs, strict=True):
        assert (ours.rows_in, ours.late, ours.no_time) == (theirs.rows_in, theirs.late, theirs.no_time)
        assert ours.rows_out == theirs.rows_out


def test_an_error_in_a_user_defined_aggregate_names_it_as_in_process(spark, tmp_path):
    own = pk.UserDefined(
        column="t",
        partials=(("s", pa.int64()),),
        type=pa.int64(),
        lift_values=lambda t: (t,),
        combine_pairs=lambda a, b: (a[0] + b[0],),
        lower_partials=lambda p: [1 // 0],
    )
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB")
    flow.source(spark.range(5).withColumnRenamed("id", "t"), time="t").window(range=4).agg(total=own).to_memory()
    with pytest.raises(
        pk.FlowError,
        match=r"^total: lower_partials of the user-defined aggregate of 't' failed: ZeroDivisionError: integer",
    ):
        flow.run()


START = datetime(2026, 1, 1)
SALES = pa.schema({"shop": pa.string(), "eur": pa.float64(), "items": pa.int32(), "ts": pa.timestamp("us", "UTC")})


def sales(rows: int = 3000) -> pa.Table:
    rng = np.random.default_rng(7)
    shops = ["a", "b", "c", None]
    return pa.table(
        {
            "shop": [shops[place] for place in rng.integers(0, 4, rows)],
            "eur": [None if value < 5 else float(value) for value in rng.integers(0, 100, rows)],
            "items": rng.integers(0, 9, rows).astype(np.int32),
            "ts": [START + timedelta(seconds=int(s)) for s in np.sort(rng.integers(0, 7200, rows))],
        },
        schema=SALES,
    )


NATIVE = {
    "n": (pk.count(), "count(1)"),
    "eur": (pk.sum("eur"), "sum(eur)"),
    "items": (pk.sum("items"), "sum(items)"),
    "mean": (pk.mean("items"), "avg(items)"),
    "low": (pk.min("eur"), "min(eur)"),
    "high": (pk.max("items"), "max(items)"),
    "spread": (pk.stddev("items"), "round(stddev(items), 9)"),
    "middle": (pk.median("items"), "percentile(items, 0.5)"),
    "different": (pk.count_distinct("items"), "count(DISTINCT items)"),
}


@pytest.mark.parametrize(
    ("window", "native"),
    [
        (pk.sliding("10 min"), "window(ts, '10 minutes')"),
        (pk.sliding("10 min", "1 min"), "window(ts, '10 minutes', '1 minute')"),
        # Spark says where windows start, penstock where they end: at 1 + 4 n minutes, ten minutes after 3 + 4 n.
        (pk.sliding("10 min", "4 min", origin="1 min"), "window(ts, '10 minutes', '4 minutes', '3 minutes')"),
        (pk.session("20 s"), "session_window(ts, '20 seconds')"),
    ],
)
def test_f30_results_equal_those_of_sparks_own_windows(spark, tmp_path, window, native):
    data = sales()
    feed = Feed(tmp_path / "sales", SALES)
    for start in range(0, data.num_rows, 1000):
        feed.add(data.slice(start, 1000))
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB")
    stream = flow.source(feed.stream(spark), time="ts", progress=pk.ordered())
    made = stream.window(window).by("shop").agg(**{name: function for name, (function, _) in NATIVE.items()})
    out = made.select("*").to_memory()
    flow.run()
    batch = spark.read.parquet(str(tmp_path / "sales"))
    theirs = batch.groupBy(sf.expr(native).alias("w"), "shop").agg(
        *(sf.expr(e).alias(n) for n, (_, e) in NATIVE.items())
    )
    theirs = theirs.select("shop", "w.start", "w.end", *NATIVE).toArrow()
    ours = out.table()
    spread = ours.schema.get_field_index("spread")
    rounded = pa.array([None if v is None else round(v, 9) for v in ours.column("spread").to_pylist()], pa.float64())
    ours = ours.set_column(spread, "spread", rounded)
    assert ours.num_rows > 40
    assert multiset(ours) == multiset(theirs)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_sum_of_longs_is_right_or_an_error_and_never_wraps_around(spark, tmp_path, ansi):
    most, nines = 2**63 - 1, Decimal("9" * 38)
    there_and_back = pa.table(
        {
            "t": [1, 2, 3],
            "x": [most, most, -most],
            "d": pa.array([nines, nines, nines.copy_negate()], pa.decimal128(38, 0)),
        }
    )
    feed = Feed(tmp_path / "rows", there_and_back.schema)
    feed.add(there_and_back)
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "right"), memory="64 MB")
        windows = flow.source(feed.stream(spark), time="t", progress=pk.ordered()).window(range=10)
        out = windows.agg(total=pk.sum("x"), mean=pk.mean("x")).to_memory()
        digits = windows.agg(total=pk.sum("d")).to_memory()
        flow.run()
        assert out.table().select(["total", "mean"]).to_pylist() == [{"total": most, "mean": float(most) / 3}]
        assert digits.table().column("total").to_pylist() == [nines]
        feed.add(there_and_back.slice(0, 1).set_column(0, "t", pa.array([4])))
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "wrong"), memory="64 MB")
        windows = flow.source(feed.stream(spark), time="t", progress=pk.ordered()).window(range=10)
        windows.agg(total=pk.sum("x")).to_memory()
        with pytest.raises(pk.FlowError, match=r"total: the sum of 'x' at .*window_end=10 is too large for int64\."):
            flow.run()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


@pytest.mark.parametrize("method", ["wid", "paned", "differential", "adapt"])
def test_each_method_gives_the_same_on_spark(spark, tmp_path, method):
    rng = np.random.default_rng(5)
    rows = [{"k": "ab"[int(k)], "v": int(k), "x": 0.0, "t": t} for t, k in enumerate(rng.integers(0, 2, 60))]
    counts = []
    for flow, data in (
        (pk.LocalFlow(), [table(rows[:30]), table(rows[30:])]),
        (pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB"), None),
    ):
        if data is None:
            feed = Feed(tmp_path / "rows", COLUMNS)
            feed.add(table(rows[:30]))
            feed.add(table(rows[30:]))
            data = feed.stream(spark)
        stream = flow.source(data, time="t", progress=pk.ordered())
        counts.append(
            stream.window(range=6, slide=2).by("k").agg(method=method, n=pk.count(), total=pk.sum("v")).to_memory()
        )
        flow.run()
    assert counts[0].table().num_rows > 30
    assert multiset(counts[0].table()) == multiset(counts[1].table())


def test_the_method_that_auto_has_chosen_goes_on_after_a_restart(spark, tmp_path, monkeypatch):
    wanted = iter(["paned", "wid", "wid", "wid"])
    monkeypatch.setattr(
        pilot, "plan_window_aggregate", lambda *given: AggregateChoice(next(wanted), f"{given[5]} ran before")
    )
    feed = Feed(tmp_path / "rows", COLUMNS)
    said = []
    for times in ([0, 4], [5, 7], [9, 21]):
        feed.add(table([{"k": "a", "v": 1, "x": 0.0, "t": time} for time in times]))
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB")
        stream = flow.source(feed.stream(spark), time="t", progress=pk.ordered())
        out = stream.window(range=6, slide=3).by("k").agg(n=pk.count()).to_memory()
        query = flow.run(end=False)
        said += [line.strip() for line in query.explain().splitlines() if "ran before" in line]
    assert said == ["because None ran before", "because paned ran before", "because wid ran before"]
    ends = {row["window_end"]: row["n"] for row in out.table().to_pylist()}
    assert ends == {9: 3, 12: 2, 15: 1}


@pytest.mark.parametrize("few", [0, 10**9])
def test_a_window_leaves_in_the_epoch_whose_rows_complete_it(spark, tmp_path, monkeypatch, few):
    monkeypatch.setattr(experience, "_FEW", few)
    feed = Feed(tmp_path / "rows", COLUMNS)
    for times in ([0, 4], [5], [9, 21]):
        feed.add(table([{"k": "a", "v": 1, "x": 0.0, "t": time} for time in times]))
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB")
    stream = flow.source(feed.stream(spark), time="t", progress=pk.ordered())
    out = stream.window(range=5).by("k").agg(n=pk.count(), having=sf.col("n") > 0).to_memory()
    flow.run(end=False)
    ends = {number: sorted(rows.column("window_end").to_pylist()) for number, rows in out.sink.epochs.items()}
    assert ends == {0: [], 1: [5], 2: [10]}


def test_rows_are_numbered_as_they_arrive_whatever_groups_and_shards_they_are_in(spark, tmp_path):
    # Within an epoch the latest row arrives first, and the values of a window go by time all the same.
    numbers = [range(first, first + 9) for first in (0, 9, 18)]
    epochs = [table([{"k": "abc"[n % 3], "v": n, "x": 0.0, "t": ns[-1] - n} for n in ns]) for ns in numbers]

    def asked(flow: Any, source: Any) -> Any:
        stream = flow.source(source, time="t", progress=pk.bounded_delay(30))
        values = {"all": pk.collect_list("v"), "first": pk.first("v"), "last": pk.last("v"), "until": pk.max("t")}
        return stream.window(pk.rows(6, 4)).by("k").agg(n=pk.count(), total=pk.sum("v"), **values)

    local = pk.LocalFlow()
    expected = asked(local, epochs).to_memory()
    local.run()
    feed = Feed(tmp_path / "rows", COLUMNS)
    found = []
    for part, shards in ((epochs[:1], 2), (epochs[1:], 3)):
        for rows in part:
            feed.add(rows)
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB", shards=shards)
        found.append(asked(flow, feed.stream(spark)).to_memory())
        flow.run(end=feed.count == len(epochs))
    assert expected.table().num_rows > 15
    assert [3, 0] in expected.table().column("all").to_pylist()
    assert multiset(pa.concat_tables([out.table() for out in found])) == multiset(expected.table())


def test_an_epoch_on_the_driver_may_have_no_lists_to_put_out(spark, tmp_path):
    feed = Feed(tmp_path / "rows", COLUMNS)
    for time in (0, 1, 2):
        feed.add(table([{"k": "a", "v": time, "x": 0.0, "t": time}]))
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB")
    stream = flow.source(feed.stream(spark), time="t", progress=pk.ordered())
    out = stream.window(range=5).by("k").agg(all=pk.collect_list("v")).to_memory()
    flow.run()
    assert out.table().column("all").to_pylist() == [[0, 1, 2]]


def test_rows_that_make_as_many_partials_go_as_they_are_until_partials_are_tried_again(
    spark, tmp_path, monkeypatch, in_tasks
):
    monkeypatch.setattr(experience, "_FEW", 0)
    monkeypatch.setattr(experience, "_TRY_AGAIN", 1)
    feed = Feed(tmp_path / "rows", COLUMNS)
    for first in (0, 10, 20):
        feed.add(table([{"k": "a", "v": first + v, "x": 0.0, "t": first + v} for v in range(10)]))
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB")
    stream = flow.source(feed.stream(spark), time="t", progress=pk.ordered())
    out = stream.window(range=10).by("k").agg(mid=pk.median("v")).to_memory()
    query = flow.run(end=False)
    one_pane, ten_values = 1, 10
    arrived = [report.rows_in for epoch in query.progress().epochs for report in epoch.operators.values()]
    assert arrived == [one_pane + ten_values, 10, one_pane + ten_values]
    assert out.table().column("mid").to_pylist() == [4.5, 14.5]


def test_windows_over_the_results_of_a_join_and_of_windows(spark, tmp_path):
    rng = np.random.default_rng(3)
    sides = []
    for name in ("left", "right"):
        rows = [
            {"k": "ab"[int(k)], "v": int(v), "x": 0.0, "t": int(t)}
            for k, v, t in zip(
                rng.integers(0, 2, 60), rng.integers(0, 9, 60), np.sort(rng.integers(0, 90, 60)), strict=True
            )
        ]
        sides.append((name, [table(rows[:20]), table(rows[20:40]), table(rows[40:])]))

    def chained(flow: Any, sources: list[Any]) -> tuple[Any, Any]:
        left, right = (
            flow.source(data, time="t", progress=pk.ordered(), name=name)
            for data, (name, _) in zip(sources, sides, strict=True)
        )
        paired = left.join(right, on="k", within=pk.band(3, 3), how="left")
        counted = paired.window(range=10, slide=5).by("k").agg(n=pk.count(), total=pk.sum("v_right"))
        most = counted.window(range=20).agg(most=pk.max("n"), rows=pk.count())
        return counted.to_memory(), most.where("rows > 1").to_memory()

    local = pk.LocalFlow()
    expected = chained(local, [tables for _, tables in sides])
    local.run()
    feeds = []
    for name, tables in sides:
        feed = Feed(tmp_path / name, COLUMNS)
        for rows in tables:
            feed.add(rows)
        feeds.append(feed)
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB")
    out = chained(flow, [feed.stream(spark) for feed in feeds])
    flow.run()
    for ours, theirs in zip(out, expected, strict=True):
        assert theirs.table().num_rows > 3
        assert multiset(ours.table()) == multiset(theirs.table())


@pytest.mark.parametrize(
    "follow",
    [
        lambda left, right: left.join(right, on="k", within=pk.band(before=0, after=0), how="full"),
        lambda left, right: left.union(right).window(range=100).agg(n=pk.sum("n")),
    ],
    ids=["join", "windows"],
)
def test_what_follows_windows_runs_though_no_window_closes(spark, feed, tmp_path, follow):
    """In epochs of few rows windows close in the driver, and Spark knows beforehand that nothing comes of them."""
    epochs = [table([{"k": "a", "v": 1, "x": 0.0, "t": t}]) for t in (1, 2, 3, 4)]

    def run(flow: Any, sources: dict[str, Any]) -> pa.Table:
        counted = [
            flow.source(data, time="t", progress=pk.ordered(), name=name).window(range=10).by("k").agg(n=pk.count())
            for name, data in sources.items()
        ]
        out = follow(*counted).to_memory()
        flow.run()
        return out.table()

    streams = {name: feed(name, epochs).stream(spark) for name in ("left", "right")}
    ours = run(pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="64 MB"), streams)
    assert ours.num_rows == 1
    assert multiset(ours) == multiset(run(pk.LocalFlow(), dict.fromkeys(streams, epochs)))
