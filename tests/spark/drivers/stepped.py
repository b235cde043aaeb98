"""A flow as a program of its own, for tests that kill it at a named step of an epoch (`steps`).

    python -m tests.spark.drivers.stepped FOLDER [--master URL] [--sources KIND] [--place PLACE] [--parts NAMES] …

It joins two folders, with an outlet for late rows (part `out`), joins and then windows them (`chained`), looks rows
up (`names`), windows rows as they come, with an outlet for late ones (`windows`), and passes rows on as they are
(`read`), all into Parquet, to its end; with part `head` alone, until so many pairs are there. Sources are DataFrames
(`frames`; or those that pass through Python first, `python`), files that Arrow reads (`files`), or one of each
(`mixed`). Prints ``ready`` when epochs begin, ``epoch n`` after each, and ``done`` at the end.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import penstock as pk
from penstock.operators.lookup import HybridJoin, Stages
from tests.spark.conftest import Feed
from tests.spark.drivers.job import METHODS, NAMES, source
from tests.spark.drivers.steps import CRASH, SECOND, STRAGGLERS, RowTask, watch
from tests.spark.drivers.telling import draw_places, run_to_the_end, session
from tests.streams import COLUMNS

ROOT = Path(__file__).parents[3]

KINDS = {"frames": (), "python": (), "mixed": ("right",), "files": ("left", "right")}
"""Which sources Arrow reads."""

PARTS = ("out", "chained", "names", "read")

OF_THE_LEFT = {"names", "windows", "read"}
"""Parts that do without the right source."""

HEAD = 700
"""Rows of the part `head`: it has fewer after its first epoch, and more after the second."""


def main(
    folder: Path, master: str, kind: str, place: str, parts: Collection[str], payload: str, settings: list[str]
) -> None:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    spark = session(
        master,
        {f"spark.executorEnv.{name}": os.environ.get(name, "") for name in (CRASH, STRAGGLERS)}
        | {"spark.executorEnv.PYTHONPATH": os.pathsep.join(paths)}
        | dict(setting.split("=", 1) for setting in settings),
    )
    watch(folder, spark.sparkContext._gateway.proc.pid)
    draw_places(0, (place,))
    run_to_the_end(build(spark, folder, kind, parts, payload))


def build(spark: SparkSession, folder: Path, kind: str, parts: Collection[str], payload: str = "auto") -> pk.Flow:
    """The flow. What comes out when depends on the order of rows in all its parts but the first.

    That one also has a join whose results follow an epoch later, where rows leave payload behind.
    """
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory="64 MB")
    used = ("left",) if OF_THE_LEFT.issuperset(parts) else ("left", "right")
    feeds = {n: (PythonFeed if kind == "python" else Feed)(folder / n, COLUMNS) for n in used}
    left, *others = (source(flow, feed, n, n in KINDS[kind], payload) for n, feed in feeds.items())
    right = others[0] if others else left
    if "out" in parts:
        joined = left.join(right, on="k", within=pk.band(30, 30), how="left", name="joined")
        joined.select("id", "id_right").to_parquet(str(folder / "out"))
        joined.late.to_parquet(str(folder / "late"))
    if "apart" in parts:
        late = pk.late(decoupled=True)
        apart = flow.join(l=left, r=right, on="l.k = r.k", within=pk.band(5, 5), materialize=late, name="apart")
        apart.select("l_id", "r_id").to_parquet(str(folder / "apart"))
    if "chained" in parts:
        near = left.join(right, on="k", within=pk.band(5, 5), time="left", method=METHODS["ewj"], name="near")
        chained = near.window(range=40).by("k").agg(n=pk.count(), most=pk.max("id"), name=SECOND)
        chained.to_parquet(str(folder / "chained"))
    if "names" in parts:
        table, waiting = spark.createDataFrame(NAMES), Stages(HybridJoin(slots=25))
        left.lookup(table, on="k", how="left", method=waiting, name="names").to_parquet(str(folder / "names"))
    if "windows" in parts:
        windows = left.window(range=50, slide=20).by("k").agg(n=pk.count(), most=pk.max("id"), name="windows")
        windows.to_parquet(str(folder / "windows"))
        windows.late.to_parquet(str(folder / "missed"))
    if "read" in parts:
        left.where("k < 9").select("id", "2 * k AS twice").to_parquet(str(folder / "read"))
    if "head" in parts:
        left.join(right, on="k", name="ever").head(HEAD).select("id", "id_right").to_parquet(str(folder / "head"))
    return flow


class PythonFeed(Feed):
    """A folder whose rows pass through Python on their way into a DataFrame."""

    def stream(self, spark: SparkSession) -> DataFrame:
        rows = super().stream(spark)
        return rows.mapInArrow(RowTask(self.folder.name), rows.schema)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", default="local[2,8]")
    parser.add_argument("--sources", choices=KINDS, default="files")
    parser.add_argument("--place", choices=("driver", "tasks", "spark"), default="tasks")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--payload", default="auto")
    parser.add_argument("--set", action="append", default=[], help="a setting of Spark, NAME=VALUE")
    told = parser.parse_args()
    main(told.folder, told.master, told.sources, told.place, told.parts.split(","), told.payload, told.set)
