"""Spark SQL expressions in process: Spark's spelling, DuckDB's answer, the columns' own types."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import textwrap

import pyarrow as pa
import pytest

from penstock.core.errors import ConfigError
from penstock.core.rows import TIME
from penstock.expressions import evaluate

ROWS = pa.table(
    {
        "name": pa.array(["ann", "bob", None]),
        "amount": pa.array([1, 2, 3], pa.int32()),
        "at": pa.array([dt.datetime(2024, 1, 1, hour) for hour in (0, 1, 2)], pa.timestamp("us", "UTC")),
    }
)


def test_spark_functions_are_understood():
    found = evaluate.select(ROWS, ["nvl(name, 'nobody') AS who", "amount % 2 = 0 AS even", "hour(at) AS h"])
    assert found.to_pylist() == [
        {"who": "ann", "even": False, "h": 0},
        {"who": "bob", "even": True, "h": 1},
        {"who": "nobody", "even": False, "h": 2},
    ]


def test_a_column_that_only_passes_keeps_its_type():
    assert evaluate.select(ROWS, ["*"]).schema.equals(ROWS.schema)
    assert evaluate.where(ROWS, "amount > 1").schema.equals(ROWS.schema)


def test_event_time_goes_with_every_selection_and_is_not_part_of_the_star():
    timed = ROWS.append_column(TIME, pa.array([1, 2, 3]))
    assert evaluate.select(timed, ["amount"]).column_names == ["amount", TIME]
    assert evaluate.select(timed, ["*"]).column_names == [*ROWS.column_names, TIME]
    assert evaluate.where(timed, "amount = 2").column(TIME).to_pylist() == [2]


def test_a_condition_that_is_null_does_not_hold():
    assert evaluate.where(ROWS, "name = 'ann' OR name = 'bob'").num_rows == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: evaluate.select(ROWS, ["nmae"]),
            r"'nmae' cannot be computed: .*nmae.* not a column of this stream\. Did you mean 'name'\?",
        ),
        (lambda: evaluate.where(ROWS, "amount >"), r"'amount >' (is not a Spark SQL expression|cannot be computed)"),
        (lambda: evaluate.where(ROWS, 5), r"5 is a int; in a local flow, write the expression as a string"),
        (lambda: evaluate.select(ROWS, ["amount + (1"]), r"is not a Spark SQL expression"),
    ],
)
def test_what_cannot_be_computed_is_refused_with_what_was_written(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


def test_a_fork_computes_and_ends_on_its_own():
    script = """
        import os, sys
        import pyarrow as pa
        from penstock.expressions import evaluate

        rows = pa.table({"a": range(100_000)})
        evaluate.select(rows, ["a + 1 AS b"])
        child = os.fork()
        if child == 0:
            sys.exit(evaluate.select(rows, ["a + 1 AS b"]).num_rows != 100_000)
        print(os.waitpid(child, 0)[1], evaluate.select(rows, ["a + 1 AS b"]).num_rows)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=True
    )
    assert (ran.stdout, ran.stderr) == ("0 100000\n", "")
