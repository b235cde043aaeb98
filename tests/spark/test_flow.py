"""What a user can do with a flow on Spark: chains, sinks, outlets, types, batch sources, and what is refused."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.rows import TIME
from penstock.spark.layout import TAG, lay_out, tagged
from penstock.spark.schemas import Schemas
from penstock.spark.source_rows import SourceRows
from tests.spark.conftest import Feed, multiset

pytestmark = pytest.mark.spark

UTC = dt.UTC


def moment(second: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, tzinfo=UTC) + dt.timedelta(seconds=second)


def orders(*rows) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(("id", "shop", "t"), row, strict=True)) for row in rows],
        schema=pa.schema({"id": pa.int64(), "shop": pa.string(), "t": pa.int64()}),
    )


def payments(*rows) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(("id", "paid", "t"), row, strict=True)) for row in rows],
        schema=pa.schema({"id": pa.int64(), "paid": pa.float64(), "t": pa.int64()}),
    )


ORDERS = [orders((1, "a", 0), (2, "b", 5), (None, "c", 6)), orders((3, "a", 20), (4, "b", 21))]
PAYMENTS = [payments((1, 9.5, 3)), payments((3, 1.0, 25), (3, 2.0, 26), (9, 7.0, 27))]


@pytest.fixture
def flow(spark, tmp_path):
    return pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB")


def sources(spark, flow, feed, **options):
    made = feed("orders", ORDERS), feed("payments", PAYMENTS)
    return [
        flow.source(f.stream(spark), time="t", progress=pk.bounded_delay(5), name=name, **options)
        for f, name in zip(made, ("orders", "payments"), strict=True)
    ]


def test_the_ten_lines_of_the_readme_work_on_timestamps(spark, flow, feed, tmp_path):
    def at(rows: pa.Table) -> pa.Table:
        times = pa.array([moment(t) for t in rows.column("t").to_pylist()], pa.timestamp("us", tz="UTC"))
        return rows.set_column(2, "ts", times)

    left = flow.source(feed("o", [at(r) for r in ORDERS]).stream(spark), time="ts", progress=pk.bounded_delay("5 s"))
    right = flow.source(feed("p", [at(r) for r in PAYMENTS]).stream(spark), time="ts", progress=pk.bounded_delay("5 s"))
    left.join(right, on="id", within=pk.band(before="10 s", after="10 s"), how="left").to_parquet(
        str(tmp_path / "out")
    ).run()
    out = spark.read.parquet(str(tmp_path / "out")).drop("epoch")
    assert multiset(out.toArrow()) == {
        (1, "a", moment(0), 9.5, moment(3)): 1,
        (2, "b", moment(5), None, None): 1,
        (3, "a", moment(20), 1.0, moment(25)): 1,
        (3, "a", moment(20), 2.0, moment(26)): 1,
        (4, "b", moment(21), None, None): 1,
        (None, "c", moment(6), None, None): 1,
    }


def test_chained_joins_select_where_and_union_give_what_the_local_host_gives(spark, flow, feed):
    def build(flow, tables):
        first, second, third = (
            flow.source(data, time="t", progress=pk.bounded_delay(5), name=name) for name, data in tables.items()
        )
        bought = first.where("id <> 2").select("id", "upper(shop) AS shop", "t")
        paid = bought.join(second, on="id", within=pk.band(10, 10), how="left")
        both = second.select("id", "paid AS value", "t").union(third.select("id", "value", "t"))
        again = paid.select("*", "paid IS NOT NULL AS done").join(both, on="id", within=pk.tumbling(50), suffix="_2")
        return again.to_memory(), paid.to_memory()

    third = [
        pa.table({"id": [1, 3], "value": [0.5, 0.25], "t": [2, 4]}),
        pa.table({"id": [3], "value": [0.125], "t": [30]}),
    ]
    on_spark = build(
        flow,
        {
            "orders": feed("o", ORDERS).stream(spark),
            "payments": feed("p", PAYMENTS).stream(spark),
            "third": feed("t", third).stream(spark),
        },
    )
    flow.run()
    local = pk.LocalFlow()
    in_process = build(local, {"orders": ORDERS, "payments": PAYMENTS, "third": third})
    local.run()
    for ours, theirs in zip(on_spark, in_process, strict=True):
        assert theirs.table().num_rows > 0
        assert multiset(ours.table()) == multiset(theirs.table())


def both_hosts(spark, flow, feed, build, tables):
    """The rows of every memory outlet that `build` makes, on Spark and in process."""
    local = pk.LocalFlow()
    on_spark = build(flow, {name: feed(name, epochs).stream(spark) for name, epochs in tables.items()})
    in_process = build(local, tables)
    flow.run()
    local.run()
    return [
        (multiset(ours.table()), multiset(theirs.table())) for ours, theirs in zip(on_spark, in_process, strict=True)
    ]


def test_a_stream_may_be_joined_with_itself(spark, flow, feed):
    def build(flow, tables):
        rows = flow.source(tables["p"], time="t", progress=pk.bounded_delay(5), name="p")
        return [rows.join(rows, on="id", within=pk.band(before=-1, after=5), how="left").to_memory()]

    [(ours, theirs)] = both_hosts(spark, flow, feed, build, {"p": PAYMENTS})
    assert (3, 1.0, 25, 2.0, 26) in ours
    assert ours == theirs


def test_results_and_a_source_may_meet_in_one_sink_and_a_source_feed_two_joins(spark, flow, feed):
    def build(flow, tables):
        first, second = (
            flow.source(tables[name], time="t", progress=pk.bounded_delay(5), name=name) for name in ("o", "p")
        )
        near = first.join(second, on="id", within=pk.band(4, 4)).select("id", "t")
        far = first.join(second, on="id", within=pk.band(10, 10), how="anti").select("id", "t")
        return [near.union(far, second.select("id", "t")).to_memory(), far.where("id IS NOT NULL").to_memory()]

    for ours, theirs in both_hosts(spark, flow, feed, build, {"o": ORDERS, "p": PAYMENTS}):
        assert ours
        assert ours == theirs


def test_an_extra_condition_is_asked_of_each_pair(spark, flow, feed):
    left, right = sources(spark, flow, feed)
    rows = left.join(right, on="id", within=pk.band(10, 10), where="r.paid >= 2 OR l.shop <> 'a'").to_memory()
    flow.run()
    assert rows.table().column("paid").to_pylist() in ([9.5, 2.0], [2.0, 9.5])


def test_late_rows_and_rows_without_time_come_out_by_the_late_outlet(spark, flow, feed):
    late = [ORDERS[0], orders((5, "late", -1), (6, "no", None), (7, "in time", 1)), orders((8, "late", 0))]
    left = flow.source(feed("o", late).stream(spark), time="t", progress=pk.bounded_delay(5), name="orders")
    right = flow.source(feed("p", PAYMENTS).stream(spark), time="t", progress=pk.bounded_delay(5), name="payments")
    paid = left.join(right, on="id", within=pk.band(1, 1), how="anti")
    rows, out = paid.to_memory(), paid.late.to_memory()
    query = flow.run()
    assert multiset(out.table().select(["id", "shop", "t", "late_source", "late_reason"])) == {
        (5, "late", -1, "orders", "late"): 1,
        (6, "no", None, "orders", "no-time"): 1,
        (8, "late", 0, "orders", "late"): 1,
    }
    assert 7 in rows.table().column("id").to_pylist()
    assert query.progress().late == 3


def test_a_flow_may_take_nothing_but_late_rows(spark, flow, feed):
    left = flow.source(feed("o", [ORDERS[1], ORDERS[0]]).stream(spark), time="t", progress=pk.ordered(), name="orders")
    late = left.late.to_memory()
    flow.run()
    assert sorted(late.table().column("t").to_pylist()) == [0, 5, 6]


def test_late_rows_of_different_types_under_one_name_come_out_as_text(spark, flow, feed):
    columns = {"l": pa.string(), "r": pa.float64()}
    sources = []
    for name, kind in columns.items():
        rows = pa.table({"k": [1, 1], "t": pa.array([None, 0], pa.int64()), "note": pa.array([1.5, 2.5]).cast(kind)})
        sources.append(flow.source(feed(name, [rows]).stream(spark), time="t", name=name))
    late = sources[0].join(sources[1], on="k", within=pk.band(1, 1)).late.to_memory()
    flow.run()
    assert multiset(late.table()) == {(1, None, "1.5", "l", "no-time"): 1, (1, None, "1.5", "r", "no-time"): 1}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), lambda n: f"key {n}"),
        (pa.float64(), lambda n: {0: float("nan"), 1: -0.0, 2: 0.0}.get(n, n / 4)),
        (pa.decimal128(12, 3), lambda n: Decimal(n) / 8),
        (pa.date32(), lambda n: dt.date(2024, 1, 1 + n)),
        (pa.timestamp("us", tz="UTC"), lambda n: moment(n)),
        (pa.bool_(), lambda n: n % 2 == 0),
        (pa.binary(), lambda n: bytes([n])),
        (pa.struct({"a": pa.int32(), "b": pa.string()}), lambda n: {"a": n % 2, "b": None if n % 3 == 0 else "x"}),
        (pa.list_(pa.int64()), lambda n: list(range(n % 3))),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_keys_of_every_type_that_spark_can_compare(spark, tmp_path, feed, kind, value):
    ids = list(range(6))
    rows = pa.table({"k": pa.array([value(n) for n in ids], kind), "id": ids, "t": ids})
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="64 MB")
    left, right = (flow.source(feed(name, [rows]).stream(spark), time="t", name=name) for name in "lr")
    out = left.join(right, on="k", within=pk.band(100, 100)).select("id", "id_right").to_memory()
    flow.run()
    frame = spark.createDataFrame(rows)
    native = frame.alias("l").join(frame.alias("r"), on="k").selectExpr("l.id", "r.id AS id_right")
    assert multiset(out.table()) == multiset(native.toArrow())


def test_keys_of_different_integer_types_are_compared_as_the_wider_one(spark, flow, feed):
    narrow = pa.table({"k": pa.array([1, 2], pa.int32()), "t": [0, 0]})
    wide = pa.table({"key": pa.array([2, 3], pa.int64()), "t": [0, 0]})
    left = flow.source(feed("l", [narrow]).stream(spark), time="t", name="l")
    right = flow.source(feed("r", [wide]).stream(spark), time="t", name="r")
    out = left.join(right, on={"k": "key"}, within=pk.band(0, 0)).to_memory()
    flow.run()
    assert out.table().select(["k", "key"]).to_pylist() == [{"k": 2, "key": 2}]


@pytest.mark.parametrize(
    ("kind", "at", "within"),
    [
        (pa.timestamp("us", tz="UTC"), lambda n: moment(n), pk.band("2 s", "2 s")),
        (pa.timestamp("us"), lambda n: moment(n).replace(tzinfo=None), pk.band("2 s", "2 s")),
        (pa.date32(), lambda n: dt.date(1969, 12, 28) + dt.timedelta(days=n), pk.band("2 days", "2 days")),
        (pa.int32(), lambda n: n - 3, pk.band(2, 2)),
        (pa.int64(), lambda n: 2**62 - 8 + n, pk.band(2, 2)),
    ],
    ids=["timestamp", "timestamp_ntz", "date", "int", "long"],
)
def test_event_time_of_every_type(spark, tmp_path, feed, kind, at, within):
    rows = pa.table({"k": [1] * 8, "ts": pa.array([at(n) for n in range(8)], kind)})
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="64 MB")
    parts = [rows.slice(0, 4), rows.slice(4)]
    left, right = (
        flow.source(feed(name, parts).stream(spark), time="ts", progress=pk.ordered(), name=name) for name in "lr"
    )
    out = left.join(right, on="k", within=within, how="full").to_memory()
    flow.run()
    expected = {(1, at(i), at(j)): 1 for i in range(8) for j in range(8) if abs(i - j) <= 2}
    assert multiset(out.table()) == expected


@pytest.mark.parametrize("kind", [pa.timestamp("us", tz="UTC"), pa.timestamp("us")], ids=["timestamp", "timestamp_ntz"])
def test_the_zone_of_the_session_changes_nothing(spark, tmp_path, feed, kind):
    """Hours around the night when New York's clocks go back, one row each, joined with the next hour's."""
    hours = [dt.datetime(2024, 11, 3, hour, tzinfo=UTC if kind.tz else None) for hour in range(9)]
    rows = pa.table({"k": [1] * 9, "ts": pa.array(hours, kind), "seen": pa.array(hours, kind)})
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="64 MB")
        left, right = (
            flow.source(feed(name, [rows.slice(0, 4), rows.slice(4)]).stream(spark), time="ts", name=name)
            for name in "lr"
        )
        out = left.join(right, on="k", within=pk.band(before="1 h", after="-1 h")).to_memory()
        flow.run()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    expected = {(1, now, now, before, before): 1 for before, now in itertools.pairwise(hours)}
    assert multiset(out.table()) == expected


def test_a_batch_dataframe_joins_a_stream_and_is_taken_once(spark, flow, feed, tmp_path):
    fixed = spark.createDataFrame(payments((1, 9.5, 3), (3, 1.0, 25)))
    stream = flow.source(feed("o", ORDERS).stream(spark), time="t", progress=pk.bounded_delay(5), name="orders")
    other = flow.source(fixed, time="t", name="fixed")
    out = stream.join(other, on="id", within=pk.band(10, 10)).to_memory()
    flow.run()
    assert sorted(out.table().column("id").to_pylist()) == [1, 3]


def test_a_flow_of_batch_dataframes_alone_runs_to_its_end(spark, flow):
    left, right = (spark.createDataFrame(rows) for rows in (ORDERS[0], PAYMENTS[0]))
    out = (
        flow.source(left, time="t", name="l")
        .join(flow.source(right, time="t", name="r"), on="id", within=pk.band(10, 10), how="left")
        .to_memory()
    )
    flow.run()
    assert out.table().num_rows == 3


def test_every_sink_gets_the_same_rows_and_the_join_runs_once(spark, flow, feed, tmp_path, capsys):
    left, right = sources(spark, flow, feed)
    paid = left.join(right, on="id", within=pk.band(10, 10))
    epochs = {}
    memory = paid.to_memory()
    paid.to_parquet(str(tmp_path / "parquet"))
    paid.to_format("json", path=str(tmp_path / "json"))
    paid.to_console()
    paid.foreach_epoch(lambda rows, epoch: epochs.update({epoch: rows.count()}))
    query = flow.run()
    expected = multiset(memory.table().select(["id", "paid"]))
    assert sum(expected.values()) == 3
    for path in (f"{tmp_path}/parquet/*/*.parquet", f"{tmp_path}/json/*.json"):
        assert multiset(duckdb.sql(f"SELECT id, paid FROM '{path}'").to_arrow_table()) == expected
    assert sum(epochs.values()) == 3
    assert "9.5" in capsys.readouterr().out
    assert query.progress().rows_out == 3, "a stream counts once, however many sinks it has"


def test_a_stream_may_go_to_a_sink_without_any_operator(spark, flow, feed):
    left, _ = sources(spark, flow, feed)
    flow._sources = flow._sources[:1]
    rows = left.where("shop = 'a'").select("id", "t + 1 AS next").to_memory()
    flow.run()
    assert multiset(rows.table()) == {(1, 1): 1, (3, 21): 1}


def test_progress_of_a_filtered_source_is_that_of_all_its_rows(spark, flow, feed):
    far = orders((50, "far", 1000))
    left = flow.source(feed("o", [*ORDERS, far]).stream(spark), time="t", progress=pk.bounded_delay(5), name="orders")
    rows = left.where("shop <> 'far'").to_memory()
    query = flow.run(end=False)
    assert rows.table().num_rows == 5
    assert query.progress().epochs[-1].bounds["orders"] == "995"


def test_punctuation_closes_what_it_covers(spark, flow, feed):
    schema = pa.schema({"id": pa.int64(), "t": pa.int64(), "upto": pa.int64()})
    rows = [
        pa.Table.from_pylist([{"id": 1, "t": 5, "upto": None}, {"id": 2, "t": 9, "upto": 3}], schema=schema),
        pa.Table.from_pylist([{"id": 3, "t": 2, "upto": 20}], schema=schema),
        pa.Table.from_pylist([{"id": 4, "t": 30, "upto": None}], schema=schema),
    ]
    left = flow.source(feed("l", rows).stream(spark), time="t", progress=pk.punctuated("upto"), name="l")
    right = flow.source(feed("r", rows).stream(spark), time="t", progress=pk.punctuated("upto"), name="r")
    joined = left.join(right, on="id", within=pk.band(1, 1), how="left")
    late = joined.late.to_memory()
    joined.to_memory()
    query = flow.run(end=False)
    assert [epoch.bounds["l"] for epoch in query.progress().epochs] == ["3", "20", "20"]
    assert late.table().column("id").to_pylist() == [3, 3]


def test_run_without_end_leaves_the_streams_open_and_run_closes_them(spark, feed, tmp_path):
    made = feed("o", ORDERS[:1]), feed("p", PAYMENTS[:1])

    def again():
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="64 MB")
        left, right = (
            flow.source(f.stream(spark), time="t", progress=pk.bounded_delay(5), name=n)
            for f, n in zip(made, ("orders", "payments"), strict=True)
        )
        return flow, left.join(right, on="id", within=pk.band(10, 10), how="left").to_memory()

    flow, first = again()
    flow.run(end=False)
    for source, rows in zip(made, (ORDERS[1], PAYMENTS[1]), strict=True):
        source.add(rows)
    flow, second = again()
    flow.run()
    ids = first.table().column("id").to_pylist() + second.table().column("id").to_pylist()
    assert sorted(map(str, ids)) == ["1", "2", "3", "3", "4", "None"]
    flow, _ = again()
    with pytest.raises(pk.CheckpointError, match=r"have ended.*run\(end=False\)"):
        flow.start()


def test_a_started_flow_shows_results_while_it_runs_and_closes_windows_without_data(spark, feed, tmp_path):
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="64 MB")
    times = pa.array([moment(0)], pa.timestamp("us", tz="UTC"))
    left = flow.source(
        feed("l", [pa.table({"id": [1], "ts": times})]).stream(spark), time="ts", progress=pk.timer("1 s"), name="l"
    )
    right = flow.source(
        feed("r", [pa.table({"id": [2], "ts": times})]).stream(spark), time="ts", progress=pk.timer("1 s"), name="r"
    )
    rows = left.join(right, on="id", within=pk.band("1 s", "1 s"), how="left").to_memory()
    query = flow.start(trigger="100 ms")
    try:
        for _ in range(100):
            if rows.table().num_rows or query.await_end(0.2):
                break
    finally:
        query.stop()
    assert rows.table().column("id").to_pylist() == [1]
    assert query.await_end(5)


def test_explain_and_progress_say_what_was_done(spark, flow, feed):
    left, right = sources(spark, flow, feed)
    left.join(right, on="id", within=pk.band(10, 10)).to_format("noop")
    query = flow.run()
    text = query.explain()
    assert "method oa" in text
    assert "because" in text
    assert "9 rows in (0 late), 3 out" in str(query.progress())
    assert "32.0 MB each" in text


def test_the_listener_logs_one_line_per_epoch(spark, flow, feed, caplog):
    left, right = sources(spark, flow, feed)
    left.join(right, on="id", within=pk.band(10, 10)).to_format("noop")
    with caplog.at_level("INFO", logger="penstock"):
        query = flow.run()
    lines = [record.message for record in caplog.records if record.message.startswith("epoch ")]
    assert len(lines) == len(query.progress().epochs)
    assert "rows in" in lines[0]


def rebuilt(spark, feed_of, tmp_path, **changes):
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="64 MB")
    left, right = (
        flow.source(f.stream(spark), time="t", progress=pk.bounded_delay(5), name=n)
        for f, n in zip(feed_of, ("orders", "payments"), strict=True)
    )
    arguments = {"on": "id", "within": pk.band(10, 10), "how": "left"} | changes
    return flow, left.join(right, **arguments).to_memory()


def test_a_changed_operator_is_refused_with_the_difference_and_the_state_is_untouched(spark, feed, tmp_path):
    made = feed("o", ORDERS), feed("p", PAYMENTS)
    rebuilt(spark, made, tmp_path)[0].run(end=False)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "c").rglob("*") if path.is_file()}
    flow, _ = rebuilt(spark, made, tmp_path, within=pk.band(10, 11))
    with pytest.raises(pk.CheckpointError, match=r"within: was band\(10, 10.*is now band\(10, 11"):
        flow.run()
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "c").rglob("*") if path.is_file()}
    rebuilt(spark, made, tmp_path)[0].run()


def test_a_changed_source_schema_is_refused(spark, feed, tmp_path):
    made = feed("o", ORDERS), feed("p", PAYMENTS)
    rebuilt(spark, made, tmp_path)[0].run(end=False)
    wider = made[0].schema.append(pa.field("note", pa.string()))
    made[0].schema = wider
    with pytest.raises(pk.CheckpointError, match=r"sources\.orders\.columns\.note: was nothing, is now string"):
        rebuilt(spark, made, tmp_path)[0].run()


def test_a_checkpoint_of_another_state_version_is_refused(spark, feed, tmp_path):
    made = feed("o", ORDERS), feed("p", PAYMENTS)
    rebuilt(spark, made, tmp_path)[0].run(end=False)
    record = Path(tmp_path / "c" / "flow.json")
    record.write_text(json.dumps(json.loads(record.read_text().splitlines()[0]) | {"format": 1}))
    with pytest.raises(pk.CheckpointError, match="format: was 1, is now 2"):
        rebuilt(spark, made, tmp_path)[0].run()


def test_wrong_arguments_are_refused_when_they_are_written(spark, tmp_path, feed):
    with pytest.raises(pk.ConfigError, match=r"memory='1 MB'.*too small for one page. Write at least memory='2 MB'"):
        pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="1 MB")
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="64 MB")
    left, right = sources(spark, flow, feed)
    with pytest.raises(pk.ConfigError, match=r"memory=10 .*too small for one page. Write at least memory='2 MB'"):
        left.lookup(pa.table({"id": [1]}), on="id", memory=10)
    with pytest.raises(pk.ConfigError, match=r"on='idd' is not a column of this stream. Did you mean 'id'\?"):
        left.join(right, on="idd", within=pk.band(1, 1))
    with pytest.raises(pk.ConfigError, match=r"'no_such' cannot be computed"):
        left.select("no_such")
    with pytest.raises(pk.TimeError, match=r"time='shop' is of type string.*to_timestamp\(shop\)"):
        flow.source(feed("x", ORDERS).stream(spark), time="shop")
    with pytest.raises(pk.ConfigError, match=r"A Spark flow reads DataFrames.*pk.LocalFlow"):
        flow.source(ORDERS[0], time="t")
    with pytest.raises(pk.FlowError, match=r"no sink"):
        flow.run()


def test_a_flow_may_have_more_edges_than_a_byte_can_number(spark, flow):
    rows = flow.source(spark.sql("SELECT id, id AS t FROM range(2)"), time="t")
    rows.to_memory()
    schemas = Schemas()
    layout = lay_out(flow._sinks, [], schemas, SourceRows.of({rows._node: rows._node.columns}))
    last = replace(layout.branches[0], tag=300)
    timed = rows._node.data.withColumnRenamed("t", TIME)
    assert {row[TAG] for row in tagged(last, layout, timed.selectExpr("*", f"{TIME} AS t"), schemas).collect()} == {300}


def test_progress_counts_what_came_and_what_went_out_as_in_process(spark, tmp_path):
    epochs = [pa.table({"k": [1, 2, 1], "t": [20, 21, 30]}), pa.table({"k": [1, 2], "t": [7, 41]})]

    def asked(flow, source):
        rows = flow.source(source, time="t", progress=pk.ordered(), name="s")
        rows.to_memory()
        rows.where("k = 1").foreach_epoch(lambda rows, epoch: None)
        pairs = rows.join(rows.select("*"), on="k", within=pk.band(100, 100), where="l.t < r.t")
        pairs.to_parquet(str(tmp_path / type(flow).__name__))
        pairs.to_memory()
        pairs.union(pairs).to_memory()

    local = pk.LocalFlow()
    asked(local, epochs)
    feed = Feed(tmp_path / "in", epochs[0].schema)
    for epoch in epochs:
        feed.add(epoch)
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB")
    asked(flow, feed.stream(spark))
    ours, theirs = (query.progress() for query in (flow.run(), local.run()))
    assert (ours.rows_in, ours.late, ours.rows_out) == (theirs.rows_in, theirs.late, theirs.rows_out)
    assert (ours.rows_in, ours.late, ours.rows_out) == (5, 1, 4 + 2 + 2 + 4)


def test_rows_that_a_select_makes_several_of_are_counted_as_they_came_and_as_they_go_out(spark, flow, feed):
    lists = [[1, 2, 3], [], [4]]
    epochs = [pa.table({"t": [10 * n + 1, 10 * n + 2, 10 * n + 5], "l": lists}) for n in range(3)]
    rows = flow.source(feed("s", epochs).stream(spark), time="t", progress=pk.bounded_tuples(4), name="s")
    single = rows.select("explode(l) AS x", "t").to_memory()
    report = flow.run(end=False).progress()
    assert sorted(single.table()["x"].to_pylist()) == sorted([1, 2, 3, 4] * 3)
    assert (report.rows_in, report.rows_out) == (9, 12)
    assert report.epochs[-1].bounds == {"s": "5"}, "only the first epoch is four rows away"


@pytest.mark.parametrize("expression", ["count(*) AS n", "row_number() OVER (ORDER BY t) AS n"])
def test_what_depends_on_how_a_stream_is_cut_into_epochs_is_refused(spark, flow, feed, expression):
    rows = flow.source(feed("s", [pa.table({"t": [1]})]).stream(spark), time="t")
    with pytest.raises(pk.ConfigError, match=r"is computed from several rows, but .* Aggregate over windows instead"):
        rows.select(expression)
