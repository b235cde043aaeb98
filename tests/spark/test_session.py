"""Sessions that were made without a thought for penstock: what a user has who adds it to a job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.spark.session import create_file

pytestmark = pytest.mark.spark

PROGRAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
import penstock as pk
flow = pk.Flow(spark, checkpoint=r"{folder}", memory="32 MB")
left, right = (flow.source(spark.range(5).selectExpr("id", "id AS t"), time="t", name=name) for name in "lr")
rows = left.join(right, on="id", within=pk.band(0, 0)).to_memory()
flow.run()
print("rows:", rows.table().num_rows)
"""


def test_workers_run_the_python_that_has_penstock_though_nobody_said_so(tmp_path):
    """The first python3 on the path is one that cannot import anything."""
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho this python has no penstock >&2\nexit 1\n")
    other.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(folder=tmp_path / "checkpoint")],
        env=env | {"PATH": f"{other.parent}:{env['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "rows: 5" in done.stdout, done.stderr[-3000:]


def test_workers_take_memory_from_the_system_so_that_it_goes_back_there(spark, feed, tmp_path):
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="32 MB")
    source = flow.source(feed("rows", [pa.table({"t": pa.array([1, 2])})]).stream(spark), time="t")
    source.to_memory()
    flow.run()

    def allocator(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (pa.record_batch({"name": [pa.default_memory_pool().backend_name]}) for _ in batches)

    assert spark.range(1).mapInArrow(allocator, "name string").first().name == "system"


WRITER = "spark.sql.streaming.checkpointFileManagerClass"
THEIRS = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"


@pytest.mark.parametrize(("asked", "used"), [(None, "FileSystemBased"), (THEIRS, "FileContextBased")])
def test_the_logs_of_a_query_are_written_without_programs_unless_the_session_says_how(
    spark, feed, tmp_path, asked, used
):
    session = spark.newSession()
    if asked is not None:
        session.conf.set(WRITER, asked)
    rows = feed("rows", [pa.table({"t": pa.array([1, 2])})])
    seen: list[str] = []
    flow = pk.Flow(session, checkpoint=str(tmp_path / "checkpoint"), memory="32 MB")
    source = flow.source(rows.stream(session), time="t", progress=pk.bounded_delay(0))
    source.foreach_epoch(lambda batch, epoch: seen.append(batch.sparkSession.conf.get(WRITER)))
    query = flow.run(end=False)
    assert [name.rpartition(".")[2] for name in seen] == [f"{used}CheckpointFileManager"]
    assert {writer_of(source) for source in file_sources(query)} == {f"{used}CheckpointFileManager"}
    assert session.conf.get(WRITER, None) == asked


def test_hadoop_keeps_no_checksums_of_the_logs_of_a_query_and_files_of_its_epochs_are_as_ever(spark, feed, tmp_path):
    """It starts a program for each file that it keeps them of."""
    rows = feed("rows", [pa.table({"t": pa.array([1, 2])})])
    seen: list[str | None] = []
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="32 MB")
    source = flow.source(rows.stream(spark), time="t", progress=pk.bounded_delay(0))
    source.foreach_epoch(lambda batch, epoch: seen.append(batch.sparkSession.conf.get("fs.file.impl", None)))
    source.to_format("parquet", path=str(tmp_path / "out"))
    flow.run()
    logs = [path.name for path in (tmp_path / "checkpoint" / "spark").rglob("*") if path.is_file()]
    assert {"metadata", "0"} <= {*logs}
    assert not [name for name in logs if name.endswith(".crc")]
    assert list((tmp_path / "out").rglob("*.crc"))
    assert seen[0] is None
    assert spark.conf.get("fs.file.impl", None) is None


def test_a_file_system_that_the_session_names_writes_the_logs_of_a_query(spark, feed, tmp_path):
    session = spark.newSession()
    session.conf.set("fs.file.impl", "org.apache.hadoop.fs.LocalFileSystem")
    flow = pk.Flow(session, checkpoint=str(tmp_path / "checkpoint"), memory="32 MB")
    flow.source(feed("rows", [pa.table({"t": pa.array([1, 2])})]).stream(session), time="t").to_memory()
    flow.run()
    assert list((tmp_path / "checkpoint" / "spark" / "offsets").glob(".*.crc"))
    assert session.conf.get("fs.file.impl") == "org.apache.hadoop.fs.LocalFileSystem"


def file_sources(query: Any) -> list[Any]:
    """The sources of files that Spark made for a query, which know which files they have given."""
    sources = query.streaming_query._jsq.streamingQuery().sources()
    found = [sources.apply(place) for place in range(sources.size())]
    return [source for source in found if source.getClass().getSimpleName() == "FileStreamSource"]


def writer_of(source: Any) -> str:
    """What writes the log of a source."""
    fields = {field.getName(): field for field in source.getClass().getDeclaredFields()}
    log = next(field for name, field in fields.items() if name.endswith("metadataLog"))
    log.setAccessible(True)
    return str(log.get(source).fileManager().getClass().getSimpleName())


def test_a_file_is_made_only_once(spark, tmp_path):
    """What leases and ledgers rely on where files are not local."""
    path = f"file://{tmp_path}/lease/1.json"
    assert create_file(spark, path, b"first")
    assert not create_file(spark, path, b"second")
    assert (tmp_path / "lease" / "1.json").read_bytes() == b"first"
