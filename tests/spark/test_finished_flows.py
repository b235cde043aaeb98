"""What a process keeps of flows that are over: nothing, so that as many as one likes may be run in it."""

from __future__ import annotations

import gc
import logging
import threading
import weakref

import pyarrow as pa
import pytest

import penstock as pk
from penstock.spark.batches import EachBatch
from penstock.spark.stopping import InterruptedEpochError
from penstock.storage import payload

pytestmark = [pytest.mark.spark, pytest.mark.own_place]


def joined(spark, tmp_path, feed, kind: str) -> pk.Flow:
    """A join whose rows leave their payload behind."""
    rows = pa.table({"k": range(20), "t": range(20), "text": ["x" * 200] * 20})
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="16 MB")
    told = {"time": "t", "progress": pk.ordered(), "payload": kind}
    a, b = (flow.parquet(feed(name, [rows]).folder, name=name, **told) for name in "ab")
    flow.join(a=a, b=b, on=["a.k = b.k"], within=pk.band(before=5, after=5)).to_parquet(str(tmp_path / "out"))
    return flow


def known(start: str) -> list[object]:
    """What this process knows of the payload of a start."""
    caches = [payload._NOTED, payload._WANTED, payload._WIDTHS, payload._DECODED._mapped, payload._SEGMENTS._mapped]
    return [key for cache in caches for key in cache if start in key]


@pytest.mark.parametrize("kind", ["source", "segments"])
@pytest.mark.parametrize("how", ["run", "run to the end", "start and stop"])
def test_nothing_is_kept_of_a_flow_that_is_over(spark, tmp_path, feed, how, kind, monkeypatch):
    # Where it logs a failure, such as that by which an epoch is held back, pytest keeps the traceback and its frames.
    monkeypatch.setattr(logging.getLogger("py4j.clientserver"), "disabled", True)
    threads, call = set(), EachBatch.call

    def noted(self, batch, number):
        threads.add(threading.current_thread())
        call(self, batch, number)

    monkeypatch.setattr(EachBatch, "call", noted)
    flow = joined(spark, tmp_path, feed, kind)
    if how == "start and stop":
        query = flow.start(trigger="10 ms")
        while query.status.epoch is None:
            query.await_end(0.05)
        assert known(query._engine.course.sources[0].home.start)
        query.stop()
    else:
        query = flow.run(end=how == "run to the end")
    assert known(query._engine.course.sources[0].home.start) == []
    engine = weakref.ref(query._engine)
    del query, flow
    gc.collect()
    assert engine() is None
    [thread] = threads
    thread.join(10)
    assert not thread.is_alive()


def test_what_spark_calls_forgets_the_flow_and_takes_a_later_call_for_an_interruption():
    class Session:
        pass

    def function(batch, number):
        raise AssertionError

    session, called = Session(), weakref.ref(function)
    batches = EachBatch(session, function)
    given = weakref.ref(session)
    batches.let_go()
    del session, function
    assert (given(), called()) == (None, None)
    with pytest.raises(InterruptedEpochError):
        batches.call(None, 1)
