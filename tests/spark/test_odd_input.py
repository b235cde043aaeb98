"""Odd time columns and odd expressions on Spark: as in process, or refused while the flow is built."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.errors import ConfigError, PenstockError
from tests.flow.test_odd_arguments import NUMBERS, OTHERS, TEXTS
from tests.spark.conftest import Feed, multiset

pytestmark = pytest.mark.spark

DAYS = [dt.date(2024, 1, 1) + dt.timedelta(days=n) for n in (0, 3, 1)]


TIMES = {"int8": pa.array([120, 126, 125], pa.int8()), "date": pa.array(DAYS)}
WITHIN = {"int8": (pk.band(before=9, after=9), 10), "date": (pk.band(before="3 d", after="3 d"), "2 d")}


def test_narrow_times_and_dates_join_and_aggregate_as_in_process(spark, tmp_path):
    def built(flow: Any, source: Callable[[str], Any]) -> dict[tuple[str, str], Any]:
        asked = {}
        for kind, (near, length) in WITHIN.items():
            sides = [flow.source(source(kind), time="t", name=f"{name}_{kind}") for name in "lr"]
            asked[kind, "joined"] = sides[0].join(sides[1], on="k", within=near, method="rpwj").to_memory()
            asked[kind, "counted"] = sides[0].window(range=length).by("k").agg(n=pk.count()).to_memory()
        return asked

    rows = {kind: pa.table({"k": pa.array([1, 1, 2]), "t": times}) for kind, times in TIMES.items()}
    local = pk.LocalFlow()
    expected = built(local, rows.__getitem__)
    local.run()
    feeds = {kind: Feed(tmp_path / kind, table.schema) for kind, table in rows.items()}
    for kind, feed in feeds.items():
        feed.add(rows[kind])
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB")
    found = built(flow, lambda kind: feeds[kind].stream(spark))
    flow.run()
    for asked, ours in found.items():
        assert multiset(ours.table()) == multiset(expected[asked].table()), asked
        assert ours.table().num_rows > 0
    assert found["int8", "counted"].table().schema.field("window_end").type == pa.int64()
    assert found["date", "counted"].table().schema.field("window_end").type == pa.date32()


def test_odd_expressions_are_refused_as_such_while_the_flow_is_built(spark, tmp_path):
    feed = Feed(tmp_path / "rows", pa.schema({"k": pa.int64(), "t": pa.int64(), "x": pa.float64(), "s": pa.string()}))
    feed.add(feed.schema.empty_table())
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB")
    stream = flow.source(feed.stream(spark), time="t", name="s")
    raw = []
    # Both go through the same analysis: one of them for each text keeps this short.
    for odd, call in zip([*TEXTS, *NUMBERS, *OTHERS], cycle((stream.where, stream.select)), strict=False):
        try:
            call(odd)
        except (PenstockError, TypeError):
            continue
        except Exception as error:
            raw.append((call.__name__, odd if not isinstance(odd, str) else odd[:30], type(error).__name__))
    assert raw == []


def test_columns_of_a_dataframe_that_differ_by_case_only_are_refused(spark, tmp_path):
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="32 MB")
    with pytest.raises(ConfigError, match=r"columns 'K' and 'k', which Spark cannot distinguish\. Rename one"):
        flow.source(spark.createDataFrame([(1, 1, 7)], ["K", "t", "k"]), time="t")


def test_late_rows_of_sources_that_disagree_on_a_binary_column_are_refused(spark, tmp_path):
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB")
    streams = []
    for name, kind in (("a", pa.binary()), ("b", pa.int64())):
        feed = Feed(tmp_path / name, pa.schema({"t": pa.int64(), "x": kind}))
        feed.add(feed.schema.empty_table())
        streams.append(flow.source(feed.stream(spark), time="t", name=name).select("t"))
    with pytest.raises(ConfigError, match=r"Column 'x' is of type binary in source 'a' and int64 in source 'b'"):
        streams[0].union(streams[1]).late.to_memory()


def test_columns_of_any_name_pass_through_a_join_and_its_condition(spark, tmp_path):
    names = ["l", "r", "pair", "a.b", "back`tick", "${system:user.name}", 'say "it\'s"']
    rows = pa.table({"k": [1, 2], "t": [5, 6], **{name: [place, 9 - place] for place, name in enumerate(names)}})
    feed = Feed(tmp_path / "rows", rows.schema)
    feed.add(rows)
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB")
    left, right = (flow.source(feed.stream(spark), time="t", name=name) for name in "ab")
    near = pk.band(before=1, after=1)
    joined = left.join(right, on="k", within=near, where="l.`a.b` < 5 AND r.`back``tick` = 4 AND l.l = r.l").to_memory()
    flow.run()
    (row,) = joined.table().to_pylist()
    assert [row[name] for name in names] == [row[f"{name}_right"] for name in names] == list(range(len(names)))
