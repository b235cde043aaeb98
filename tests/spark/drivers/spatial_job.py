"""Two joins of boxes as a program of its own, for tests that kill it: files in, Parquet out, to their end.

    python -m tests.spark.drivers.spatial_job FOLDER [--shards N] [--places SEED]

One sends rows to the cells that they touch, the other spreads its left side. Where each epoch runs is drawn. Prints
``ready`` when epochs begin, ``epoch n`` after each, and ``done`` at the end.
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
from penstock.spark.place import Placement
from tests.spark.drivers.job import Tell
from tests.spark.jvm import INTERPRETED, QUICK_JVM


def main(folder: Path, shards: int, places: int) -> None:
    builder = SparkSession.builder.master("local[2]").appName("penstock-spatial").config(map=INTERPRETED)
    builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.driver.extraJavaOptions", QUICK_JVM).getOrCreate()
    draw = Random(places)
    Placement.choose = lambda self, size: (self.at_most(draw.choice(("driver", "tasks", "spark"))), "drawn")  # type: ignore[method-assign]
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory="64 MB", shards=shards)
    left, right = (flow.parquet(folder / name, time="t", name=name, max_files=1) for name in ("left", "right"))
    cells = left.join(right, on=pk.intersects("b", cell=0.5), method="rrpj", name="cells")
    cells.select("id", "id_right").to_parquet(str(folder / "cells"))
    spread = left.join(right, on=pk.intersects("b"), how="left", method="rrpj", name="spread")
    spread.select("id", "id_right").to_parquet(str(folder / "spread"))
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
    told = parser.parse_args()
    main(told.folder, told.shards, told.places)
