"""What is looked at before the first epoch: folders, the workers' Python, and what sources promised the last time."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest

import penstock as pk
from penstock.spark.workers import _check_program

pytestmark = pytest.mark.spark

PENSTOCK_WARNS = ("penstock", "WARNING")
ROWS = pa.table({"shop": ["a", "b", "a"], "t": [1, 2, 3]})


@pytest.fixture
def build(spark, feed, tmp_path):
    """Build the same flow again, with another promise or sink."""
    rows = feed("orders", [ROWS])

    def make(progress=None):
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="64 MB")
        return flow, flow.source(rows.stream(spark), time="t", progress=progress or pk.ordered(), name="orders")

    return make


@pytest.fixture
def program(tmp_path):
    """A program that takes itself for a Python."""

    def write(script):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return write


def test_a_worker_python_of_another_version_is_refused_at_the_start(spark, build, program, tmp_path, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", program("echo 3.8"))
    flow, orders = build()
    orders.to_memory()
    with pytest.raises(pk.FlowError) as error:
        flow.run()
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"workers, {tmp_path}/python, is Python 3.8, but the driver's is {version}. " in str(error.value)
    assert "Set PYSPARK_PYTHON to a Python" in str(error.value)
    assert not (tmp_path / "c" / "flow.json").exists()


def test_a_worker_python_without_penstock_is_refused(program):
    fails = program("echo 'Traceback:' >&2; echo \"ModuleNotFoundError: No module named 'penstock'\" >&2; exit 1")
    with pytest.raises(pk.FlowError, match=r"does not import penstock \(ModuleNotFoundError: No module named 'penst"):
        _check_program(fails)


def test_a_worker_python_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(pk.FlowError, match=r"does not run \(.*No such file"):
        _check_program(str(tmp_path / "nowhere"))


def test_a_worker_python_is_asked_once(program, tmp_path):
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    good = program(f"echo asked >> {tmp_path}/log; echo {version}")
    for _ in range(3):
        _check_program(good)
    assert (tmp_path / "log").read_text() == "asked\n"


def test_a_changed_promise_is_logged_with_the_one_before(build, tmp_path, caplog):
    warnings = []
    for progress in (pk.ordered(), pk.bounded_delay(30), pk.bounded_delay(30)):
        flow, orders = build(progress)
        orders.to_memory()
        flow.run(end=False)
        warnings.append([each.message for each in caplog.records if (each.name, each.levelname) == PENSTOCK_WARNS])
        caplog.clear()
    said = (
        f"source 'orders' promises that no row comes more than 30 after a later one; at the last start of checkpoint "
        f"{tmp_path}/c it promised rows in order of time. Its bound goes on from where it was."
    )
    assert warnings == [[], [said], []]


def test_a_writer_partitions_by_columns(spark, build, tmp_path):
    flow, orders = build()
    orders.to_format("csv", path=str(tmp_path / "out"), header=True, partitionBy="shop")
    flow.run()
    assert sorted(path.name for path in (tmp_path / "out").glob("shop=*")) == ["shop=a", "shop=b"]
    rows = spark.read.csv(str(tmp_path / "out"), header=True, inferSchema=True).collect()
    assert sorted((row.shop, row.t) for row in rows) == [("a", 1), ("a", 3), ("b", 2)]


@pytest.mark.parametrize("place", ["c", "c/state", "file://{0}/c/results", "out/../c", "link"])
def test_a_sink_in_the_checkpoint_is_refused_while_the_flow_is_built(build, tmp_path, place):
    (tmp_path / "link").symlink_to(tmp_path / "c")
    _, orders = build()
    folder = place.format(tmp_path) if "{" in place else str(tmp_path / place)
    for add in (orders.to_parquet, orders.late.to_parquet, lambda path: orders.to_format("json", path=path)):
        with pytest.raises(pk.ConfigError) as error:
            add(folder)
        assert str(error.value) == (
            f"The folder {folder!r} of a sink is in checkpoint='{tmp_path}/c'. A flow deletes old files there, so "
            f"nothing else may be in it. Write results beside it, as in 'out/paid'."
        )


def test_a_checkpoint_in_the_folder_of_a_sink_is_refused_while_the_flow_is_built(build, tmp_path):
    _, orders = build()
    orders.to_parquet(f"{tmp_path}/c2")
    with pytest.raises(
        pk.ConfigError, match=r"checkpoint='.*/c' is in the folder '.*' of a sink, .* Put the checkpoint"
    ):
        orders.to_parquet(tmp_path)


def test_a_flow_that_would_read_its_own_results_or_state_is_refused(spark, build, tmp_path):
    flow, orders = build()
    orders.to_parquet(tmp_path / "orders")
    with pytest.raises(
        pk.ConfigError, match=r"Source 'orders' reads '.*/orders', to which parquet .*/orders of the same"
    ):
        flow.run()
    flow = pk.Flow(spark, checkpoint=str(tmp_path), memory="64 MB")
    flow.source(
        spark.readStream.schema("t BIGINT").json(f"{tmp_path}/orders/*/x?"), time="t", name="orders"
    ).to_memory()
    with pytest.raises(pk.ConfigError, match=r"Source 'orders' reads '.*/orders', which is in checkpoint="):
        flow.run()
    assert not (tmp_path / "flow.json").exists()
