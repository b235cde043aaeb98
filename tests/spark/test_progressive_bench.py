"""The benchmark of joins without a window over few rows on Spark: every engine gives as many rows as DuckDB."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

pytestmark = pytest.mark.spark


def test_it_runs_penstock_and_sparks_own_join(spark: SparkSession, capsys: pytest.CaptureFixture[str]):
    bench = importlib.import_module("progressive")
    summary = bench.main(True, ["penstock", "rrpj", "spark-rocksdb"], bench.FEW)
    assert {"penstock", "rrpj", "spark-rocksdb"} == summary["seconds_until"].keys()
    assert {"spark-rocksdb", "spark-rocksdb@first10"} == summary["ratio"].keys()
    assert '"bench": "progressive"' in capsys.readouterr().out.splitlines()[-1]


def test_it_joins_boxes_as_sparks_own_joins_of_cells_and_of_partitions_do(spark: SparkSession):
    bench = importlib.import_module("progressive")
    summary = bench.main(True, ["penstock@spatial", "spark-cells@spatial", "spark-partitions@spatial"], bench.FEW)
    assert summary["ratio"].keys() == {"spark-cells@spatial", "spark-partitions@spatial"}


def test_it_joins_vectors_as_brute_force_does(spark: SparkSession):
    near = importlib.import_module("progressive_near")
    summary = near.main(True, (near.Case(128, 300, 0.4),))
    assert summary["ratio"].keys() == {"numpy@128d", "duckdb@128d"}
    assert summary["pairs"]["128d"] > 50
