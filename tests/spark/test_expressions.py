"""The table of what expressions mean in Spark, by which local flows are tested, is right."""

from __future__ import annotations

import pytest

from penstock.spark.types import arrow_columns
from tests.expressions.cases import BEHIND_NULLS, CASES, FAILING, REFUSED, ROWS, UNREAD, differences

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled")]

AT_ONCE = 200
"""Expressions in one query: more make it too long to compile."""


def test_spark_gives_the_values_types_and_errors_of_the_table(spark):
    rows = spark.createDataFrame(ROWS).selectExpr("* EXCEPT (nt)", "cast(nt AS timestamp_ntz) AS nt").cache()
    parts = [CASES[first : first + AT_ONCE] for first in range(0, len(CASES), AT_ONCE)]
    wrong: list[str] = []
    for cases in parts + [[case] for case in BEHIND_NULLS]:
        some = rows.selectExpr(*(f"{case.expression} AS r{place}" for place, case in enumerate(cases)))
        wrong += differences(some.toArrow().cast(arrow_columns(some.schema)), cases)
    assert wrong == []
    for text in FAILING:
        with pytest.raises(Exception, match="SQLSTATE: 22"):
            rows.selectExpr(text).toArrow()
    for text in REFUSED:
        with pytest.raises(Exception, match="SQLSTATE"):
            rows.selectExpr(text)
    read = (
        rows.where("b")
        .selectExpr(*(f"({text}) IS NOT NULL AS r{place}" for place, text in enumerate(UNREAD)))
        .toArrow()
    )
    assert [column.to_pylist() for column in read.columns] == [[True]] * len(UNREAD)
    rows.unpersist()
