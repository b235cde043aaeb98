"""Joins of three streams as a program of their own, for tests that kill it at a named step of an epoch (`steps`).

    python -m tests.spark.drivers.stepped_multi_way FOLDER [--sources KIND] [--place PLACE] [--payload HOME] …

It joins three folders by a tree over their full history (`tree`), by one operator within a band (`linear`), and by a
tree whose results follow an epoch later (`apart`), into Parquet, to their end. Sources are DataFrames (`frames`), files
that Arrow reads (`files`), or some of each (`mixed`). Prints ``ready`` when epochs begin, ``epoch n`` after each, and
``done`` at the end.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import penstock as pk
from tests.spark.conftest import Feed
from tests.spark.drivers.steps import CRASH, watch
from tests.spark.drivers.telling import draw_places, run_to_the_end, session

ROOT = Path(__file__).parents[3]

SCHEMA = pa.schema({"k": pa.int64(), "j": pa.string(), "t": pa.int64(), "id": pa.int64(), "pay": pa.string()})
ALIASES = ("a", "b", "c")
NEAR = 8
"""How far apart two rows of a result of `linear` are, at most."""
ON = {
    "tree": ("a.k = b.k", "b.j = c.j"),
    "linear": ("a.k = b.k", "b.k = c.k"),
    "apart": ("a.j = c.j", "c.k = b.k"),
}
"""What each part joins on."""

KINDS = {"frames": (), "mixed": ("b",), "files": ALIASES}
"""Which sources Arrow reads."""


def main(folder: Path, master: str, kind: str, place: str, payload: str) -> None:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    told = {f"spark.executorEnv.{CRASH}": os.environ.get(CRASH, "")}
    spark = session(master, told | {"spark.executorEnv.PYTHONPATH": os.pathsep.join(paths)})
    watch(folder, spark.sparkContext._gateway.proc.pid)
    draw_places(0, (place,))
    run_to_the_end(build(spark, folder, kind, payload))


def build(spark: SparkSession, folder: Path, kind: str, payload: str) -> pk.Flow:
    """The flow."""
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory="64 MB")
    streams = {}
    for alias in ALIASES:
        feed, told = Feed(folder / alias, SCHEMA), {"time": "t", "name": alias, "payload": payload}
        told["progress"] = pk.bounded_delay(20)
        # The first is a DataFrame in any case, as files that Arrow reads may be.
        arrow = alias in KINDS[kind]
        streams[alias] = (
            flow.parquet(feed.folder, max_files=1, schema=SCHEMA, **told)
            if arrow and alias != "a"
            else flow.source(feed.stream(spark), scan="arrow" if arrow else "spark", **told)
        )
    ways = {
        "tree": {"plan": "(a b) c"},
        "linear": {"plan": "a b c", "within": pk.band(NEAR, NEAR)},
        "apart": {"plan": "(a c) b", "within": pk.band(NEAR, NEAR), "materialize": pk.late(decoupled=True)},
    }
    for part, way in ways.items():
        joined = flow.join(**streams, on=list(ON[part]), name=part, **way)
        shown = [f"{alias}_{name}" for alias in ALIASES for name in ("id", "pay")]
        joined.select(*shown).to_parquet(str(folder / part))
    return flow


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", default="local[2,8]")
    parser.add_argument("--sources", choices=KINDS, default="files")
    parser.add_argument("--place", choices=("driver", "tasks", "spark"), default="tasks")
    parser.add_argument("--payload", choices=("segments", "source"), default="segments")
    told = parser.parse_args()
    main(told.folder, told.master, told.sources, told.place, told.payload)
