"""The benchmark of window joins over few rows on Spark: every engine gives as many rows as DuckDB, or it fails."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("case", [*(pytest.param(case, marks=pytest.mark.deep) for case in ("1m", "4m")), "wide"])
def test_it_runs_penstock_and_spark_over_further_micro_batches(spark: SparkSession, tmp_path: Path, case: str):
    bench = importlib.import_module("window_join")
    rows, texts = bench.FURTHER[case]
    workload = bench.generate(tmp_path / "job", rows // 1000, bench.COLD_BATCHES + 1, texts)
    engines = {name: bench.ENGINES[name] for name in bench.FURTHER_ENGINES}
    results, missing = bench.run_all(engines, workload, 1, f"@{case}")
    assert {name: result.rows_out for name, result in results.items()} == {
        name: workload.rows if name == "floor" else workload.matches for name in engines
    }
    assert missing == {}
