"""Queries in SQL on Spark: the whole catalogue, as in process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.sql import parse
from penstock.sql.catalogue import CATALOGUE
from tests.flow.test_sql import BOTH, ONLY_A, ONLY_B, SIDES, multiset, packets
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark


def streams_of(sql: str) -> list[str]:
    return [name for source in parse(sql).sources for name in source.streams]


# The source repeats some of its queries: 1-1, 5-1 and 6-1 are one, and so are 3-1 and 5-8.
QUERIES = {sql: number for number, sql in CATALOGUE.items()}
ALONE = {number: sql for sql, number in QUERIES.items() if streams_of(sql) == ["packets"]}
TOGETHER = {number: sql for sql, number in QUERIES.items() if number not in ALONE}


def asked(flow: Any, queries: dict[str, str], sources: dict[str, Any]) -> dict[str, Any]:
    for name, data in sources.items():
        flow.source(data, time="ts", name=name, progress=pk.bounded_delay("15 min"))
    return {number: flow.sql(sql).to_memory() for number, sql in queries.items()}


@pytest.mark.parametrize("queries", [ALONE, TOGETHER], ids=["one source", "several sources"])
def test_every_query_of_the_catalogue_gives_on_spark_what_it_gives_in_process(spark, tmp_path: Path, queries):
    names = sorted({name for sql in queries.values() for name in streams_of(sql)})
    tables = {name: packets(seed) for seed, name in enumerate(names)}
    local = pk.LocalFlow()
    expected = asked(local, queries, tables)
    local.run()
    feeds = {name: Feed(tmp_path / name, rows.schema) for name, rows in tables.items()}
    for name, rows in tables.items():
        feeds[name].add(rows)
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="256 MB")
    found = asked(flow, queries, {name: feed.stream(spark) for name, feed in feeds.items()})
    flow.run()
    for number in queries:
        assert expected[number].table().num_rows, number
        assert multiset(found[number].table()) == multiset(expected[number].table()), number


def test_the_key_of_a_missing_row_is_null_in_an_outer_join_on_spark(spark, tmp_path: Path):
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="256 MB")
    for name, rows in SIDES.items():
        feed = Feed(tmp_path / name, rows.schema)
        feed.add(rows)
        flow.source(feed.stream(spark), time="ts", name=name)
    sides = "FROM a [RANGE 3 WATTR ts] {} JOIN b [RANGE 2 WATTR ts] ON a.k = b.k"
    outer = flow.sql("SELECT a.k, b.k AS theirs, b.w " + sides.format("FULL")).to_memory()
    semi = flow.sql("SELECT a.k " + sides.format("LEFT SEMI")).to_memory()
    flow.run()
    assert multiset(outer.table()) == Counter([BOTH, ONLY_A, ONLY_B])
    assert semi.table().to_pylist() == [{"k": 1}]


def test_a_name_that_spark_wants_in_backticks_gets_them(spark, tmp_path: Path):
    rows = pa.table({"t": [0, 4], "größe": [1, 2]})
    feed = Feed(tmp_path / "s", rows.schema)
    feed.add(rows)
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="256 MB")
    flow.source(feed.stream(spark), time="t", name="s")
    out = flow.sql("SELECT `größe` + 1 AS `länge` FROM s WHERE `größe` > 1").to_memory()
    flow.run()
    assert out.table().to_pylist() == [{"länge": 3}]
