"""Nexmark's queries on Spark, all in one flow: what DuckDB gives, row by row, over a few disordered epochs."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock as pk

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from nexmark_check import Definition
from nexmark_events import Events
from nexmark_queries import QUERIES
from nexmark_spark import NATIVE

pytestmark = pytest.mark.spark

EVENTS = Events(epoch_rows=2000, epochs=3, pause_us=6_000_000)


@pytest.mark.parametrize("source", ["files", pytest.param("dataframe", marks=pytest.mark.deep)])
def test_every_query_gives_the_rows_of_its_definition(spark: SparkSession, tmp_path: Path, source: str):
    EVENTS.write(tmp_path / "events", files_per_epoch=2)
    definition = Definition(tmp_path / "events")
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "state"), memory="512 MB")
    folder, progress = str(tmp_path / "events"), pk.bounded_delay("4 s")
    if source == "files":
        events = flow.parquet(folder, time="dateTime", progress=progress, name="events", max_files=2)
    else:
        reader = spark.readStream.schema(spark.read.parquet(folder).schema)
        frame = reader.option("maxFilesPerTrigger", 2).parquet(folder)
        events = flow.source(frame, time="dateTime", progress=progress, name="events")
    results = {name: query.build(flow, events).to_memory() for name, query in QUERIES.items()}
    told = flow.run().progress()
    for name, query in QUERIES.items():
        rows: pa.Table = results[name].table()
        definition.check(query, rows)
        assert rows.num_rows > 0, name
    assert told.late == 0


def test_every_query_is_compared_with_sparks_own():
    assert NATIVE.keys() == QUERIES.keys()
