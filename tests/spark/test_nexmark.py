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


def test_every_query_gives_the_rows_of_its_definition(interpreted: SparkSession, tmp_path: Path):
    EVENTS.write(tmp_path / "events", files_per_epoch=2)
    definition = Definition(tmp_path / "events")
    schema = interpreted.read.parquet(str(tmp_path / "events")).schema
    files = interpreted.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(str(tmp_path / "events"))
    flow = pk.Flow(interpreted, checkpoint=str(tmp_path / "state"), memory="512 MB")
    events = flow.source(files, time="dateTime", progress=pk.bounded_delay("4 s"), name="events")
    results = {name: query.build(flow, events).to_memory() for name, query in QUERIES.items()}
    flow.run()
    for name, query in QUERIES.items():
        rows: pa.Table = results[name].table()
        definition.check(query, rows)


def test_every_query_is_compared_with_sparks_own():
    assert NATIVE.keys() == QUERIES.keys()
