"""Rows of a DataFrame on their way to shards: one by one through Spark's shuffle, or as Arrow blobs.

    python benchmarks/frame_blobs.py

Files that Arrow reads in Python tasks travel as blobs. Rows of a DataFrame would first have to leave the JVM to become
blobs, and the blobs to come back: what the shuffle saves, that costs. Hence they go row by row.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from statistics import median

os.environ["PYSPARK_PYTHON"] = sys.executable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

SHARDS = 2
ROUNDS = 5


def write(folder: str, rows: int, texts: int) -> None:
    """Two files of keys and times, with some columns of 100 letters beside them."""
    rng = np.random.default_rng(1)
    columns = {"k": rng.integers(0, 100_000, rows), "t": np.arange(rows), "v": rng.integers(0, 1000, rows)}
    columns |= {f"s{n}": [f"{x:0100d}" for x in rng.integers(0, 10**9, rows)] for n in range(texts)}
    table = pa.table(columns)
    for part in range(2):
        pq.write_table(table.slice(part * rows // 2, rows // 2), f"{folder}/{part}.parquet")


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"n": [sum(batch.num_rows for batch in batches)]})


def opened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        for blob in batch.column(1):
            with pa.ipc.open_stream(blob.as_buffer()) as stream:
                rows += sum(part.num_rows for part in stream)
    yield pa.RecordBatch.from_pydict({"n": [rows]})


def cut(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        shards = (batch.column(0).to_numpy().view(np.uint64) % np.uint64(SHARDS)).astype(np.int32)
        for shard in range(SHARDS):
            part = batch.take(pa.array(np.flatnonzero(shards == shard)))
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema) as stream:
                stream.write_batch(part)
            blob = pa.array([sink.getvalue().to_pybytes()], pa.binary())
            yield pa.RecordBatch.from_arrays([pa.array([shard], pa.int32()), blob], names=["shard", "batch"])


def as_rows(rows: DataFrame) -> DataFrame:
    shard = sf.pmod("h", sf.lit(SHARDS)).cast("int")
    return rows.repartitionById(SHARDS, shard).mapInArrow(counted, "n long")


def as_blobs(rows: DataFrame) -> DataFrame:
    blobs = rows.mapInArrow(cut, "shard int, batch binary")
    return blobs.repartitionById(SHARDS, sf.col("shard")).mapInArrow(opened, "n long")


def main() -> None:
    builder = SparkSession.builder.master(f"local[{SHARDS}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.log.level", "ERROR").config("spark.driver.memory", "4g")
    spark = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "65536").getOrCreate()
    for name, rows, texts in (("narrow", 2_300_000, 0), ("ten texts", 400_000, 10)):
        with tempfile.TemporaryDirectory() as folder:
            write(folder, rows, texts)
            frame = spark.read.parquet(folder)
            hashed = frame.select(sf.xxhash64("k").alias("h"), *frame.columns)
            took: dict[str, list[float]] = {"rows": [], "blobs": []}
            for _ in range(ROUNDS + 1):
                for way, hop in (("rows", as_rows), ("blobs", as_blobs)):
                    begun = time.perf_counter()
                    assert sum(hop(hashed).toArrow().column(0).to_pylist()) == rows
                    took[way].append(time.perf_counter() - begun)
        seconds = {way: median(times[1:]) for way, times in took.items()}
        print(f"{name}: {rows:,} rows, as rows {seconds['rows']:.2f} s, as blobs {seconds['blobs']:.2f} s")


if __name__ == "__main__":
    main()
