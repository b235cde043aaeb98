"""What `to_format` takes beside the writer's own options, and what it refuses while the flow is built."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk


@pytest.fixture
def orders():
    return pk.LocalFlow().source(pa.table({"shop": ["a"], "eur": [1], "t": [0]}), time="t", name="orders")


@pytest.mark.parametrize("given", ["shop", ["shop"], ("shop",)])
def test_columns_to_partition_by_are_no_option(orders, given):
    sink = orders.to_format("csv", path="out", partitionBy=given).sink
    assert (sink.partition_by, sink.options) == (("shop",), {"path": "out"})
    assert str(sink) == "format csv by shop"


def test_options_become_text_as_spark_reads_it(orders):
    sink = orders.to_format("csv", header=True, sep=";", maxRecordsPerFile=10, mode="append").sink
    assert sink.options == {"header": "true", "sep": ";", "maxRecordsPerFile": "10"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitionBy": "shpo"}, "partitionBy='shpo' is not a column of this stream. Did you mean 'shop'?"),
        ({"PARTITIONBY": 3}, "partitionBy=3 names no column. Write one in quotes, or a list of them."),
        ({"partitionBy": []}, r"partitionBy=\[\] names no column"),
        ({"partitionBy": ["t", "eur", "shop"]}, "names every column, so none is left to write"),
        ({"mode": "overwrite"}, r"mode='overwrite' cannot be an option: to_format\(\) always appends"),
        ({"bucketBy": 8}, "bucketBy=8 cannot be an option: Spark buckets only tables of its catalog"),
        ({"sortBy": "t"}, "sortBy='t' cannot be an option"),
        ({"format": "json"}, "the format is the first argument"),
    ],
)
def test_what_would_have_no_effect_is_refused(orders, options, message):
    with pytest.raises(pk.ConfigError, match=message.replace("?", r"\?")):
        orders.to_format("csv", path="out", **options)


def test_late_rows_may_be_partitioned_by_their_reason(orders):
    assert orders.late.to_format("csv", path="out", partitionBy="late_reason").sink.partition_by == ("late_reason",)
