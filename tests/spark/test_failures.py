"""Failures of sinks, sources and disks on Spark: one short error, with the original chained."""

from __future__ import annotations

import os
import signal
import subprocess
import types

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

import penstock as pk
from penstock.spark import failures
from penstock.spark.session import settings

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


def test_a_function_that_wants_to_exit_fails_like_any_other(spark, flow, feed):
    def save(rows, epoch):
        raise SystemExit(3)

    orders(flow, feed("orders", [ROWS]).stream(spark)).foreach_epoch(save)
    assert str(failure_of(flow)) == f"Epoch 0 failed in sink foreach_epoch save: SystemExit: 3. {AGAIN}"


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


def json_rows(spark, flow, folder):
    """The rows of a folder of JSON files, one file per epoch; folder names may need quoting in a URI."""
    stream = spark.readStream.schema("t BIGINT").option("mode", "FAILFAST").option("maxFilesPerTrigger", 1)
    return orders(flow, stream.json(str(folder)))


def write_json(folder, *contents):
    folder.mkdir()
    for number, content in enumerate(contents):
        (folder / f"{number}.json").write_text(content)
        os.utime(folder / f"{number}.json", (1_600_000_000 + number, 1_600_000_000 + number))


def test_a_bad_file_is_to_be_repaired_and_not_deleted(spark, tmp_path):
    """Spark would count no rows for a file that is gone, and never read one of its name again."""
    folder = tmp_path / "to read"
    write_json(folder, '{"t": 1}', '{"t": 2', '{"t": 3}')

    def run():
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="64 MB")
        rows = json_rows(spark, flow, folder).to_memory()
        flow.run(end=False)
        return rows.table()["t"].to_pylist()

    with pytest.raises(pk.SourceError, match=r"Repair the file in place, or put an empty one there"):
        run()
    (folder / "1.json").unlink()
    with pytest.raises(pk.SourceError, match=rf"Epoch 1 needs input file {folder}/1\.json, which is gone\."):
        run()
    (folder / "1.json").mkdir()
    with pytest.raises(pk.SourceError, match=rf"Epoch 1 needs input file {folder}/1\.json, which is gone\."):
        run()
    (folder / "1.json").rmdir()
    (folder / "1.json").write_text('{"t": 2}')
    assert run() == [2, 3]


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_an_empty_file_in_the_place_of_one_that_is_gone_lets_the_flow_go_on(spark, flow, feed, tmp_path, kind):
    folder = tmp_path / "orders"
    if kind == "json":
        write_json(folder, '{"t": 1}', '{"t": 1}', '{"t": 1}')
        stream = json_rows(spark, flow, folder)
    else:
        stream = orders(flow, feed("orders", [ROWS, ROWS, ROWS]).stream(spark))
    gone = sorted(folder.iterdir())[1]

    def delete(rows, epoch):
        if epoch == 0:
            gone.unlink()

    stream.foreach_epoch(delete)
    with pytest.raises(pk.SourceError, match=rf"Epoch 1 needs input file {gone}, which is gone"):
        flow.run()
    gone.touch()
    flow.run()


def test_a_folder_that_is_gone_is_named_with_its_source_and_an_empty_one_lets_the_flow_go_on(
    spark, flow, feed, tmp_path
):
    left, right = feed("left", [ROWS]), feed("right", [ROWS])
    streams = [flow.source(rows.stream(spark), time="t", name=rows.folder.name) for rows in (left, right)]
    streams[0].union(streams[1]).foreach_epoch(lambda rows, epoch: None)
    flow.run(end=False)
    right.folder.rename(tmp_path / "elsewhere")
    error = failure_of(flow)
    assert isinstance(error, pk.SourceError)
    assert str(error).startswith(f"Source 'right' reads {right.folder}, which is gone, so epoch 1 could not run. Put ")
    right.folder.mkdir()
    flow.run()


def test_a_spark_that_does_not_answer_hides_no_error(monkeypatch):
    def folders_read(data):
        raise ConnectionRefusedError

    monkeypatch.setattr(failures, "folders_read", folders_read)
    told = failures.in_epoch(ValueError("no route"), 3, [orders(pk.LocalFlow(), ROWS)._node])
    assert str(told) == f"Epoch 3 failed in Spark: ValueError: no route. {AGAIN}"


def test_a_jvm_that_is_gone_is_told_as_that():
    def ask(gateway):
        raise ConnectionRefusedError(111, "Connection refused")

    calls = types.ModuleType("calls")
    exec(compile("def call(ask):\n    ask(None)", "py4j/clientserver.py", "exec"), calls.__dict__)
    with pytest.raises(ConnectionRefusedError) as refused:
        calls.call(ask)
    told = str(failures.in_epoch(refused.value, 3, []))
    assert told.startswith("Epoch 3 failed in Spark: its JVM does not answer. It was killed or crashed; ")
    assert "JVM" not in str(failures.in_epoch(ConnectionRefusedError("by a database"), 3, []))


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSEGV])
def test_a_python_worker_that_is_killed_is_told_as_that(spark, flow, feed, by):
    stream = (
        feed("orders", [ROWS]).stream(spark).withColumn("w", sf.udf(lambda t: os.kill(os.getpid(), by), "int")("t"))
    )
    orders(flow, stream).to_memory()
    assert str(failure_of(flow)).startswith("Epoch 0 failed in Spark: a Python worker was killed or crashed; ")


def test_files_of_committed_epochs_may_go(spark, feed, tmp_path):
    feed = feed("orders", [ROWS])  # the bound is then at 2

    def run():
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="64 MB")
        rows = orders(flow, feed.stream(spark)).to_memory()
        flow.run(end=False)
        return rows

    run()
    (tmp_path / "orders" / "00000.parquet").unlink()
    feed.add(ROWS)
    assert run().table()["t"].to_pylist() == [2]


def test_files_that_spark_itself_deletes_after_their_epoch_are_not_missed(spark, flow, tmp_path):
    folder = tmp_path / "in"
    write_json(folder, *(f'{{"t": {t}}}' for t in range(4)))
    reader = spark.readStream.schema("t BIGINT").option("maxFilesPerTrigger", 1).option("cleanSource", "delete")
    rows = orders(flow, reader.json(str(folder))).to_memory()
    with settings(spark, {"spark.sql.streaming.fileSource.cleaner.numThreads": "0"}):
        flow.run(end=False)
    assert rows.table()["t"].to_pylist() == [0, 1, 2, 3]
    assert len(list(folder.glob("*.json"))) < 4


@pytest.mark.parametrize("asked", ["by the session", "by the source"])
def test_missing_files_are_ignored_where_that_is_asked_for(spark, flow, tmp_path, asked):
    write_json(tmp_path / "in", '{"t": 1}', '{"t": 2}')
    reader = spark.readStream.schema("t BIGINT").option("maxFilesPerTrigger", 1)
    if asked == "by the source":
        reader = reader.option("ignoreMissingFiles", True)
    stream = orders(flow, reader.json(str(tmp_path / "in")))
    stream.foreach_epoch(lambda rows, epoch: (tmp_path / "in" / "1.json").unlink(missing_ok=True))
    wanted = {"spark.sql.files.ignoreMissingFiles": "true"} if asked == "by the session" else {}
    with settings(spark, wanted):
        flow.run()


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
