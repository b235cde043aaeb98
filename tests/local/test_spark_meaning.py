"""Expressions in process mean what they mean in Spark, where DuckDB has another meaning for the same words."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.errors import ConfigError

ROW = pa.table(
    {
        "t": [1],
        "x": [-2.7],
        "m": pa.array([Decimal("2.5")], pa.decimal128(4, 1)),
        "s": ["Abc"],
        "n": [0],
        "d": [dt.date(2024, 1, 31)],
        "ts": pa.array([dt.datetime(1969, 12, 31, 23, 59, 58, 500_000, dt.UTC)]),
    }
)


def value(expression: str) -> object:
    flow = pk.LocalFlow()
    rows = flow.source(ROW, time="t").select(f"{expression} AS r").to_memory()
    flow.run()
    return rows.table()["r"].to_pylist()[0]


# What Spark 4 documents for these expressions.
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("cast(-2.7 as int)", -2),
        ("cast(x as int)", -2),
        ("cast(x * 10 as bigint) + 1", -26),
        ("x::int", -2),
        ("int(x)", -2),
        ("cast(m as int)", 2),
        ("cast(cast(x as int) / 4 as int)", 0),
        ("cast('12' as int)", 12),
        ("cast(n as int)", 0),
        ("cast(ts as long)", -2),
        ("cast(ts as double)", -1.5),
        ("dayofweek(d)", 4),
        ("dayofweek(date'2024-02-04')", 1),
        ("weekday(d)", 2),
        ("weekday(date'2024-02-04')", 6),
        ("substring(s, 0, 2)", "Ab"),
        ("substring(s, n, 2)", "Ab"),
        ("substring(s, 2)", "bc"),
        ("substring(s, -2)", "bc"),
        ("date_add(d, 1)", dt.date(2024, 2, 1)),
        ("date_sub(d, 31)", dt.date(2023, 12, 31)),
    ],
)
def test_an_expression_gives_what_spark_gives(expression, expected):
    assert value(expression) == expected


@pytest.mark.parametrize("expression", ["sum(n)", "n + max(n)", "row_number() over (order by n)"])
def test_an_expression_over_several_rows_is_refused(expression):
    rows = pk.LocalFlow().source(ROW, time="t")
    with pytest.raises(ConfigError, match=r"is computed from several rows, .* \.window\(range=…\)\.agg\("):
        rows.select(expression)
    with pytest.raises(ConfigError, match="is computed from several rows"):
        rows.where(f"{expression} > 1")


def test_a_condition_cuts_digits_off_as_spark_does():
    flow = pk.LocalFlow()
    rows = flow.source(ROW, time="t").where("cast(x as int) = -2").to_memory()
    flow.run()
    assert rows.table().num_rows == 1


def test_an_error_of_the_parser_has_no_colours():
    with pytest.raises(ConfigError) as refused:
        pk.LocalFlow().source(ROW, time="t").where("n = 1 and")
    assert "\x1b" not in str(refused.value)
