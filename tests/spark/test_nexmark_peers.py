"""What Nexmark's benchmark needs Spark for: its own queries give what DuckDB gives, and its jobs are counted."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from nexmark_check import Definition
from nexmark_events import Events
from nexmark_queries import QUERIES
from nexmark_spark import NATIVE

pytestmark = pytest.mark.spark

EVENTS = Events(epoch_rows=2000, epochs=3, pause_us=6_000_000)


@pytest.mark.deep
@pytest.mark.parametrize("name", QUERIES)
def test_sparks_own_operators_give_the_rows_that_are_complete(spark: SparkSession, tmp_path: Path, name: str):
    EVENTS.write(tmp_path / "events", files_per_epoch=2)
    reader = spark.readStream.schema(spark.read.parquet(str(tmp_path / "events")).schema)
    events = reader.option("maxFilesPerTrigger", 2).parquet(str(tmp_path / "events"))
    results = NATIVE[name](spark, events)
    writer = results.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "state"))
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    rows: pa.Table = spark.read.parquet(str(tmp_path / "out")).toArrow()
    Definition(tmp_path / "events").check_part(QUERIES[name], 4_000_000, rows, "Spark")


def test_jobs_and_their_stages_are_counted(spark: SparkSession):
    bench = importlib.import_module("nexmark")
    before = bench.jobs_and_stages(spark)
    spark.range(4).repartition(2).collect()
    jobs, stages = bench.jobs_and_stages(spark) - before
    assert jobs >= 1
    assert stages >= 2
