"""Two joins without a window as a program of its own, for tests that kill it: files in, Parquet out, to their end.

    python -m tests.spark.drivers.predicate_job FOLDER --on keys|boxes|geometries|vectors [--shards N] [--places SEED]

Of the predicates, one sends rows to the cells that they touch, the other spreads its left side. Few rows fit memory, so
most pairs are put off. Where each epoch runs is drawn, unless --place says it. With --trigger epochs go on, silent ones
after those with rows, until the process is killed. It may be told to die at a step of an epoch (`steps`). Prints
``ready`` when epochs begin, ``epoch n`` after each, and ``done`` at the end.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from pyspark.sql import SparkSession

import penstock as pk
from penstock.spark.query import SparkQuery
from penstock.storage.versioned import Checkpoint
from tests.spark.drivers.steps import CRASH, watch
from tests.spark.drivers.telling import draw_places, run_to_the_end, session

DISTANCE = 0.25

ON = {
    "keys": ("k", "k"),
    "boxes": (pk.intersects("b", cell=0.5), pk.intersects("b")),
    "geometries": (pk.intersects("g", cell=0.5), pk.intersects("g")),
    "vectors": (pk.near(["x", "y", "z"], distance=DISTANCE), pk.near("v", distance=DISTANCE)),
}
"""What is joined by the first join, and by the second."""

HOWS = {kind: ("inner", "full" if kind == "keys" else "left") for kind in ON}
"""Rows that are kept by a predicate have no copies; of keys, both sides may be."""

METHODS = (pk.Rrpj(memory=25, row=1, partitions=7), pk.Rrpj(memory=25, row=1, by="row"))


def main(told: argparse.Namespace) -> None:
    folder: Path = told.folder
    spark = session("local[2,8]")
    watch(folder, spark.sparkContext._gateway.proc.pid)
    draw_places(told.places, ("driver", "tasks", "spark") if told.place is None else (told.place,))
    if told.at_end is not None:
        build(spark, folder, told.on, told.shards).run(end=False)
        step, victim = told.at_end.split(":")
        last = Checkpoint(str(folder / "checkpoint")).latest().epoch + 1
        # Tasks get the environment that the session has when they are sent out.
        os.environ[CRASH] = spark.sparkContext.environment[CRASH] = f"{folder};{step}:{last}:{victim}"
        SparkQuery._start = lambda self, **trigger: None  # type: ignore[method-assign]
    run_to_the_end(build(spark, folder, told.on, told.shards), told.trigger)


def build(spark: SparkSession, folder: Path, on: str, shards: int) -> pk.Flow:
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory="64 MB", shards=shards)
    left, right = (flow.parquet(folder / name, time="t", name=name, max_files=1) for name in ("left", "right"))
    for name, how, by, method in zip(("first", "second"), HOWS[on], ON[on], METHODS, strict=True):
        joined = left.join(right, on=by, how=how, method=method, name=name)
        joined.select("id", "id_right").to_parquet(str(folder / name))
    return flow


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--on", choices=ON, required=True)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--places", type=int, default=0)
    parser.add_argument("--place", choices=("driver", "tasks", "spark"))
    parser.add_argument("--trigger")
    parser.add_argument("--at-end", help="STEP:VICTIM in the epoch that ends the streams")
    main(parser.parse_args())
