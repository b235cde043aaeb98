"""The multi-way benchmark over few rows on Spark: every engine gives as many rows as DuckDB, or the benchmark fails."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lab.shuffle_counts import Counting

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

pytestmark = pytest.mark.spark


def test_it_runs_penstock_and_sparks_own_joins(spark: SparkSession, capsys: pytest.CaptureFixture[str]):
    bench = importlib.import_module("multi_way")
    summary = bench.main(True, ["3way-0"], ["penstock", "spark-rocksdb"], bench.FEW)
    assert {"penstock@3way-0", "spark-rocksdb@3way-0"} <= summary["rows_per_second"].keys()
    assert {"spark-rocksdb@3way-0", "spark-rocksdb"} == summary["ratio"].keys()
    assert summary["state"]["penstock@3way-0"] > 0
    assert 0 < summary["arrived"]["penstock@3way-0"] <= 1.2
    assert '"bench": "multi-way"' in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("name", ["3way-3k", "4way-3k-low"])
def test_late_keeps_no_more_than_100_bytes_a_row_and_shuffles_what_the_model_says(
    spark: SparkSession, tmp_path: Path, name: str
):
    """In tasks, where joins shuffle: what they write ÷ what the cost model says is 1.2 at most."""
    bench, jobs = (importlib.import_module(module) for module in ("multi_way", "multi_way_jobs"))
    files = jobs.generate(tmp_path, 0.003, jobs.CASES[name].payload, 2)
    job = jobs.Joined(jobs.CASES[name], files)
    with Counting(tmp_path / "counts").watching("tasks"):
        late = bench.penstock(job, 60, materialize="late")
    assert late.rows_out == job.matches > 0
    assert late.state <= 100
    assert late.modelled <= 1.2
    assert late.arrived <= 1.2


@pytest.mark.deep
def test_it_joins_wide_rows_of_files_and_dataframes(spark: SparkSession):
    bench = importlib.import_module("multi_way")
    summary = bench.main(True, ["wide"], ["penstock", "dataframe"], bench.FEW)
    assert {"dataframe@wide", "dataframe"} == summary["ratio"].keys()
