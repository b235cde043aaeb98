"""How many jobs of Spark an epoch takes, and how often Spark reads its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import penstock as pk
from penstock.flow.stream import Stream
from penstock.spark.engine import Engine
from penstock.spark.place import Placement

pytestmark = [pytest.mark.spark, pytest.mark.own_place]

ROWS, EPOCHS = 1000, 3


class Costs:
    """The jobs and the stages of each epoch."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext._jsc.sc()
        self.jobs: list[int] = []
        self._stages: list[range] = []

    def of(self, epoch: Callable[[], Any]) -> Any:
        """Run an epoch and note what it took."""
        jobs, stage = self._now()
        done = epoch()
        after = self._now()
        self.jobs.append(after[0] - jobs)
        self._stages.append(range(stage, after[1]))
        return done

    @property
    def scans(self) -> list[int]:
        """How often Spark read so many rows in each epoch; a few of its tasks read a row that says what they do."""
        self._context.listenerBus().waitUntilEmpty()
        return [sum(map(self._read, stages)) // ROWS for stages in self._stages]

    def _now(self) -> tuple[int, int]:
        scheduler = self._context.dagScheduler()
        return int(scheduler.numTotalJobs()), int(scheduler.nextStageId())

    def _read(self, stage: int) -> int:
        try:
            return int(self._context.statusStore().lastStageAttempt(stage).inputRecords())
        except Py4JJavaError:  # it was skipped: what it would make is there
            return 0


Source = Callable[[str], Stream]
"""Makes a source of a name."""


def one(source: Source) -> Iterator[Stream]:
    yield source("rows").distinct(on="id", within=50)


def chain(source: Source) -> Iterator[Stream]:
    windows = source("rows").where("id > 0").window(range=50, slide=10).by("k").agg(n=pk.count(), last=pk.last("id"))
    yield windows.where("n > 1").window(range=100, slide=100).agg(total=pk.sum("n"))


def join(source: Source) -> Iterator[Stream]:
    yield source("rows").join(source("other"), on="k", within=pk.band(before=1, after=1)).where("id % 2 = 0")


def two(source: Source) -> Iterator[Stream]:
    rows, other = source("rows"), source("other")
    yield rows.distinct(on="id", within=50)
    yield rows.join(other, on="k", within=pk.band(before=1, after=1))


def none(source: Source) -> Iterator[Stream]:
    yield source("rows").where("id % 2 = 0").select("t", "k")


FLOWS = {build.__name__: build for build in (one, chain, join, two, none)}


def run(spark: SparkSession, folder: Path, build: Callable[[Source], Iterator[Stream]], frames: bool) -> None:
    """Run an epoch for each file; two sources have one folder each."""
    rng = np.random.default_rng(7)
    flow = pk.Flow(spark, checkpoint=f"{folder}/c", memory="64 MB")

    def source(name: str) -> Stream:
        for epoch in range(EPOCHS):
            times = np.sort(epoch * 100 + rng.integers(0, 100, ROWS))
            rows = pa.table({"t": times, "k": rng.integers(0, 50, ROWS), "id": epoch * ROWS + np.arange(ROWS)})
            (folder / name).mkdir(exist_ok=True)
            pq.write_table(rows, folder / name / f"{epoch}.parquet")
        if not frames:
            return flow.parquet(folder / name, time="t", name=name, max_files=1)
        reader = spark.readStream.schema("t LONG, k LONG, id LONG").option("maxFilesPerTrigger", 1)
        return flow.source(reader.parquet(f"{folder}/{name}"), time="t", name=name)

    for number, stream in enumerate(build(source)):
        stream.to_parquet(folder / f"out{number}")
    flow.run(end=False)


@pytest.fixture
def costs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bool, str], Costs]:
    """Run a flow at a place, and tell what its epochs took."""
    of_engine = Engine._run

    def made(name: str, frames: bool, place: str) -> Costs:
        found = Costs(spark)
        monkeypatch.setattr(Placement, "choose", lambda self, size: (self.at_most(place), "said"))
        monkeypatch.setattr(Engine, "_run", lambda self, *args: found.of(lambda: of_engine(self, *args)))
        run(spark, tmp_path, FLOWS[name], frames)
        return found

    return made


@pytest.mark.parametrize("name", ["chain", "two"])
def test_an_epoch_of_files_takes_no_job_where_the_driver_is(costs, name):
    assert costs(name, False, "driver").jobs == [0] * EPOCHS


@pytest.mark.parametrize(("name", "sinks"), [("one", 1), ("chain", 1), ("join", 1), ("two", 2), ("none", 1)])
def test_an_epoch_of_files_takes_one_job_for_each_sink_in_tasks(costs, name, sinks):
    found = costs(name, False, "tasks")
    assert found.jobs == [sinks] * EPOCHS
    assert found.scans == [0] * EPOCHS


@pytest.mark.parametrize(("name", "sources"), [("chain", 1), ("two", 2)])
def test_an_epoch_of_dataframes_takes_one_job_where_the_driver_is_and_one_scan_of_each_source(costs, name, sources):
    found = costs(name, True, "driver")
    assert found.jobs == [1] * EPOCHS
    assert found.scans == [sources] * EPOCHS


@pytest.mark.parametrize(
    ("name", "jobs", "sources"),
    [("one", [1, 1, 1], 1), ("join", [1, 1, 1], 2), ("none", [1, 1, 1], 1), ("chain", [2, 3, 3], 1)],
)
def test_an_epoch_of_dataframes_scans_each_source_once_where_spark_shuffles_its_rows(costs, name, jobs, sources):
    """A look-ahead and what is made natively for windows take jobs of their own, but read what the first has kept."""
    found = costs(name, True, "spark")
    assert found.jobs == jobs
    assert found.scans == [sources] * EPOCHS
