"""The multi-way benchmark over few rows on Spark: every engine gives as many rows as DuckDB, or the benchmark fails."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

pytestmark = pytest.mark.spark


def test_it_runs_penstock_and_sparks_own_joins(spark: SparkSession, capsys: pytest.CaptureFixture[str]):
    bench = importlib.import_module("multi_way")
    summary = bench.main(True, ["3way-0"], ["penstock", "spark-rocksdb"], bench.FEW)
    assert {"penstock@3way-0", "spark-rocksdb@3way-0"} <= summary["rows_per_second"].keys()
    assert {"spark-rocksdb@3way-0", "spark-rocksdb"} == summary["ratio"].keys()
    assert '"bench": "multi-way"' in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.deep
def test_it_joins_wide_rows_of_files_and_dataframes(spark: SparkSession):
    bench = importlib.import_module("multi_way")
    summary = bench.main(True, ["wide"], ["penstock", "dataframe"], bench.FEW)
    assert {"dataframe@wide", "dataframe"} == summary["ratio"].keys()
