"""One Spark session for all the tests here, and streams made of files: one file per source and epoch."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

from pyspark.sql import DataFrame, SparkSession

from penstock.spark.flow import SparkFlow
from penstock.spark.place import Place, Placement
from penstock.spark.session import settings
from tests.spark.jvm import INTERPRETED, QUICK_JVM


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session; it compiles queries only for tests that ask for `compiled`."""
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("penstock-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "OFF")
        .config("spark.driver.memory", "2g")
        # What shuffles write can be compared with what went in.
        .config("spark.shuffle.compress", "false")
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
    )
    session = builder.config(map=INTERPRETED).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def places(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each epoch run at a random place that its flow can run at: small ones would all run in the driver."""
    if request.node.get_closest_marker("spark") is None or request.node.get_closest_marker("own_place") is not None:
        return
    random = Random(request.node.nodeid)
    choices: list[Place] = ["driver"] * 3 + ["pieces", "tasks", "spark"]
    monkeypatch.setattr(Placement, "choose", lambda self, size: (self.at_most(random.choice(choices)), "drawn"))


@pytest.fixture(autouse=True)
def scans(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark read DataFrames, as it does all that are not of Parquet files, unless a test is about who reads."""
    if request.node.get_closest_marker("spark") is not None and request.node.get_closest_marker("own_scan") is None:
        monkeypatch.setattr(SparkFlow, "_prefers_arrow", False)


@pytest.fixture
def in_tasks(places: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no epoch run in the driver."""
    monkeypatch.setattr(Placement, "choose", lambda self, size: (self.elsewhere, "said"))


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    """Let Spark compile queries, as it does for users: for tests with many rows, and some with few."""
    with settings(spark, {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}):
        yield


@dataclass
class Feed:
    """A folder that a stream reads, a file per epoch; files are added in order of time."""

    folder: Path
    schema: pa.Schema
    count: int = 0
    group: int | None = None
    """Rows of a row group; all of a file, unless given."""

    def add(self, rows: pa.Table) -> None:
        """One more epoch's rows."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.count:05d}.parquet"
        pq.write_table(rows.cast(self.schema), path, row_group_size=self.group)
        os.utime(path, (1_600_000_000 + self.count, 1_600_000_000 + self.count))
        self.count += 1

    def stream(self, spark: SparkSession) -> DataFrame:
        """The folder as a stream, one file per micro-batch."""
        sample = self.folder.parent / f"{self.folder.name}-schema.parquet"
        pq.write_table(self.schema.empty_table(), sample)
        schema = spark.read.parquet(str(sample)).schema
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.folder))


@pytest.fixture
def feed(tmp_path: Path) -> Callable[[str, Sequence[pa.Table]], Feed]:
    """Make a feed of tables: ``feed("orders", [epoch0, epoch1])``."""

    def make(name: str, epochs: Sequence[pa.Table]) -> Feed:
        made = Feed(tmp_path / name, epochs[0].schema)
        for rows in epochs:
            made.add(rows)
        return made

    return make


def multiset(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset, columns in the table's order; nested values as text, NaN as a value."""
    columns = [[_plain(value) for value in column.to_pylist()] for column in rows.columns]
    return Counter(zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return "NaN"
    return str(value) if isinstance(value, dict | list) else value
