"""What is looked at before the first epoch: folders, the workers' Python, and what sources promised the last time."""

from __future__ import annotations

import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.spark.workers import _check_program
from tests.spark.conftest import multiset

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
        f"{tmp_path}/c it promised rows in order of time. Its bound stays where it was."
    )
    assert warnings == [[], [said], []]


class TestAnotherFlow:
    """A flow that is started again on the checkpoint of one that had the same sources and operators."""

    @pytest.fixture
    def start(self, spark, feed, tmp_path):
        """Build a flow of two sources and run what is there: ``start(lambda a, b: …)``."""
        feeds = {
            name: feed(name, [pa.table({"k": [1, 1, 2], "v": [1, 2, 3], "t": [1 + place, 2 + place, 3]})])
            for place, name in enumerate("ab")
        }

        def run(build):
            flow = pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="64 MB")
            build(
                *(
                    flow.source(rows.stream(spark), time="t", progress=pk.ordered(), name=name)
                    for name, rows in feeds.items()
                )
            )
            flow.run(end=False)

        return run

    @pytest.mark.parametrize(
        "build",
        [
            lambda a, b: [join(a, b.where("v > 0"))],
            lambda a, b: [b.select("v", "t"), join(a.where("v > 0"), b)],
            lambda a, b: [join(a, b)],
        ],
        ids=["moved", "added", "dropped"],
    )
    def test_filters_and_sinks_of_a_source_may_change(self, start, build, feed, tmp_path):
        start(lambda a, b: join(a.where("v > 0"), b).to_memory())
        for name in "ab":
            pq.write_table(pa.table({"k": [1], "v": [4], "t": [4]}), tmp_path / name / "more.parquet")
        outlets = []
        start(lambda a, b: outlets.extend(stream.to_memory() for stream in build(a, b)))
        joined = multiset(outlets[-1].table().select(["v", "v_right"]))
        assert joined == {(1, 4): 1, (2, 4): 1, (4, 1): 1, (4, 2): 1, (4, 4): 1}
        assert [outlet.table().column("v").to_pylist() for outlet in outlets[:-1]] in ([], [[4]])

    def test_operators_that_change_places_are_refused(self, start):
        start(lambda a, b: [counted(b, each).to_memory() for each in ("v > 1", "v > 2")] + [a.to_memory()])
        with pytest.raises(pk.CheckpointError, match=r"window0 gets b.where\('v > 2'\), which window1 got at the"):
            start(lambda a, b: [counted(b, each).to_memory() for each in ("v > 2", "v > 1")] + [a.to_memory()])

    def test_operators_with_names_may_be_written_in_any_order(self, start, caplog):
        names = {"v > 1": "some", "v > 2": "few"}
        for order in (["v > 1", "v > 2"], ["v > 2", "v > 1"]):
            start(
                lambda a, b, order=order: [
                    a.to_memory(),
                    *(counted(b, each, name=names[each]).to_memory() for each in order),
                ]
            )
        assert not [each for each in caplog.records if each.levelname == "WARNING" and each.name == "penstock"]

    def test_an_expression_may_change_and_the_log_tells(self, start, caplog, tmp_path):
        for condition in ("v > 1", "v > 2"):
            start(lambda a, b, condition=condition: (a.to_memory(), counted(b, condition).to_memory()))
        warnings = [each.message for each in caplog.records if (each.name, each.levelname) == PENSTOCK_WARNS]
        assert warnings == [
            f"window0 gets b.where('v > 2'); at the last start of checkpoint {tmp_path}/c it got b.where('v > 1'). "
            f"Its state stays as it is."
        ]


def join(left, right):
    return left.join(right, on="k", within=pk.band(before=9, after=9), how="full")


def counted(stream, condition, name=None):
    return stream.where(condition).window(range=10).by("k").agg(n=pk.count(), name=name)


def test_a_writer_partitions_by_columns(spark, build, tmp_path):
    flow, orders = build()
    orders.to_format("csv", path=str(tmp_path / "out"), header=True, partitionBy="shop")
    flow.run()
    assert sorted(path.name for path in (tmp_path / "out").glob("shop=*")) == ["shop=a", "shop=b"]
    rows = spark.read.csv(str(tmp_path / "out"), header=True, inferSchema=True).collect()
    assert sorted((row.shop, row.t) for row in rows) == [("a", 1), ("a", 3), ("b", 2)]


def test_results_of_another_flow_are_neither_replaced_nor_mixed_with_new_ones(spark, build, tmp_path):
    flow, orders = build()
    orders.to_parquet(str(tmp_path / "out"))
    flow.run(end=False)
    flow, orders = build()
    orders.to_parquet(str(tmp_path / "out"))
    flow.run()
    anew = pk.Flow(spark, checkpoint=str(tmp_path / "another"), memory="64 MB")
    anew.source(spark.range(3), time="id").to_parquet(str(tmp_path / "out"))
    with pytest.raises(pk.ConfigError, match=r"the folder already has results of another flow, such as epoch=\d"):
        anew.run()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 3


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


@pytest.mark.parametrize("several", [False, True], ids=["two", "several"])
def test_streams_that_change_places_in_a_join_are_refused(spark, tmp_path, feed, several):
    """Their state would be taken for that of the other, if their columns are alike."""
    feeds = {name: feed(name, [pa.table({"k": [1, 2], "t": [0, 1]})]) for name in ("a", "b", "c")}

    def joined(order: str):
        flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
        told = {"time": "t", "progress": pk.ordered()}
        streams = {name: flow.parquet(each.folder, name=name, **told) for name, each in feeds.items()}
        if several:
            flow.join(**{name: streams[name] for name in order}, on=["a.k = b.k", "b.k = c.k"]).to_memory()
        else:
            first, second, third = (streams[name] for name in order)
            first.join(second, on="k", within=pk.always()).to_memory()
            third.to_memory()
        return flow

    joined("abc").run(end=False)
    told = r"plans\.join0: was a b c, is now b a c" if several else "in another order than at the last start"
    with pytest.raises(pk.CheckpointError, match=told):
        joined("bac").run(end=False)
    joined("abc").run(end=False)
