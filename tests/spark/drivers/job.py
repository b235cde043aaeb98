"""A flow as a program of its own, for tests that kill it: a left join of two folders, sliding windows over the left
one, and its rows looked up in a table, into Parquet, to its end.

    python -m tests.spark.drivers.job FOLDER [--master URL] [--shards N] [--method NAME] [--places SEED]

With --places, Arrow reads the files, and where each epoch runs is drawn.
Methods that put joins off run with so little memory that most of the window is on disk.

Prints ``ready`` when epochs begin, ``epoch n`` after each, and ``done`` at the end.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow as pa

import penstock as pk
from penstock.operators.lookup import Front, HybridJoin, MeshJoin, Stages
from penstock.operators.window_join import AhEwj, Ewj, Rpwj
from tests.spark.conftest import Feed
from tests.spark.drivers.telling import draw_places, run_to_the_end, session
from tests.streams import COLUMNS

METHODS = {
    "oa": "oa",
    "ewj": Ewj(memory=60, page=8, row=1, chunk=16, refresh=2, gain=2),
    "ah_ewj": AhEwj(memory=60, page=4, row=1, chunk=16, partitions=3, refresh=2),
    "rpwj": Rpwj(memory=60, page=4, row=1, partitions=3),
}

LOOKUPS = {
    "oa": Stages(HybridJoin(slots=25), Front(slots=3, threshold=1)),
    "ewj": Stages(MeshJoin(slots=25)),
    "ah_ewj": "cinlj",
    "rpwj": Stages(HybridJoin(slots=40)),
}

NAMES = pa.table({"k": [0, 0, 1, 2, 3, 5, 8, 99], "name": ["a", "A", "b", "c", "d", "f", "i", "z"]})
"""Some keys of the stream, one of them twice."""


def main(folder: Path, master: str, shards: int | None, method: str, places: int | None) -> None:
    if places is not None:
        draw_places(places, ("driver", "pieces", "tasks", "spark"))
    spark = session(master, {"spark.task.maxFailures": "8"})
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory="64 MB", shards=shards)
    left, right = (source(flow, Feed(folder / name, COLUMNS), name, places is not None) for name in ("left", "right"))
    joined = left.join(right, on="k", within=pk.band(30, 30), how="left", method=METHODS[method])
    joined.to_parquet(str(folder / "out"))
    windows = left.window(range=50, slide=20).by("k").agg(n=pk.count(), most=pk.max("id"))
    windows.to_parquet(str(folder / "windows"))
    names = left.lookup(spark.createDataFrame(NAMES), on="k", how="left", method=LOOKUPS[method])
    names.to_parquet(str(folder / "names"))
    run_to_the_end(flow)


def source(flow: pk.Flow, feed: Feed, name: str, files: bool, payload: str = "auto") -> pk.Stream:
    """The rows of a feed, read by Arrow – on the left, of a DataFrame – or by Spark."""
    options = {"time": "t", "progress": pk.bounded_delay(20), "name": name}
    if files and name != "left":
        return flow.parquet(feed.folder, max_files=1, payload=payload, **options)
    return flow.source(feed.stream(flow.spark), payload=payload, scan="arrow" if files else "spark", **options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--shards", type=int)
    parser.add_argument("--method", choices=METHODS, default="oa")
    parser.add_argument("--places", type=int)
    arguments = parser.parse_args()
    main(arguments.folder, arguments.master, arguments.shards, arguments.method, arguments.places)
