"""Rows that are fetched only if they are few, and rows of sources in one set of columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as st

import penstock as pk
from penstock.spark.few import at_most, if_few
from penstock.spark.place import Placement
from penstock.spark.types import arrow_columns
from tests.spark.conftest import multiset

pytestmark = [pytest.mark.spark, pytest.mark.own_place]


def fetched(rows, size):
    return if_few(at_most(size, arrow_columns(rows.schema)).of(rows.coalesce(1)))


@pytest.mark.parametrize(
    "column",
    [
        "repeat('x', 1000) AS c",
        "CAST(repeat('x', 1000) AS BINARY) AS c",
        """from_json('{"a": 1, "b": {"c": "' || repeat('x', 1000) || '"}}', 'a INT, b STRUCT<c: STRING>') AS c""",
        "array(repeat('x', 500), NULL, repeat('x', 500)) AS c",
        "array_repeat(1L, 125) AS c",
        "map('k', repeat('x', 1000)) AS c",
        "array(named_struct('a', array(repeat('x', 1000)))) AS c",
    ],
)
def test_the_width_of_every_type_counts(spark, column):
    rows = spark.range(100).selectExpr("id", column)
    assert fetched(rows, 50_000) is None
    table = fetched(rows, 200_000)
    assert table.num_rows == 100
    assert table.drop_columns([]).column("c").null_count == 0


def test_nulls_and_rows_of_numbers_alone_take_little(spark):
    rows = spark.range(1000).selectExpr("id", "CAST(NULL AS STRING) AS s", "CAST(NULL AS ARRAY<STRING>) AS a")
    assert fetched(rows, 30_000).num_rows == 1000
    assert fetched(rows, 20_000) is None


def test_one_wide_row_among_narrow_ones_is_not_fetched(spark):
    rows = spark.range(100).selectExpr("IF(id = 50, repeat('x', 10000000), 'x') AS s")
    assert fetched(rows, 100_000) is None


def write(folder: Path, **columns) -> str:
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "0.parquet")
    return str(folder)


BIDS = {
    "t": [1, 2, 3, 4],
    "bid": [
        {"price": 5, "url": "a", "who": {"id": 1, "name": "x"}},
        None,
        {"price": None, "url": None, "who": None},
        {"price": 7, "url": "b", "who": {"id": None, "name": None}},
    ],
}


@pytest.mark.parametrize("place", ["driver", "spark"])
def test_only_the_fields_that_are_needed_of_a_struct_travel_and_nulls_stay_what_they_are(
    spark, tmp_path, monkeypatch, place
):
    monkeypatch.setattr(Placement, "choose", lambda self, size: (self.at_most(place), "said"))
    bids = spark.read.parquet(write(tmp_path / "bids", **BIDS))
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
    source = flow.source(bids, time="t", name="bids")
    shown = source.select(
        "t", "t AS k", "bid.who.id AS id", "bid.who IS NULL AS nobody", "bid IS NULL AS none", "bid.price AS p"
    )
    out = shown.join(shown.select("k", "t"), on="k", within=pk.band(before=0, after=0)).to_memory()
    query = flow.run()
    assert multiset(out.table().select(["t", "id", "nobody", "none", "p"])) == {
        (1, 1, False, False, 5): 1,
        (2, None, True, True, None): 1,
        (3, None, True, False, None): 1,
        (4, None, False, False, 7): 1,
    }
    assert ("in the driver" in str(query.explain())) == (place == "driver")


def test_what_is_never_null_inside_what_may_be_null_is_fetched(spark, tmp_path):
    bid = st.StructType(
        [st.StructField("price", st.LongType(), nullable=False), st.StructField("url", st.StringType())]
    )
    columns = [st.StructField("k", st.LongType()), st.StructField("t", st.LongType()), st.StructField("bid", bid)]
    tags = st.ArrayType(st.StringType(), containsNull=False)
    schema = st.StructType([*columns, st.StructField("tags", tags, nullable=False)])
    bids = spark.createDataFrame([(1, 1, (5, "a"), ["x"]), (2, 2, None, [])], schema)
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
    left, right = (flow.source(bids, time="t", name=name) for name in ("left", "right"))
    out = left.join(right.select("k", "bid.price AS p", "t"), on="k", within=pk.band(before=0, after=0)).to_memory()
    query = flow.run()
    assert "in the driver" in str(query.explain())
    assert [
        (row["bid"], row["tags"], row["p"]) for row in sorted(out.table().to_pylist(), key=lambda row: row["k"])
    ] == [
        ({"price": 5, "url": "a"}, ["x"], 5),
        (None, [], None),
    ]


def test_sources_of_many_types_share_columns_and_come_back_as_they_were(spark, tmp_path):
    first = spark.sql("SELECT 1L AS k, 5 AS t, DATE'2024-01-02' AS d, 1.5BD AS m, array(1, NULL) AS a, 'x' AS s")
    second = spark.sql(
        "SELECT 'y' AS s, 1L AS k, TIMESTAMP'2024-01-02 03:04:05' AS z, map('a', 1) AS m, 5 AS t, X'00ff' AS b"
    )
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
    left, right = (flow.source(rows, time="t", name=name) for name, rows in (("one", first), ("two", second)))
    out = left.join(right, on="k", within=pk.band(before=0, after=0)).to_memory()
    query = flow.run()
    assert "in the driver" in str(query.explain())
    expected = first.crossJoin(second.drop("k")).toPandas().iloc[0]
    found = out.table().to_pandas().iloc[0]
    assert (found["s"], found["s_right"], found["d"], found["m"]) == ("x", "y", expected["d"], expected.iloc[3])
    assert (found["a"][0], bytes(found["b"]), dict(found["m_right"])) == (1, b"\x00\xff", {"a": 1})
    assert found["z"].tz_convert("UTC").isoformat() == "2024-01-02T03:04:05+00:00"


def test_more_rows_than_fit_where_the_driver_is_are_joined_in_tasks(spark, tmp_path, monkeypatch):
    rows = spark.range(3000).selectExpr("id AS k", "id AS t", "repeat(CAST(id AS STRING), 400) AS wide")
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="8 MB")
    left, right = (flow.source(rows, time="t", name=name) for name in ("left", "right"))
    counts = left.join(right.select("k", "t"), on="k", within=pk.band(before=0, after=0))
    out = counts.select("k", "length(wide) AS n").to_memory()
    query = flow.run()
    assert "it needs more than the memory of one task" in str(query.explain())
    assert multiset(out.table()) == {(k, 400 * len(str(k))): 1 for k in range(3000)}
