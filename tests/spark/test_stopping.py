"""`stop()`: the running epoch commits, then the query stops, and a restart goes on behind it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as pk
from penstock.spark import stopping

pytestmark = pytest.mark.spark

EPOCHS = [pa.table({"t": [n]}) for n in range(200)]
"""More than any of these tests reads: an epoch is always waiting."""


class Slow:
    """A sink that takes its time, and then asks Spark for the rows: a cancelled epoch cannot answer."""

    def __init__(self, seconds: float, slow: int = 1) -> None:
        self.begun, self.rows = threading.Event(), {}
        self._seconds, self._slow = seconds, slow

    def __call__(self, rows, epoch):
        if epoch == self._slow:
            self.begun.set()
            time.sleep(self._seconds)
        self.rows[epoch] = sorted(row.t for row in rows.repartition(1).collect())


@pytest.fixture
def started(spark, feed, tmp_path):
    """Start a flow of one row per epoch into a function, without a pause between epochs."""
    rows = feed("rows", EPOCHS)

    def start(function):
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "c"), memory="64 MB")
        source = flow.source(rows.stream(spark), time="t", progress=pk.ordered(), name="rows")
        source.foreach_epoch(function)
        return flow.start(trigger="1 ms")

    return start


def last(folder: Path) -> int:
    return max(int(path.stem) for path in folder.iterdir() if path.stem.isdecimal())


def test_stop_finishes_the_running_epoch_and_a_restart_goes_on_behind_it(started, tmp_path):
    sink = Slow(0.7)
    query = started(sink)
    assert sink.begun.wait(30)
    assert query.stop() is True
    assert not query.streaming_query.isActive
    assert query.await_end() is True
    done = max(sink.rows)
    assert sink.rows[1] == [1]
    assert last(tmp_path / "c" / "ledger") == done == last(tmp_path / "c" / "spark" / "commits")
    again = Slow(0, slow=done + 1)
    query = started(again)
    assert again.begun.wait(30)
    query.stop()
    assert min(again.rows) == done + 1
    assert all(rows == [epoch] for epoch, rows in again.rows.items())


def test_stop_returns_false_after_its_timeout_and_the_query_stops_behind_the_epoch(started):
    sink = Slow(1.0)
    query = started(sink)
    assert sink.begun.wait(30)
    asked = time.monotonic()
    assert query.stop(timeout=0.1) is False
    assert time.monotonic() - asked < 0.8
    assert query.streaming_query.isActive
    assert query.await_end(30) is True
    assert sink.rows == {0: [0], 1: [1]}


def test_what_is_no_time_to_wait_is_refused_and_the_query_goes_on(started):
    query = started(Slow(0))
    for wait in (query.stop, query.await_end):
        for timeout in ("x", float("nan"), -1):
            with pytest.raises(pk.ConfigError, match="Write how many seconds to wait at most"):
                wait(timeout)
    assert query.status.state == "running"
    assert query.await_end(0.1) is False
    assert query.stop(float("inf")) is True


def test_await_end_waits_until_the_epoch_that_a_stop_holds_back_has_left(started, monkeypatch):
    """A program that ends before would leave Spark with half a call, which it prints as a failure of the query."""
    monkeypatch.setattr(stopping, "_POLL", 0.5)
    sink = Slow(0.1)
    query = started(sink)
    assert sink.begun.wait(30)
    assert query.stop(timeout=0) is False
    assert query.await_end() is True
    assert query.stop(timeout=0) is True


def test_an_epoch_may_stop_its_own_query(started):
    said = []

    def stop(rows, epoch):
        said.append((query.stop(), rows.count()))

    query = None
    ready = threading.Event()

    def wait_and_stop(rows, epoch):
        assert ready.wait(30)
        stop(rows, epoch)

    query = started(wait_and_stop)
    ready.set()
    assert query.await_end(30) is True
    assert said == [(False, 1)]


def test_an_epoch_that_spark_cancels_is_no_failure_and_is_repeated(started):
    sink = Slow(0.5)
    query = started(sink)
    assert sink.begun.wait(30)
    query.streaming_query.stop()
    assert query.await_end(30) is True
    assert sink.rows == {0: [0]}
    again = Slow(0)
    query = started(again)
    assert again.begun.wait(30)
    query.stop()
    assert again.rows[1] == [1]
