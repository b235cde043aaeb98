"""Random expressions mean the same in process as on Spark, or are refused in process: 180 in CI, more by --draw-cases.

Spark computes a projection of a few rows that it holds itself while it plans the query, without a job. So each
expression is asked alone, and one that is an error is asked of each row. Their values come from compiled code, many
expressions in one job.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.core.errors import ConfigError
from penstock.expressions import evaluate
from penstock.spark.session import settings
from penstock.spark.types import arrow_columns
from tests.draws.expressions import (
    RAISES,
    UNSURE,
    ZONES,
    Answer,
    Drawn,
    answer_here,
    difference,
    difference_as_condition,
    draw_expression,
    plain,
)
from tests.expressions.cases import kind_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled")]

COMPILED = {
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
    # A part that several expressions share would be computed even where it is behind a NULL in each of them.
    "spark.sql.subexpressionElimination.enabled": "false",
}


def answers_there(spark: SparkSession, drawn: Sequence[Drawn], ansi: str = "true") -> list[Answer | None]:
    """What expressions over the same rows give on Spark; None for those that it refuses."""
    with settings(spark, {"spark.sql.session.timeZone": drawn[0].zone, "spark.sql.ansi.enabled": ansi}):
        rows = drawn[0].rows
        whole = held(spark, rows)
        each = [whole.where(f"_row = {place}") for place in range(rows.num_rows)]
        answers: list[Answer | None] = [None] * len(drawn)
        fine: dict[int, list[int]] = {}
        for number, one in enumerate(drawn):
            kind = kind_there(whole, one.expression)
            if kind is not None:
                answers[number] = Answer(kind, (RAISES,) * rows.num_rows)
                fine[number] = places_with_values(whole, each, one.expression)
        texts = [
            drawn[number].expression
            if len(places) == rows.num_rows
            else f"CASE WHEN _row IN ({', '.join(map(str, places))}) THEN {drawn[number].expression} END"
            for number, places in fine.items()
            if places
        ]
        computed = iter(compiled(spark, whole, texts))
        for number, places in fine.items():
            answer, values = answers[number], next(computed) if places else None
            if answer is not None and values is not None:
                found = (values[place] if place in places else RAISES for place in range(rows.num_rows))
                answers[number] = Answer(answer.kind, tuple(found))
            elif answer is not None and places:
                answers[number] = Answer(answer.kind, (UNSURE,) * rows.num_rows)
    return answers


def held(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows that Spark holds itself."""
    numbered = rows.append_column("_row", pa.array(range(rows.num_rows), pa.int32()))
    return spark.createDataFrame(numbered, from_arrow_schema(numbered.schema, prefer_timestamp_ntz=True))


def kind_there(rows: DataFrame, expression: str) -> str | None:
    """The type that Spark gives an expression; None if it refuses it, or the type cannot be a column of a stream."""
    try:
        return kind_of(arrow_columns(rows.selectExpr(f"{expression} AS r").schema).field(0).type)
    except (PySparkException, ConfigError):
        return None


def places_with_values(whole: DataFrame, each: Sequence[DataFrame], expression: str) -> list[int]:
    """The rows for which an expression is no error."""
    if computes(whole, expression):
        return list(range(len(each)))
    return [place for place, row in enumerate(each) if computes(row, expression)]


def computes(rows: DataFrame, expression: str) -> bool:
    """Whether Spark, planning a query of an expression over rows that it holds, meets no error in them."""
    try:
        plan = rows.selectExpr(f"{expression} AS r")._jdf.queryExecution().optimizedPlan()
    except (PySparkException, Py4JJavaError):
        return False
    assert plan.getClass().getSimpleName() == "LocalRelation", f"{expression} was not computed: {plan.toString()}"
    return True


def compiled(spark: SparkSession, rows: DataFrame, texts: Sequence[str]) -> list[list[object] | None]:
    """The values of expressions by code that Spark compiles; None where that, and that alone, is an error."""
    if not texts:
        return []
    try:
        with settings(spark, COMPILED):
            found = rows.selectExpr(*(f"{text} AS r{place}" for place, text in enumerate(texts)))
            table = found.toArrow().cast(arrow_columns(found.schema))
        return [plain(column) for column in table.columns]
    except PySparkException:
        if len(texts) == 1:
            return [None]
        half = len(texts) // 2
        return compiled(spark, rows, texts[:half]) + compiled(spark, rows, texts[half:])


def compared(spark: SparkSession, drawn: Sequence[Drawn], ansi: str = "true") -> tuple[list[str], int]:
    """A line for each expression that means something else in process than on Spark, and how many were compared."""
    failures, count = [], 0
    for _, some in groupby(drawn, key=lambda one: id(one.rows)):
        group = list(some)
        for one, there in zip(group, answers_there(spark, group, ansi), strict=True):
            here = answer_here(one)
            count += here is not None
            wrong = difference(one, here, there) or difference_as_condition(one, here)
            if wrong:
                failures.append(f"{one}: {wrong}")
    return failures, count


def test_random_expressions_mean_in_process_what_they_mean_on_spark(spark, draws):
    drawn = [draw_expression(seed) for seed in draws(180)]
    failures, count = compared(spark, drawn)
    assert not failures, f"{len(failures)} expressions differ:\n" + "\n".join(failures)
    assert len(drawn) == 1 or count > len(drawn) * 0.8, f"Of {len(drawn)} expressions {count} are not refused"


def test_random_expressions_that_do_not_go_by_the_zone_mean_the_same_in_every_zone(spark, draws):
    drawn = [draw_expression(seed, ZONES) for seed in draws(90)]
    free = [one for one in drawn if not goes_by_zone(one)]
    failures, count = compared(spark, free)
    assert not failures, f"{len(failures)} expressions differ in their zones:\n" + "\n".join(failures)
    of_instants = [one for one in free if re.search(r"\b(ts2?|st\.at)\b", one.expression)]
    assert len(drawn) == 1 or (count > len(drawn) * 0.2 and len(of_instants) > len(drawn) * 0.05)


def test_random_expressions_that_do_not_go_by_ansi_mode_mean_the_same_without_it(spark, draws):
    drawn = [draw_expression(seed) for seed in draws(180)]
    free = [one for one in drawn if not goes_by_ansi(one)]
    failures, count = compared(spark, free, ansi="false")
    assert not failures, f"{len(failures)} expressions differ without ANSI mode:\n" + "\n".join(failures)
    assert len(drawn) == 1 or count > len(drawn) * 0.2


def goes_by_ansi(one: Drawn) -> bool:
    """Whether an expression goes by ANSI mode, as far as it is known in process at all."""
    try:
        return evaluate.goes_by_ansi(f"{one.expression} AS r", one.rows.schema)
    except ConfigError:
        return True


def goes_by_zone(one: Drawn) -> bool:
    """Whether an expression goes by the zone, as far as it is known in process at all."""
    try:
        return evaluate.goes_by_zone(f"{one.expression} AS r", one.rows.schema)
    except ConfigError:
        return True
