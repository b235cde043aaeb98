"""Failures of sinks, sources and disks on Spark: one short error, with the original chained."""

from __future__ import annotations

import subprocess

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

import penstock as pk

pytestmark = pytest.mark.spark

ROWS = pa.table({"t": [1, 2], "k": [1, 2]})
AGAIN = "The epoch was not committed. Remove the cause and start the flow again: the epoch is repeated."


@pytest.fixture
def flow(spark, tmp_path):
    return pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="64 MB")


def orders(flow, data):
    return flow.source(data, time="t", progress=pk.ordered(), name="orders")


def failure_of(flow) -> pk.FlowError:
    """The error of a run: short, and one that has another below it."""
    with pytest.raises(pk.FlowError) as error:
        flow.run()
    assert len(str(error.value)) < 600
    assert "\n" not in str(error.value)
    assert error.value.__cause__ is not None
    return error.value


def test_a_function_that_raises_is_named_with_its_epoch_and_its_error(spark, flow, feed):
    def save(rows, epoch):
        if epoch == 1:
            raise ValueError("no such table: paid\nand many more lines")

    orders(flow, feed("orders", [ROWS, ROWS]).stream(spark)).foreach_epoch(save)
    error = failure_of(flow)
    assert isinstance(error, pk.SinkError)
    assert str(error) == f"Epoch 1 failed in sink foreach_epoch save: ValueError: no such table: paid. {AGAIN}"
    assert isinstance(error.__cause__, ValueError)


def test_a_spark_job_of_a_function_is_told_by_the_error_of_its_worker(spark, flow, feed):
    def save(rows, epoch):
        rows.select(sf.udf(lambda t: 1 // 0, "int")("t")).collect()

    orders(flow, feed("orders", [ROWS]).stream(spark)).foreach_epoch(save)
    error = failure_of(flow)
    assert str(error).startswith("Epoch 0 failed in sink foreach_epoch save: ZeroDivisionError: integer division")


def test_a_writer_that_fails_is_named(spark, flow, feed, tmp_path):
    (tmp_path / "out").write_text("a file")
    orders(flow, feed("orders", [ROWS]).stream(spark)).to_parquet(str(tmp_path / "out"))
    error = failure_of(flow)
    assert isinstance(error, pk.SinkError)
    assert str(error).startswith(f"Epoch 0 failed in sink parquet {tmp_path}/out: ParentNotDirectoryException: ")


def test_a_corrupt_file_is_named_with_the_source_that_reads_it(spark, flow, feed, tmp_path):
    good, bad = feed("good", [ROWS, ROWS]), feed("bad", [ROWS])
    stream = bad.stream(spark)
    (tmp_path / "bad" / "00001.parquet").write_bytes(b"PAR1 no Parquet")
    left = flow.source(good.stream(spark), time="t", progress=pk.ordered(), name="payments")
    left.join(orders(flow, stream), on="k", within=pk.band(before=1, after=1)).to_memory()
    error = failure_of(flow)
    assert isinstance(error, pk.SourceError)
    assert "failed in source 'orders': " in str(error)
    assert f"{tmp_path}/bad/00001.parquet" in str(error)


def test_a_malformed_record_is_named_with_its_source_and_file(spark, flow, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"t": 1}\n{"t": 2')
    orders(flow, spark.readStream.schema("t BIGINT").option("mode", "FAILFAST").json(str(tmp_path / "in"))).to_memory()
    error = failure_of(flow)
    assert isinstance(error, pk.SourceError)
    assert str(error).startswith(f"Epoch 0 failed in source 'orders': {tmp_path}/in/0.json: ")


def test_a_python_function_of_a_source_is_told_by_its_error(spark, flow, feed):
    stream = feed("orders", [ROWS]).stream(spark).withColumn("w", sf.udf(lambda t: {}["shop"], "int")("t"))
    orders(flow, stream).to_memory()
    error = failure_of(flow)
    assert str(error) == f"Epoch 0 failed in the rows of source 'orders' for sink memory: KeyError: 'shop'. {AGAIN}"


@pytest.fixture
def disk(tmp_path):
    """A disk that is soon full."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small disk")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=False)


def test_a_full_disk_is_told_with_what_was_written(spark, flow, feed, disk):
    stream = feed("orders", [pa.table({"t": range(200_000)})]).stream(spark)
    orders(flow, stream).to_parquet(str(disk / "out"))
    error = failure_of(flow)
    assert str(error).startswith(f"Epoch 0 failed in sink parquet {disk}/out: ")
    assert "No space left on device. The disk is full. Free some space and start" in str(error)


def test_a_disk_too_full_for_state_is_told_as_that(spark, feed, disk):
    flow = pk.Flow(spark, checkpoint=str(disk / "c"), memory="64 MB")
    rows = pa.table({"t": range(50_000), "k": range(50_000)})
    left, right = (
        flow.source(feed(name, [rows]).stream(spark), time="t", progress=pk.ordered(), name=name) for name in "lr"
    )
    left.join(right, on="k", within=pk.band(before=50_000, after=50_000)).to_memory()
    error = failure_of(flow)
    assert str(error).startswith("Epoch 0 failed in the state in the checkpoint: OSError: ")
    assert "No space left on device. The disk is full." in str(error)
