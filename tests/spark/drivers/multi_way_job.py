"""A join of three streams as a program of its own, for tests that kill it: files in, Parquet out, to their end.

    python -m tests.spark.drivers.multi_way_job FOLDER [--shards N] [--places SEED] [--materialize MODE]

Where each epoch runs is drawn. Prints ``ready`` when epochs begin, ``epoch n`` after each, and ``done`` at the end.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from random import Random

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

import penstock as pk
from lab.workloads.visits import ON, PLAN
from penstock.spark.place import Placement
from tests.spark.drivers.job import Tell
from tests.spark.jvm import INTERPRETED, QUICK_JVM


def main(folder: Path, shards: int, places: int, materialize: str) -> None:
    builder = SparkSession.builder.master("local[2]").appName("penstock-multi-way").config(map=INTERPRETED)
    builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.driver.extraJavaOptions", QUICK_JVM).getOrCreate()
    draw = Random(places)
    Placement.choose = lambda self, size: (self.at_most(draw.choice(("driver", "tasks", "spark"))), "drawn")  # type: ignore[method-assign]
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory="64 MB", shards=shards)
    streams = {name: flow.parquet(folder / name, time="t", name=name, max_files=1) for name in ("v", "u", "p")}
    flow.join(**streams, on=list(ON), plan=PLAN, materialize=materialize).to_parquet(str(folder / "out"))
    log = logging.getLogger("penstock")
    log.setLevel("INFO")
    log.addHandler(Tell())
    print("ready", flush=True)
    flow.run()
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--places", type=int, default=0)
    parser.add_argument("--materialize", default="late")
    told = parser.parse_args()
    main(told.folder, told.shards, told.places, told.materialize)
