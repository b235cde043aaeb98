"""F33: a lookup gives, row for row, what Spark's own stream–static join gives on the same input."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as pk
from penstock.storage.tables.build import build_page_table
from tests.spark.conftest import Feed, multiset

pytestmark = pytest.mark.spark

DAY = dt.date(1969, 12, 25)
WORDS = ("", " ", "a", "A", "ä", "a ", "Ulm", "東京", "🜁", "o'k")
FRACTIONS = (0.0, -0.0, float("nan"), float("inf"), -1.5)


def column(kind: str, numbers: list[int | None]) -> pa.Array:
    """A key of some kind for each number; some numbers become the same key where kinds have odd values to try."""
    makers = {
        "integer": (pa.int32(), lambda n: n - 20),
        "string": (pa.string(), lambda n: WORDS[n] if n < len(WORDS) else f"key {n}"),
        "date": (pa.date32(), lambda n: DAY + dt.timedelta(days=n)),
        "decimal": (pa.decimal128(20, 2), lambda n: Decimal(n - 20) * Decimal("123456789012.01")),
        "timestamp": (pa.timestamp("us", "UTC"), lambda n: dt.datetime(1969, 12, 31, 23, 59, 59, n, dt.UTC)),
        "double": (pa.float64(), lambda n: FRACTIONS[n] if n < len(FRACTIONS) else n / 7),
        "boolean": (pa.bool_(), lambda n: n % 2 == 0),
        "binary": (pa.binary(), lambda n: bytes([0, n])),
    }
    arrow, value = makers[kind]
    return pa.array([None if n is None else value(n) for n in numbers], arrow)


def columns(kinds: tuple[str, ...], numbers: np.ndarray, missing: np.ndarray) -> dict[str, pa.Array]:
    """One key column for each kind; of a composite key, any part may be null."""
    parts = [numbers] if len(kinds) == 1 else [numbers // 6, numbers % 6]
    return {
        f"k{place}": column(kind, [None if gone else int(n) for n, gone in zip(part, lost, strict=True)])
        for place, (kind, part, lost) in enumerate(zip(kinds, parts, missing, strict=True))
    }


def orders(kinds: tuple[str, ...], rows: int = 150, seed: int = 11) -> list[pa.Table]:
    """Skewed keys, of which one in five is not in the table and one in ten is null."""
    made = np.random.default_rng(seed)
    epochs = []
    for epoch in range(2):
        numbers, missing = np.minimum(made.zipf(1.4, rows), 35), made.random((len(kinds), rows)) < 0.1
        rest = {"n": pa.array(made.integers(0, 9, rows)), "t": pa.array(made.integers(0, 10, rows) + 10 * epoch)}
        epochs.append(pa.table({**columns(kinds, numbers, missing), **rest}))
    return epochs


def names(kinds: tuple[str, ...], seed: int = 12) -> pa.Table:
    """Four of five keys, from one to three rows each, and a row whose key is null."""
    made = np.random.default_rng(seed)
    there = np.sort(made.choice(36, 29, replace=False))
    numbers = np.append(np.repeat(there, made.integers(1, 4, there.size)), 1)
    missing = np.zeros((len(kinds), numbers.size), bool)
    missing[:, -1] = True
    return pa.table({**columns(kinds, numbers, missing), "v": [f"v{n}" for n in range(numbers.size)]})


def by_spark(spark: SparkSession, stream: DataFrame, table: DataFrame, on: list[str], how: str, place: str) -> pa.Table:
    joined = stream.join(table, on=on, how=how)
    query = joined.writeStream.format("parquet").option("checkpointLocation", f"{place}-checkpoint")
    query.trigger(availableNow=True).start(place).awaitTermination()
    return spark.read.schema(joined.schema).parquet(place).toArrow()


def by_penstock(
    spark: SparkSession, feed: Feed, table: Any, on: list[str], asked: list[tuple[str, str]], place: str
) -> dict[tuple[str, str], pa.Table]:
    flow = pk.Flow(spark, checkpoint=f"{place}-checkpoint", memory="16 MB")
    source = flow.source(feed.stream(spark), time="t", progress=pk.bounded_delay(10), name="orders")
    for method, how in asked:
        source.lookup(table, on=on, how=how, method=method).to_parquet(f"{place}-{method}-{how}")
    flow.run()
    return {(m, h): spark.read.parquet(f"{place}-{m}-{h}").drop("epoch").toArrow() for m, h in asked}


def compare(spark, feed, tmp_path, kinds: tuple[str, ...], methods: list[str], *, frame: bool) -> None:
    epochs, master = orders(kinds), names(kinds)
    rows, on = feed("orders", epochs), [f"k{place}" for place in range(len(kinds))]
    static = spark.createDataFrame(master)
    table: Any = static
    if not frame:
        table = build_page_table(str(tmp_path / "table"), [master], keys=on, partition_rows=6)
        assert table.open().partitions > 3
    asked = [(method, how) for method in methods for how in ("inner", "left")]
    ours = by_penstock(spark, rows, table, on, asked, str(tmp_path / "ours"))
    for how in ("inner", "left"):
        theirs = by_spark(spark, rows.stream(spark), static, on, how, str(tmp_path / f"theirs-{how}"))
        assert theirs.num_rows > 0
        for method in methods:
            out = ours[method, how]
            assert multiset(out) == multiset(theirs.select(out.column_names)), (method, how)
    alone = theirs.filter(pa.compute.is_null(theirs["v"]))
    assert 0 < alone.num_rows < theirs.num_rows, "some rows find nothing, some do"


SELDOM = [
    pytest.param(kind, marks=pytest.mark.deep)
    for kind in ("integer", "string", "decimal", "date", "timestamp", "binary")
]
"""Random lookups have keys of these kinds, too."""


@pytest.mark.parametrize("kind", ["double", *SELDOM])
def test_f33_a_lookup_by_a_key_of_any_kind_equals_sparks_stream_static_join(spark, feed, tmp_path, kind):
    compare(spark, feed, tmp_path, (kind,), ["auto", "hybridjoin"], frame=True)


@pytest.mark.parametrize("kinds", [("string", "date"), ("decimal", "boolean"), ("integer", "double")])
def test_f33_a_lookup_by_several_keys_equals_sparks_stream_static_join(spark, feed, tmp_path, kinds):
    compare(spark, feed, tmp_path, kinds, ["cinlj", "cmeshjoin"], frame=False)


@pytest.mark.parametrize(
    "methods",
    [
        ["broadcast", "inlj", "cinlj"],
        ["meshjoin", "r-meshjoin", "cmeshjoin"],
        ["hybridjoin", "chybridjoin", "partitioned"],
        ["ssij", "partition-based"],
    ],
    ids="+".join,
)
def test_f33_a_lookup_by_any_method_equals_sparks_stream_static_join(spark, feed, tmp_path, methods):
    compare(spark, feed, tmp_path, ("string",), methods, frame=False)
