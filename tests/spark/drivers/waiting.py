"""A flow as a program of its own that waits for signals: ``python -m tests.spark.drivers.waiting FOLDER start|run``.

Its epochs take a second each. Prints ``begin n`` and ``commit n`` for each, and ``stopped`` when the query has.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import penstock as pk
from tests.spark.conftest import Feed
from tests.spark.jvm import QUICK_JVM


def main(folder: Path, how: str) -> None:
    # Spark's own log stays on: what it says of a stop is what users see.
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.extraJavaOptions", QUICK_JVM)
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory="64 MB")
    rows = Feed(folder / "rows", pa.schema({"t": pa.int64()})).stream(spark)
    flow.source(rows, time="t", progress=pk.ordered(), name="rows", scan="spark").foreach_epoch(take_a_second)
    log = logging.getLogger("penstock")
    log.setLevel("INFO")
    log.addHandler(Tell())
    if how == "run":
        flow.run()
    else:
        flow.start(trigger="100 ms").await_end()
    print("stopped", flush=True)


def take_a_second(rows: DataFrame, epoch: int) -> None:
    print("begin", epoch, flush=True)
    time.sleep(1)
    rows.repartition(1).collect()


class Tell(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print("commit", record.getMessage().partition(":")[0].removeprefix("epoch "), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
